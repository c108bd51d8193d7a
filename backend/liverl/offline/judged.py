"""The symptoms of a run without a backend, by the rules for runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from liverl.diagnose.advice import Means, fitted
from liverl.diagnose.catalogue.metrics import reward_flat
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Cause, Snapshot, Symptom
from liverl.observe.metrics.recent import RecentSteps
from liverl.observe.trials.engine_parser import EngineParser
from liverl.observe.trials.script_sampling import ScriptSampling
from liverl.offline.recorded import LAST_LOOK

_RANKS = {"critical": 0, "warning": 1, "info": 2}


def judged_anew_of(
    snapshot: Snapshot, before: tuple[Symptom, ...], recent: RecentSteps, known: Means
) -> tuple[Symptom, ...]:
    """The symptoms of an ended run: those that it had last, ``before``; what they say of the rewards as this version
    says it."""
    last = Window(snapshot, None, RunContext(recent=recent))
    anew = next((s for s in reward_flat(last) if isinstance(s, Symptom)), None)
    judged = (_judged_anew(s, anew and fitted(anew, known)) for s in before)
    return tuple(msgspec.structs.replace(s, action=None) for s in judged)


def judged_by_files(
    snapshot: Snapshot,
    before: tuple[Symptom, ...],
    causes: Mapping[str, Cause],
    parser: EngineParser,
    sampling: ScriptSampling | None,
    recent: RecentSteps,
    known: Means,
) -> tuple[Symptom, ...]:
    """The symptoms by the rules that need files only, and of the others what the backend saw last, ``before``.
    ``causes``: of each failed service, why it ended."""
    window = Window(
        snapshot,
        None,
        RunContext(
            causes=causes, tool_parser=parser.name, parser_set=parser, recent=recent, sampling=sampling
        ),
    )
    since = {symptom.id: symptom.since for symptom in before}
    found = (s for rule in FILE_RULES for s in rule.look(window) if isinstance(s, Symptom))
    symptoms = [fitted(s, known) for s in found]
    by_files = {name for rule in FILE_RULES for name in rule.ids}
    symptoms += [
        msgspec.structs.replace(s, cause=f"{s.cause} ({LAST_LOOK})")
        for s in before
        if s.id.partition(":")[0] not in by_files
    ]
    symptoms.sort(key=lambda s: _RANKS[s.severity])
    return tuple(
        msgspec.structs.replace(s, since=s.since or since.get(s.id) or snapshot.at, action=None)
        for s in symptoms
    )


def _judged_anew(symptom: Symptom, anew: Symptom | None) -> Symptom:
    """What the last backend has said of the rewards, as this version says it in all other places; when a step of which
    it has not spoken ended, nobody knows."""
    if anew is None or symptom.id != anew.id or symptom.title == anew.title:
        return symptom
    return msgspec.structs.replace(anew, since=symptom.since if symptom.step == anew.step else None)
