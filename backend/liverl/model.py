"""The state of a run as frozen structs, shared by the backend, the control socket and every view.

Times are Unix seconds (``float``), durations are seconds, sizes are bytes, ratios are 0..1 unless a name says percent.
``None`` means *not known*, never zero. Nothing here does I/O.
"""

import functools
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from liverl.model_host import DiskStatus as DiskStatus
from liverl.model_host import GpuStatus as GpuStatus
from liverl.model_host import HostStats as HostStats
from liverl.model_host import NodeStatus as NodeStatus
from liverl.model_sandboxes import Sandbox as Sandbox
from liverl.model_sandboxes import SandboxesEnd as SandboxesEnd
from liverl.model_sandboxes import SandboxesStatus as SandboxesStatus
from liverl.model_sandboxes import SandboxOom as SandboxOom
from liverl.model_sandboxes import SandboxStatus as SandboxStatus
from liverl.model_sandboxes import SandboxTrouble as SandboxTrouble
from liverl.model_trials import StepTrials as StepTrials
from liverl.model_trials import TrialHead as TrialHead
from liverl.model_trials import TrialsStatus as TrialsStatus
from liverl.model_trials import UnixTime as UnixTime

Owner = Literal["ours", "adopted", "foreign"]
ServiceKind = Literal["environment", "ray", "replica", "proxy", "sessions", "trainer", "task"]
ServiceState = Literal[
    "waiting",  # its dependencies are not met yet
    "preparing",  # its environment, ports and files are being prepared
    "starting",  # the process exists; its startup probe has not succeeded yet
    "ready",
    "degraded",  # alive, but its ready or live probe fails
    "stopping",  # being stopped, or its leader has exited and the rest of its tree is being ended
    "stopped",  # stopped on request, a task that completed with exit code 0, or an environment after its run's end
    "failed",  # exited by itself and is not restarted
    "backing_off",  # will be started again after a delay
    "gave_up",  # failed too often within the window; not restarted
]
# unsupervised: the backend has died, services go on; dead: the backend has died, and no service is left
RunState = Literal["starting", "running", "stopping", "done", "failed", "stopped", "unsupervised", "dead"]
Level = Literal["debug", "info", "warning", "error"]
# What carries the trials: a service of this kind and name, which is LiteLLM (``proxy``) or the sessions, or sessions
# inside verl's agent-loop workers, which are no service (topology in_process).
Carrier = Literal["proxy", "sessions", "workers"]

# Version of the JSON that scripts read: result.json, snapshot.json and `status --json` (tests/data/contract.json
# describes it). Increase it by one with each change that a script could notice.
SCHEMA = 13

SLOW_DISK_S = 10.0  # a process that waits for its disk for less is not called slow

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


class CarrierWords(NamedTuple):
    """What carries the trials, in sentences. ``name``: ``the proxy``; ``whose``: ``the proxy's``."""

    name: str
    whose: str
    has: str
    is_: str
    ending: str  # of a verb behind the name
    keeps_list: bool = True  # new trials use the replicas of a list of its own; else verl chooses among all

    def does(self, verb: str) -> str:
        """``the proxy routes``, ``the sessions route``. ``verb``: without an ending."""
        return f"{self.name} {verb}{self.ending}"


CARRIER_WORDS: dict[Carrier, CarrierWords] = {
    "proxy": CarrierWords("the proxy", "the proxy's", "has", "is", "s"),
    "sessions": CarrierWords("the sessions", "the sessions'", "have", "are", ""),
    "workers": CarrierWords(
        "verl's agent-loop workers", "verl's agent-loop workers'", "have", "are", "", keeps_list=False
    ),
}


# Why nothing in front of the replicas can be restarted where verl's workers carry the trials.
IN_WORKERS = "the sessions run inside verl's agent-loop workers; restart the trainer to restart them"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a run: a line of ``events.jsonl``. ``seq`` grows by one per event over all attempts of the run."""

    seq: int
    at: UnixTime
    kind: str
    text: str
    level: Level = "info"
    service: str | None = None
    data: dict[str, Any] = {}


class TreeStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resource use of a service's process tree. ``cpu_percent``: 100 = one core, over the last sampling interval."""

    processes: int = 0
    cpu_percent: float | None = None
    rss_bytes: int = 0


class StalledProcess(msgspec.Struct, frozen=True):
    """A process that does not run. ``state``, as in ``ps``: ``T`` stopped by a signal, ``t`` stopped by a debugger,
    ``D`` in an uninterruptible wait without any progress. ``since``: Unix time at which it was first seen so."""

    pid: int
    state: str
    since: UnixTime

    def explains_waiting(self, now: float) -> bool:
        """Whether others may wait for this process; a short wait for a disk is no fault. ``now``: Unix time."""
        return self.state != "D" or now - self.since >= SLOW_DISK_S


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a service's leader ended. ``code`` and ``signal`` are both None when its exit status is not known."""

    code: int | None = None
    signal: int | None = None
    at: UnixTime | None = None

    @property
    def known(self) -> bool:
        """Whether the exit code or the signal is known."""
        return self.code is not None or self.signal is not None

    @property
    def ok(self) -> bool:
        """Whether the process exited with code 0; False if its exit status is not known."""
        return self.code == 0

    def words(self) -> str:
        """``exit 1``, ``killed by SIGKILL`` or ``unknown exit``. An exit that is not known never reads as 0."""
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
    """One supervised service at the time of the snapshot."""

    name: str
    kind: ServiceKind
    owner: Owner
    state: ServiceState
    why: str  # a sentence for the user: why it is in this state
    since: UnixTime  # when it entered this state
    pid: int | None
    generation: int  # counts the starts of this service in the run, from 1; 0 = never started
    restarts: int
    log: str | None  # path of the current generation's log, relative to the run directory
    address: str | None = None  # http://host:port
    ports: dict[str, int] = {}
    gpus: tuple[str, ...] = ()  # NVML UUIDs
    depends_on: tuple[str, ...] = ()
    started_at: UnixTime | None = None
    ready_at: UnixTime | None = None
    exit: Exit | None = None
    stage: str | None = None  # boot stage for the user, if its log shows one
    progress: float | None = None  # 0..1
    incoming_pid: int | None = None  # a new generation that is to replace this one (proxy swap)
    retiring_pids: tuple[int, ...] = ()  # replaced generations that still drain
    deadline: float | None = None  # when the current stop stage escalates, or the backoff ends
    members: tuple[int, ...] = ()  # pids of the tree, leader included
    tree: TreeStats = TreeStats()
    stalled: tuple[
        StalledProcess, ...
    ] = ()  # those of ``members`` that are stopped, or wait without progress
    # Since when a service that was ready no longer serves although it should; None while it serves or is not wanted.
    down_since: float | None = None
    failed_at: UnixTime | None = None  # when it failed last and was started again by itself, not by a command
    failure: str = ""  # why it went down or failed last; empty unless one of the two times above is set


_MOMENTARY = msgspec.Meta(extra={"momentary": True})  # valid only at the time of the scrape
_INSIDE = msgspec.Meta(extra={"json": False})  # used by the backend only: not in the JSON of a replica
Gauge = Annotated[float | None, _MOMENTARY]
Inside = Annotated[float | None, _INSIDE]
InsideCount = Annotated[int | None, _INSIDE]
InsideGauge = Annotated[float | None, _MOMENTARY, _INSIDE]


class EngineFacts(msgspec.Struct, frozen=True):
    """The values of an engine's ``/metrics`` at one scrape. Counters (``*_total``) count from the engine's start.

    With several engines behind one server, values are sums; ``kv_cache_usage`` (0..1) is the mean, ``policy_version``
    the smallest. ``sleep_state``: ``awake``, ``weights_offloaded``, ``discard_all`` or ``asleep``.

    ``tool_calls_total`` only shows whether any answer contained a tool call: a streamed answer is counted once per
    chunk, and an answer on which the parser raised an exception is not counted.
    """

    running: Gauge = None  # requests
    waiting: Gauge = None  # requests
    kv_cache_usage: Gauge = None  # 0..1
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_cache_queries_total: Inside = None
    prefix_cache_hits_total: Inside = None
    request_success_total: float | None = None
    policy_version: Annotated[int | None, _MOMENTARY] = None  # the trainer changes it
    policy_digest: Annotated[str | None, _INSIDE] = None  # of the weights; engines of ours only
    # Of `vllm serve`: requests that can have changed its weights, by route, and the Unix time of the last one.
    weight_requests: Annotated[str | None, _INSIDE] = None
    weight_request_at: Inside = None
    sleep_state: Annotated[str | None, _MOMENTARY, _INSIDE] = None
    preemptions_total: Inside = None
    aborted_total: Inside = None
    errors_total: Inside = None
    admission_rejections_total: Inside = None
    corrupted_requests_total: Inside = None
    tool_calls_total: float | None = None  # answers in which the engine's parser found a tool call
    no_tool_calls_total: Inside = None
    updates_in_flight: InsideGauge = None  # weight updates
    sleeps_in_flight: InsideGauge = None  # transitions to sleep or back that are in progress
    # Of finished answers: seconds from the request to its last token, how many answers, and their tokens.
    answer_seconds_total: Inside = None
    answers_total: Inside = None
    answer_tokens_total: Inside = None
    actor_generate_total: Inside = None  # answers that did not come over HTTP; embedded replicas only
    kv_blocks: InsideCount = None
    kv_block_size: InsideCount = None  # tokens
    kv_tokens: InsideCount = None
    max_concurrency: float | None = None  # requests of maximum length in the KV cache; the least of engines
    # Rates over the last seconds, computed from the counters above.
    tokens_per_s: Gauge = None  # generated
    prefix_cache_hit_rate: Gauge = None  # 0..1: cached prompt tokens / prompt tokens looked up
    # Of the answers that were finished in the last minute: their number, and mean times from the request to the last
    # token, in seconds. None without such answers.
    answers: Gauge = None
    seconds_per_answer: Gauge = None
    seconds_per_token: Gauge = None

    def lasting(self) -> "EngineFacts":
        """Return these facts without gauges, rates and the policy version. Totals and sizes stay: they remain valid."""
        return msgspec.structs.replace(self, **dict.fromkeys(_marked(_MOMENTARY)))


@functools.cache
def _marked(mark: msgspec.Meta) -> tuple[str, ...]:
    fields = msgspec.structs.fields(EngineFacts)
    return tuple(field.name for field in fields if mark in getattr(field.type, "__metadata__", ()))


def published_facts() -> tuple[str, ...]:
    """The names of the engine facts that appear in the JSON of a replica: all but those that only the backend uses."""
    inside = _marked(_INSIDE)
    return tuple(name for name in EngineFacts.__struct_fields__ if name not in inside)


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One inference replica. In JSON the fields of ``engine`` are on the same level as the others (see
    ``snapshot_json``)."""

    name: str
    state: ServiceState
    address: str | None
    listed: bool  # the proxy routes new trials to it
    generation: int = 0
    restarts: int = 0
    gpus: tuple[str, ...] = ()
    engine: EngineFacts = EngineFacts()  # all None while it does not serve
    since: UnixTime | None = None
    stage: str | None = None
    progress: float | None = None
    kind: str = "managed"  # how it is started: managed, embedded, hybrid or standalone
    idle_for: float | None = None  # seconds for which it has been loaded but idle while there was work
    leaving: bool = False  # it gets no new trials, finishes the present ones and then exits
    why: str = ""  # a sentence for the user: why it is in this state
    pid: int | None = None  # of its Ray actor; None for a replica that is a service
    # asleep, waking, updating, serving or idle; only for a replica that the trainer puts to sleep
    activity: str | None = None
    activity_since: float | None = None
    # Digest of the weights that it reported instead of the trainer's, under the same version; until it is restarted.
    policy_changed: str | None = None
    node: str = ""  # its host, as in ``NodeStatus.name``; "" in a run on one host, or while it is on none


class ReplicaSet(msgspec.Struct, frozen=True):
    """The replicas of a run and how many of them are expected, ready, and listed at the proxy."""

    expected: int = 0
    ready: int = 0
    listed: int = 0
    items: tuple[ReplicaStatus, ...] = ()


class Clients(msgspec.Struct, frozen=True):
    """The connections to a port that agents use, as its process counts them. ``without_key``: those on which no valid
    key was sent; ``peer``: the address with most of these, ``of_peer`` of them; ``dropped``: closed so far, of which
    ``dropped_of_peer`` came from ``dropped_peer`` without a key; ``turned_away``: that found no room;
    ``descriptors``: files and connections that the process has open, of ``descriptor_limit``."""

    connections: int = 0
    without_key: int = 0
    peer: str = ""
    of_peer: int = 0
    dropped: int = 0
    dropped_peer: str = ""
    dropped_of_peer: int = 0
    turned_away: int = 0
    descriptors: int = 0
    descriptor_limit: int = 0


class ProxyStatus(msgspec.Struct, frozen=True):
    """The proxy as its clients see it: one address for the whole run, whichever process serves there."""

    address: str | None = None
    backends: tuple[str, ...] = ()  # API bases to which the serving generation routes
    config: str | None = None  # path of the generated LiteLLM config, relative to the run directory
    generation: int = 0
    requests: int | None = None  # request records read so far
    failures: int | None = None
    unattributed: int = 0  # requests that named no trial
    refused: int = 0  # requests without a valid key
    unknown: int = 0  # requests for models that the proxy does not have
    unknown_models: tuple[str, ...] = ()  # names of those models, as living proxy processes report them
    cooled_down: tuple[str, ...] = ()  # API bases in cooldown after failures
    too_large: int = 0  # requests with more than proxy.max_body_bytes
    unrecorded: int = 0  # requests whose record could not be written to their trial
    turned_away: int = 0  # connections and requests that failed because no descriptor was left for them
    dropped: int = 0  # connections closed because their client sent no request, or did not read its response
    descriptors: int | None = None  # files and connections that the serving process has open ...
    descriptor_limit: int | None = None  # ... and may have open
    record_error: str | None = None  # why the last record could not be written
    clients: Clients | None = None  # of the serving process


class SilentSession(msgspec.Struct, frozen=True):
    """An open session without a request. ``id``: the name of its trial; ``since``: Unix seconds of its last request or
    reply, or of its opening; ``begun``: it has had a reply."""

    id: str
    since: UnixTime
    begun: bool = True


class TokenRoute(msgspec.Struct, frozen=True):
    """Who makes the tokens of the prompts of a model that the sessions carry.

    ``route``: ``checking`` before the first comparison: the replicas make them; ``sessions``; ``replicas``, and
    ``why``. ``differs``: the sessions' tokens were other ones than the replica's: where, and the first such token.
    ``prompts``: made by the sessions and not compared; ``compared``: made by both. Of the turns that were in question
    at a difference ``doubted`` are of trials that went on: they are not trained; ``ended`` of trials that had ended:
    the trainer has their rows."""

    model: str
    route: Literal["checking", "sessions", "replicas"] = "checking"
    why: str = ""
    differs: str = ""
    prompts: int = 0
    compared: int = 0
    doubted: int = 0
    ended: int = 0


class SessionProcessEnd(msgspec.Struct, frozen=True):
    """One of several processes of the sessions has ended by itself, and is started again. ``process``: its number, from
    1, of ``of``; ``how``: a signal's name or an exit code; ``since``: Unix seconds of its end; ``sessions``: open ones
    that it had, as it last said; ``reopened``: that its successor has found in the journals, None until then."""

    process: int
    of: int
    how: str
    since: UnixTime
    sessions: int = 0
    reopened: int | None = None


class SessionsStatus(msgspec.Struct, frozen=True):
    """What records trials as tokens, as its agents see it: a service, or hosts in verl's agent-loop workers.
    ``counters``: sums over all sessions of the run (``liverl.sessions.counters``); one that is missing is 0."""

    address: str | None = None  # of the service, or of the only worker
    workers: tuple[str, ...] = ()  # URLs of the hosts in verl's workers
    generation: int = 0
    open: int = 0  # sessions that have not ended
    finished: int = 0
    waiting: int = 0  # requests whose replies are being sampled
    backends: tuple[str, ...] = ()  # URLs of the replicas that new sessions may use
    counters: dict[str, int | float] = {}
    silent: tuple[SilentSession, ...] = ()  # those that have been without a request for longest, at most 8
    error: str | None = None  # why it keeps an older list of replicas, or which of its processes is down
    clients: Clients | None = None  # of the agents' port; of several workers the one with most without a key
    tokenizers: tuple[TokenRoute, ...] = ()  # of each model; none where the replicas make all tokens
    # Of several processes those that ended by themselves in this generation, the newest last, at most 8
    process_ends: tuple[SessionProcessEnd, ...] = ()

    @property
    def requests(self) -> int:
        """Requests of agents so far: answered, answered together with an equal one, and failed."""
        return self._sum("num_calls", "num_joined", "num_failed")

    @property
    def limited(self) -> int:
        """Requests that were refused because their trial had all its turns, tokens or context: no failure."""
        return self._sum("refused_turns", "refused_no_tool", "context_overflow")

    @property
    def failed(self) -> int:
        """Requests that failed: no replica answered them, or they were refused for another reason than such a limit."""
        return max(0, self._sum("num_failed") - self.limited)

    def _sum(self, *names: str) -> int:
        return sum(int(self.counters.get(name, 0)) for name in names)


class Traffic(msgspec.Struct, frozen=True):
    """What the service that carries the trials says of itself. ``backends``: URLs of the replicas that new trials may
    use; ``requests`` and ``failures``: of agents so far, None if they are not counted."""

    address: str | None
    backends: tuple[str, ...]
    requests: int | None
    failures: int | None


class UnreadableFile(msgspec.Struct, frozen=True):
    """A file that could not or must not be read. ``path``: relative to the run's directory; ``why``: in words."""

    path: str
    why: str


class StepMetrics(msgspec.Struct, frozen=True):
    """The trainer's metrics of one step: name -> value. ``not_finite``: those that are not finite numbers, as ``nan``,
    ``inf`` or ``-inf``; a file that writes ``null`` for all of them gives ``nan``."""

    step: int
    values: dict[str, float]
    not_finite: dict[str, str] = {}


class Validation(msgspec.Struct, frozen=True):
    """The validation score of the steps that have one: the metric of this name, ``key``. ``first``, ``last``: the first
    and the newest, and ``step`` of that; ``best``: the highest, at ``best_step``, the first of several; ``count``: how
    many there are, None in a snapshot of an older version."""

    key: str
    first: float
    last: float
    step: int
    best: float
    best_step: int
    count: int | None = None


class RewardCourse(msgspec.Struct, frozen=True):
    """Whether the mean reward proves that the run learns (``observe.metrics.rewards.course_of``), and from which step
    on that holds; None where the whole run is meant, or nothing is known. ``early``: too few steps to say; ``unclear``:
    enough steps, but noise covers what they do; ``solved``: nothing left to learn from these tasks; ``nearly_solved``:
    little, as a trial fails now and then."""

    verdict: Literal["early", "unclear", "learning", "flat", "falling", "solved", "nearly_solved"]
    since: int | None = None

    @property
    def proved(self) -> bool:
        """Whether the rewards say anything."""
        return self.verdict not in ("early", "unclear")


class Rewards(msgspec.Struct, frozen=True):
    """Mean rewards of the steps that report one. ``first`` and ``last``: means over the first and the last three of
    them, of fewer than six both the mean of all; ``newest``: of at most 24 of them, the oldest first; ``curve``: of all
    of them, in at most 24 parts of the same length, the mean of each; empty in a snapshot of an older version;
    ``validation``: None without one; ``course``: None without a reward, and in a snapshot of an older version."""

    steps: int = 0
    first: float | None = None
    last: float | None = None
    newest: tuple[float, ...] = ()
    curve: tuple[float, ...] = ()
    validation: Validation | None = None
    course: RewardCourse | None = None


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of proof. ``log``: the file that holds it, of a run relative to its directory, as in ``Cause``;
    ``offset``: the byte at which ``text`` begins in it, None if the end of ``log``, or all of it, is meant; ``text``:
    what was seen, empty if that is only ``log``; ``value``: the number that was measured."""

    text: str
    log: str | None = None
    offset: int | None = None
    value: float | None = None

    @property
    def words(self) -> str:
        """One line that says where the proof is and what it is."""
        if self.log is None:
            return self.text
        if self.offset is None:  # what its process did, of which the log need not tell
            return f"{self.text}; log: {self.log}" if self.text else self.log
        at = f"{self.log} at byte {self.offset}"
        return f"{at}: {self.text}" if self.text else at


class Symptom(msgspec.Struct, frozen=True, omit_defaults=True):
    """An alert: what is wrong, the evidence, the cause, and what to do. ``step``: the step that it is about, or from
    which on it holds, None if it is about none; ``since``: when it was raised, which is later than that step; of what
    stands still, and of what was there before the first look, when that began."""

    id: str
    severity: Literal["info", "warning", "critical"]
    title: str
    cause: str
    fix: str
    evidence: tuple[Evidence, ...] = ()
    since: UnixTime | None = None
    action: str | None = None  # a command that applies the fix
    patch: dict[str, str] = {}  # configuration key -> the value that mends it
    guess: bool = False  # a rule of thumb chose values of the patch, the evidence does not name them
    step: int | None = None


class BackendInfo(msgspec.Struct, frozen=True):
    """The process that supervises the run."""

    pid: int
    started_at: UnixTime
    host: str
    version: str
    keeper_pid: int | None = None
    keeper_stalled: StalledProcess | None = None  # the keeper, while it is stopped or waits without progress
    rss_bytes: int | None = None


class Guess(msgspec.Struct, frozen=True):
    """What may have caused a failure. ``check``: a shell command that tells it from the others; ``fix``: what to do if
    it is so."""

    title: str
    check: str
    fix: str = ""


class Cause(msgspec.Struct, frozen=True):
    """Why a service, and with it a run, ended. ``text``: the one sentence that is shown everywhere, behind the name of
    ``service``; ``log`` and ``offset``: where the line that proves it stands, and its byte; ``id``: of the signature
    that explains it, "unknown" if none does, empty if the reason is no log's; ``patch``: configuration key -> the value
    that mends it, and ``guess``: a rule of thumb chose some; ``guesses``: where the cause is unknown, likeliest
    first."""

    service: str | None
    text: str
    at: UnixTime
    log: str | None = None
    offset: int | None = None
    id: str = ""
    why: str = ""
    fix: str = ""
    command: str = ""
    patch: dict[str, str] = {}
    evidence: tuple[Evidence, ...] = ()
    guesses: tuple[Guess, ...] = ()
    guess: bool = False


class SubmittedJob(msgspec.Struct, frozen=True):
    """A job that a launch script has handed to a scheduler, and whose end is not known. ``system``: ray, slurm or
    kubernetes; ``address``: of Ray's job server, empty if the script did not print it."""

    system: str
    id: str
    address: str = ""


class Result(msgspec.Struct, frozen=True):
    """``result.json``: how an attempt ended. ``total_steps``: those that the training owed, None if nobody says;
    ``steps_by``: who says so, and other numbers where they differ; ``made``: steps of this attempt, None if they were
    not counted; ``job``: that its script has submitted; ``sandboxes``: what its trials had in Docker, None if nothing
    was begun there."""

    state: Literal["done", "failed", "stopped"]
    exit_code: int
    cause: Cause | None
    steps: int
    started_at: UnixTime
    ended_at: UnixTime
    attempt: int = 1
    summary: str = ""
    schema: int = SCHEMA
    resume: str | None = None  # the command that goes on with the run; None if it is done
    total_steps: int | None = None
    steps_by: str = ""
    made: int | None = None
    job: SubmittedJob | None = None
    sandboxes: SandboxesEnd | None = None


class Check(msgspec.Struct, frozen=True):
    """The outcome of one preflight check. ``name``: what was looked at; ``text``: what was found there; ``id``: of the
    check in ``liverl.preflight``, the same in each version. ``skipped``: it was not looked at, and ``text`` says why;
    ``ok`` is said only of what was. The other fields are as in ``Symptom``; ``fix`` is empty where ``text`` has it."""

    name: str
    status: Literal["ok", "warn", "fail", "skipped"]
    text: str
    id: str = ""
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    patch: dict[str, str] = {}  # configuration key -> the value that mends it
    guess: bool = False  # a rule of thumb chose values of the patch, the evidence does not name them
    values: dict[str, float] = {}  # numbers that were found; the end of a name is its unit


class ConfigChange(msgspec.Struct, frozen=True):
    """A configuration key with which attempt number ``attempt`` began otherwise than the one before it, or that was
    changed in it at the Unix time ``at``. ``before`` and ``after``: plain values; ``where``: file:line, --set, env NAME
    or who changed it."""

    attempt: int
    key: str
    before: Any
    after: Any
    where: str
    at: UnixTime | None = None

    @property
    def words(self) -> str:
        """``training.total_steps: 20 -> 8``; an absent value is ``null``."""
        texts = ("null" if value is None else str(value) for value in (self.before, self.after))
        return f"{self.key}: {' -> '.join(texts)}"


# What a smoke run (``Snapshot.smoke``) is called wherever its numbers are shown.
SMOKE = "SMOKE: small batches; its reward means nothing"


class Breakpoint(msgspec.Struct, frozen=True):
    """A ``breakpoint()`` that waits for a debugger. ``process``: as Ray names it: ``TaskRunner pid=12``, and ``ip=`` on
    another host; ``address``: where it listens there; ``command``: attaches to it, on that host."""

    process: str
    address: str
    command: str


class BatchEnd(msgspec.Struct, frozen=True):
    """The end of the batch job in which a run lives. ``at``: on the clock of ``Snapshot.at``, None: not known, and
    ``problem`` says why and what to do; ``by``: who says it: SLURM_JOB_END_TIME, squeue or batch.end_time; ``margin``:
    seconds before it in which nothing is begun that has to be done (``batch.margin``); ``unsaved``: why no checkpoint
    is saved before it, "": one is."""

    at: UnixTime | None
    by: str = ""
    problem: str = ""
    margin: float = 0.0
    unsaved: str = ""


class Bottleneck(msgspec.Struct, frozen=True):
    """What most of a step waits for. ``share``: of its time, 0..1; ``what``: tail, waves, tool, sandbox, verifier,
    replica, reward, log_probs, update, weights, checkpoint or validation; ``sentence``: with what to do about it;
    ``key``: of the configuration, that moves it, or for a replica a command; "" if none of this run does."""

    share: float
    what: str
    sentence: str
    key: str


class StepTime(msgspec.Struct, frozen=True):
    """Where the time of a step goes, as the median of the newest ``steps`` steps, in ``seconds`` each. ``shares``: of
    each part, 0..1, the largest first: generate, or model, tool, sandbox, verifier and agent in its place where it is
    known what the trials waited for; reward, log_probs, update, weights, checkpoint, validation, other. ``bottleneck``:
    None if nothing certain can be said; ``slower``: which part takes longer than in the first steps; "" if none does.
    ``queue``: the share of the trials' time, 0..1, before they ran, as fewer run at once than there are; None: not
    known; ``queue_key``: of the configuration, that limits how many run at once; "" if that is not known, or more at
    once cannot help; ``engine``: the share, 0..1, of the trials' wait for the model that the engines themselves took
    for answers of the last minute; None: not known; ``cpus_full``: whether the CPUs of the host were; None: not
    known."""

    steps: int
    seconds: float
    shares: dict[str, float]
    bottleneck: Bottleneck | None = None
    slower: str = ""
    queue: float | None = None
    queue_key: str = ""
    engine: float | None = None
    cpus_full: bool | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The whole state of a run at one moment. ``seq`` is that of the newest event that it includes."""

    seq: int
    at: UnixTime
    run: str  # project/name
    run_dir: str
    state: RunState
    phase: str  # for the user: what the run is doing
    attempt: int
    topology: str
    backend: BackendInfo
    started_at: UnixTime
    services: tuple[ServiceStatus, ...] = ()
    replicas: ReplicaSet = ReplicaSet()
    proxy: ProxyStatus = ProxyStatus()
    # None: the run has none, neither as a service nor in verl's workers
    sessions: SessionsStatus | None = None
    sandboxes: SandboxesStatus | None = None  # None: its trials have begun none in Docker
    carrier: Carrier = "proxy"  # what carries the trials
    step: int | None = None
    total_steps: int | None = None
    trials_per_step: int | None = None  # planned
    step_seconds: float | None = None  # median of the newest steps, to estimate the remaining time
    metrics: StepMetrics | None = None
    rewards: Rewards = Rewards()
    # Where the trainer logs its metrics besides: ``wandb`` -> URL of the run, ``tensorboard`` -> folder.
    trackers: dict[str, str] = {}
    policy_version: int | None = None
    trials: TrialsStatus = TrialsStatus()
    gpus: tuple[GpuStatus, ...] = ()
    gpu_note: str | None = None  # why no GPUs are shown
    host: HostStats = HostStats()
    disk: DiskStatus | None = None  # None: not measured
    symptoms: tuple[Symptom, ...] = ()
    muted: tuple[Symptom, ...] = ()  # alerts that ``diagnosis.mute`` of the configuration names
    unreadable: tuple[UnreadableFile, ...] = ()  # capped
    changes: tuple[ConfigChange, ...] = ()  # of the configuration, in any attempt
    smoke: bool = False  # a run with small batches, whose reward means nothing
    result: Result | None = None
    schema: int = SCHEMA
    nodes: tuple[NodeStatus, ...] = ()  # of a run on several hosts, which join the Ray that it started
    batch_end: BatchEnd | None = None  # None: it lives in no batch job with an end
    breakpoints: tuple[
        Breakpoint, ...
    ] = ()  # that wait for a debugger; the trainer makes no progress until then
    step_time: StepTime | None = None  # None: its metrics do not say how long the parts of a step take

    @property
    def carrier_words(self) -> CarrierWords:
        """What carries the trials, in words."""
        return CARRIER_WORDS[self.carrier]

    @property
    def awaits_closing(self) -> bool:
        """Whether the backend has died, and the trainer has ended without an error after all steps: the training is
        complete, and only a new backend can stop what is left and write the result."""
        trainer = next((s for s in self.services if s.kind == "trainer"), None)
        made = self.total_steps is not None and (self.step or 0) >= self.total_steps > 0
        ended = trainer is not None and not trainer.members and trainer.exit is not None
        clean = ended and trainer is not None and trainer.exit is not None and trainer.exit.code == 0
        return self.state in ("unsupervised", "dead") and self.result is None and made and clean

    @property
    def has_list(self) -> bool:
        """Whether anything is known that keeps a list of replicas for new trials: of a run that somebody else started
        a proxy may not be visible."""
        known = self.carrier != "proxy" or self.proxy.address is not None or self.carrier_service is not None
        return self.carrier_words.keeps_list and known

    def spares(self, service: ServiceStatus) -> bool:
        """Whether the trials do without this service: the one of proxy and sessions that does not carry them, and the
        environment of the proxy."""
        unused = {"proxy", "sessions"} - {self.carrier}
        return service.kind in unused or service.name.removeprefix("env:") in unused

    @property
    def carrier_service(self) -> ServiceStatus | None:
        """The service that carries the trials; None if the run has none."""
        return next((s for s in self.services if s.kind == self.carrier), None)

    @property
    def carrier_down(self) -> ServiceStatus | None:
        """What carries the trials, if it has served, does not serve now, and should; None otherwise."""
        service = self.carrier_service
        return service if service is not None and service.down_since is not None else None

    @property
    def traffic(self) -> Traffic:
        """Address, replicas and requests of what carries the trials."""
        if self.carrier == "proxy":
            proxy = self.proxy
            return Traffic(proxy.address, proxy.backends, proxy.requests, proxy.failures)
        sessions = self.sessions or SessionsStatus()
        return Traffic(sessions.address, sessions.backends, sessions.requests, sessions.failed)

    def service(self, name: str) -> ServiceStatus | None:
        """The service of that name; None if the run has none."""
        return next((s for s in self.services if s.name == name), None)


MIRRORED = "your launch script sets it; the configuration only mirrors it"  # why of an ``Inert``


class Inert(msgspec.Struct, frozen=True):
    """A configuration key that nothing uses in this plan, and why."""

    key: str
    why: str
    value: Any = None
    where: str | None = None  # file:line, --set or env NAME; None if the user did not set it
