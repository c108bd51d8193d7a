"""Symptoms over time: which are new, which persist, which have cleared. A condition that disappears for less than its
rule's ``linger`` is still the same symptom; one that lasts less than ``hold`` is not reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.diagnose.advice import Means, fitted
from liverl.diagnose.levels import LEVELS
from liverl.diagnose.muting import mutes
from liverl.diagnose.titles import point, sentences
from liverl.model import Cause, Level, ProxyStatus, ReplicaStatus, ServiceStatus, Snapshot, Symptom
from liverl.observe.hung_stacks import HungStacks
from liverl.observe.live_logs.facts import LiveLog
from liverl.observe.memory import Growth
from liverl.observe.metrics.recent import RecentSteps
from liverl.observe.silence import Silence
from liverl.observe.trials.engine_parser import EngineParser
from liverl.observe.trials.script_sampling import ScriptSampling
from liverl.observe.volumes import Volume

GOING = ("starting", "running")  # states of a run in which its services should be up
DOWN = ("failed", "gave_up")  # states of a service that is not started again
FEWEST = 4  # fewer trials are too few to judge a share of them
SHOWN = 8  # pieces of evidence at most
_FIRST_LOOKS = 60.0  # seconds until all that was there before the first look has been read
_RANK = {"info": 0, "warning": 1, "critical": 2}


class Resolved(NamedTuple):
    """A rule's report that the symptom with this id has ended, so that it clears without waiting for ``linger``."""

    id: str


class Unreached(NamedTuple):
    """A target of ``notify`` that the last try did not reach. ``id``: from the journal; ``number``: its place in the
    configuration, from 1; ``waiting``: messages that it has yet to get; ``since``: Unix time of the first such try."""

    id: str
    number: int
    words: str
    why: str
    waiting: int
    since: float


class RunContext(msgspec.Struct, frozen=True):
    """Facts for rules that are not in a snapshot.

    ``volumes``: the file systems of the run; ``step_bytes``: what the trials of the newest finished step take, None:
    not known; ``largest``: what takes most space in the run directory, with bytes, while its disk is low; ``causes``:
    for each failed service, the log line that says why; ``aliases``: the model names that
    agents may request; ``unwanted``: services that a user stopped; ``tool_parser``: the engine's, None if it is
    unknown; ``oom``: what shows that the OOM killer ended a process lately, empty if nothing does; ``silence``: since
    when nothing shows that the trainer makes progress; ``suspects``: pid and title of processes that may hang;
    ``stacks``: of these and others, as they were saved; ``recent``: the newest steps; ``live_logs``: what the logs of
    services that run said lately; ``ray_load``: of the
    Ray cluster, while a replica of verl's has no process yet; ``failure``: why the run fails, once it does;
    ``sampling``: what the trials of a launch script are to be sampled with; ``parser_set``: where the parser is set;
    ``unreached``: targets of ``notify``; ``memory``: how memory fills up, None: it does not; ``engine_versions``: of
    the replicas' engines, as far as their logs say; ``mute``: ids of alerts that are not to be raised
    (``diagnose.muting``); ``means``: what an advice may name; ``foreign``: somebody else started the run, so that
    no configuration key of ours sets anything of it; ``earlier``: by id, the alerts that an earlier backend of the
    attempt has raised."""

    volumes: tuple[Volume, ...] = ()
    largest: tuple[tuple[str, int], ...] = ()
    step_bytes: int | None = None
    causes: Mapping[str, Cause] = {}
    aliases: tuple[str, ...] = ()
    unwanted: frozenset[str] = frozenset()
    tool_parser: str | None = None
    parser_set: EngineParser = EngineParser()
    oom: str = ""
    silence: Silence | None = None
    suspects: tuple[tuple[int, str], ...] = ()
    stacks: HungStacks = HungStacks()
    recent: RecentSteps = RecentSteps()
    live_logs: tuple[LiveLog, ...] = ()
    ray_load: RayLoad | None = None
    failure: Cause | None = None
    sampling: ScriptSampling | None = None
    unreached: tuple[Unreached, ...] = ()
    memory: Growth | None = None
    engine_versions: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    earlier: Mapping[str, Symptom] = {}
    foreign: bool = False
    means: Means = Means()


@dataclass(frozen=True)
class Window:
    """The input of a rule. ``before``: the snapshot of the previous update; None at the first."""

    now: Snapshot
    before: Snapshot | None
    beside: RunContext

    def removed(self, members: Callable[[Snapshot], Iterable[ServiceStatus | ReplicaStatus]]) -> set[str]:
        """The names in the previous snapshot that are no longer in this one."""
        if self.before is None:
            return set()
        return {one.name for one in members(self.before)} - {one.name for one in members(self.now)}

    def proxy_counted(self, counter: Callable[[ProxyStatus], int]) -> bool:
        """Whether a counter of the proxy has grown since the previous snapshot."""
        return self.before is not None and counter(self.now.proxy) > counter(self.before.proxy)


Evaluate = Callable[[Window], Iterator[Symptom | Resolved]]


@dataclass(frozen=True)
class Rule:
    """A function that yields symptoms. ``hold``: seconds for which a symptom must persist before it is reported;
    ``linger``: seconds without it before it counts as cleared. ``stands``: its symptoms say themselves since when
    something stands still, which counts in place of the time of the raise. ``alerts``: the ids of its symptoms without
    what follows the first colon, each with what it means beside what the function's docstring says of all of them;
    None: the one that is called like the function. The reference shows both. ``gap``: seconds
    that it may be absent within its ``hold``, for conditions on what comes in bursts; ``Resolved`` begins that anew.
    """

    look: Evaluate
    hold: float = 0.0
    linger: float = 30.0
    alerts: Mapping[str, str] | None = field(default=None, hash=False)
    stands: bool = False
    gap: float = 0.0

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its symptoms, without what follows the first colon."""
        return (self.look.__name__,) if self.alerts is None else tuple(self.alerts)


class SymptomChange(NamedTuple):
    """One thing to report. ``worse``: was reported before, and is more severe now; ``muted``: would be new, but the
    user has muted it (``diagnosis.mute``). A symptom that is ``cleared`` is given as it was reported last; ``step``:
    the last step that it was seen in."""

    what: Literal["new", "worse", "cleared", "muted"]
    symptom: Symptom
    step: int | None = None

    @property
    def last_step(self) -> str:
        """In words the last step that it was seen in, if it was reported for another one."""
        return f", last seen in step {self.step}" if self.step not in (None, self.symptom.step) else ""


@dataclass
class _Case:
    symptom: Symptom
    rule: Rule
    first: float  # Unix time at which it was raised; until then that of its first detection
    last: float | None  # Unix time of its last detection; None: detected by an earlier backend
    told: Symptom | None = None  # as it was reported last; ``symptom`` may speak of a later step
    reported: int = -1  # rank of the severity that was reported; -1: none was
    held: bool = False  # it has persisted for as long as its rule asks
    muted: bool = False
    # Its time is known and before its raise: it stands, or was there before the first look.
    early: bool = False
    # Unix time since when each rule has detected it: several may speak of one symptom.
    since: dict[Rule, float] = field(default_factory=dict)

    @property
    def shown(self) -> bool:
        """Whether it is in one of the lists."""
        return self.reported >= 0 or self.held


_TAKEN_OVER = Rule(lambda _: iter(()), linger=_FIRST_LOOKS)  # until its own rule detects it again


class Diagnosis:
    """The symptoms of a run over its updates. Each has the time at which it was raised, which its events have, too:
    from there its age counts, and what its end says. One that is raised anew begins anew. What was there before the
    first look keeps the time that its rule knows. ``earlier``: symptoms that an earlier backend has reported already;
    ``told``: ids of muted ones that it has named."""

    def __init__(
        self, rules: Sequence[Rule], earlier: Iterable[Symptom] = (), told: Iterable[str] = ()
    ) -> None:
        self.symptoms: tuple[Symptom, ...] = ()  # the most severe first, then the oldest
        self.muted: tuple[Symptom, ...] = ()  # in the same order
        self._told = set(told)
        self._rules = rules
        self._cases: dict[str, _Case] = {
            s.id: _Case(s, _TAKEN_OVER, s.since or 0.0, None, s, _RANK[s.severity]) for s in earlier
        }
        self._before: Snapshot | None = None
        self._began: float | None = None  # Unix time of the first look
        self._cleared: dict[str, float] = {}  # id -> Unix time at which it was told as over last

    @property
    def holding(self) -> bool:
        """Whether a symptom was detected that its rule does not report yet."""
        return any(not case.shown for case in self._cases.values())

    def update(self, now: Snapshot, beside: RunContext) -> list[SymptomChange]:
        """Apply all rules to a new snapshot; returns what is to be reported. Snapshots must come in order of time."""
        window, at = Window(now, self._before, beside), now.at
        taken_over = {name for name, case in self._cases.items() if case.rule is _TAKEN_OVER}
        self._before = now
        self._began = self._began or at
        resolved: set[str] = set()
        for rule in self._rules:
            for result in rule.look(window):
                if isinstance(result, Resolved):
                    resolved.add(result.id)
                else:
                    self._detect(fitted(result, beside.means), rule, now)
        # A rule that has not read all yet sees nothing: that ends no alert of the backend before this one.
        resolved -= taken_over
        news: list[SymptomChange] = []
        for name, case in list(self._cases.items()):
            case.last = at if case.last is None else case.last
            absent = at - case.last  # seconds
            case.muted = mutes(beside.mute, name)
            if name in resolved or absent > (case.rule.linger if case.shown else case.rule.gap):
                del self._cases[name]
                if case.reported >= 0:
                    self._cleared[name] = at
                    # A rule may end it because another alert says more: then it was not seen last in that step.
                    last = None if name in resolved else case.symptom.step
                    news.append(SymptomChange("cleared", case.told or case.symptom, last))
            elif absent == 0.0 and at - case.since.get(case.rule, at) >= case.rule.hold:
                rank = _RANK[case.symptom.severity]
                if not case.early and (not case.shown or (case.reported < 0 and not case.muted)):
                    case.first = at  # it is raised now
                    case.symptom = msgspec.structs.replace(case.symptom, since=at)
                case.held = True
                if case.muted:
                    case.reported = -1  # it is new again if it is no longer muted
                    if name not in self._told:  # once, however often it comes and goes
                        self._told.add(name)
                        news.append(SymptomChange("muted", case.symptom))
                elif rank > case.reported:
                    news.append(SymptomChange("new" if case.reported < 0 else "worse", case.symptom))
                    case.reported, case.told = rank, case.symptom
        self.symptoms = self._listed(muted=False)
        self.muted = self._listed(muted=True)
        return news

    def began(self, name: str) -> float | None:
        """Unix time at which the condition of a symptom was there first, as far as that is known; None: it is over."""
        case = self._cases.get(name)
        return None if case is None else min((case.first, *case.since.values()))

    def _listed(self, *, muted: bool) -> tuple[Symptom, ...]:
        shown = (case.symptom for case in self._cases.values() if case.shown and case.muted == muted)
        return tuple(sorted(shown, key=lambda s: (-_RANK[s.severity], s.since or 0.0, s.id)))

    def _detect(self, symptom: Symptom, rule: Rule, now: Snapshot) -> None:
        case, at = self._cases.get(symptom.id), now.at
        # The stamp of a file or of a log is of another clock than ours: of another host, or set since.
        first = at if symptom.since is None else min(max(symptom.since, now.started_at), at)
        if case is None:
            began = self._began or at
            early = first < began and at - began <= _FIRST_LOOKS and symptom.id not in self._cleared
            if rule.stands and symptom.since is not None:
                first, early = max(first, self._cleared.get(symptom.id, first)), True
            case = self._cases[symptom.id] = _Case(symptom, rule, first if early else at, at, early=early)
        case.rule = rule
        case.since.setdefault(rule, first)
        case.symptom = msgspec.structs.replace(symptom, since=case.first)
        case.last = at


def words(news: SymptomChange, now: float, *, with_run: bool = False) -> tuple[str, Level]:
    """One line for the run's events, and its level. ``now``: Unix seconds; ``with_run``: the run ends, so that what is
    no longer seen was not resolved: nothing is left to watch."""
    symptom = news.symptom
    if news.what == "muted":
        return f"muted by diagnosis.mute: {symptom.id}: {point(symptom.title)}", "info"
    if news.what == "cleared":
        minutes, seconds = divmod(max(0, int(now - (symptom.since or now))), 60)
        if with_run:
            return f'ended with the run after {minutes}m{seconds:02}s: "{point(symptom.title)}"', "info"
        end = "over" if symptom.severity == "info" else "resolved"  # of what is no fault nothing was resolved
        return f'{end} after {minutes}m{seconds:02}s: "{point(symptom.title)}"{news.last_step}', "info"
    return sentences(symptom.title, symptom.cause), LEVELS[symptom.severity]
