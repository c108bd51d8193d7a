"""The service screen: one service in full, beside a list of all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from textual.app import ComposeResult
from textual.containers import Container

from liverl.control.messages import ControlError
from liverl.control.service_detail import ServiceDetail
from liverl.daemon.service_detail import filed_detail
from liverl.model import ReplicaStatus, ServiceStatus
from liverl.procs.listing import ListedProcess, ProcessTree
from liverl.rundir.layout import hostname
from liverl_tui.data.view import actors
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.rows import Pane
from liverl_tui.widgets.service.panes import DetailPane, ServiceList
from liverl_tui.widgets.service.text import About, argv_line

if TYPE_CHECKING:
    from textual import events
    from textual.binding import BindingType

    from liverl_tui.data.view import View

LOOK_S = 2.0  # between two looks at the processes, and two questions to the backend
WIDE = 100  # columns from which on the list stands beside the detail, not above it
_LIST_ROWS = 5  # of the list above the detail, its title included
_KEYS: list[BindingType] = [*bindings("service")]


class ServiceScreen(RunScreen):
    """``selected_service`` is what the keys for restarting, stopping and starting act on."""

    scope = "service"
    BINDINGS = _KEYS
    AUTO_FOCUS = "#detail"
    DEFAULT_CSS = """
    ServiceScreen { layout: vertical; }
    ServiceScreen #both { width: 1fr; height: 1fr; layout: horizontal; }
    ServiceScreen #both.-narrow { layout: vertical; }
    ServiceScreen DetailPane { width: 1fr; height: 1fr; }
    ServiceScreen ServiceList { width: 30; height: 1fr; }
    ServiceScreen .-narrow ServiceList { width: 1fr; height: 5; }
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.selected_service = name
        self.chooser = ServiceList(self.choose, id="services")
        self._clock = Clock()
        self._detail: ServiceDetail | None = None
        self._note = ""
        self._filed: tuple[str, str] | None = None  # name and link for which the files were read
        self._processes: tuple[ListedProcess, ...] | None = None
        self._tree = ProcessTree()
        self._looking = self._asking = False
        self._asked_for: object = None
        self._placed: object = None

    def compose(self) -> ComposeResult:
        # Narrow or not is known here already: no first frame has the panes elsewhere.
        with Container(id="both", classes="-narrow" if self.app.size.width < WIDE else ""):
            yield self.chooser
            yield DetailPane(id="detail")
        yield KeyBar()

    def on_mount(self) -> None:
        super().on_mount()
        self.chooser.copies(lambda: argv_line(self._detail))
        self.set_interval(LOOK_S, self._look)

    # -- what is known

    def services(self) -> tuple[ServiceStatus, ...]:
        snapshot = self.liverl.view.snapshot
        return snapshot.services if snapshot is not None else ()

    def actors(self) -> tuple[ReplicaStatus, ...]:
        """The replicas that are no services: verl's."""
        return actors(self.liverl.view.snapshot)

    @property
    def service(self) -> ServiceStatus | None:
        return next((s for s in self.services() if s.name == self.selected_service), None)

    @property
    def actor(self) -> ReplicaStatus | None:
        return next((r for r in self.actors() if r.name == self.selected_service), None)

    def choose(self, name: str) -> None:
        """Show another service."""
        if name != self.selected_service:
            self.selected_service = name
            self._detail, self._note, self._processes = None, "", None
            self._tree = ProcessTree()
            self._draw()
            self._look()

    def show(self, view: View) -> None:
        if not self._composed:
            return
        self._clock.take(view)
        services = self.services()
        if self.selected_service is None and services:
            # The first that is a process, rather than an environment.
            self.selected_service = next((s for s in services if s.kind != "environment"), services[0]).name
        self._place()
        with self.app.batch_update():
            self.query_one(KeyBar).show(view)
            self.chooser.take((*services, *self.actors()), self.selected_service)
            self._draw()
        shown = self.service or self.actor
        state = (self.selected_service, shown and (shown.state, shown.generation), view.link)
        if state != self._asked_for:
            self._asked_for = state
            self._look()

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
        )
        for pane in self.query(DetailPane):  # an answer may come when the screen is being closed
            pane.take(about)

    # -- looking and asking

    def _look(self) -> None:
        if self.is_current and self.selected_service is not None:
            self.run_worker(self._look_at_processes(), group="processes")
            self.run_worker(self._ask(), group="inspect")

    async def _look_at_processes(self) -> None:
        pids, tree = self._pids(), self._tree
        if self._looking:
            return
        if pids is None or not self._runs_here():
            if self._processes is not None:
                self._processes = None
                self._draw()
            return
        self._looking = True
        try:
            found = await asyncio.to_thread(tree.look, pids)
        finally:
            self._looking = False
        if tree is self._tree:
            self._processes = found
            self._draw()

    def _pids(self) -> set[int] | None:
        """Of the processes of what is shown; None where nobody knows them."""
        service, detail = self.service, self._detail
        if service is not None:
            leaders = (service.pid, service.incoming_pid, *service.retiring_pids)
            return {*service.members, *(pid for pid in leaders if pid is not None)}
        return set(detail.members) if detail is not None and detail.members else None

    def _runs_here(self) -> bool:
        """Whether the pids that a view tells are those of processes of ours: others may have them after the run's
        end, and on another host."""
        view = self.liverl.view
        return view.link != "ended" and view.snapshot is not None and view.snapshot.backend.host == hostname()

    async def _ask(self) -> None:
        name, link = self.selected_service, self.liverl.view.link
        asks = link in ("live", "connecting")
        if self._asking or name is None or (not asks and self._filed == (name, link)):
            return  # what the files say is read once
        self._asking = True
        detail, note = None, ""
        try:
            if asks:
                detail, note = await self._from_backend(name)
            if detail is None:
                why = note or ("this run has ended" if link == "ended" else "there is no backend to ask")
                detail = await asyncio.to_thread(filed_detail, self.liverl.source.run.path, name)
                note = f"{why}: what follows is from the run's files, not live"
                if detail is None and self.actor is not None:
                    note = f"{why}: what follows is what was told last"
                elif detail is None:
                    note = f"{why}, and the run's files know no such service"
        finally:
            self._asking = False
        if name == self.selected_service:
            before = self._pids()
            self._detail, self._note = detail, note
            self._filed = None if asks else (name, link)
            self._draw()
            if self._pids() != before and self.is_current:
                self.run_worker(self._look_at_processes(), group="processes")
        else:
            self._look()  # another one was chosen meanwhile

    async def _from_backend(self, name: str) -> tuple[ServiceDetail | None, str]:
        try:
            answer = await self.liverl.source.command("inspect", service=name)
            return msgspec.convert(answer, ServiceDetail), ""
        except ControlError as error:
            return None, str(error)
        except msgspec.ValidationError as error:
            return None, f"the backend's answer cannot be read ({error})"

    # -- where the panes stand

    def on_resize(self, _event: events.Resize) -> None:
        self._place()

    def _place(self) -> None:
        width, height = self.size
        count = len(self.services()) + len(self.actors())
        state = (width, height, count)
        if state == self._placed or not self._composed:
            return
        self._placed = state
        narrow = width < WIDE
        self.query_one("#both").set_class(narrow, "-narrow")
        pane = self.chooser
        pane.display = count > 0 and (not narrow or height >= 16)
        pane.styles.height = min(_LIST_ROWS, count + 1) if narrow else "1fr"
        if not pane.display and self.focused is pane:
            self.set_focus(self.query_one(DetailPane))

    # -- keys

    def action_other(self, by: int) -> None:
        names = [*(s.name for s in self.services()), *(r.name for r in self.actors())]
        if names:
            here = names.index(self.selected_service) if self.selected_service in names else -1
            self.chooser.select(names[(here + by) % len(names)])
            self.choose(names[(here + by) % len(names)])

    def action_next_pane(self) -> None:
        panes: list[Pane] = [pane for pane in (self.chooser, self.query_one(DetailPane)) if pane.display]
        here = next((i for i, pane in enumerate(panes) if pane is self.focused), -1)
        self.set_focus(panes[(here + 1) % len(panes)])  # at once: the next key is for it

    def action_logs(self) -> None:
        """Its log, in the dashboard's pane."""
        if self.selected_service is not None:
            self.liverl.navigation.open_log(self.selected_service)
