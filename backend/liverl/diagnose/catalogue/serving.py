"""Rules for replicas and for the proxy's requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from liverl.diagnose.catalogue.clients import who
from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.tracker import DOWN, GOING, SHOWN, Resolved, Window
from liverl.model import Evidence, ReplicaStatus, Snapshot, Symptom

SERVING = ("ready", "degraded")
NEARLY_ALL = 0.95  # share of the descriptors
SLOW = 2.0  # times the usual time of an answer: from here on a replica counts as slow ...
NO_LONGER_SLOW = 1.5  # ... and below this not any more
FEWEST_ANSWERS = 8  # in the last minute; fewer are no measure of a replica
WARM_S = 60.0  # seconds from its start in which a replica fills its caches and compiles


# --- replicas -------------------------------------------------------------------------------------------


def _start_again(now: Snapshot, replica: ReplicaStatus) -> tuple[str, str | None]:
    """How a replica is started again: in words, and as a command; None where verl starts it."""
    if replica.kind == "verl":
        return "restart the trainer, which restarts its replicas", None
    again = f"which then loads the current weights and is added to {now.carrier_words.name} again"
    return f"restart {replica.name}, {again}", f"restart {replica.name}"


def replica_idle(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica with a loaded model ran no request for a minute of a rollout, although there was work for it: requests
    ran or waited elsewhere. Agents that pause between two turns are not the reason: such pauses are shorter than a
    minute. Either no requests are sent to it, or it accepts none; its log shows whether any arrive. If none do: a
    replica that the run has started (``trainer.kind`` embedded or none) is started again by ``liverl-tui restart
    SERVICE``. One that verl has started (``trainer.kind`` verl or command) cannot be started alone: ``liverl-tui
    restart trainer`` starts the trainer again with all its replicas, verl's from the newest checkpoint, a launch
    script's as the script does. The alert ends once the replica runs a request, or while a process of the run stands
    still, for which the replica may wait.

    - its log shows requests that arrive and are refused or fail -> correct what the log says: ``liverl-tui logs SERVICE
      -n 50``
    - no request arrives, and ``trainer.kind`` is embedded or none -> ``liverl-tui restart SERVICE``
    - no request arrives, and ``trainer.kind`` is verl or command -> ``liverl-tui restart trainer``
    """
    now = window.now
    explained = waits_for_stalled(now) or (now.carrier == "proxy" and out_of_descriptors(window))
    for replica in now.replicas.items:
        name = f"replica_idle:{replica.name}"
        if now.state in GOING and replica.idle_for is not None and not explained:
            fix, action = _start_again(now, replica)
            yield Symptom(
                id=name,
                severity="warning",
                title=f"{replica.name} is loaded but idle",
                cause=f"{replica.name} has run no request for {replica.idle_for:.0f} s during the rollout, although "
                f"requests were waiting: {now.carrier_words.does('send')} no trials to this replica, or the replica no "
                "longer accepts requests",
                fix=f"check the log of {replica.name} for requests; if none arrive, {fix}",
                evidence=(_load(replica), *_gpus_of(now, replica), *_others(now, replica)),
                since=now.at - replica.idle_for,
                action=action,
            )
        elif replica.engine.running or replica.state not in SERVING or explained:
            yield Resolved(name)
    for name in window.removed(lambda snapshot: snapshot.replicas.items):
        yield Resolved(f"replica_idle:{name}")


class AnswerTimes(NamedTuple):
    """Means over the answers of the last minute, in seconds from the request to the last token."""

    token: float  # per generated token
    answer: float  # per answer


def replica_slow(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica takes at least ``SLOW`` times as long as the median of the others, both for each token and for each
    answer. One of the two alone proves nothing: short answers make a token look slow, since the wait for the first
    token counts for more, and long answers make an answer look slow. It is resolved once the replica is measured again
    and is below ``NO_LONGER_SLOW`` times the median.

    - its GPU has a lower clock, more memory used or another process (``nvidia-smi``) -> the host or the GPU is the
      cause: end the other process, or leave that GPU out
    - it has more or longer requests than the others (the evidence) -> nothing: it ends with the step; if it comes
      again, lower ``harbor_runtime.num_workers``
    - all is alike, and the run started the replica -> ``liverl-tui restart SERVICE``
    - all is alike, and verl manages it -> ``liverl-tui restart trainer``
    """
    now = window.now
    going = now.state in GOING and not waits_for_stalled(now)
    timed = {r.name: times for r in now.replicas.items if (times := answer_times(r, now.at)) is not None}
    for replica in now.replicas.items if going else ():
        name, times = replica.name, timed.get(replica.name)
        others = [other for key, other in timed.items() if key != name]
        if times is None or not others:
            continue
        usual = AnswerTimes(median(t.token for t in others), median(t.answer for t in others))
        times_slower = min(times.token / usual.token, times.answer / usual.answer)
        if times_slower < SLOW:
            if times_slower < NO_LONGER_SLOW:
                yield Resolved(f"replica_slow:{name}")
            continue
        by_verl = replica.kind == "verl"
        restart = "restart the trainer, which restarts its replicas" if by_verl else f"restart {name}"
        yield Symptom(
            id=f"replica_slow:{name}",
            severity="warning",
            title=f"{name} answers {_factor(times_slower)} times slower than the other"
            f"{'s' if len(others) > 1 else ' replica'}",
            cause=f"{name} took {times.answer:.2f} s for an answer in the last minute, the median of the others is "
            f"{usual.answer:.2f} s, and each step waits for its trials. Usual causes: another process on its GPU, a "
            "GPU that lowers its clock, a host without free CPU, a KV cache that is full, more requests than the "
            "others have",
            fix=f"compare its GPU, KV cache and requests with those of the others; if they are alike, {restart}",
            evidence=(
                *(_answers(r, timed[r.name]) for r in _first(replica, now) if r.name in timed),
                _load(replica),
                *_gpus_of(now, replica),
            ),
            action=None if by_verl else f"restart {name}",
        )
    for name in window.removed(lambda snapshot: snapshot.replicas.items):
        yield Resolved(f"replica_slow:{name}")


def answer_times(replica: ReplicaStatus, now: float) -> AnswerTimes | None:
    """How long the answers of a replica take; None while it does not serve, has just started, or has finished fewer
    than ``FEWEST_ANSWERS`` in the last minute. ``now``: Unix time."""
    engine = replica.engine
    if replica.state not in SERVING or replica.since is None or now - replica.since < WARM_S:
        return None
    if (
        (engine.answers or 0.0) < FEWEST_ANSWERS
        or not engine.seconds_per_token
        or not engine.seconds_per_answer
    ):
        return None
    return AnswerTimes(engine.seconds_per_token, engine.seconds_per_answer)


def weights_requested(window: Window) -> Iterator[Symptom | Resolved]:
    """Somebody has sent requests to ``vllm serve`` that can change its weights. The run itself sends no such requests:
    none of its trainers uses replicas of this kind."""
    for replica in window.now.replicas.items:
        asked, at = replica.engine.weight_requests, replica.engine.weight_request_at
        if asked is None:
            continue
        name = replica.name
        yield Symptom(
            id=f"weights_requested:{name}",
            severity="warning",
            title=f"{name} was told to change its weights",
            cause=f"a program with the run's token has sent requests to {name} that can change its weights, and this "
            "run has no trainer that sends any; vLLM does not say which weights it has now",
            fix="if your own trainer has sent them, nothing is to be done; if not, restart "
            f"{name}, which then loads the weights from the disk, check who can read secrets/replica_token in the run "
            "directory, and discard the trials of this replica since then",
            evidence=(
                Evidence(f"{name}: {replica.address}"),
                Evidence(f"requests since its start: {asked}"),
            ),
            since=at,
            action=f"restart {name}",
        )


def policy_changed(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica reported the same policy version as the trainer, but had other weights. Only a restart resolves it.

    - the alert says that verl manages the replica -> ``liverl-tui restart trainer``, then discard the trials of this
      step; see who shares the run's Ray cluster (``ray list jobs``)
    - it does not -> ``liverl-tui restart SERVICE``, then discard the trials of this replica since its last update; see
      who can read ``secrets/replica_token``
    """
    for replica in window.now.replicas.items:
        if replica.policy_changed is None:
            continue
        name, by_verl = replica.name, replica.kind == "verl"
        yield Symptom(
            id=f"policy_changed:{name}",
            severity="critical",
            title=f"the weights of {name} were changed",
            cause=f"{name} reported the trainer's policy version with other weights than a replica had reported for "
            "it before: something else than the trainer's update has loaded them, such as another job on the run's "
            "Ray cluster; it receives no new trials"
            if by_verl
            else f"{name} reported the trainer's policy version with other weights than the trainer sent: another "
            "program with the run's token has written to its port, or its memory is damaged; it receives no new trials",
            fix=f"{name} is managed by verl; restart the trainer to restart it, check who can read secrets/ray_token "
            "in the run directory, and discard the trials of this step"
            if by_verl
            else f"restart {name}, which then loads the trainer's weights; check who can read secrets/replica_token in "
            "the run directory, and discard the trials of this replica since its last update",
            evidence=(
                Evidence(f"{name}: {replica.address}, policy version {replica.engine.policy_version}"),
                Evidence(f"digest of its weights: {replica.policy_changed}"),
            ),
            action=None if by_verl else f"restart {name}",
        )


def replica_missing(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica that should serve has ended and is not started again. For replicas that the run itself starts,
    ``service_failed`` or ``service_gave_up`` is raised in its place.

    - the alert says that verl manages the replica (``trainer.kind`` is verl or command) -> ``liverl-tui restart
      trainer``: verl cannot start one alone
    - it does not (``trainer.kind`` is embedded or none) -> ``liverl-tui restart SERVICE``
    """
    now = window.now
    reported = {s.name for s in now.services if s.state in DOWN}
    for replica in _expected(window):
        if replica.state in ("stopped", *DOWN) and replica.name not in reported:
            what = "is missing" if replica.state == "stopped" else "is down"
            yield _absent("replica_missing", now, replica, what, replica.why or replica.state)


def replica_late(window: Window) -> Iterator[Symptom | Resolved]:
    """It is also raised for a replica that was restarted and does not serve yet.

    - its log still has new lines about loading or compiling -> wait: ``liverl-tui logs SERVICE -f`` shows it
    - its log stands still, and its GPU, disk or host is busy with something else -> end that, or move the replica
    - its log stands still for no visible reason, and verl manages the replica -> ``liverl-tui restart trainer``
    - its log stands still for no visible reason, and the run started the replica -> ``liverl-tui restart SERVICE``
    """
    for replica in _expected(window):
        if replica.restarts and replica.state not in (*SERVING, "stopped", *DOWN):
            cause = f"{replica.state}: {replica.why}" if replica.why else replica.state
            yield _absent("replica_late", window.now, replica, "has not served since its restart", cause)


def _expected(window: Window) -> Iterator[ReplicaStatus]:
    """The replicas that should serve now. Those of verl exit and start with its trainer."""
    now = window.now
    trainers = [s.state for s in now.services if s.kind == "trainer"]
    trains = not trainers or any(state in (*SERVING, "starting") for state in trainers)
    for replica in now.replicas.items if now.state in GOING else ():
        wanted = not replica.leaving and replica.name not in window.beside.unwanted
        if wanted and (trains or replica.kind != "verl"):
            yield replica


def _absent(rule: str, now: Snapshot, replica: ReplicaStatus, what: str, cause: str) -> Symptom:
    serving = sum(r.state in SERVING for r in now.replicas.items)
    by_verl = replica.kind == "verl"
    return Symptom(
        id=f"{rule}:{replica.name}",
        severity="warning" if serving else "critical",
        title=f"{replica.name} {what}",
        cause=cause,
        fix=f"{replica.name} is managed by verl; restart the trainer to restart it"
        if by_verl
        else f"restart {replica.name}",
        evidence=(Evidence(f"{serving} of {now.replicas.expected} replicas are up", value=serving),),
        action=None if by_verl else f"restart {replica.name}",
    )


def replica_unlisted(window: Window) -> Iterator[Symptom | Resolved]:
    """A ready replica gets no trials, since the proxy or the sessions do not send it any. It may still be about to
    join.

    - the proxy is not the run's own (a launch script, or a run that is watched) -> add the replica to the proxy's
      configuration, and restart the proxy
    - the cause names two policy versions -> the trainer has not sent its weights: ``liverl-tui logs trainer --grep
      Error``
    - the cause says that the newest list is not loaded -> restart what carries the trials: ``liverl-tui restart
      proxy`` or ``liverl-tui restart sessions``
    - the cause says that the replica is not in the list, and the run started it -> ``liverl-tui restart SERVICE``
    - the cause says that the replica is not in the list, and verl manages it -> ``liverl-tui restart trainer``
    """
    return (symptom for proven, symptom in _unlisted(window) if not proven)


def proxy_lacks_replica(window: Window) -> Iterator[Symptom | Resolved]:
    """It is raised sooner if the replica should already be used: the proxy or the sessions were told of it, or read
    their list only when they start."""
    return (symptom for proven, symptom in _unlisted(window) if proven)


def _unlisted(window: Window) -> Iterator[tuple[bool, Symptom]]:
    """Ready replicas without trials, and whether nothing is under way that would change it."""
    now = window.now
    carrier, words = now.carrier_service, now.carrier_words
    if now.state not in GOING or carrier is None or carrier.state != "ready":
        return
    backends = now.traffic.backends
    routed = {_root(address) for address in backends}
    for replica in now.replicas.items:
        if replica.state != "ready" or replica.leaving or replica.address is None:
            continue
        if replica.policy_changed is not None:
            continue
        if replica.listed and _root(replica.address) in routed:
            continue
        version = replica.engine.policy_version
        behind = version != now.policy_version and now.policy_version is not None
        foreign = carrier.owner != "ours"
        if foreign:
            cause = f"the configuration with which the proxy was started does not list {replica.name}"
            if replica.kind == "verl":
                cause += ": the file was written before this replica was registered"
            fix = f"add {replica.name} to the proxy's configuration, then restart the proxy"
            action = "scale +1" if replica.kind == "verl" else None
        elif behind and replica.kind != "verl":
            cause = (
                f"{replica.name} has policy version {version}, the trainer has {now.policy_version}; this replica "
                "receives no trials until it has the trainer's weights"
            )
            fix = "the trainer sends its weights to new replicas; check the trainer's log for errors of that transfer"
            action = None
        elif replica.listed:
            cause = f"{words.name} {words.has} not loaded the newest list of replicas"
            fix = (
                f"check {words.whose} log for the reason; restart {words.name} to load the list (no requests are "
                "lost)"
            )
            action = f"restart {carrier.name}"
        else:
            cause = f"{replica.name} is ready and has the current weights, but is not in {words.whose} list"
            fix, action = _start_again(now, replica)
        symptom = Symptom(
            id=f"replica_unlisted:{replica.name}",
            severity="warning",
            title=f"{replica.name} is ready but receives no trials",
            cause=cause,
            fix=fix,
            evidence=(
                Evidence(f"{replica.name}: {replica.address}, policy version {version}"),
                Evidence(f"{words.does('route')} to {', '.join(backends) or 'no replica'}"),
            ),
            action=action,
        )
        yield foreign or (replica.listed and not behind), symptom


def proxy_descriptors(window: Window) -> Iterator[Symptom | Resolved]:
    """The proxy can open no further file or connection, or refused one since the previous snapshot."""
    now = window.now
    proxy = now.proxy
    if not out_of_descriptors(window):
        return
    open_ = "unknown" if proxy.descriptors is None else f"{proxy.descriptors:,}"
    limit = "unknown" if proxy.descriptor_limit is None else f"{proxy.descriptor_limit:,}"
    yield Symptom(
        id="proxy_descriptors",
        severity="critical" if now.carrier == "proxy" else "warning",
        title="the proxy has no file descriptors left",
        cause="requests fail although the replicas are up: the proxy can open no further connection. Each request "
        "needs two, one from its agent and one to a replica",
        fix="close connections that are not used; raise the limit of open files (ulimit -n in the shell, LimitNOFILE "
        "in systemd) and resume the run",
        evidence=(
            Evidence(f"open files and connections: {open_} of {limit}", value=proxy.descriptors),
            Evidence(f"refused so far because none was left: {proxy.turned_away}", value=proxy.turned_away),
            Evidence(f"closed so far because their client sent no request or did not read: {proxy.dropped}"),
            *who(proxy.clients),
        ),
    )


def out_of_descriptors(window: Window) -> bool:
    """Whether the proxy has no descriptors left: the cause of what looks like failures of replicas."""
    if window.now.state not in GOING:
        return False
    proxy = window.now.proxy
    full = proxy.descriptors is not None and proxy.descriptor_limit is not None
    if full and (proxy.descriptors or 0) >= NEARLY_ALL * (proxy.descriptor_limit or 0):
        return True
    return window.proxy_counted(lambda proxy: proxy.turned_away)


def proxy_clients(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, the proxy closed connections that clients left unused."""
    proxy = window.now.proxy
    if window.proxy_counted(lambda proxy: proxy.dropped):
        yield Symptom(
            id="proxy_clients",
            severity="info",
            title="clients leave connections to the proxy unused",
            cause=f"{proxy.dropped} connections so far were closed because their client sent no complete request "
            "with a valid key, or did not read its response",
            fix="find the process that opens them (ss -tnp shows the connections of the proxy's port)",
            evidence=(Evidence(proxy.address),) if proxy.address else (),
        )


def proxy_cooled_down(window: Window) -> Iterator[Symptom | Resolved]:
    """The proxy, which carries the trials, has put a replica in cooldown although the replica is up. One that is down
    has an alert of its own."""
    now = window.now
    if now.state not in GOING or now.carrier != "proxy" or out_of_descriptors(window):
        return
    up = [r for r in now.replicas.items if r.address is not None and r.state in SERVING]
    by_address = {_root(r.address or ""): r for r in up}
    cold = {_root(address) for address in now.proxy.cooled_down}
    for address in now.proxy.cooled_down:
        replica = by_address.get(_root(address))
        if replica is None:
            continue
        name = replica.name
        yield Symptom(
            id=f"proxy_cooled_down:{name}",
            severity="warning",
            title=f"the proxy has put {name} in cooldown",
            cause=f"requests to {name} failed: it could not be reached, or it returned three server errors in a row; "
            + (
                f"the trials of {name} move to other replicas, which must compute the cached prefixes again"
                if by_address.keys() - cold
                else "no other replica can take its trials"
            ),
            fix=f"check the last errors in the log of {name}; restart {name} if it does not recover",
            evidence=(
                Evidence(f"in cooldown: {address}"),
                _load(replica),
                Evidence(f"{now.proxy.failures or 0} of {now.proxy.requests or 0} requests failed so far"),
            ),
            action=f"restart {name}",
        )


# --- words and joins ------------------------------------------------------------------------------------


def _root(address: str) -> str:
    return address.rstrip("/").removesuffix("/v1")


def _first(replica: ReplicaStatus, now: Snapshot) -> list[ReplicaStatus]:
    """``replica`` and then others, ``SHOWN`` in all."""
    return [replica, *(r for r in now.replicas.items if r.name != replica.name)][:SHOWN]


def _answers(replica: ReplicaStatus, times: AnswerTimes) -> Evidence:
    text = (
        f"{replica.name}: {times.answer:.2f} s per answer, {1000 * times.token:.1f} ms per token, "
        f"{replica.engine.answers or 0:.0f} answers in the last minute"
    )
    return Evidence(text, value=times.answer)


def _factor(times: float) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.1f}"


def _load(replica: ReplicaStatus) -> Evidence:
    engine = replica.engine
    waiting = f", {engine.waiting:.0f} waiting" if engine.waiting is not None else ""
    running = "load unknown" if engine.running is None else f"{engine.running:.0f} running{waiting}"
    return Evidence(f"{replica.name}: {replica.state}, {running}", value=engine.running)


def _gpus_of(now: Snapshot, replica: ReplicaStatus) -> Iterator[Evidence]:
    for gpu in now.gpus:
        if gpu.uuid in replica.gpus:
            memory = "?" if gpu.memory_used is None else f"{gpu.memory_used / (1 << 30):.0f}"
            use = "?" if gpu.utilization is None else f"{gpu.utilization * 100:.0f}"
            yield Evidence(f"GPU {gpu.index}: {memory} GiB used, {use} % utilization")


def _others(now: Snapshot, replica: ReplicaStatus) -> list[Evidence]:
    busy = [
        r for r in now.replicas.items if r.name != replica.name and (r.engine.running or r.engine.waiting)
    ]
    return [_load(r) for r in busy[:SHOWN]]
