"""The two repairs of a launch that is not ours, as commands: list a replica that its proxy has left out, and restart
that proxy by the processes that really hold its port."""

from __future__ import annotations

import asyncio
import os
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

_NOT_OURS = "it is managed by the launch script; this run does not start or stop it"


class Repair:
    """One repair at a time."""

    def __init__(self, supervisor: Supervisor, adopted: LaunchScript) -> None:
        self._supervisor = supervisor
        self._adopted = adopted
        self._proxy = adopted.proxy
        self._turn = asyncio.Lock()
        self._newest: Member | None = None  # what was started last

    def knows(self, service: str) -> bool:
        """Whether this name is of something that was adopted and is no service of ours."""
        return service in (RAY, PROXY) or service in {endpoint.name for endpoint in self._adopted.endpoints()}

    async def run(self, command: ServiceCommand) -> dict[str, Any]:
        """Carry out a command about something adopted.

        Raises:
            CommandError: it cannot be done; the message says why.
        """
        service, cluster = command.service, command.service in (RAY, PROXY)
        match command:
            case Inspect():
                told: dict[str, Any] = msgspec.to_builtins(self._detail(service))
                return told
            case Restart() if service == PROXY:
                return await self.restart()
            case StartService() if not cluster:
                return await self.add(name=service)
        if cluster:
            raise CommandError("foreign", f"{service}: {_NOT_OURS}")
        raise owned_by_verl(service)

    def _detail(self, service: str) -> ServiceDetail:
        launch = self._proxy.launch if service == PROXY else None
        kind: Any = service  # Ray and the proxy are called by what they are
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
        """List replicas that serve and are left out: ``delta`` more, as many more as make ``to``, or the one of this
        name. The proxy reads its list when it is restarted.

        Raises:
            CommandError: nobody is left out, fewer are wanted, or the configuration cannot be edited.
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
        left_out = self._adopted.unlisted()
        count = delta or 1
        if to is not None:
            count = to - sum(
                1 for endpoint in endpoints if endpoint.address and self._proxy.lists(endpoint.address)
            )
            if count < 0:
                raise CommandError("not_scalable", "verl manages its replicas; this run cannot remove them")
        if name is not None:
            left_out = [endpoint for endpoint in left_out if endpoint.name == name]
        if not left_out or count == 0:
            raise CommandError("nothing_unlisted", self._all_listed(endpoints, name))
        if count > len(left_out):
            text = f"cannot add {count} replicas: only {len(left_out)} are up and not listed by the proxy"
            raise CommandError(
                "out_of_range", f"{text}; verl manages its replicas, and this run cannot start more"
            )
        return left_out[:count]

    def _all_listed(self, endpoints: list[ReplicaEndpoint], name: str | None) -> str:
        missing = [f"{endpoint.name}: {endpoint.why}" for endpoint in endpoints if not endpoint.serving]
        restart_it = "; restart the proxy to reload its list" if self._proxy.pending else ""
        if name is not None and any(endpoint.name == name and endpoint.serving for endpoint in endpoints):
            return f"{name} is already listed{restart_it}"
        serving = len(endpoints) - len(missing)
        if missing:
            return (
                f"all {serving} replicas that are up are listed{restart_it}; not up yet: {'; '.join(missing)}"
            )
        return f"all {serving} replicas are listed{restart_it}"

    def _edit(
        self, config: Path, launch: LiteLLMLaunch, chosen: list[ReplicaEndpoint]
    ) -> tuple[list[str], Path]:
        replicas = [endpoint.address for endpoint in self._adopted.endpoints() if endpoint.address]
        names: list[str] = []
        try:
            document = model_list.read(config.read_text())
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
            raise CommandError("bad_config", f"{config}: {error}") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError("not_written", f"cannot edit {config}: {why}") from None
        return names, backup

    # --- restarting the proxy ---

    async def restart(self) -> dict[str, Any]:
        """End the processes that hold the proxy's port, these only, and start its command line again. Returns when
        it answers.

        Raises:
            CommandError: they are not ours to end, no LiteLLM, or it did not come back; the message says what is
                there now.
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
        """Who is to be ended, and what is to be started."""
        proxy = self._proxy
        held = port_holders.look(proxy.port)
        if held is None and proxy.held is not None:
            held = port_holders.look_again(
                proxy.held
            )  # its workers have died, and it keeps the port to itself
        if held is None:
            if proxy.launch is None:
                raise CommandError(
                    "no_proxy", f"nothing listens on port {proxy.port}, and this run has seen no proxy there"
                )
            launch = proxy.launch
        else:
            refused = self._refusal(held)
            if refused is not None:
                raise CommandError("foreign", refused)
            try:
                launch = litellm.capture(held, proxy.port)[1]
            except NotLiteLLM as error:
                raise CommandError("not_litellm", f"not restarted: {error}") from None
        try:
            model_list.read(launch.config.read_text())
        except (OSError, ListingError, ValueError) as error:
            text = f"not restarted, because it could not start again: {launch.config}: {error}"
            raise CommandError("bad_config", text) from None
        return held, launch

    def _refusal(self, held: PortHolders) -> str | None:
        hub = self._supervisor
        for process in held.holders:
            tag = procfs.environment_tag(process.pid)
            where = procfs.environment_tag(process.pid, b"LIVERL_RUN_DIR")
            if tag is not None and where != str(hub.run_dir):
                return (
                    f"{litellm.words(process)}: the process belongs to run {tag.rpartition('/')[0]} in {where}; "
                    f"restart it there: liverl-tui restart proxy --run {where}"
                )
        return restart.refusal(held)

    async def _restart(self, held: PortHolders | None, launch: LiteLLMLaunch) -> dict[str, Any]:
        port, hub = self._proxy.port, self._supervisor
        if held is not None:
            who = ", ".join(str(process.pid) for process in held.holders)
            hub.say("restart", f"stopping the processes that hold port {port}: pids {who}", service=PROXY)
            ended = await restart.end(held)
            hub.say("restart", f"stopped: pids {', '.join(map(str, ended))}", service=PROXY)
        if self._newest is not None:
            await restart.end_tree(self._newest)  # one that never came to listen keeps the port to itself
        taken = await restart.until_free(port)
        if taken is not None:
            who = (
                "; ".join(litellm.words(root) for root in taken.roots)
                or "a process that is not visible from here"
            )
            raise RestartProblem(
                f"port {port} was taken by {who} before the proxy could restart; nothing was started"
            )
        if hub.stopping:
            raise RestartProblem("the run is stopping; the proxy was not restarted")
        log = launch.log or hub.attempt_dir / "logs" / "adopted-proxy.log"
        start = log.stat().st_size if log.is_file() else 0
        member = await self._spawn(launch, log)
        hub.say("restart", f"started pid {member[0]}: {launch.words()}", service=PROXY)
        try:
            pid_files = (litellm.usual_files(port)[1], launch.config.with_suffix(".pid"))
            written = await asyncio.to_thread(restart.write_pid, pid_files, member[0])
        except OSError as error:
            written = []
            hub.say("restart", f"cannot write its pid file: {error}", "warning", PROXY)
        await restart.until_up(member, self._proxy.problem, log, start)
        files = f", {', '.join(map(str, written))} written" if written else ""
        text = f"it responds on port {port} again (pid {member[0]}{files})"
        hub.say("restart", text, service=PROXY)
        return {"service": PROXY, "pid": member[0], "text": text}

    async def _spawn(self, launch: LiteLLMLaunch, log: Path) -> Member:
        hub = self._supervisor
        trainer = hub.slots["trainer"].current
        generation = trainer.process.generation if trainer.process is not None else 1
        # By its tag it belongs to the trainer's tree, and ends with that.
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
            raise RestartProblem(f"the proxy has exited and cannot be restarted: {why}") from None
        member = (int(child["pid"]), int(child["tick"]))
        self._newest = member
        hub.process_scan.trees.seed(trainer.key_of(generation), [member])
        return member

    def _may(self) -> None:
        refuse_while_stopping(self._supervisor)
        if self._turn.locked():
            raise CommandError("busy", "another repair is in progress")
