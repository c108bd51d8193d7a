"""A plan as text for the user and as JSON for programs."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from liverl.model import Check, Inert
from liverl.plan.inherit import withheld
from liverl.plan.script_variables import script_variables
from liverl.plan.spec import Plan, Probe, ServiceSpec
from liverl.util import redact
from liverl.util.plural import plural, quantity

_EXPORTED = re.compile(r"^exported as [^;]+; ")  # the start of a reason that names a key's variables


def plan_json(
    plan: Plan,
    env: Mapping[str, str] | None = None,
    checks: Iterable[Check] = (),
) -> str:
    """The plan as indented JSON with secrets redacted; ``inert_set_by_user`` is the number of inert keys that the user
    set, ``withheld`` the names of the caller's variables (``env``) that each service does not inherit. ``checks``: what
    preflight found."""
    document = msgspec.to_builtins(_redacted(plan)) | {
        "inert_set_by_user": len(_set_by_user(plan)),
        "checks": [redact.struct(check) for check in checks],
        "withheld": _withheld(plan, env or {}),
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _redacted(plan: Plan) -> Plan:
    return msgspec.convert(redact.description(msgspec.to_builtins(plan)), Plan)


def plan_text(plan: Plan, env: Mapping[str, str] | None = None, *, every_key: bool = True) -> str:
    """The whole plan as text: services with commands and probes, the variables of the caller (``env``) that they do not
    inherit, inert keys and warnings. ``every_key``: also the inert keys that the user did not set, with reasons; else
    their number."""
    return "\n".join(_lines(_redacted(plan), env or {}, every_key)) + "\n"


def plan_brief(plan: Plan) -> str:
    """The plan in short: a line per service with its GPUs and fixed ports, then the warnings."""
    return "\n".join(_brief(_redacted(plan))) + "\n"


def _brief(plan: Plan) -> Iterator[str]:
    yield from _head(plan)
    for spec in _services(plan):
        replicas = spec is plan.replica_template
        gpus = spec.gpus * (plan.expected_replicas if replicas else 1)
        facts = [quantity(gpus, "GPU")] if gpus else []
        facts += [f"{port.name} {port.host}:{port.number}" for port in spec.ports if port.number]
        name = quantity(plan.expected_replicas, "replica") if replicas else spec.name
        yield f"starts     {name}" + (f": {', '.join(facts)}" if facts else "")
    if plan.ray is not None and plan.ray.owner == "foreign" and plan.ray.address:
        yield f"uses       the existing Ray cluster {plan.ray.address}"
    for warning in plan.warnings:
        yield f"warning: {warning}"


def _head(plan: Plan) -> Iterator[str]:
    yield f"run        {plan.run}"
    yield f"directory  {plan.run_dir}"
    steps = f", {quantity(plan.total_steps, 'step')}" if plan.total_steps else ""
    replicas = quantity(plan.expected_replicas, "replica")
    if plan.script is not None and not plan.expected_replicas:
        replicas = "as many replicas as the launch script starts"
    yield f"topology   {plan.topology}: {replicas}{steps}"
    for change in plan.changes:
        yield f"changed    {change.words} (attempt {change.attempt}, {change.where})"
    if plan.settings.mute:
        yield f"muted      {', '.join(plan.settings.mute)}"
    if plan.settings.rules:
        yield f"rules      {', '.join(plan.settings.rules)}"
    for environment in plan.environments:
        source = environment.venv_path or " ".join(environment.requirements)
        yield f"env        {environment.name}: {source}"
    for target in plan.notify.targets:
        level = f" (alerts from {plan.notify.min_level} on)" if "alert" in plan.notify.events else ""
        yield f"notify     {target.title}: {', '.join(plan.notify.events) or 'nothing'}{level}"


def _services(plan: Plan) -> tuple[ServiceSpec, ...]:
    return (plan.replica_template, *plan.services) if plan.replica_template else plan.services


def _withheld(plan: Plan, env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Service -> names of the variables that it does not inherit, for the services for which there are any."""
    names = {
        spec.name: withheld(env, spec.inherits, spec.pass_env, spec.unset_env) for spec in _services(plan)
    }
    return {service: kept for service, kept in names.items() if kept}


def _not_inherited(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """The variables that are withheld: once for all services that do not inherit the same ones."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for service, names in _withheld(plan, env).items():
        groups.setdefault(names, []).append(service)
    if groups:
        yield ""
        yield "variables of this shell that services do not inherit (add them to supervise.pass_env)"
    for names, services in groups.items():
        yield f"  {', '.join(services)}:"
        yield _filled(names)


def _variables(plan: Plan) -> Iterator[str]:
    """From where the launch script's variables are, and which of LiveRL's it does not get."""
    variables = script_variables(plan)
    if variables is None:
        return
    yield ""
    yield "variables that the launch script gets"
    for name, (value, where) in sorted(variables.given.items()):
        yield f"  {name}={value}  [{where}]"
    yield "LiveRL's variables that are not set (the launch script's own values apply)"
    yield _filled(variables.left)


def _filled(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), 110, initial_indent="    ", subsequent_indent="    ")


def _lines(plan: Plan, env: Mapping[str, str], every_key: bool) -> Iterator[str]:
    yield from _head(plan)
    for spec in _services(plan):
        yield ""
        count = f" x {plan.expected_replicas}" if spec is plan.replica_template else ""
        yield f"{spec.name}{count}  ({spec.kind})"
        yield from (f"  {line}" for line in _service(spec))
    yield from _variables(plan)
    yield from _not_inherited(plan, env)
    yield from _inert(plan, every_key)
    for warning in plan.warnings:
        yield f"warning: {warning}"


def _set_by_user(plan: Plan) -> list[Inert]:
    return [inert for inert in plan.inert if inert.where]


def _inert(plan: Plan, every_key: bool) -> Iterator[str]:
    """The inert keys: a line for each one that the user set, the others grouped by their reason, or counted."""
    if not plan.inert:
        return
    by_user = _set_by_user(plan)
    yield ""
    yield f"inert here ({quantity(len(plan.inert), 'key')}; {len(by_user)} of them set by you)"
    for inert in by_user:
        yield f"  {inert.key}: inert here: {inert.why}  [{inert.where}]"
    if not every_key:
        if others := len(plan.inert) - len(by_user):
            yield f"  {quantity(others, 'key')} that you did not set: liverl-tui plan --all lists them with reasons"
        return
    reasons: dict[str, list[str]] = {}
    for inert in plan.inert:
        if not inert.where:
            reason = _EXPORTED.sub("exported as environment variables; ", inert.why)
            reasons.setdefault(reason, []).append(inert.key)
    for why, keys in reasons.items():
        yield f"  {why}:"
        yield _filled(keys)


def _service(spec: ServiceSpec) -> Iterator[str]:
    yield f"command   {shlex.join(spec.argv)}"
    if spec.env:
        yield "env       " + " ".join(f"{k}={v}" for k, v in sorted(spec.env.items()))
    for port in spec.ports:
        number = port.number or "any free port, chosen at each start"
        held = ", the run holds the listening socket" if port.held else ""
        yield f"port      {port.name}: {port.host}:{number}{held}"
    if spec.gpus:
        yield f"gpus      {spec.gpus}"
    for need in spec.depends_on:
        count = f" ({need.count})" if need.count is not None else ""
        yield f"after     {need.on}: {need.condition.replace('_', ' ')}{count}"
    yield f"ready     {_probe(spec.probes.startup)}, within {spec.probes.startup_deadline:g} s"
    if spec.probes.live:
        failures = spec.probes.live.failures
        causes = f"{quantity(failures, 'failure')} {plural(failures, 'causes', 'cause')}"
        yield f"alive     {_probe(spec.probes.live)}, {causes} a restart"
    restart = spec.restart
    if restart.mode == "never":
        yield "restart   never"
    else:
        when = {"until_ready": "of a start that fails for a reason which may pass"}
        yield (
            f"restart   {when.get(restart.mode, restart.mode.replace('_', ' '))}, immediately, then with delays from "
            f"{restart.base:g} s, doubled up to {restart.cap:g} s; more than {restart.max_failures} in "
            f"{restart.window:g} s: gives up"
        )
    yield "stop      " + ", ".join(f"{s.signal} {s.target} {s.grace:g} s" for s in spec.stop)
    if spec.drain:
        yield "replaced  " + ", ".join(f"{s.signal} {s.target} {s.grace:g} s" for s in spec.drain)
    for file in spec.files:
        yield f"file      {file.path} ({quantity(len(file.text), 'byte')})"
    if spec.ends_run:
        yield "the run ends when this service exits"


def _probe(probe: Probe) -> str:
    return {
        "http": f"GET {probe.path} returns 200",
        "completion": "a test completion succeeds"
        + (", and so do the token routes" if probe.token_routes else ""),
        "log_line": f"a line in its log matches '{probe.pattern}'",
        "status_file": f"{probe.path} has state '{probe.pattern}'",
        "process": "the process exists",
    }[probe.kind]
