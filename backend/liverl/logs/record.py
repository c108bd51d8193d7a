"""A log as records: what one process says at one time, with every line that belongs to it. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model import Level

MOST_LINES = 400  # lines of a record that are kept; of a longer one its first and its last half

Kind = Literal[
    "line",  # a message of any logger, or a bare line
    "traceback",  # Python's, with its whole chain
    "ignored",  # "Exception ignored in ...", printed while an interpreter exits: it ends nothing
    "thread",  # "Exception in thread ...": it ends that thread only
    "healthy",  # a step's metrics, an answer 2xx, throughput, "ready": the process worked until then
    "shell",  # "line 1: 99 Segmentation fault ...", "Killed", "Terminated"
]


class Raised(msgspec.Struct, frozen=True):
    """One exception of a traceback. ``type``: as printed, "torch.OutOfMemoryError"; ``message``: with its further
    lines, without trailing blanks; ``frame``: the innermost, "engine.py:366 in run", "" if there is none; ``source``:
    the source line of that frame; ``entry``: that of the outermost frame; ``how``: what it is to the exception printed
    before it: "cause" ("The above exception was the direct cause ..."), "context" ("During handling ..."), "" for the
    first one."""

    type: str
    message: str
    frame: str = ""
    source: str = ""
    how: Literal["", "cause", "context"] = ""
    entry: str = ""

    @property
    def text(self) -> str:
        """As Python prints it."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Record(msgspec.Struct, frozen=True):
    """``offset``, ``end``: its first byte in the log, and the first behind it; ``writer``: the process by its prefixes
    without punctuation, outermost first, "" if the line names none ("vllm-1 EngineCore pid=12"); ``rank``: of torch's
    process group; ``at``: Unix seconds of its own stamp, None without one; ``level``: as it says itself, or as its kind
    implies; ``text``: the first line without prefixes, stamp and level; ``more``: the further lines, without the
    prefixes; ``raised``: of a traceback, in the order printed; ``repeated``: equal records that Ray merged into it;
    ``json``: its lines were in JSON, which no interpreter prints; ``torn``: lines of another process without a prefix
    stand among its own."""

    offset: int
    end: int
    text: str
    kind: Kind = "line"
    writer: str = ""
    rank: int | None = None
    at: float | None = None
    level: Level | None = None
    more: tuple[str, ...] = ()
    raised: tuple[Raised, ...] = ()
    repeated: int = 0
    json: bool = False
    torn: bool = False

    @property
    def voice(self) -> tuple[str, int | None, bool]:
        """What tells processes apart that write into one log: prefixes, rank, and whether the lines are in JSON."""
        return self.writer, self.rank, self.json

    @property
    def whole(self) -> str:
        """All lines, which signatures are searched in."""
        return "\n".join((self.text, *self.more)) if self.more else self.text
