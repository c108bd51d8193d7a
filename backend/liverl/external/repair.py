"""The two repairs of a launch script's run, as commands: add a replica to the proxy's configuration, and restart the
processes that hold the proxy's port."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from pathlib import Path
from typing import Any

import msgspec

from liverl.control.commands import Inspect, Restart, ServiceCommand, StartService
from liverl.control.messages import CommandError
from liverl.control.service_detail import ServiceDetail
from liverl.external import config_file, litellm, model_list, port_holders, restart
from liverl.external.launch_script import NAME as RAY
from liverl.external.launch_script import LaunchScript
from liverl.external.litellm import LiteLLMLaunch, NotLiteLLM
from liverl.external.model_list import ListingError
from liverl.external.port_holders import PortHolders
from liverl.external.proxy import NAME as PROXY
from liverl.external.restart import RestartProblem
from liverl.procs import procfs
from liverl.procs.tree import Member
from liverl.serving.endpoint import ReplicaEndpoint, owned_by_verl
from liverl.supervise.keeper.client import KeeperError, KeeperGone
from liverl.supervise.services.operations import refuse_while_stopping
from liverl.supervise.services.supervisor import Supervisor
from liverl.util import redact
from liverl.util.regular_file import read_text

_NOT_OURS = "is managed by the launch script; start or stop it there"


class Repair:
    """Carries out the two repairs, one at a time."""

    def __init__(self, supervisor: Supervisor, adopted: LaunchScript) -> None:
        self._supervisor = supervisor
        self._adopted = adopted
        self._proxy = adopted.proxy
        self._turn = asyncio.Lock()
        self._newest: Member | None = None  # the proxy process that was started last

    def knows(self, service: str) -> bool:
        """Whether ``service`` is Ray, the proxy or a replica of the launch script, and no service of ours."""
        return service in (RAY, PROXY) or service in {endpoint.name for endpoint in self._adopted.endpoints()}

    async def run(self, command: ServiceCommand) -> dict[str, Any]:
        """Carry out a command on Ray, the proxy or a replica of the launch script.

        Raises:
            CommandError: the command cannot be carried out; the message says why.
        """
        service, cluster = command.service, command.service in (RAY, PROXY)
        match command:
            case Inspect():
                detail: dict[str, Any] = msgspec.to_builtins(self._detail(service))
                return detail
            case Restart() if service == PROXY:
                return await self.restart()
            case StartService() if not cluster:
                return await self.add(name=service)
        if cluster:
            raise CommandError("foreign", f"{service} {_NOT_OURS}")
        raise owned_by_verl(service)

    def _detail(self, service: str) -> ServiceDetail:
        launch = self._proxy.launch if service == PROXY else None
        kind: Any = service  # the names of Ray and the proxy are also their kinds
        if launch is None:
            return ServiceDetail(service, kind, live=True)
        return ServiceDetail(service, kind, live=True, argv=redact.command(launch.argv), cwd=launch.cwd)

    # --- listing a replica ---

    async def add(
        self,
        to: int | None = None,
        delta: int | None = None,
        remove: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Add replicas that serve and are not listed to the proxy's configuration: ``delta`` of them, as many as make
        ``to`` in all, or the one of this ``name``. The proxy loads the list when it is restarted.

        Raises:
            CommandError: no replica is unlisted, fewer are wanted, or the configuration cannot be edited.
        """
        self._may()
        if remove is not None or (delta is not None and delta <= 0):
            raise CommandError("not_scalable", "verl manages its replicas; this run cannot remove them")
        async with self._turn:
            launch = self._proxy.launch
            if launch is None or self._proxy.leader is None:
                why = self._proxy.service().why
                raise CommandError("no_proxy", f"no proxy is running to add a replica to: {why}")
            await self._proxy.read_file()
            chosen = self._choose(to, delta, name)
            names, backup = await asyncio.to_thread(self._edit, launch.config, launch, chosen)
            await self._proxy.read_file()
        self._supervisor.kick()
        who = ", ".join(f"{endpoint.name} ({endpoint.address})" for endpoint in chosen)
        text = (
            f"{who} added to {launch.config} under {', '.join(names)}; backup: {backup.name}; "
            "restart the proxy to apply the change"
        )
        self._supervisor.say("added", text, service=PROXY)
        return {"added": [endpoint.name for endpoint in chosen], "backup": str(backup), "text": text}

    def _choose(self, to: int | None, delta: int | None, name: str | None) -> list[ReplicaEndpoint]:
        endpoints = self._adopted.endpoints()
        unlisted = self._adopted.unlisted()
        count = delta or 1
        if to is not None:
            count = to - sum(
                1 for endpoint in endpoints if endpoint.address and self._proxy.lists(endpoint.address)
            )
            if count < 0:
                raise CommandError("not_scalable", "verl manages its replicas; this run cannot remove them")
        if name is not None:
            unlisted = [endpoint for endpoint in unlisted if endpoint.name == name]
        if not unlisted or count == 0:
            raise CommandError("nothing_unlisted", self._all_listed(endpoints, name))
        if count > len(unlisted):
            text = f"cannot add {count} replicas: only {len(unlisted)} are up and not listed by the proxy"
            raise CommandError(
                "out_of_range", f"{text}; verl manages its replicas, and this run cannot start more"
            )
        return unlisted[:count]

    def _all_listed(self, endpoints: list[ReplicaEndpoint], name: str | None) -> str:
        missing = [f"{endpoint.name} ({endpoint.why})" for endpoint in endpoints if not endpoint.serving]
        restart_it = "; restart the proxy to reload its list" if self._proxy.pending else ""
        if name is not None and any(endpoint.name == name and endpoint.serving for endpoint in endpoints):
            return f"{name} is already listed{restart_it}"
        serving = len(endpoints) - len(missing)
        if missing:
            return (
                f"all {serving} replicas that are up are listed{restart_it}; not up yet: {', '.join(missing)}"
            )
        return f"all {serving} replicas are listed{restart_it}"

    def _edit(
        self, config: Path, launch: LiteLLMLaunch, chosen: list[ReplicaEndpoint]
    ) -> tuple[list[str], Path]:
        replicas = [endpoint.address for endpoint in self._adopted.endpoints() if endpoint.address]
        names: list[str] = []
        try:
            document = model_list.read(read_text(config))
            for endpoint in chosen:
                assert endpoint.address is not None
                document, added = model_list.add(
                    document,
                    endpoint.address,
                    replicas,
                    self._proxy.own,
                    launch.env,
                    prefix=self._supervisor.plan.replica_engine.litellm_prefix,
                )
                names += [name for name in added if name not in names]
            backup = config_file.replace_with_backup(config, model_list.render(document))
        except ListingError as error:
            raise CommandError(
                "bad_config", f"cannot edit the proxy's configuration {config}: {error}"
            ) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError(
                "not_written", f"cannot edit the proxy's configuration {config}: {why}"
            ) from None
        return names, backup

    # --- restarting the proxy ---

    async def restart(self) -> dict[str, Any]:
        """Stop the processes that hold the proxy's port, these only, and start their command line again. Returns when
        the new proxy responds.

        Raises:
            CommandError: the processes belong to another user or run, are no LiteLLM, or the new proxy did not
                start; the message says what state the proxy is in now.
        """
        self._may()
        async with self._turn:
            held, launch = await asyncio.to_thread(self._look)
            self._proxy.restart_begins()
            try:
                return await self._restart(held, launch)
            except RestartProblem as problem:
                raise CommandError("not_started", str(problem)) from None
            finally:
                self._proxy.restart_ends()
                await self._proxy.look()
                self._supervisor.kick()

    def _look(self) -> tuple[PortHolders | None, LiteLLMLaunch]:
        """The processes to stop (None = none listens), and the launch to start again."""
        proxy = self._proxy
        held = port_holders.look(proxy.port)
        if held is None and proxy.held is not None:
            # A parent whose workers have died keeps the port bound without listening.
            held = port_holders.look_again(proxy.held)
        if held is None:
            if proxy.launch is None:
                raise CommandError(
                    "no_proxy",
                    f"nothing listens on port {proxy.port}, and no proxy did since this run started; start the "
                    "proxy with the launch script",
                )
            launch = proxy.launch
        else:
            reason = self._refusal(held)
            if reason is not None:
                raise CommandError("foreign", reason)
            try:
                launch = litellm.capture(held, proxy.port)[1]
            except NotLiteLLM as error:
                raise CommandError("not_litellm", f"the proxy was not restarted: {error}") from None
        try:
            model_list.read(read_text(launch.config))
        except (OSError, ListingError, ValueError) as error:
            text = f"the proxy was not restarted, because it could not read {launch.config}: {error}"
            raise CommandError("bad_config", text) from None
        return held, launch

    def _refusal(self, held: PortHolders) -> str | None:
        hub = self._supervisor
        for process in held.holders:
            tag = procfs.environment_tag(process.pid)
            where = procfs.environment_tag(process.pid, b"LIVERL_RUN_DIR")
            if tag is not None and where != str(hub.run_dir):
                return (
                    f"{litellm.words(process)} belongs to run {tag.rpartition('/')[0]} in {where}; "
                    f"restart it there with: liverl-tui restart proxy --run {shlex.quote(where or '')}"
                )
        return restart.refusal(held)

    async def _restart(self, held: PortHolders | None, launch: LiteLLMLaunch) -> dict[str, Any]:
        port, hub = self._proxy.port, self._supervisor
        if held is not None:
            who = ", ".join(str(process.pid) for process in held.holders)
            hub.say("restart", f"stopping the processes that hold port {port}: pids {who}", service=PROXY)
            ended = await restart.end(held)
            hub.say("restart", f"stopped pids {', '.join(map(str, ended))}", service=PROXY)
        if self._newest is not None:
            await restart.end_tree(self._newest)  # it may hold the port without listening
        taken = await restart.until_free(port)
        if taken is not None:
            who = (
                "; ".join(litellm.words(root) for root in taken.roots)
                or "a process that is not visible from here"
            )
            raise RestartProblem(
                f"port {port} was taken by {who} before the proxy could restart; nothing was started. Stop that "
                "process, then restart the proxy"
            )
        if hub.stopping:
            raise RestartProblem("the run is stopping; the proxy was not restarted")
        log = launch.log or hub.attempt_dir / "logs" / "adopted-proxy.log"
        start = log.stat().st_size if log.is_file() else 0
        member = await self._spawn(launch, log)
        hub.say("restart", f"started the proxy (pid {member[0]}): {launch.words()}", service=PROXY)
        try:
            pid_files = (litellm.usual_files(port)[1], launch.config.with_suffix(".pid"))
            written = await asyncio.to_thread(restart.write_pid, pid_files, member[0])
        except OSError as error:
            written = []
            hub.say("restart", f"cannot write the proxy's pid file: {error}", "warning", PROXY)
        await restart.until_up(member, self._proxy.problem, log, start)
        files = f"; wrote {', '.join(map(str, written))}" if written else ""
        text = f"the proxy responds on port {port} again (pid {member[0]}{files})"
        hub.say("restart", text, service=PROXY)
        return {"service": PROXY, "pid": member[0], "text": text}

    async def _spawn(self, launch: LiteLLMLaunch, log: Path) -> Member:
        hub = self._supervisor
        trainer = hub.slots["trainer"].current
        generation = trainer.process.generation if trainer.process is not None else 1
        # With this tag it belongs to the trainer's process tree, and is stopped with that.
        tag = {"LIVERL_RUN": f"{hub.run}/trainer/{generation}", "LIVERL_RUN_DIR": str(hub.run_dir)}
        try:
            child = await hub.keeper_manager.spawn(
                token=f"adopted-proxy.{time.time_ns()}",
                argv=list(launch.argv),
                env={**launch.env, **tag},
                cwd=launch.cwd,
                log=os.fspath(log),
            )
        except (KeeperError, KeeperGone) as error:
            why = str(error) or "the keeper has exited"
            raise RestartProblem(f"the proxy was stopped and cannot be started again: {why}") from None
        member = (int(child["pid"]), int(child["tick"]))
        self._newest = member
        hub.process_scan.trees.seed(trainer.key_of(generation), [member])
        return member

    def _may(self) -> None:
        refuse_while_stopping(self._supervisor)
        if self._turn.locked():
            raise CommandError(
                "busy",
                "the proxy is already being changed by another command; try again when that has finished",
            )
