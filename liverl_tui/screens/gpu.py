"""The GPU screen: who uses one GPU, its past, and what its driver says of it, beside a list of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from liverl.control.gpu_detail import GpuDetail
from liverl.control.messages import ControlError
from liverl.model import GpuStatus
from liverl.observe.history import Sample, read_history
from liverl_tui.data.view import why_no_backend
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.list_detail import ListDetailScreen
from liverl_tui.text.facts import why_no_gpus
from liverl_tui.text.status_label import SnapshotIndex, owner_of
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.gpu.panes import GpuList, GpuPane
from liverl_tui.widgets.gpu.past import KEPT, PERIOD_S, ZOOMS, Past
from liverl_tui.widgets.gpu.text import AboutGpu

if TYPE_CHECKING:
    from textual.binding import BindingType

    from liverl_tui.data.view import View

REFRESH_S = 2.0  # seconds between two requests to the backend
_KEYS: list[BindingType] = [*bindings("gpu")]


class GpuScreen(ListDetailScreen, inherit_bindings=False):
    """Shows one GPU: its processes, its history, its clocks, errors and links.

    ``selected_gpu`` is its UUID; None until the first snapshot if the caller named none. What no snapshot has comes
    from the backend (command ``inspect_gpu``), which reads it only when it is asked; the past comes from the run's
    files.
    """

    scope = "gpu"
    BINDINGS = _KEYS
    beside_from = 120
    above_from = 34
    list_rows = 9
    fewest = 2

    def __init__(self, uuid: str | None = None) -> None:
        super().__init__()
        self.selected_gpu = uuid
        self.chooser: GpuList = GpuList(self.choose, id="list")
        self.detail: GpuPane = GpuPane(id="detail")
        self._clock = Clock()
        self._zoom = 0  # index in ZOOMS
        self._history: tuple[Sample, ...] = ()
        self._history_read = False
        self._pasts: dict[str, Past] = {}
        self._detail: GpuDetail | None = None
        self._note = ""
        self._asking: set[str] = set()  # GPUs whose answers are on their way; one that blocks delays no other
        self._asked_for: object = None  # GPU and link at the last request

    def on_mount(self) -> None:
        """Ask the backend again every ``REFRESH_S`` seconds."""
        super().on_mount()
        self.set_interval(REFRESH_S, self._ask_soon)

    # -- the selected GPU

    def gpus(self) -> tuple[GpuStatus, ...]:
        """The GPUs of the newest snapshot; none before the first one."""
        snapshot = self.liverl.view.snapshot
        return snapshot.gpus if snapshot is not None else ()

    @property
    def gpu(self) -> GpuStatus | None:
        """The status of the selected GPU; None if the snapshot has none of that UUID."""
        return next((gpu for gpu in self.gpus() if gpu.uuid == self.selected_gpu), None)

    @property
    def selected_service(self) -> str | None:
        """The service of the run that uses the selected GPU; the keys that act on a service act on it."""
        gpu, snapshot = self.gpu, self.liverl.view.snapshot
        return owner_of(gpu, SnapshotIndex(snapshot)) if gpu is not None and snapshot is not None else None

    def names(self) -> Sequence[str]:
        """The UUIDs of the GPUs."""
        return [gpu.uuid for gpu in self.gpus()]

    @property
    def chosen(self) -> str | None:
        """The UUID of the selected GPU."""
        return self.selected_gpu

    def choose(self, name: str) -> None:
        """Show the GPU with the UUID ``name``, and ask the backend about it at once."""
        if name != self.selected_gpu:
            self.selected_gpu = name
            self._detail, self._note = None, ""
            self._draw()
            self._ask_soon()

    def show(self, view: View) -> None:
        """Update list, past and detail. Ask the backend at once if the link has changed."""
        if not self._composed:
            return
        self._clock.take(view)
        snapshot = view.snapshot
        if self.selected_gpu is None and snapshot is not None and snapshot.gpus:
            self.selected_gpu = snapshot.gpus[0].uuid
        super().show(view)
        if snapshot is not None and not self._history_read:
            self._history_read = True
            self.run_worker(self._read_history(snapshot.at - KEPT * PERIOD_S), group="history")
        if self._asked_for != (self.selected_gpu, view.link):
            self._ask_soon()

    def draw(self, view: View) -> None:
        """See ``ListDetailScreen.draw``."""
        snapshot = view.snapshot
        if snapshot is not None:
            for gpu in snapshot.gpus if view.live else ():
                self._past(gpu.uuid).take_status(snapshot.at, gpu)
            self.chooser.take(snapshot, self._clock.now(), self.selected_gpu)
        self._draw()

    def _past(self, uuid: str) -> Past:
        if uuid not in self._pasts:
            self._pasts[uuid] = Past()
            self._pasts[uuid].take_history(uuid, self._history)
        return self._pasts[uuid]

    async def _read_history(self, since: float) -> None:
        """Fill the charts from the run's files: samples since ``since``, in Unix seconds."""
        try:
            self._history = await asyncio.to_thread(read_history, self.liverl.source.run.path, since)
        except OSError as error:
            text = f"cannot read the run's history, so the charts start empty: {one_line(str(error))}"
            self.liverl.notifications.toast(text, "warning", about="history")
            return
        for uuid, past in self._pasts.items():
            past.take_history(uuid, self._history)
        self._draw()

    def _draw(self) -> None:
        view, gpu = self.liverl.view, self.gpu
        snapshot = view.snapshot
        if not self._composed or snapshot is None:
            return
        about, nothing = None, why_no_gpus(snapshot)
        if gpu is not None:
            about = AboutGpu(
                gpu=gpu,
                now=self._clock.now(),
                snapshot=snapshot,
                past=self._past(gpu.uuid),
                live=view.live,
                zoom=ZOOMS[self._zoom],
                detail=self._detail,
                note=self._note,
                silent=self._silent(view),
            )
        elif self.selected_gpu is not None and snapshot.gpus:
            nothing = f"{self.selected_gpu} is gone: the driver does not show it any more"
        for pane in self.query(GpuPane):  # none if an answer comes while the screen closes
            pane.take(about, nothing)

    def _silent(self, view: View) -> str:
        """What does not say the details of the processes, where no backend is asked for them."""
        if view.demo:
            return "the recording"
        return "the last known state" if self._note or view.link not in ("live", "connecting") else ""

    # -- asking the backend

    def _ask_soon(self) -> None:
        if self.is_current and self.selected_gpu is not None:
            self.run_worker(self._ask(), group="inspect_gpu")

    async def _ask(self) -> None:
        """Get the detail of the selected GPU from the backend, and draw it."""
        uuid, link = self.selected_gpu, self.liverl.view.link
        if uuid is None or uuid in self._asking:
            return
        self._asking.add(uuid)
        self._asked_for = (uuid, link)
        detail, note = None, ""
        try:
            if link in ("live", "connecting"):
                detail, note = await self._from_backend(uuid)
            else:
                note = f"{why_no_backend(link)}; showing the last known state"
        finally:
            self._asking.discard(uuid)
        if uuid == self.selected_gpu:
            self._detail, self._note = detail, note
            self._draw()

    async def _from_backend(self, uuid: str) -> tuple[GpuDetail | None, str]:
        """Return (detail, ""), or (None, why the backend gave none)."""
        try:
            answer = await self.liverl.source.command("inspect_gpu", gpu=uuid)
            return msgspec.convert(answer, GpuDetail), ""
        except ControlError as error:
            return None, str(error)
        except msgspec.ValidationError as error:
            return None, f"the backend's answer cannot be read ({error})"

    # -- keys

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a service of the run uses the GPU."""
        if action in ("service", "logs") and self.selected_service is None:
            return "no service of this run uses this GPU"
        return super().idle(action, parameters)

    def action_zoom(self, by: int) -> None:
        """Show a shorter past (1), or a longer one (-1)."""
        before, self._zoom = self._zoom, max(0, min(len(ZOOMS) - 1, self._zoom - by))
        if self._zoom == before:
            self.liverl.notifications.toast(
                f"this is the {'shortest' if by > 0 else 'longest'} past", "warning"
            )
        self._draw()

    def action_service(self) -> None:
        """Show the service of the run that uses this GPU."""
        name = self._service_or_toast()
        if name is not None:
            self.liverl.navigation.open_service(name)

    def action_logs(self) -> None:
        """Show the log of the service that uses this GPU, on the dashboard."""
        name = self._service_or_toast()
        if name is not None:
            self.liverl.navigation.open_log(name)

    def _service_or_toast(self) -> str | None:
        name = self.selected_service
        if name is None:
            self.liverl.notifications.toast("no service of this run uses this GPU", "warning")
        return name
