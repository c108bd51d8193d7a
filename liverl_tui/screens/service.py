"""The service screen: all facts of one service or replica, beside a list of all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from liverl.control.messages import ControlError
from liverl.control.service_detail import ServiceDetail
from liverl.daemon.service_detail import filed_detail
from liverl.model import ReplicaStatus, ServiceStatus
from liverl.procs.listing import ListedProcess, ProcessTree
from liverl.rundir.layout import hostname
from liverl_tui.data.view import actors, why_no_backend
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.list_detail import ListDetailScreen
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.service.panes import DetailPane, ServiceList
from liverl_tui.widgets.service.text import About, argv_line

if TYPE_CHECKING:
    from textual.binding import BindingType

    from liverl_tui.data.view import View

REFRESH_S = 2.0  # seconds between two reads of the processes, and two requests to the backend
_KEYS: list[BindingType] = [*bindings("service")]


class ServiceScreen(ListDetailScreen, inherit_bindings=False):
    """Shows the state, probes, command, environment, processes and events of one service.

    ``selected_service`` is its name: the keys that restart, stop and start a service act on it. None until the
    first snapshot if the caller named no service. Facts that no snapshot has come from the backend (command
    ``inspect``) while it is alive, else from the files of the run; processes are read from /proc.
    """

    scope = "service"
    BINDINGS = _KEYS
    beside_from = 100
    above_from = 16
    list_rows = 5

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.selected_service = name
        self.chooser: ServiceList = ServiceList(self.choose, id="list")
        self.detail: DetailPane = DetailPane(id="detail")
        self._clock = Clock()
        self._detail: ServiceDetail | None = None
        self._note = ""
        self._files_read_for: tuple[str, str] | None = None  # (service, link) of the last such read
        self._processes: tuple[ListedProcess, ...] | None = None
        self._tree = ProcessTree()
        self._reading_processes = self._inspecting = False
        self._inspected_state: object = None  # service, state and link at the last refresh

    def on_mount(self) -> None:
        """Read processes and detail again every ``REFRESH_S`` seconds."""
        super().on_mount()
        self.chooser.copies(lambda: argv_line(self._detail))
        self.set_interval(REFRESH_S, self._refresh_facts)

    # -- the selected service

    def services(self) -> tuple[ServiceStatus, ...]:
        """Return the services of the newest snapshot; none before the first one."""
        snapshot = self.liverl.view.snapshot
        return snapshot.services if snapshot is not None else ()

    def actors(self) -> tuple[ReplicaStatus, ...]:
        """Return the replicas that are not services: those that verl keeps as Ray actors."""
        return actors(self.liverl.view.snapshot)

    @property
    def service(self) -> ServiceStatus | None:
        """The status of the selected service; None if an actor is selected, or nothing that the snapshot has."""
        return next((s for s in self.services() if s.name == self.selected_service), None)

    @property
    def actor(self) -> ReplicaStatus | None:
        """The status of the selected replica if it is an actor of verl; else None."""
        return next((r for r in self.actors() if r.name == self.selected_service), None)

    def names(self) -> Sequence[str]:
        """The services, then the replicas that are none."""
        return [*(s.name for s in self.services()), *(r.name for r in self.actors())]

    @property
    def chosen(self) -> str | None:
        """The selected service or replica."""
        return self.selected_service

    def choose(self, name: str) -> None:
        """Show the service or actor ``name``, and read its facts at once."""
        if name != self.selected_service:
            self.selected_service = name
            self._detail, self._note, self._processes = None, "", None
            self._tree = ProcessTree()
            self._draw()
            self._refresh_facts()

    def show(self, view: View) -> None:
        """Update list and detail. Read the facts again if state, generation or link have changed."""
        if not self._composed:
            return
        self._clock.take(view)
        services = self.services()
        if self.selected_service is None and services:
            # Select the first service that runs; environments are only built.
            self.selected_service = next((s for s in services if s.kind != "environment"), services[0]).name
        super().show(view)
        shown = self.service or self.actor
        state = (self.selected_service, shown and (shown.state, shown.generation), view.link)
        if state != self._inspected_state:
            self._inspected_state = state
            self._refresh_facts()

    def draw(self, view: View) -> None:
        """See ``ListDetailScreen.draw``."""
        self.chooser.take((*self.services(), *self.actors()), self.selected_service, self._clock.now())
        self._draw()

    def _draw(self) -> None:
        name = self.selected_service
        if name is None or not self._composed:
            return
        view = self.liverl.view
        about = About(
            name=name,
            now=self._clock.now(),
            snapshot=view.snapshot,
            service=self.service,
            detail=self._detail,
            processes=self._processes,
            events=tuple(e for e in view.events if e.service == name),
            note=self._note,
            log=self._link_of_log(),
        )
        for pane in self.query(DetailPane):  # none if an answer comes while the screen closes
            pane.take(about)

    def _link_of_log(self) -> str:
        """Where the log lies, if the run directory has a link to it only: it is somebody else's file."""
        if self.service is None or self.service.log is None:
            return ""
        path = self.liverl.source.run.path / self.service.log
        return os.path.realpath(path) if path.is_symlink() else ""

    # -- reading facts

    def _refresh_facts(self) -> None:
        if self.is_current and self.selected_service is not None:
            self.run_worker(self._read_processes(), group="processes")
            self.run_worker(self._inspect(), group="inspect")

    async def _read_processes(self) -> None:
        """List the processes of the selected service; None if its pids are not those of this host."""
        pids, tree = self._pids(), self._tree
        if self._reading_processes:
            return
        if pids is None or not self._runs_here():
            if self._processes is not None:
                self._processes = None
                self._draw()
            return
        self._reading_processes = True
        try:
            processes = await asyncio.to_thread(tree.look, pids)
        finally:
            self._reading_processes = False
        if tree is self._tree:  # else another service was selected meanwhile
            self._processes = processes
            self._draw()

    def _pids(self) -> set[int] | None:
        """Return the pids of the selected service or actor; None if neither snapshot nor detail has them."""
        service, detail = self.service, self._detail
        if service is not None:
            leaders = (service.pid, service.incoming_pid, *service.retiring_pids)
            return {*service.members, *(pid for pid in leaders if pid is not None)}
        return set(detail.members) if detail is not None and detail.members else None

    def _runs_here(self) -> bool:
        """Whether the pids in the snapshot are processes of this run on this host. After the end of the run, and on
        another host, or of a recorded run, the same pids may belong to other processes."""
        view = self.liverl.view
        return (
            view.link not in ("ended", "demo")
            and view.snapshot is not None
            and view.snapshot.backend.host == hostname()
        )

    async def _inspect(self) -> None:
        """Get the detail of the selected service from the backend, else from the run's files, and draw it."""
        name, link = self.selected_service, self.liverl.view.link
        backend_alive = link in ("live", "connecting")
        if self._inspecting or name is None or (not backend_alive and self._files_read_for == (name, link)):
            return  # without a backend, the files are read once per service and link
        self._inspecting = True
        detail, note = None, ""
        try:
            if backend_alive:
                detail, note = await self._from_backend(name)
            if detail is None:
                why = note or why_no_backend(link)
                detail = await asyncio.to_thread(filed_detail, self.liverl.source.run.path, name)
                note = f"{why}; showing the run's files, not live data"
                if detail is None and self.actor is not None:
                    note = f"{why}; showing the last known state"
                elif detail is None:
                    note = f"{why}, and the run's files do not contain this service"
        finally:
            self._inspecting = False
        if name == self.selected_service:
            pids_before = self._pids()
            self._detail, self._note = detail, note
            self._files_read_for = None if backend_alive else (name, link)
            self._draw()
            if self._pids() != pids_before and self.is_current:
                self.run_worker(self._read_processes(), group="processes")
        else:
            self._refresh_facts()  # another service was selected meanwhile

    async def _from_backend(self, name: str) -> tuple[ServiceDetail | None, str]:
        """Return (detail, ""), or (None, why the backend gave none)."""
        try:
            answer = await self.liverl.source.command("inspect", service=name)
            return msgspec.convert(answer, ServiceDetail), ""
        except ControlError as error:
            return None, str(error)
        except msgspec.ValidationError as error:
            return None, f"the backend's answer cannot be read ({error})"

    # -- keys

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a service is chosen, and uses a GPU."""
        if action == "gpu" and not self._gpus_used():
            return f"{self.selected_service or 'this service'} uses no GPU"
        if action == "logs" and self.selected_service is None:
            return "no service is chosen"
        return super().idle(action, parameters)

    def _gpus_used(self) -> list[str]:
        """UUIDs of the GPUs of the shown service or replica: its own, then those that hold memory of it."""
        holder = self.service or self.actor
        used = [use.uuid for use in self._detail.gpu_memory] if self._detail is not None else []
        return [*(holder.gpus if holder is not None else ()), *used]

    def action_logs(self) -> None:
        """Close this screen and show the log of the selected service in the log pane of the dashboard."""
        if self.selected_service is not None:
            self.liverl.navigation.open_log(self.selected_service)

    def action_gpu(self) -> None:
        """Show the first GPU that the selected service or replica uses."""
        self.liverl.navigation.open_gpu(self._gpus_used()[0])
