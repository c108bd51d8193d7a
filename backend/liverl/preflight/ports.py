"""Checks of the ports that a plan names: free, or held by whom, and what to do about it."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from collections.abc import Iterator, Mapping

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import BRIDGE, Plan, PortSpec
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import Ours, main_service, variables_of
from liverl.procs import procfs
from liverl.rundir.commands import any_port, end_run, port_fix, set_options
from liverl.rundir.holders import held_by, run_of, run_word
from liverl.rundir.index import RunInfo

_RAY_FIX = (
    "set ray.address to use that Ray cluster, or start another one beside it: "
    f"{set_options({'infrastructure.ray_port': '0', 'infrastructure.ray_dashboard_port': '0'})}"
)


# LiveRL's variables that name a port on which its script starts a service, and the keys that set them.
_OF_SCRIPT = {
    "LITELLM_PORT": "infrastructure.litellm_port",
    "RAY_PORT": "infrastructure.ray_port",
    "RAY_DASHBOARD_PORT": "infrastructure.ray_dashboard_port",
}


def port_checks(plan: Plan, ours: Ours | None = None) -> list[Check]:
    """One check for each port with a number. One that another run of this user holds names that run, and how to show
    it or to start beside it. ``ours``: what this run holds by now; None before its start."""
    checks = []
    specs = (*plan.services, plan.replica_template) if plan.replica_template else plan.services
    for spec in specs:
        for port in spec.ports:
            if port.number == 0 or port.host == BRIDGE:  # the same number as that of the port at 127.0.0.1
                continue
            name = f"port {port.number} ({spec.name})"
            holder = procfs.port_holder(port.number)
            if holder is None:
                checks.append(_bindable(name, port))
            elif ours is not None and ours.has(holder.pid, plan):
                checks.append(Check(name, "ok", f"held by this run (pid {holder.pid})"))
            else:
                # Where a Ray cluster listens, that may be meant to be used.
                ray = spec.kind == "ray" and _is_ray(holder.words())
                patch = {port.key: "0"} if port.key and not ray else {}
                run = run_of(holder.pid)
                fix = (
                    _RAY_FIX
                    if ray
                    else port_fix(port.key, port.number, run_word(run) if run is not None else "")
                )
                text = f"{_held(holder, run)}: a Ray cluster is running there" if ray else _held(holder, run)
                checks.append(Check(name, "fail", text, fix=fix, patch=patch))
    return checks


def script_ports(
    plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ, ours: Ours | None = None
) -> Iterator[Check]:
    """The ports that a launch script gets in variables. One that is held is a warning, as in LiveRL's dryrun.sh: some
    scripts end what an earlier launch has left there. Those that the script chooses itself are not known."""
    script = main_service(plan)
    variables = variables_of(script, env)
    for name, key in _OF_SCRIPT.items():
        value = variables.get(name, "")
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 16):
            continue
        title = f"port {value} ({name})"
        if elsewhere(config):
            yield Check(title, "skipped", "the command runs on another host")
            continue
        holder = procfs.port_holder(int(value))
        if holder is None:
            yield Check(title, "ok", "free")
        elif ours is not None and ours.has(holder.pid, plan):
            yield Check(title, "ok", f"held by this run (pid {holder.pid})")
        else:
            run = run_of(holder.pid)
            owner = f", of run {run_word(run)}" if run is not None else ""
            then = ": trials would reach that one" if name == "LITELLM_PORT" else ""
            # 0 is refused for a script: it has to know the number before it starts.
            end = "if nobody needs it, end it" if run is None else end_run(run_word(run))
            fix = f"{end}; or {free_now(key)}"
            yield Check(title, "warn", f"held by {holder.words()}{owner}{then}", fix=fix)


def free_now(key: str) -> str:
    """The setting of ``key``, where 0 does not mean any free port, to one that is free at the moment.

    Raises:
        OSError: no port is free.
    """
    return f"take a port that is free now: {set_options({key: str(procfs.free_port())})}"


def _held(holder: procfs.Holder, run: RunInfo | None) -> str:
    words = f"held by {held_by(holder, run)}"
    return (
        words
        if run is None or run.state != "live"
        else f"{words}. To show that run: liverl-tui attach {shlex.quote(run_word(run))}"
    )


def _is_ray(words: str) -> bool:
    return any(sign in words for sign in ("gcs_server", "raylet", "dashboard", "ray::"))


def _bindable(name: str, port: PortSpec) -> Check:
    host, number = port.host, port.number
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
        except OSError as error:
            why = f"{host}:{number} cannot be bound: {os.strerror(error.errno or 0)}"
            fix = any_port(port.key) if _of_number(error, port) else ""
            if error.errno == errno.EADDRINUSE:
                user = procfs.port_user(number)
                nobody = "no process that is visible from here listens on it"
                why = f"{why}: {nobody if user is None else f'a connection of {user.words()}'}"
                fix = port_fix(port.key, number)
                fix += f"; to see it: ss -Htanp sport = :{number}" if user is None else ""
            return Check(name, "fail", why, fix=fix, patch={port.key: "0"} if fix else {})
    return Check(name, "ok", "free")


def _of_number(error: OSError, port: PortSpec) -> bool:
    """Whether another number can be bound: it is the number that is refused, not the address."""
    return bool(port.key) and error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
