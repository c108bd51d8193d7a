"""What is true of a run: frozen structs, shared by the backend, the control socket and every view.

Times are Unix seconds (``float``), durations seconds, sizes bytes, shares 0..1 unless a name says percent.
``None`` means *not known*, never zero. Nothing here does I/O.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

import msgspec

Owner = Literal["ours", "adopted", "foreign"]
ServiceKind = Literal["environment", "ray", "replica", "proxy", "trainer", "task"]
ServiceState = Literal[
    "waiting",  # its dependencies are not met yet
    "preparing",  # environment, ports, files
    "starting",  # the process exists, its ready condition does not hold yet
    "ready",
    "degraded",  # alive, but its ready or live probe fails
    "stopping",  # asked to end, or its leader is dead and its tree is being swept
    "stopped",  # ended as asked, or a task that completed with exit code 0
    "failed",  # ended by itself and is not restarted
    "backing_off",  # will be started again after a delay
    "gave_up",  # too many failures in the window
]
RunState = Literal["starting", "running", "stopping", "done", "failed", "stopped", "dead"]
Level = Literal["debug", "info", "warning", "error"]

# The shape of what scripts read: result.json, snapshot.json and `status --json` (tests/data/contract.json has it).
# One more with each change that a script could notice.
SCHEMA = 1

STATE_WORDS: tuple[ServiceState, ...] = (
    "waiting",
    "preparing",
    "starting",
    "ready",
    "degraded",
    "stopping",
    "stopped",
    "failed",
    "backing_off",
    "gave_up",
)


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a run's story. ``seq`` grows by one per event over the whole run, attempts included."""

    seq: int
    at: float
    kind: str
    text: str
    level: Level = "info"
    service: str | None = None
    data: dict[str, Any] = {}


class TreeStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process tree of one service. ``cpu_percent``: 100 = one core, over the last sampling interval."""

    processes: int = 0
    cpu_percent: float | None = None
    rss_bytes: int = 0


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a service's leader ended. ``code`` and ``signal`` are both None when the kernel did not tell."""

    code: int | None = None
    signal: int | None = None
    at: float | None = None

    @property
    def known(self) -> bool:
        return self.code is not None or self.signal is not None

    @property
    def ok(self) -> bool:
        return self.code == 0

    def words(self) -> str:
        """``exit 1``, ``killed by SIGKILL`` or ``unknown exit`` - never an invented 0."""
        if self.code is not None:
            return f"exit {self.code}"
        if self.signal is not None:
            import signal

            try:
                return f"killed by {signal.Signals(self.signal).name}"
            except ValueError:
                return f"killed by signal {self.signal}"
        return "unknown exit"


class ServiceStatus(msgspec.Struct, frozen=True):
    """One supervised service, as it stands now."""

    name: str
    kind: ServiceKind
    owner: Owner
    state: ServiceState
    why: str  # in words: why it is in this state
    since: float  # when it entered this state
    pid: int | None
    generation: int  # counts the starts of this service in the run, from 1; 0 = never started
    restarts: int
    log: str | None  # path of the current generation's log, relative to the run directory
    address: str | None = None  # http://host:port
    ports: dict[str, int] = {}
    gpus: tuple[str, ...] = ()  # NVML UUIDs
    depends_on: tuple[str, ...] = ()
    started_at: float | None = None
    ready_at: float | None = None
    exit: Exit | None = None
    stage: str | None = None  # boot stage in words, where the log has one
    progress: float | None = None  # 0..1
    incoming_pid: int | None = None  # a new generation that is to replace this one (proxy swap)
    retiring_pids: tuple[int, ...] = ()  # replaced generations that still drain
    deadline: float | None = None  # when the current stop stage escalates, or the backoff ends
    members: tuple[int, ...] = ()  # pids of the tree, leader included
    tree: TreeStats = TreeStats()


_MOMENTARY = msgspec.Meta(extra={"momentary": True})  # true only while somebody measures it
_INSIDE = msgspec.Meta(extra={"json": False})  # the backend's own: not in the JSON of a replica
Gauge = Annotated[float | None, _MOMENTARY]
Inside = Annotated[float | None, _INSIDE]
InsideCount = Annotated[int | None, _INSIDE]
InsideGauge = Annotated[float | None, _MOMENTARY, _INSIDE]


class EngineFacts(msgspec.Struct, frozen=True):
    """What an engine's ``/metrics`` says at one scrape. Counters (``*_total``) are the engine's own since its start.

    Several engines behind one server are summed; ``kv_cache_usage`` (0..1) is their mean and ``policy_version`` the
    oldest. ``sleep_state``: ``awake``, ``weights_offloaded``, ``discard_all`` or ``asleep``.

    ``tool_calls_total`` only tells whether any answer held a tool call: streamed answers are counted by piece, and
    an exception of the parser counts as none.
    """

    running: Gauge = None  # requests
    waiting: Gauge = None  # requests
    kv_cache_usage: Gauge = None  # 0..1
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_cache_queries_total: Inside = None
    prefix_cache_hits_total: Inside = None
    request_success_total: float | None = None
    policy_version: int | None = None
    sleep_state: Annotated[str | None, _MOMENTARY, _INSIDE] = None
    preemptions_total: Inside = None
    aborted_total: Inside = None
    errors_total: Inside = None
    admission_rejections_total: Inside = None
    corrupted_requests_total: Inside = None
    tool_calls_total: float | None = None  # turns in which its parser found a tool call
    no_tool_calls_total: Inside = None
    updates_in_flight: InsideGauge = None  # weight updates
    sleeps_in_flight: InsideGauge = None  # falling asleep and waking up
    actor_generate_total: Inside = None  # answers that did not come over HTTP; embedded replicas only
    kv_blocks: InsideCount = None
    kv_block_size: InsideCount = None  # tokens
    kv_tokens: InsideCount = None
    max_concurrency: float | None = None  # requests of the longest kind that the KV cache holds; of the least
    # Rates over the last seconds, of the counters above.
    tokens_per_s: Gauge = None  # generated
    prefix_cache_hit_rate: Gauge = None  # 0..1, cached share of the prompt tokens that were looked up

    def lasting(self) -> EngineFacts:
        """Return the facts that outlast the last scrape: totals, sizes and the policy version."""
        return msgspec.structs.replace(self, **dict.fromkeys(_marked(_MOMENTARY)))


@functools.cache
def _marked(mark: msgspec.Meta) -> tuple[str, ...]:
    fields = msgspec.structs.fields(EngineFacts)
    return tuple(field.name for field in fields if mark in getattr(field.type, "__metadata__", ()))


def published_facts() -> tuple[str, ...]:
    """The facts that stand in the JSON of a replica: all that are not marked as the backend's own."""
    inside = _marked(_INSIDE)
    return tuple(name for name in EngineFacts.__struct_fields__ if name not in inside)


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One inference replica. In JSON the fields of ``engine`` stand beside the others (see ``snapshot_json``)."""

    name: str
    state: ServiceState
    address: str | None
    listed: bool  # the proxy routes new trials to it
    generation: int = 0
    restarts: int = 0
    gpus: tuple[str, ...] = ()
    engine: EngineFacts = EngineFacts()  # nothing is known of it while it does not serve
    since: float | None = None
    stage: str | None = None
    progress: float | None = None
    kind: str = "managed"  # who made it: managed, embedded, hybrid, standalone
    idle_for: float | None = None  # seconds for which it has been loaded but idle while there was work
    leaving: bool = False  # it finishes what it has; it gets no new trials and then ends
    why: str = ""  # in words: why it is in this state
    pid: int | None = None  # of its actor, where it is one
    activity: str | None = (
        None  # asleep, waking, updating, serving, idle: of one that the trainer puts to sleep
    )
    activity_since: float | None = None


class ReplicaSet(msgspec.Struct, frozen=True):
    expected: int = 0
    ready: int = 0
    listed: int = 0
    items: tuple[ReplicaStatus, ...] = ()


class ProxyStatus(msgspec.Struct, frozen=True):
    """The proxy as its clients see it: one address for the whole run, whatever process serves it."""

    address: str | None = None
    backends: tuple[str, ...] = ()  # api bases that the serving generation routes to
    config: str | None = None  # path of the generated LiteLLM config, relative to the run directory
    generation: int = 0
    requests: int | None = None  # records seen
    failures: int | None = None
    unattributed: int = 0  # requests that named no trial
    refused: int = 0  # requests without a valid key
    unknown: int = 0  # requests for models that have no alias here ...
    unknown_models: tuple[str, ...] = ()  # ... and these, as far as the living processes know them
    cooled_down: tuple[str, ...] = ()  # api bases out of rotation after failures


class GpuStatus(msgspec.Struct, frozen=True):
    index: int
    uuid: str
    name: str
    utilization: float | None  # 0..1
    memory_used: int | None
    memory_total: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    owner: str  # service name, "free", "foreign pid 123 (user)", "unknown (pid namespace)"
    pids: tuple[int, ...] = ()


class TrialHead(msgspec.Struct, frozen=True):
    """The head of one trajectory. ``state`` is *running* until its result exists; without one it is *cut_off*
    once the run has ended."""

    name: str
    step: int | None
    task: str
    state: Literal["running", "finished", "cut_off"]
    turns: int  # finished assistant turns
    tool_calls: int
    reward: float | None
    finish_reason: str | None  # of the last turn
    completion_tokens: int
    replica: str | None  # api base or replica name of the last turn
    started_at: float | None
    updated_at: float
    flags: tuple[str, ...] = ()  # zero_tool_calls, moved_replica, failed_turns
    path: str = ""  # relative to the run directory


class StepTrials(msgspec.Struct, frozen=True):
    """Per training step: how its trials went."""

    step: int
    total: int
    finished: int
    zero_tool_calls: int
    mean_reward: float | None
    calling: int | None = None  # trials that have called a tool
    finish_reasons: dict[str, int] = {}  # of the last turns
    cut_off: int = 0  # trials that nobody will finish: the run has ended

    @property
    def judged(self) -> int:
        """Trials that have shown what they do: they have called a tool, or ended without."""
        if self.calling is None:
            return max(self.finished, self.zero_tool_calls)
        return self.zero_tool_calls + self.calling


class TrialsStatus(msgspec.Struct, frozen=True):
    total: int = 0
    running: int = 0
    finished: int = 0
    zero_tool_calls: int = 0
    newest: tuple[TrialHead, ...] = ()  # newest first, capped
    steps: tuple[StepTrials, ...] = ()  # newest first, capped
    cut_off: int = 0


class StepMetrics(msgspec.Struct, frozen=True):
    step: int
    values: dict[str, float]


class Symptom(msgspec.Struct, frozen=True, omit_defaults=True):
    """A diagnosis: what is wrong, by what evidence, why, and what to do."""

    id: str
    severity: Literal["info", "warning", "critical"]
    title: str
    cause: str
    fix: str
    evidence: tuple[str, ...] = ()
    since: float | None = None
    action: str | None = None  # a command that applies the fix


class BackendInfo(msgspec.Struct, frozen=True):
    pid: int
    started_at: float
    host: str
    version: str
    keeper_pid: int | None = None
    rss_bytes: int | None = None


class HostStats(msgspec.Struct, frozen=True):
    cpu_percent: float | None = None  # 0..100 of the whole machine
    cpu_count: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None


class Cause(msgspec.Struct, frozen=True):
    """What ended a run: the first fatal thing. ``offset`` is the byte offset of ``text`` in ``log``."""

    service: str | None
    text: str
    at: float
    log: str | None = None
    offset: int | None = None


class Result(msgspec.Struct, frozen=True):
    """``result.json``: how an attempt ended."""

    state: Literal["done", "failed", "stopped"]
    exit_code: int
    cause: Cause | None
    steps: int
    started_at: float
    ended_at: float
    attempt: int = 1
    summary: str = ""
    schema: int = SCHEMA


class Check(msgspec.Struct, frozen=True):
    """One preflight check: what was looked at, and what was found."""

    name: str
    status: Literal["ok", "warn", "fail"]
    text: str


class Snapshot(msgspec.Struct, frozen=True):
    """Everything a view needs, at one moment. ``seq`` is that of the newest event it includes."""

    seq: int
    at: float
    run: str  # project/name
    run_dir: str
    state: RunState
    phase: str  # in words: what the run is doing
    attempt: int
    topology: str
    backend: BackendInfo
    started_at: float
    services: tuple[ServiceStatus, ...] = ()
    replicas: ReplicaSet = ReplicaSet()
    proxy: ProxyStatus = ProxyStatus()
    step: int | None = None
    total_steps: int | None = None
    step_seconds: float | None = None  # median time of the newest steps, for an estimate of the rest
    metrics: StepMetrics | None = None
    policy_version: int | None = None
    trials: TrialsStatus = TrialsStatus()
    gpus: tuple[GpuStatus, ...] = ()
    gpu_note: str | None = None  # why there are no GPUs to show
    host: HostStats = HostStats()
    symptoms: tuple[Symptom, ...] = ()
    result: Result | None = None
    schema: int = SCHEMA

    def service(self, name: str) -> ServiceStatus | None:
        return next((s for s in self.services if s.name == name), None)


class Inert(msgspec.Struct, frozen=True):
    """A configuration key that nothing consumes in this plan, and why."""

    key: str
    why: str
    value: Any = None
    where: str | None = None  # file:line, --set or env NAME, when the user set it
