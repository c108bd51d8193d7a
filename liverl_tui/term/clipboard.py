"""Copy text to a tmux buffer, to the terminal's clipboard (OSC 52), or to a file.

Only tmux and the file system report success. A terminal does not answer OSC 52, so the message for it says no more
than that the text was sent.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.data.own_files import write_own

OSC52_MOST = 74_994  # bytes of text: in base64 just under 100,000 bytes, the limit of xterm and others
TMUX_S = 2.0  # timeout for one tmux command
FILE = "copied.txt"


@dataclass(frozen=True)
class Copied:
    """The outcome of a copy. ``words``: how much was copied and where to; ``ok``: False if it was not copied."""

    words: str
    ok: bool = True


def amount(text: str) -> str:
    """The amount of text: ``1 line (12 B)``, ``310 lines (41 KB)``; 1 KB is 1000 bytes."""
    lines = text.count("\n") + (not text.endswith("\n"))
    size = len(text.encode(errors="replace"))
    size_words = f"{size} B" if size < 1000 else f"{size / 1000:.0f} KB"
    return f"{quantity(lines, 'line')} ({size_words})"


def osc52(text: str) -> str | None:
    """The escape sequence that puts ``text`` on the terminal's clipboard; None above ``OSC52_MOST`` bytes."""
    data = text.encode(errors="replace")
    if len(data) > OSC52_MOST:
        return None
    return f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"


def to_tmux(text: str) -> str | None:
    """Load ``text`` into a new buffer of the tmux in which this process runs. Words that say where it went; None
    without tmux, or if tmux failed. tmux passes it on to its terminal where ``set-clipboard`` allows that."""
    program = shutil.which("tmux")
    if not os.environ.get("TMUX") or program is None:
        return None
    for command, words in (
        (
            ["load-buffer", "-w", "-"],
            "to the tmux buffer, and to the terminal's clipboard if tmux and the terminal allow it",
        ),
        (["load-buffer", "-"], "to the tmux buffer"),  # before 3.2
    ):
        try:
            process = subprocess.run(
                [program, *command],
                input=text.encode(errors="replace"),
                timeout=TMUX_S,
                capture_output=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if process.returncode == 0:
            return words
    return None


def copy(text: str, write: Callable[[str], None], run_dir: Path, *, in_run: bool) -> Copied:
    """Copy ``text`` by the first way that works: tmux, OSC 52, a file. ``write`` sends to the terminal; ``in_run``
    is passed to ``write_own``. Control characters are made visible: a shell would obey them when they are pasted.
    Blocks on tmux and on the disk, so do not call it on the event loop."""
    text = visible(text, lines=True)
    how = to_tmux(text)
    if how is not None:
        return Copied(f"copied {amount(text)} {how}")
    why = (
        "GNU screen does not forward the clipboard"
        if os.environ.get("STY")
        else "too large for the terminal's clipboard"
    )
    sequence = None if os.environ.get("STY") else osc52(text)
    if sequence is not None:
        write(sequence)
        return Copied(f"sent {amount(text)} to the terminal's clipboard (OSC 52; the terminal must allow it)")
    try:
        path = write_own(run_dir, FILE, text, in_run=in_run)
    except OSError as error:
        return Copied(
            f"{amount(text)} not copied: {why}, and {FILE} cannot be written ({error.strerror})", ok=False
        )
    return Copied(f"{amount(text)} written to {path} ({why})")
