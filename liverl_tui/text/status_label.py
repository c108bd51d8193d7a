"""The status of a service, a replica or a GPU as a glyph and a few words. Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from liverl.model import EngineFacts, GpuStatus, ReplicaStatus, ServiceState, ServiceStatus, Snapshot
from liverl_tui.text.words import GLYPH, STYLE, duration, percent, short_name, state_word

BUSY = 0.05  # a GPU with at least this utilization (0..1) counts as busy
SPINNING = 0.9  # a GPU with at least this utilization is suspected to spin, if its power is below ...
LITTLE_POWER = 0.3  # ... this share of its limit: a kernel that spins or waits draws little power
SERVING = ("ready", "degraded")
RESTING = ("asleep", "waking", "updating")  # activities of a replica that verl manages


class SnapshotIndex:
    """A snapshot with its services and replicas by name. Build it once per snapshot, not once per row."""

    __slots__ = ("carrier_down", "lists", "nodes", "replicas", "services", "snapshot", "trains")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.services = {service.name: service for service in snapshot.services}
        self.replicas = {replica.name: replica for replica in snapshot.replicas.items}
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.carrier_down = snapshot.carrier_down
        self.lists = False  # whether what carries the trials serves, which should list every ready replica
        self.trains = False  # whether there is a trainer whose weights a replica needs before it is listed
        if snapshot.state in ("starting", "running"):
            for service in snapshot.services:
                self.lists |= service.kind == snapshot.carrier and service.state in SERVING
                ours = service.owner != "foreign"  # of a stranger's, no version is known
                self.trains |= (
                    ours
                    and service.kind == "trainer"
                    and service.state
                    in (
                        *SERVING,
                        "starting",
                        "stopping",
                    )
                )


class StatusLabel(NamedTuple):
    """A status as it is shown; ``style`` is the name of a palette style."""

    glyph: str
    words: str
    style: str
    problem: bool = False  # whether it needs attention
    short: str = ""  # shorter words for a narrow column; empty: there are none
    kind: str = ""  # the words without numbers, to count equal labels; empty: the words have no numbers

    @property
    def text(self) -> str:
        """Glyph and words: ``▲ not listed in the proxy``."""
        return f"{self.glyph} {self.words}"

    def within(self, width: int) -> str:
        """``text``, or its short form where ``text`` is wider than ``width`` characters."""
        return self.text if len(self.text) <= width or not self.short else f"{self.glyph} {self.short}"


def standing(service: ServiceStatus | None, now: float) -> StatusLabel | None:
    """Of a service that should work and of which a process is stopped by a signal or debugger: that, and for how long;
    its state is that of its last probe. ``now``: Unix seconds."""
    if service is None or service.state not in (*SERVING, "starting"):
        return None
    stopped = [process for process in service.stalled if process.state in ("T", "t")]
    if not stopped:
        return None
    since = duration(now - min(process.since for process in stopped))
    by = "in a debugger" if all(process.state == "t" for process in stopped) else "stopped by a signal"
    if service.pid not in (None, *(process.pid for process in stopped)):
        by = f"a process is {by}"
    return StatusLabel("▲", f"{by} {since}", "warn", True, f"stopped {since}", by)


def ready_now(snapshot_index: SnapshotIndex, now: float) -> int:
    """How many replicas are ready, without those of which a process is stopped. ``now``: Unix seconds."""
    replicas, services = snapshot_index.snapshot.replicas, snapshot_index.services
    return replicas.ready - sum(
        one.state in SERVING and standing(services.get(one.name), now) is not None for one in replicas.items
    )


def engine_now(replica: ReplicaStatus, service: ServiceStatus | None, now: float) -> EngineFacts:
    """What the engine of a replica says of now: of a process that is stopped nothing of a moment before, but the
    version of its weights. ``service``: of the same name; ``now``: Unix seconds."""
    if standing(service, now) is None:
        return replica.engine
    return replace(replica.engine.lasting(), policy_version=replica.engine.policy_version)


def of_service(service: ServiceStatus, now: float) -> StatusLabel:
    """A service's state, with its stage and for how long, or the time until its next state. ``now``: Unix seconds."""
    if (stands := standing(service, now)) is not None:
        return stands
    if service.kind == "task" and service.state == "stopped" and service.exit is not None and service.exit.ok:
        return StatusLabel("✔", "done", "ok")
    if service.kind == "task" and service.state == "ready":  # a task is ready as soon as its process runs
        ran = duration(now - service.since)
        return StatusLabel(
            "◐", f"{service.stage or 'running'} {ran}", "info", short=f"running {ran}", kind="running"
        )
    if service.state == "ready" and service.incoming_pid is not None:
        return StatusLabel("●", "ready, being replaced", "ok", short="replacing")
    if service.state == "ready" and service.retiring_pids:
        count = len(service.retiring_pids)
        what = "process" if count == 1 else "processes"
        return StatusLabel("●", f"ready, {count} {what} draining", "ok", short=f"{count} draining")
    return _state_label(service.state, service.stage, service.progress, service.since, service.deadline, now)


def of_workers(snapshot: Snapshot) -> StatusLabel:
    """The state of the sessions in verl's agent-loop workers, by their trainer and what they have reported."""
    trainer = next((s for s in snapshot.services if s.kind == "trainer"), None)
    if trainer is not None and trainer.state in (*SERVING, "starting"):
        reported = snapshot.sessions is not None and snapshot.sessions.workers
        state: ServiceState = "ready" if reported else "waiting"
    else:
        state = "stopped" if trainer is None or trainer.state != "waiting" else "waiting"
    return StatusLabel(GLYPH[state], state_word(state), STYLE[state])


def of_replica(replica: ReplicaStatus, snapshot_index: SnapshotIndex, now: float) -> StatusLabel:
    """A replica's state; for one that serves, why it does not work: draining, asleep, without weights, not listed,
    idle. ``now``: Unix seconds."""
    if (stands := standing(snapshot_index.services.get(replica.name), now)) is not None:
        return stands
    if replica.leaving and replica.state in SERVING:
        return StatusLabel("◑", "draining", "warn")
    if replica.state in SERVING and snapshot_index.carrier_down is not None:
        return StatusLabel("●", "up, unreachable", "warn")
    if (
        replica.state == "ready"
        and not replica.listed
        and replica.kind == "verl"
        and not snapshot_index.lists
        and snapshot_index.snapshot.has_list
    ):
        return StatusLabel("●", "ready, waiting for others", "ok", short="waiting for others")
    if replica.state == "ready" and replica.activity in RESTING and replica.listed:
        # Between two rollouts the trainer puts its replicas to sleep or updates them: no problem.
        words = f"{replica.activity} {duration(now - (replica.activity_since or now))}"
        return StatusLabel("◌", words, "info", kind=replica.activity or "")
    if replica.state == "ready" and not replica.listed and snapshot_index.lists:
        trainer_version = snapshot_index.snapshot.policy_version
        replica_version = replica.engine.policy_version
        if snapshot_index.trains and (replica_version is None or replica_version != trainer_version):
            version = "" if trainer_version is None else f" v{trainer_version}"
            return StatusLabel("◐", f"waiting for weights{version}", "info", short=f"needs weights{version}")
        words = f"not listed in {snapshot_index.snapshot.carrier_words.name}"
        return StatusLabel("▲", words, "warn", True, "not listed")
    if replica.state == "ready" and replica.idle_for is not None:
        idle = f"idle {duration(replica.idle_for)}"
        return StatusLabel("▲", f"loaded but {idle}", "warn", True, idle, "loaded but idle")
    service = snapshot_index.services.get(replica.name)
    deadline = service.deadline if service is not None else None
    since = replica.since if replica.since is not None else now
    return _state_label(replica.state, replica.stage, replica.progress, since, deadline, now)


def _state_label(
    state: str, stage: str | None, progress: float | None, since: float, deadline: float | None, now: float
) -> StatusLabel:
    word = kind = state_word(state)
    words = short = ""
    if state in ("preparing", "starting"):
        share = "" if progress is None else f"{percent(progress)} "
        words, short = f"{stage or word} {share}{duration(now - since)}", f"{share}{duration(now - since)}"
    elif state == "backing_off" and deadline is not None:
        short = f"retry in {duration(deadline - now)}"
        words = f"{word}, {short}"
    elif state == "stopping":
        forced = deadline is not None and deadline > now
        timing = f", forced in {duration((deadline or now) - now)}" if forced else f" {duration(now - since)}"
        words, short = word + timing, word
    problem = state in ("degraded", "failed", "backing_off", "gave_up")
    glyph, style = GLYPH.get(state, "●"), STYLE.get(state, "text")  # type: ignore[call-overload]
    return StatusLabel(glyph, words or word, style, problem, short, kind)


# -- GPUs


def owner_of(gpu: GpuStatus, snapshot_index: SnapshotIndex) -> str | None:
    """The replica or service of the run that holds a GPU; None if none does. Where verl's trainer and a replica share
    it, the replica, since its state tells more."""
    names = gpu.owner.split(" + ")
    return next((n for n in names if n in snapshot_index.replicas), None) or next(
        (n for n in names if n in snapshot_index.services), None
    )


def shown_owner(owner: str) -> str:
    """The owner of a GPU in words: of a process that /proc does not show, it is not known whose it is."""
    return owner.replace("unknown (pid namespace)", "not visible from here")


def owner_words(gpu: GpuStatus, width: int) -> str:
    """The owner of a GPU; shortened (``pid 4123 (ann)``, then ``4123 (ann)``) where it is wider than ``width``
    characters, by what the verdict beside it says too."""
    owner = shown_owner(gpu.owner)
    if len(owner) <= width:
        return owner
    shared = owner.split(" + ")
    if len(shared) == 2 and "trainer" in shared:  # the replica beside verl's trainer is the one to tell apart
        return short_name(next(name for name in shared if name != "trainer"), width)
    shorter = owner.replace("foreign pid", "pid").replace(" from here", "")
    return shorter if len(shorter) <= width else shorter.removeprefix("pid ")


def of_gpu(
    gpu: GpuStatus, snapshot_index: SnapshotIndex, now: float, spinning_for: float | None = None
) -> StatusLabel:
    """The verdict on a GPU, from its numbers and the state of its owner. ``now``: Unix seconds; ``spinning_for``:
    seconds for which ``spins`` has been true."""
    name = owner_of(gpu, snapshot_index)
    node = snapshot_index.nodes.get(gpu.node)
    if node is not None and node.state == "lost":
        return StatusLabel("✖", "host lost", "bad", True, kind="on a lost host")
    if node is not None and node.measured_at is not None and node.old(now):
        words = f"figures {duration(now - node.measured_at)} old"
        return StatusLabel("?", words, "warn", True, kind="with old figures")
    if name is None:
        if "other host" in gpu.owner:  # whose it is cannot be seen from here
            return _use(gpu)
        if gpu.owner == "free":
            return StatusLabel("○", "free", "dim")
        if "foreign" in gpu.owner:
            return StatusLabel("▲", "foreign", "warn", True)
        if "not measured" in gpu.owner:  # without a backend
            return StatusLabel("-", "not measured", "dim")
        return StatusLabel("?", "holder not visible", "dim")
    replica, service = snapshot_index.replicas.get(name), snapshot_index.services.get(name)
    if replica is not None:
        label = of_replica(replica, snapshot_index, now)
        if replica.state != "ready" or label.problem or replica.activity in RESTING:
            return label
    elif service is not None and service.state != "ready":
        return of_service(service, now)
    if "foreign" in gpu.owner:
        return StatusLabel("▲", "shared, foreign process", "warn", True, "shared")
    if spinning_for is not None:
        return StatusLabel("▲", f"stalled? {duration(spinning_for)}", "warn", True, kind="stalled?")
    return _use(gpu)


def _use(gpu: GpuStatus) -> StatusLabel:
    if gpu.utilization is None:
        return StatusLabel("-", f"n/a ({'MIG part' if 'MIG' in gpu.name else 'driver'})", "dim")
    return StatusLabel("●", "busy", "ok") if gpu.utilization >= BUSY else StatusLabel("·", "idle", "dim")


def spins(gpu: GpuStatus) -> bool:
    """Whether a GPU reports at least ``SPINNING`` utilization but draws less than ``LITTLE_POWER`` of its power limit.
    False where one of the numbers is unknown."""
    if gpu.utilization is None or gpu.power_w is None or not gpu.power_limit_w:
        return False
    return gpu.utilization >= SPINNING and gpu.power_w < LITTLE_POWER * gpu.power_limit_w
