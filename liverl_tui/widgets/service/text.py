"""The detail of one service as rows of text, in sections. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from liverl.control.service_detail import Generation, ProbeFacts, ServiceDetail
from liverl.model import (
    EngineFacts,
    Event,
    GpuStatus,
    ReplicaStatus,
    ServiceStatus,
    SessionsStatus,
    Snapshot,
    TokenRoute,
)
from liverl.plan.spec import RestartPolicy, StopStage
from liverl.procs.listing import ListedProcess
from liverl.util.plural import plural
from liverl_tui.text.facts import bypassed_words, ended, open_words
from liverl_tui.text.status_label import (
    SnapshotIndex,
    StatusLabel,
    engine_now,
    of_replica,
    of_service,
    standing,
)
from liverl_tui.text.words import (
    LEVEL_GLYPH,
    LEVEL_STYLE,
    UNKNOWN,
    age,
    count,
    duration,
    happened,
    moment,
    number,
    one_line,
    percent,
    size,
)
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, fit

LABEL = 16  # columns of a fact's name
EVENTS = 20  # how many events are shown, the newest
_STARTS = 20  # how many generations are shown, the newest
_TIMED = ("preparing", "starting", "stopping")  # states whose labels already contain a duration


@dataclass(frozen=True)
class About:
    """What is known of one service, or of a replica that is an actor of verl's and no service. ``now``: Unix time;
    ``note``: why some facts are missing; ``log``: the path of its log, if the run directory has a link to it only;
    ``processes``: None before the first reading."""

    name: str
    now: float
    snapshot: Snapshot | None = None
    service: ServiceStatus | None = None
    detail: ServiceDetail | None = None
    processes: tuple[ListedProcess, ...] | None = None
    events: tuple[Event, ...] = ()
    note: str = ""
    log: str = ""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.snapshot is not None and self.snapshot.result is not None

    @property
    def when_head(self) -> str:
        """The heading of a column of times, as wide as it."""
        return f"{'at':>8}" if self.over else f"{'ago':>6}"

    def when(self, at: float) -> str:
        """When something happened."""
        return happened(at, self.now, over=self.over)

    @property
    def replica(self) -> ReplicaStatus | None:
        """The replica of that name; None if there is none."""
        replicas = self.snapshot.replicas.items if self.snapshot is not None else ()
        return next((replica for replica in replicas if replica.name == self.name), None)

    @property
    def trackers(self) -> dict[str, str]:
        """Where the trainer logs its metrics besides."""
        return self.snapshot.trackers if self.snapshot is not None else {}

    @property
    def kind(self) -> str:
        """The kind of the service, in words for a replica that is none."""
        if self.service is not None:
            return self.service.kind
        return "replica, a Ray actor of verl" if self.replica is not None else "not present"


def detail_rows(about: About, width: int) -> list[Row]:
    """All sections that have facts, in ``width`` columns."""
    rows: list[Row] = []
    if about.note:
        rows += [Row((f" {line}", "warn")) for line in wrap(about.note, width - 2)]
    sections: tuple[tuple[str, Iterable[Row]], ...] = (
        ("State", _state(about, width)),
        ("Replica", _replica(about, width)),
        ("Proxy", _proxy(about, width)),
        ("Sessions", _sessions(about, width)),
        ("Processes", _processes(about, width)),
        ("Probes", _probes(about, width)),
        ("Starts", _starts(about, width)),
        ("Command", _command(about, width)),
        ("Environment", _environment(about, width)),
        ("Events", _events(about, width)),
    )
    for title, section in sections:
        section_rows = list(section)
        if section_rows:
            rows.append(Row((f" {title} ", "title"), ("─" * max(0, width - len(title) - 2), "rule")))
            rows += section_rows
    return rows


def argv_line(detail: ServiceDetail | None) -> str:
    """The command line, quoted for a shell; empty without a detail."""
    return shlex.join(map(_filled, detail.argv)) if detail is not None else ""


def _filled(word: str) -> str:
    """A word of a command of which only the plan is known: ``{python:verl}`` is a Python; a line below says of which
    environment."""
    return "python" if word.startswith("{python:") and word.endswith("}") else word


# -- pieces


def _fact(name: str, text: str, width: int, style: str = "text") -> Iterator[Row]:
    for index, line in enumerate(wrap(text, width - LABEL - 2)):
        yield Row((" " + fit(name if not index else "", LABEL) + " ", "dim"), (line, style))


# -- sections


def _state(about: About, width: int) -> Iterator[Row]:
    service, now = about.service, about.now
    if service is None:
        yield from _actor(about, width)
        return
    yield from _state_and_reason(service, of_service(service, now), about, width)
    if service.generation:
        many = "1 restart" if service.restarts == 1 else f"{service.restarts or 'no'} restarts"
        pid = f", pid {service.pid}" if service.pid is not None else ""
        yield from _fact("generation", f"{service.generation}, {many} in this attempt{pid}", width)
    yield from _fact(
        "owner", {"ours": "this run", "adopted": "adopted"}.get(service.owner, service.owner), width
    )
    if service.started_at is not None:
        ready = ""
        if service.ready_at is not None and service.ready_at >= service.started_at:
            ready = f", ready after {_start_duration(service.started_at, service.ready_at)}"
        yield from _fact("started", f"{about.when(service.started_at)}{ready}", width)
    if service.exit is not None:
        when = f", {about.when(service.exit.at)}" if service.exit.at is not None else ""
        yield from _fact(
            "last exit", service.exit.words() + when, width, "text" if service.exit.ok else "bad"
        )
    if service.deadline is not None and service.deadline > now:
        what = "restart" if service.state == "backing_off" else "next signal"
        if service.state == "starting":
            what = "start timeout"
        yield from _fact("deadline", f"{what} in {duration(service.deadline - now)}", width)
    if service.incoming_pid is not None:
        yield from _fact("replacement", f"pid {service.incoming_pid} is starting", width, "info")
    if service.retiring_pids:
        pids = ", ".join(map(str, service.retiring_pids))
        yield from _fact("draining", f"replaced; finishing their requests: pid {pids}", width, "info")
    if service.address is not None:
        yield from _fact("address", f"was {service.address}" if about.over else service.address, width)
    others = {n: p for n, p in service.ports.items() if f":{p}" not in (service.address or "")}
    if others:
        ports = ", ".join(f"{name} {port}" for name, port in others.items())
        yield from _fact("ports", f"were {ports}" if about.over else ports, width)
    if service.log is not None:
        yield from _fact("log", about.log or service.log, width)
    if service.kind == "trainer":
        for name, where in about.trackers.items():
            yield from _fact(name, where, width)
    if service.depends_on:
        conditions = about.detail.depends_on if about.detail is not None else ()
        yield from _fact("needs", "; ".join(conditions or service.depends_on), width)
    yield from _gpus(about, width)


def _state_and_reason(
    shown: ServiceStatus | ReplicaStatus, label: StatusLabel, about: About, width: int
) -> Iterator[Row]:
    """The state, for how long, and why; of a run that has ended since when, as its clock stands still."""
    row = Row((" " + fit("state", LABEL) + " ", "dim"), (label.text, label.style))
    stopped = standing(about.service, about.now) is not None  # the label says how long; the state is older
    if shown.state not in _TIMED and shown.since is not None and not stopped:
        how_long = moment(shown.since, about.now, over=about.over)
        row.add(f" {'since' if about.over else 'for'} {how_long}", "dim")
    yield row
    if shown.why and shown.why not in label.words and not (stopped and shown.why == shown.state):
        yield from _fact("why", shown.why, width)


def _whole(number: float) -> str:
    """``28,362``, ``2.4``: with a decimal only where it says something."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"


def _actor(about: About, width: int) -> Iterator[Row]:
    replica, snapshot, now = about.replica, about.snapshot, about.now
    if replica is None or snapshot is None:
        return
    yield from _state_and_reason(replica, of_replica(replica, SnapshotIndex(snapshot), now), about, width)
    if replica.generation:
        pid = f", pid {replica.pid}" if replica.pid is not None else ""
        yield from _fact("actor", f"generation {replica.generation} of this name{pid}", width)
    yield from _fact("owner", "verl; restart the trainer to restart it", width)
    if replica.address is not None:
        yield from _fact("address", replica.address, width)
    if replica.engine.max_concurrency is not None:
        room = f"room for {_whole(replica.engine.max_concurrency)} requests of full length"
        yield from _fact("KV cache", room, width)
    yield from _gpus(about, width)


def _gpus(about: About, width: int) -> Iterator[Row]:
    holder, snapshot, detail = about.service or about.replica, about.snapshot, about.detail
    if holder is None or snapshot is None:
        return
    memory: dict[str, int | None] = {}  # UUID -> bytes that the holder's processes use
    for use in detail.gpu_memory if detail is not None else ():
        total = memory.get(use.uuid)
        memory[use.uuid] = total if use.memory is None else (total or 0) + use.memory
    names = list(dict.fromkeys((*holder.gpus, *memory)))
    by_uuid: dict[str, GpuStatus] = {g.uuid: g for g in snapshot.gpus}
    for index, uuid in enumerate(names):
        gpu = by_uuid.get(uuid)
        what = "service" if about.service is not None else "replica"
        mine = f"{size(memory[uuid])} of it by this {what}" if memory.get(uuid) is not None else ""
        text = uuid
        if gpu is not None:
            used = f"{size(gpu.memory_used)} of {size(gpu.memory_total)}"
            text = f"{gpu.index} {gpu.name}: {used}" + (f", {mine}" if mine else "")
            text += f", busy {percent(gpu.utilization)}"
        elif mine:
            text = f"{uuid}: {mine}"
        yield from _fact("GPUs" if not index else "", text, width)


def _replica(about: About, width: int) -> Iterator[Row]:
    snapshot, replica = about.snapshot, about.replica
    if replica is None or snapshot is None:
        return
    index = SnapshotIndex(snapshot)
    label = of_replica(replica, index, about.now)
    if snapshot.has_list and not ended(snapshot):
        stopped = standing(index.services.get(replica.name), about.now)
        gets = "it gets new trials"
        if stopped is not None:
            may = " may" if stopped.kind.startswith("a process") else ""  # of its main process it is certain
            gets = f"new trials that it gets{may} hang until it is continued"
        listed = f"yes, {gets}" if replica.listed else "no"
        name = f"in {snapshot.carrier_words.name}"
        yield from _fact(name, listed, width, "ok" if replica.listed and stopped is None else "warn")
    if label.problem:
        yield from _fact("", label.text, width, label.style)
    if replica.engine.policy_version is not None or snapshot.policy_version is not None:
        yield from _weights(replica, snapshot.policy_version, width)
    engine = engine_now(replica, index.services.get(replica.name), about.now)
    yield from _fact("requests", f"{count(engine.running)} running, {count(engine.waiting)} waiting", width)
    cache = f"KV cache {percent(engine.kv_cache_usage)}, prefix hits {percent(engine.prefix_cache_hit_rate)}"
    yield from _fact("engine", f"{cache}, {count(engine.tokens_per_s)} tokens/s", width)
    if engine.seconds_per_answer is not None:
        yield from _fact("answers", answer_words(engine), width)
    answered = engine.request_success_total
    yield from _fact(
        "since start",
        f"{count(answered)} {plural(answered or 0, 'request')}, {count(engine.prompt_tokens_total)} prompt and "
        f"{count(engine.generation_tokens_total)} generated tokens",
        width,
    )


def answer_words(engine: EngineFacts) -> str:
    """How long the answers of the last minute took: ``1.85 s per answer, 12.1 ms per token (48 in the last minute)``.
    ``-`` for what is not known."""
    answer = f"{number(engine.seconds_per_answer, 2)} s per answer"
    token = None if engine.seconds_per_token is None else 1000 * engine.seconds_per_token
    return f"{answer}, {number(token, 1)} ms per token ({count(engine.answers)} in the last minute)"


def _weights(replica: ReplicaStatus, wanted: int | None, width: int) -> Iterator[Row]:
    current = replica.engine.policy_version
    if current is None and replica.kind == "verl":
        # vLLM does not report a version; verl copies the weights itself.
        yield from _fact("weights", f"copied by verl from the trainer: version {wanted}", width)
        return
    version = UNKNOWN if current is None else f"{current}"
    behind = wanted is not None and current != wanted
    of = f", the trainer has {wanted}" if behind else ""
    yield from _fact("weights", f"version {version}{of}", width, "warn" if behind else "text")


def _proxy(about: About, width: int) -> Iterator[Row]:
    service, snapshot = about.service, about.snapshot
    if service is None or snapshot is None or service.kind != "proxy":
        return
    proxy = snapshot.proxy
    names = {f"{r.address}/v1": r.name for r in snapshot.replicas.items if r.address is not None}
    for index, backend in enumerate(proxy.backends):
        cooled = backend in proxy.cooled_down
        name = f"{names[backend]}  " if backend in names else ""
        text = f"{name}{backend}" + ("  in cooldown after failures" if cooled else "")
        yield from _fact("backends" if not index else "", text, width, "warn" if cooled else "text")
    if not proxy.backends and not about.over:
        yield from _fact("backends", "none; every request fails", width, "bad")
    failed = f"{count(proxy.failures)} failed"
    counted = f"{count(proxy.requests)}, {failed}, {proxy.unattributed} without a trial"
    yield from _fact("requests", bypassed_words(snapshot).removeprefix("no requests: ") or counted, width)
    if proxy.config is not None:
        yield from _fact("configuration", proxy.config, width)


# Counter of the sessions -> what it counts, as the service's page shows it; the others are in status --json.
_COUNTERS = {
    "num_calls": "replies",
    "total_prompt_tokens": "prompt tokens",
    "total_completion_tokens": "sampled tokens",
    "num_joined": "repeated requests that got the same reply",
    "num_failed": "failed requests",
    "num_aborts": "cut by a weight update and continued",
    "num_moved": "sampled again on another replica",
    "healed": "turns that text would have broken",
    "rewrites": "changed histories",
    "recomputed": "earlier replies with new log-probabilities",
    "recompute_unplaced": "earlier replies masked: not found in the prompt",
    "recompute_failed": "earlier replies masked: no log-probabilities",
    "sub_agents": "sub-agents",
    "doubted": "turns not trained: the replica makes other tokens",
    "context_overflow": "refused: longer than the context",
}


def _sessions(about: About, width: int) -> Iterator[Row]:
    """Of the service, or of verl's agent-loop workers on the page of the trainer, whose processes they are."""
    service, snapshot = about.service, about.snapshot
    if service is None or snapshot is None or snapshot.sessions is None:
        return
    in_workers = snapshot.carrier == "workers"
    if service.kind != ("trainer" if in_workers else "sessions"):
        return
    sessions = snapshot.sessions
    yield from _workers(sessions, width) if in_workers else _routes(snapshot, sessions, width)
    words = open_words(snapshot, sessions)
    sampled = "" if ended(snapshot) else f"; {count(sessions.waiting)} replies being sampled"
    yield from _fact("sessions", words + sampled, width)
    for index, (name, meaning) in enumerate(_COUNTERS.items()):
        number = int(sessions.counters.get(name, 0))
        if number or not index:
            yield from _fact("" if index else "counted", f"{count(number)} {meaning}", width)


def _workers(sessions: SessionsStatus, width: int) -> Iterator[Row]:
    for index, address in enumerate(sessions.workers):
        yield from _fact("" if index else "workers", address, width)
    if not sessions.workers:
        yield from _fact("workers", "none has reported yet", width, "dim")


def _routes(snapshot: Snapshot, sessions: SessionsStatus, width: int) -> Iterator[Row]:
    """The replicas that new sessions may use, of the service."""
    names = {r.address: r.name for r in snapshot.replicas.items if r.address is not None}
    for index, backend in enumerate(sessions.backends):
        text = f"{names[backend]}  {backend}" if backend in names else backend
        yield from _fact("" if index else "replicas", text, width)
    if not sessions.backends and not ended(snapshot):
        yield from _fact("replicas", "none; every request waits", width, "bad")
    if sessions.error is not None:
        yield from _fact("list", sessions.error, width, "bad")
    for index, route in enumerate(sessions.tokenizers):
        style = "bad" if route.differs else "text"
        yield from _fact("" if index else "tokens", _token_route(route), width, style)


def _token_route(route: TokenRoute) -> str:
    """Who makes the tokens of a model's prompts."""
    if route.route == "checking":
        return f"of {route.model}: the replicas make them; being compared"
    if route.route == "replicas":
        return f"of {route.model}: the replicas make them: {route.differs or route.why}"
    return f"of {route.model}: made here for {count(route.prompts)} prompts, compared for {count(route.compared)}"


def _processes(about: About, width: int) -> Iterator[Row]:
    processes = about.processes
    if processes is None or (
        not processes and about.service is not None and about.service.kind == "environment"
    ):
        return
    if not processes:
        yield Row((" none", "dim"))
        return
    total = sum(p.rss_bytes for p in processes)
    used = [p.cpu_percent for p in processes if p.cpu_percent is not None]
    cpu = f"{sum(used):.0f}" if used else UNKNOWN
    yield Row((f" {'pid':>8} {'cpu %':>6} {'rss':>5} {'thr':>4} {'age':>5}  command", "head"))
    for process in processes:
        used_cpu = UNKNOWN if process.cpu_percent is None else f"{process.cpu_percent:.0f}"
        zombie = process.state in "ZX"
        row = Row((f" {process.pid:>8}", "text"), (f" {used_cpu:>6}", "strong"))
        row.add(f" {size(process.rss_bytes):>5} {process.threads:>4}", "text")
        row.add(f" {age(about.now - process.started_at):>5}  ", "dim")
        row.add("  " * max(0, process.depth - 1) + ("└ " if process.depth else ""), "rule")
        row.add(one_line(process.command), "warn" if zombie else "text")
        yield row.add(" (zombie)" if zombie else "", "warn")
    if len(processes) > 1:
        yield Row((f" {len(processes):>8} {cpu:>6} {size(total):>5}  total", "dim"))


def _probes(about: About, width: int) -> Iterator[Row]:
    detail = about.detail
    if detail is None or not detail.probes:
        return
    for probe in detail.probes:
        glyph, outcome, style = _outcome(probe, about)
        counts = "fails after 1 failure" if probe.failures == 1 else f"fails after {probe.failures} in a row"
        every = f"  (every {probe.interval:g} s, timeout {probe.timeout:g} s, {counts})"
        if probe.what == "the process exists":
            every = ""
        elif probe.name == "startup" and detail.startup_deadline is not None:
            every = f"  (every {probe.interval:g} s, within {duration(detail.startup_deadline)})"
        meaning = {"startup": "startup probe", "ready": "readiness probe", "live": "liveness probe"}[
            probe.name
        ]
        yield from _fact(meaning, probe.what + every, width)
        for line in wrap(f"{glyph} {outcome}", width - LABEL - 2):
            yield Row((" " * (LABEL + 2), "text"), (line, style))


def _outcome(probe: ProbeFacts, about: About) -> tuple[str, str, str]:
    service = about.service
    if probe.at is not None:
        ago = about.when(probe.at)
        if probe.problem is None:
            return "●", f"passed {ago}", "ok"
        return "▲", f"{ago}: {probe.problem}", "warn"
    if about.detail is not None and not about.detail.live:
        return (
            "○",
            "not asked any more: the run has ended" if about.over else "unknown without a backend",
            "dim",
        )
    if probe.what == "the process exists" and service is not None and service.pid is not None:
        return "●", "yes", "ok"
    if probe.name == "startup" and service is not None and service.ready_at is not None:
        return "●", "passed before this backend took over", "ok"
    return "○", "not run yet", "dim"


def _starts(about: About, width: int) -> Iterator[Row]:
    detail = about.detail
    is_actor = about.service is None and about.replica is not None  # verl starts it
    if detail is None or detail.kind == "environment" or is_actor:
        return
    yield from _fact("policy", restart_words(detail.restart), width)
    if detail.stop:
        yield from _fact("stopped by", stages_words(detail.stop), width)
    if detail.drain:
        yield from _fact("drained by", stages_words(detail.drain), width)
    if not detail.generations:
        return
    yield Row(
        (
            f" {'start':>6} {'attempt':>7} {'pid':>8} {about.when_head} {'ready':>8} {'lasted':>7}  end",
            "head",
        )
    )
    for start in reversed(detail.generations[-_STARTS:]):
        yield from _start(start, about, width)


def _start(start: Generation, about: About, width: int) -> Iterator[Row]:
    service, began = about.service, start.started_at
    if service is not None and service.started_at is not None and start.pid == service.pid is not None:
        began = service.started_at  # of the process, as in State; the journal has the time of the decision
    ready = _start_duration(began, start.ready_at) if start.ready_at is not None else UNKNOWN
    lasted = duration(start.ended_at - start.started_at) if start.ended_at is not None else UNKNOWN
    pid = UNKNOWN if start.pid is None else str(start.pid)
    ago = moment(start.started_at, about.now, over=about.over).rjust(len(about.when_head))
    head = f" {start.generation:>6} {start.attempt:>7} {pid:>8} {ago} {ready:>8} {lasted:>7}  "
    end, style = "", "text"
    if start.exit is not None:
        end, style = start.exit.words(), "text" if start.exit.ok else "warn"
    elif start.pid is None:
        end, style = "never started", "warn"
    elif (
        about.service is not None
        and start.generation == about.service.generation
        and about.service.pid is not None
    ):
        end, style = "running", "ok"
    elif start.role == "retiring":
        end, style = "draining", "info"
    if start.why and start.exit is not None and start.exit.words() not in start.why:
        end = f"{end}: {start.why}" if end else start.why
    for index, line in enumerate(wrap(end, width - len(head))):
        yield Row((head if not index else " " * len(head), "text"), (line, style))


def _command(about: About, width: int) -> Iterator[Row]:
    detail = about.detail
    if detail is None:
        return
    lines: list[str] = []
    for word in (shlex.quote(_filled(w)) for w in detail.argv):
        # Lines are filled word by word; only a word longer than a line is broken.
        if lines and len(lines[-1]) + len(word) + 1 <= width - 5:
            lines[-1] += f" {word}"
        else:
            lines += wrap(word, width - 5)
    for index, line in enumerate(lines):
        more = " \\" if index < len(lines) - 1 else ""
        yield Row((" " if not index else "   ", "text"), (one_line(line), "text"), (more, "dim"))
    if detail.cwd:
        yield from _fact("directory", detail.cwd, width)
    if detail.environment is not None:
        yield from _fact("Python from", f"{detail.environment}: {detail.interpreter or UNKNOWN}", width)
    elif detail.interpreter is not None:
        yield from _fact("interpreter", detail.interpreter, width)
    for index, requirement in enumerate(detail.requirements):
        yield from _fact("requirements" if not index else "", requirement, width)


def _environment(about: About, width: int) -> Iterator[Row]:
    detail = about.detail
    if detail is None:
        return
    for name, value in sorted(detail.env.items()):
        begin = len(name) + 1
        for index, line in enumerate(wrap(value, width - 4, begin)):
            if not index:
                yield Row((f" {one_line(name)}", "info"), ("=", "dim"), (line, "text"))
            else:
                yield Row((f"   {line}", "text"))
    if detail.unset_env:
        yield from _fact("unset", " ".join(detail.unset_env), width)
    if detail.withheld:
        yield from _fact("not inherited", " ".join(detail.withheld), width)


def _events(about: About, width: int) -> Iterator[Row]:
    for event in about.events[-EVENTS:]:
        head = f" {about.when(event.at):>9} "
        for index, line in enumerate(wrap(event.text, width - len(head) - 2)):
            row = Row((head if not index else " " * len(head), "dim"))
            row.add(f"{LEVEL_GLYPH[event.level]} " if not index else "  ", LEVEL_STYLE[event.level])
            yield row.add(line, LEVEL_STYLE[event.level])


# -- words


def _start_duration(begin: float, end: float) -> str:
    """The seconds of a start, with the same precision as in the events."""
    return f"{max(0.0, end - begin):.1f} s"


_RESTARTED = {
    "always": "always",
    "on_failure": "after a failure",
    "until_ready": "after a start that fails for a reason which may pass",
}


def restart_words(policy: RestartPolicy) -> str:
    """The restart policy as a sentence, without a full stop."""
    if policy.mode == "never":
        return "never restarted automatically"
    return (
        f"restarted {_RESTARTED[policy.mode]}: immediately, then after {number(policy.base, 0)} s, doubling up to "
        f"{number(policy.cap, 0)} s; gives up after more than {policy.max_failures} failures in "
        f"{duration(policy.window)}"
    )


def stages_words(stages: Sequence[StopStage]) -> str:
    """The stages of a stop: ``SIGTERM to the main process (10 s), ...``, each with its grace."""
    whom = {"leader": "the main process", "tree": "all its processes"}
    return ", ".join(f"{s.signal} to {whom[s.target]} ({s.grace:g} s)" for s in stages)
