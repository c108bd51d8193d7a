"""The two panes of the GPU screen: the list of GPUs, and the detail of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from liverl.model import GpuStatus, Snapshot
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel, of_gpu, owner_of, owner_words
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.dashboard import gpu_rows as gpu_table
from liverl_tui.widgets.gpu.processes import holders
from liverl_tui.widgets.gpu.text import AboutGpu, gpu_rows


def _narrow(column: Column) -> Column:
    """A column of the GPUs pane in the narrow list: number, load, sign of the verdict and owner are shown."""
    match column.name:
        case "state":
            return replace(column, head="", width=1, rank=0, label="state")
        case "owner":
            return replace(column, width=4, grows=200)
        case "index" | "util":
            return column
    return replace(column, shown=False)


_BY_NAME = {column.name: _narrow(column) for column in gpu_table.columns(4, 1)}
_FIRST = ("index", "util", "state", "owner")
_COLUMNS = (
    *(_BY_NAME[name] for name in _FIRST),
    *(c for c in _BY_NAME.values() if c.cell is not None and c.name not in _FIRST),
)


class GpuList(ChooserPane):
    """All GPUs with their utilization and owner. ``chosen`` is called with the UUID when the cursor moves."""

    title = "GPUs"
    list_name = "gpu-list"
    own_orders = ("by number",)

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(chosen, id=id)
        self._gpus: dict[str, GpuStatus] = {}
        self._labels: dict[str, StatusLabel] = {}
        self._index: SnapshotIndex | None = None

    def take(self, snapshot: Snapshot, now: float, selected: str | None) -> None:
        """Show the GPUs of a snapshot, with the cursor on ``selected``."""
        self._index = index = SnapshotIndex(snapshot)
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        self._labels = {gpu.uuid: of_gpu(gpu, index, now) for gpu in snapshot.gpus}
        if selected is not None:
            self._cursor = selected
        self.update()

    def items(self) -> Sequence[str]:
        """The UUIDs."""
        return list(self._gpus)

    def columns(self) -> tuple[Column, ...]:
        """All columns: those of the GPUs pane, but for its bars."""
        return _COLUMNS

    def item(self, key: str) -> gpu_table.GpuFacts:
        """What is known of a GPU."""
        return gpu_table.GpuFacts(self._gpus[key], self._labels[key])

    def words(self, key: str) -> str:
        """Number, name, UUID, owner and verdict."""
        gpu = self._gpus[key]
        return f"{gpu.index} {gpu.name} {key} {gpu.owner} {self._labels[key].text}"

    @property
    def marked_services(self) -> list[str] | None:
        """The services that use the marked GPUs; None without marks."""
        if self._index is None or not self.arrangement.marks:
            return None
        owners = (owner_of(self._gpus[key], self._index) for key in self.marked)
        return list(dict.fromkeys(owner for owner in owners if owner is not None))

    def head(self, width: int) -> Row | None:
        """The column heads, once the user has arranged the list."""
        arrangement = self.arrangement
        return super().head(width) if arrangement.order is not None or arrangement.columns else None

    def row(self, key: str, width: int) -> Row:
        """One GPU: index, utilization, verdict, owner, and the columns that the user has added."""
        facts, row = self.item(key), Row()
        for column, room in self.drawn_table(width):
            match column.name:
                case "state":
                    row.add(facts.label.glyph, facts.label.style, room)
                case "owner":
                    row.add(owner_words(facts.gpu, room), "text", room)
                case _:
                    assert column.cell is not None
                    text, style = column.cell(facts)
                    row.add(text, "strong" if column.name == "index" else style, room, column.align)
            row.add(" ")
        return row


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
