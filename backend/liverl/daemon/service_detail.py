"""Details of one service: its command, environment and probes, and the history of its generations.

From a running backend (``live_detail``), or from the run's files without one (``filed_detail``), which know less.
Secrets are redacted in both.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from liverl.control.messages import CommandError
from liverl.control.service_detail import Generation, GpuUse, ProbeFacts, ServiceDetail
from liverl.model import Exit
from liverl.plan import moved
from liverl.plan.inherit import withheld
from liverl.plan.spec import EnvironmentSpec, Plan, Probe, ServiceSpec
from liverl.rundir.layout import RunDir
from liverl.supervise.services import prepare
from liverl.util import redact
from liverl.util.decode import decode_json
from liverl.util.nearest import nearest
from liverl.util.regular_file import open_binary, read_regular

if TYPE_CHECKING:
    from liverl.supervise.services.instance import Instance
    from liverl.supervise.services.supervisor import Supervisor

PidMemory = Mapping[str, Mapping[int, int | None]]  # GPU's UUID -> pid -> bytes
ENVIRONMENT = "env:"  # prefix of the names of environments
KEPT = 50  # newest generations that are returned


async def live_detail(supervisor: Supervisor, name: str, memory: PidMemory) -> dict[str, Any]:
    """The detail of a service or an environment, as plain data.

    Raises:
        CommandError: there is no service or environment of this name.
    """
    detail = _environment(supervisor.plan, name, live=True)
    if detail is not None:
        python = supervisor.environments.pythons.get(name.removeprefix(ENVIRONMENT))
        detail = replace(detail, interpreter=str(python) if python else None)
    else:
        detail = _live_service(supervisor, name, memory)
        history = await asyncio.to_thread(generations, supervisor.run_dir, name)
        detail = replace(detail, generations=tuple(history))
    data: dict[str, Any] = msgspec.to_builtins(detail)
    return data


def _live_service(supervisor: Supervisor, name: str, memory: PidMemory) -> ServiceDetail:
    try:
        slot = supervisor.slot(name)
    except CommandError as error:
        environments = [ENVIRONMENT + spec.name for spec in supervisor.plan.environments]
        if not name.startswith(ENVIRONMENT) or not environments:
            raise
        near = nearest(name, environments)
        raise CommandError(error.code, str(error), near or error.did_you_mean) from None
    instance = slot.current
    spec, process = slot.spec, instance.process
    generation = process.generation if process is not None else instance.machine.generation
    values = prepare.Placeholders(
        supervisor.run_dir,
        supervisor.attempt_dir,
        generation,
        _KeepUnknown("python", supervisor.pythons()),
        _KeepUnknown(
            "port", {**supervisor.service_ports(), **(process.ports if process is not None else {})}
        ),
        supervisor.batch_end,
    )
    tag = f"{supervisor.run}/{name}/{generation}"
    env = prepare.environment(spec, values, tag, process.gpus if process is not None else ())
    own_variables = {k for k in env if k in spec.env or k.startswith("LIVERL_")}
    env = {k: v for k, v in env.items() if k in own_variables or os.environ.get(k) != v}
    members = supervisor.process_scan.members().get(name, ())
    used = [
        GpuUse(uuid, pid, size)
        for uuid, pids in memory.items()
        for pid, size in pids.items()
        if pid in members or (process is not None and uuid in process.gpus)
    ]
    python = supervisor.pythons().get(spec.environment) if spec.environment else None
    detail = _of_spec(spec, values, env, live=True)
    return replace(
        detail,
        interpreter=str(python) if python else None,
        withheld=withheld(os.environ, spec.inherits, spec.pass_env, spec.unset_env),
        probes=tuple(_outcome(probe, instance) for probe in detail.probes),
        gpu_memory=tuple(used),
    )


def actor_detail(name: str, pids: Iterable[int], memory: PidMemory) -> dict[str, Any]:
    """The detail of a replica that verl manages as a Ray actor, as plain data: only its processes and their GPU
    memory, since its command is unknown. ``pids``: of its processes on this host."""
    members = tuple(pids)
    used = [
        GpuUse(uuid, pid, size)
        for uuid, users in memory.items()
        for pid, size in users.items()
        if pid in members
    ]
    detail = ServiceDetail(name, "replica", live=True, gpu_memory=tuple(used), members=members)
    data: dict[str, Any] = msgspec.to_builtins(detail)
    return data


def _outcome(probe: ProbeFacts, instance: Instance) -> ProbeFacts:
    at, problem = instance.looks.get(probe.name, (None, None))
    return replace(probe, at=at, problem=redact.value(problem) if problem else None)


def filed_detail(run_dir: Path, name: str) -> ServiceDetail | None:
    """The detail of a service or environment from the run's files; None if the plan has none of this name or cannot be
    read. The command line is that of the newest start; of a service that was never started, it is the plan's, in which
    unknown ports and interpreters stay placeholders."""
    run = RunDir(run_dir)
    try:
        plan = moved.read_plan(read_regular(run.plan))
    except (OSError, ValueError, RecursionError):
        return None
    environment = _environment(plan, name, live=False)
    if environment is not None:
        return environment
    spec = _planned(plan, name)
    if spec is None:
        return None
    history = generations(run_dir, name)
    attempts = run.attempts()
    values = prepare.Placeholders(
        run_dir,
        run.attempt(history[-1].attempt if history else attempts[-1] if attempts else 1),
        history[-1].generation if history else 1,
        _KeepUnknown("python", {}),
        _KeepUnknown("port", _ports(run_dir, name)),
    )
    env = {key: prepare.fill(text, values) for key, text in spec.env.items()}
    detail = _of_spec(spec, values, env, live=False)
    argv = _started_as(run_dir, name)
    return replace(detail, argv=redact.command(argv) if argv else detail.argv, generations=tuple(history))


def _planned(plan: Plan, name: str) -> ServiceSpec | None:
    for spec in plan.services:
        if spec.name == name:
            return spec
    template = plan.replica_template
    if template is None:
        return None
    form = re.escape(template.name).replace(re.escape("{index}"), r"(\d+)")
    match = re.fullmatch(form, name)
    if match is None or not match.groups():
        return None
    from liverl.serving.scaling import replica_spec

    return replica_spec(template, int(match[1]), plan.replica_arguments.get(str(int(match[1])), ()))


def _environment(plan: Plan, name: str, *, live: bool) -> ServiceDetail | None:
    bare_name = name.removeprefix(ENVIRONMENT)
    spec: EnvironmentSpec | None = next((e for e in plan.environments if e.name == bare_name), None)
    if not name.startswith(ENVIRONMENT) or spec is None:
        return None
    interpreter = spec.venv_path or spec.python
    requirements = tuple(redact.value(r) for r in spec.requirements)
    return ServiceDetail(name, "environment", live, interpreter=interpreter, requirements=requirements)


def _of_spec(
    spec: ServiceSpec, values: prepare.Placeholders, env: Mapping[str, str], *, live: bool
) -> ServiceDetail:
    return ServiceDetail(
        name=spec.name,
        kind=spec.kind,
        live=live,
        argv=redact.command([prepare.fill(word, values) for word in spec.argv]),
        cwd=prepare.fill(spec.cwd, values),
        env=redact.environment(env),
        unset_env=spec.unset_env,
        environment=spec.environment,
        depends_on=tuple(
            f"{d.on}: {d.condition.replace('_', ' ')}{f' ({d.count})' if d.count is not None else ''}"
            for d in spec.depends_on
        ),
        probes=tuple(_probes(spec, values)),
        startup_deadline=spec.probes.startup_deadline,
        restart=spec.restart,
        stop=spec.stop,
        drain=spec.drain,
    )


def _probes(spec: ServiceSpec, values: prepare.Placeholders) -> Iterable[ProbeFacts]:
    probes = spec.probes
    named: tuple[tuple[Literal["startup", "ready", "live"], Probe | None], ...] = (
        ("startup", probes.startup),
        ("ready", probes.ready),
        ("live", probes.live),
    )
    for name, probe in named:
        if probe is not None:
            yield ProbeFacts(name, _words(probe, values), probe.interval, probe.timeout, probe.failures)


def _words(probe: Probe, values: prepare.Placeholders) -> str:
    port = f"port {values.ports[probe.port]}" if probe.port else ""
    if probe.kind == "http":
        return f"GET {probe.path} on {port} returns 200"
    if probe.kind == "completion":
        routes = ", and so do the token routes" if probe.token_routes else ""
        return f"a test completion of {probe.model} on {port} succeeds{routes}"
    if probe.kind == "log_line":
        return f"a line in its log matches '{probe.pattern}'"
    if probe.kind == "status_file":
        return f"{prepare.fill(probe.path, values)} has state '{probe.pattern}'"
    return "the process exists"


class _KeepUnknown(dict[str, Any]):
    """Values of placeholders; a name without a value gives its own placeholder."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._kind = kind

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return f"{{{self._kind}:{name}}}"


# --- from the journal -----------------------------------------------------------------------------------


def generations(run_dir: Path, service: str) -> list[Generation]:
    """The newest ``KEPT`` generations of a service over all attempts, oldest first. Malformed lines of the journal are
    skipped; without a journal the list is empty."""
    by_number: dict[tuple[int, int], Generation] = {}
    attempt = 0
    for record in _records(run_dir, service):
        kind = record.get("k")
        if kind == "attempt":
            attempt = record["n"]
            continue
        for part in record["records"] if kind == "promoted" else (record,):
            if part.get("svc") != service or part.get("gen", 0) < 1:
                continue
            key = (attempt, part["gen"])
            generation = by_number.get(key) or Generation(attempt, part["gen"], "current", record["at"])
            by_number[key] = _with(generation, kind or "", record["at"], part)
    return sorted(by_number.values(), key=lambda g: (g.attempt, g.generation))[-KEPT:]


def _with(generation: Generation, kind: str, at: float, part: Mapping[str, Any]) -> Generation:
    """The generation with the facts of one more record of the journal."""
    if kind == "intent":
        return replace(generation, role=part["role"], started_at=at, log=part.get("log"))
    if kind == "spawned":
        return replace(generation, pid=part["pid"])
    if kind == "exit":
        exit_ = msgspec.convert(part["exit"], Exit)
        return replace(generation, exit=exit_, ended_at=max(exit_.at or at, generation.started_at))
    if kind in ("state", "promoted"):
        machine, role = part["unit"], part.get("role", generation.role)
        ready_at = machine.get("ready_at") or generation.ready_at
        generation = replace(generation, role=role, ready_at=ready_at)
        ended = machine["state"] in ("stopping", "failed", "gave_up", "stopped", "backing_off")
        if ended and not generation.why:
            generation = replace(generation, why=redact.value(machine.get("why", "")))
    return generation


def _ports(run_dir: Path, service: str) -> dict[str, int]:
    ports: dict[str, int] = {}
    for record in _records(run_dir, service):
        if record.get("k") == "intent":
            ports.update(record["ports"])
    return ports


def _started_as(run_dir: Path, service: str) -> list[str]:
    """The command line of the newest start; empty if none is recorded."""
    argv: list[str] = []
    for record in _records(run_dir, service):
        if record.get("k") == "intent":
            argv = record.get("argv", [])
    return argv


def _records(run_dir: Path, service: str) -> Iterable[dict[str, Any]]:
    """The journal's records of attempts and of one service; other lines are not decoded."""
    needles = (b'"svc":' + msgspec.json.encode(service), b'"k":"attempt"')
    try:
        file = open_binary(RunDir(run_dir).journal)
    except OSError:
        return
    with file:
        for line in file:
            if any(needle in line for needle in needles):
                try:
                    record = decode_json(line, type=dict[str, Any])
                except (ValueError, RecursionError):
                    continue
                yield record
