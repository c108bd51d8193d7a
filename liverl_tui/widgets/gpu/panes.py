"""The two panes of the GPU screen: the list of GPUs, and the detail of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from liverl.model import GpuStatus, Snapshot
from liverl_tui.text.status_label import SnapshotIndex, of_gpu, owner_words
from liverl_tui.text.words import percent
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.gpu.processes import holders
from liverl_tui.widgets.gpu.text import AboutGpu, gpu_rows


class GpuList(ChooserPane):
    """All GPUs with their utilization and owner. ``chosen`` is called with the UUID when the cursor moves."""

    title = "GPUs"

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(chosen, id=id)
        self._gpus: dict[str, GpuStatus] = {}
        self._styles: dict[str, tuple[str, str]] = {}  # glyph and style of each GPU's verdict

    def take(self, snapshot: Snapshot, now: float, selected: str | None) -> None:
        """Show the GPUs of a snapshot, with the cursor on ``selected``."""
        index = SnapshotIndex(snapshot)
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        labels = {gpu.uuid: of_gpu(gpu, index, now) for gpu in snapshot.gpus}
        self._styles = {uuid: (label.glyph, label.style) for uuid, label in labels.items()}
        if selected is not None:
            self._cursor = selected
        self.update()

    def keys(self) -> Sequence[str]:
        """The UUIDs."""
        return list(self._gpus)

    def row(self, key: str, width: int) -> Row:
        """One GPU: index, utilization, verdict, owner."""
        gpu, (glyph, style) = self._gpus[key], self._styles[key]
        util = "n/a" if gpu.utilization is None else percent(gpu.utilization)
        room = max(4, width - 13)
        row = Row((f" {gpu.index:>2} ", "strong"), (f"{util:>4} ", "text"), (f"{glyph} ", style))
        return row.add(owner_words(gpu, room), "text", room)


class GpuPane(ScrollPane):
    """Everything known about one GPU, to scroll through."""

    title = "GPU"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.about: AboutGpu | None = None
        self._nothing = "no GPUs yet"

    def take(self, about: AboutGpu | None, nothing: str = "") -> None:
        """Show these facts; another GPU is shown from its top. ``nothing``: why there is no GPU."""
        if about is None or self.about is None or self.about.gpu.uuid != about.gpu.uuid:
            self.to_top()
        self.about, self._nothing = about, nothing
        self.update()

    def heading(self) -> tuple[str, str]:
        """Number and model of the GPU, how many there are, and the verdict on it."""
        about = self.about
        if about is None:
            return "", self._nothing
        gpu, count = about.gpu, len(about.snapshot.gpus)
        of = f", one of {count}" if count > 1 else ""
        verdict = of_gpu(gpu, SnapshotIndex(about.snapshot), about.now).text
        return f"GPU {gpu.index}", f"{gpu.name}{of}  {verdict}"

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines of the detail."""
        return gpu_rows(self.about, width, height) if self.about is not None else []

    def copy_line(self) -> str:
        """Who holds the GPU, with the command of each process."""
        about = self.about
        if about is None:
            return ""
        processes = about.detail.processes if about.detail is not None else ()
        held = f"GPU {about.gpu.index}: {holders(about.gpu, about.detail)}"
        return "\n".join([held, *(f"pid {p.pid} {p.command}".rstrip() for p in processes)])
