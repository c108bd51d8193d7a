"""The rules for a run in progress, applied to what files say of it: one judge for logs, metrics and living runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from liverl.causes.finding import Explanation
from liverl.control.messages import BackendOfOther, BackendSilent, ControlError
from liverl.diagnose import failures
from liverl.diagnose.training import judge_course
from liverl.model import Evidence, Snapshot, Symptom, TrialsStatus, UnreadableFile
from liverl.observe.metrics.event_files import event_files, is_event_file, read_event_steps
from liverl.observe.metrics.recent import RecentSteps, StepCollector, of_steps
from liverl.observe.metrics.steps import MetricsReader
from liverl.offline.doctor.trials import TrialsRead, of_run
from liverl.offline.left import Left, standing
from liverl.offline.recorded import recorded
from liverl.offline.state import snapshot
from liverl.rundir.layout import RunDir
from liverl.util.ages import ago
from liverl.util.plural import quantity

FEW_STEPS = 10  # a run of fewer steps may only try whether all parts work together,
_OF_SHORT_RUNS = frozenset(("reward_flat",))  # with a model that solves nothing
_POLLS = 4096  # reads of a metrics file at most; one takes 4 MiB


class Judged(msgspec.Struct, frozen=True):
    """What rules say. ``alerts``: warnings and worse; ``notes``: what is worth to know and no fault; ``problem``: why
    they could not be asked, empty if they were; ``missed``: what was not looked at, in words; ``run``: the state of the
    run of this program that they are about, None without one."""

    alerts: tuple[Explanation, ...] = ()
    notes: tuple[Explanation, ...] = ()
    problem: str = ""
    missed: tuple[str, ...] = ()
    run: Snapshot | None = None


class Steps(msgspec.Struct, frozen=True):
    """The steps of a file, and what of it was not looked at, in words; empty if all was."""

    recent: RecentSteps
    missed: str = ""


def steps_of(metrics: Path) -> Steps:
    """The steps of a file with a record per step, of an event file of tensorboard, or of a folder of those."""
    if is_events(metrics):
        return _of_events(metrics)
    reader, collector = MetricsReader(metrics), StepCollector()
    missed = f"what follows the first {_POLLS * 4 >> 10} GiB of {metrics}"
    for _ in range(_POLLS):
        try:
            news = reader.poll()
        except OSError as error:
            missed = f"{metrics} ({error.strerror or error})"
            break
        if not news:
            missed = ""
            break
        collector.add(news)
    left = next((f"{path} ({why})" for path, why in reader.unreadable.items()), "")
    bad = f"{quantity(reader.bad_lines, 'line')} of {metrics}, damaged" if reader.bad_lines else ""
    return Steps(collector.recent(), missed or left or bad)


def is_events(metrics: Path) -> bool:
    """Whether steps stand in event files of tensorboard."""
    return metrics.is_dir() or is_event_file(metrics.name)


def _of_events(metrics: Path) -> Steps:
    try:
        files = event_files(metrics) if metrics.is_dir() else [metrics]
    except OSError as error:
        return Steps(RecentSteps(), f"{metrics} ({error.strerror or error})")
    found = read_event_steps(files)
    return Steps(of_steps(found.steps), "; ".join(found.missed))


def judged_files(
    recent: RecentSteps,
    source: str,
    trials: TrialsStatus,
    unreadable: tuple[UnreadableFile, ...],
    total: int | None,
    at: float,
) -> Judged:
    """What the rules say of files of any run. ``source``: the file that has the steps; ``total``:
    steps owed; ``at``: Unix time of the newest step."""
    symptoms = judge_course(recent, trials=trials, unreadable=unreadable, total_steps=total, at=at)
    return _judged(symptoms, source, "", len(recent.steps))


def judged_run(run: RunDir) -> tuple[Judged, list[TrialsRead]]:
    """What a run of this program says of itself: the alerts that its backend raised, or those that its files show; and
    its trials."""
    unasked: Explanation | None = None
    try:
        try:
            now = snapshot(run.path)
        except (BackendSilent, BackendOfOther) as error:
            last = recorded(run)
            if last is None:
                raise
            now, unasked = last, _not_answered(run, last, str(error))
    except ControlError as error:
        return Judged(problem=f"its backend did not report its state: {error}"), []
    except OSError as error:
        return Judged(problem=f"its state could not be read: {error.strerror or error}"), []
    alerts = (
        s for s in now.symptoms if not failures.is_failure(s.id)
    )  # that is the cause, which the result has
    judged = _judged(alerts, str(run.path), str(run.path))
    left = _left_behind(now)
    judged = msgspec.structs.replace(judged, run=now)
    if unasked is not None:
        judged = msgspec.structs.replace(judged, alerts=(*judged.alerts, unasked))
    if left is not None:
        judged = msgspec.structs.replace(judged, alerts=(left, *judged.alerts))
    return judged, [of_run(now.trials, run.path)]


def _not_answered(run: RunDir, last: Snapshot, why: str) -> Explanation:
    """``why``: in words, with what to do. ``last``: what its files record."""
    age = ago(time.time() - last.at)
    return Explanation(
        "run-not-asked",
        "warning",
        "The alerts of the run are not of now: its backend does not answer",
        f"{why[:1].upper()}{why[1:]}. The alerts here are those that it wrote last, {age} ago.",
        "Once it answers, run this again.",
        evidence=(Evidence("", str(run.path)),),
    )


_TITLES: dict[Left, str] = {
    "services": "The backend of the run died; services of it still run",
    "complete": "The backend of the run died; its training is complete",
    "nothing": "The backend of the run died; none of its services run",
    "never": "The run was never started",
    "elsewhere": "The backend of the run died on another host",
    "held": "A backend of the run is starting or ending",
}
_THEN: dict[Left, str] = {
    "services": "another backend takes over the services that still run",
    "complete": "another backend stops what is left, and writes the result",
    "nothing": "the next attempt goes on from the newest checkpoint",
    "never": "it starts the run",
    "elsewhere": "it ends the services that may still be running there",
    "held": "it says how the run goes once that backend answers, or has ended",
}


def _left_behind(now: Snapshot) -> Explanation | None:
    """A run whose backend died before it could say how the run ended; None for any other."""
    if now.state not in ("dead", "unsupervised") or now.result is not None:
        return None
    found = standing(Path(now.run_dir), now)
    return Explanation(
        f"run-{now.state}",
        "critical",
        _TITLES[found.left],
        f"{now.phase[:1].upper()}{now.phase[1:]}. The run has no result."
        if now.phase
        else "The run has no result.",
        f"Run {found.command}: {_THEN[found.left] if found.goal != 'write its result' else 'it writes the result'}.",
        evidence=(Evidence("", now.run_dir),),
    )


def _judged(symptoms: Iterable[Symptom], source: str, root: str, steps: int = FEW_STEPS) -> Judged:
    def severity(symptom: Symptom) -> str:
        return "info" if steps < FEW_STEPS and symptom.id in _OF_SHORT_RUNS else symptom.severity

    found = [(severity(s), _explained(s, source, root)) for s in symptoms]
    order = {"critical": 0, "warning": 1}
    alerts = sorted((one for one in found if one[0] in order), key=lambda one: order[one[0]])
    return Judged(
        tuple(one for _, one in alerts), tuple(one for severity, one in found if severity not in order)
    )


def _explained(symptom: Symptom, source: str, root: str) -> Explanation:
    return Explanation(
        symptom.id,
        symptom.severity,
        symptom.title,
        symptom.cause,
        symptom.fix,
        patch=symptom.patch,
        evidence=tuple(_placed(symptom.evidence, source, root)) or (Evidence(symptom.cause, source),),
        guess=symptom.guess,
    )


def _placed(evidence: Iterable[Evidence], source: str, root: str) -> Iterator[Evidence]:
    """Evidence with paths that can be opened: those of a run are relative to it."""
    for one in evidence:
        if one.log is not None:
            yield msgspec.structs.replace(one, log=str(Path(root, one.log)))
        else:
            yield msgspec.structs.replace(one, log=source)
