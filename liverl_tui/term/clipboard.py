"""Getting text out of the terminal: a tmux buffer, the terminal's own clipboard (OSC 52), or a file.

Only tmux and the file system say whether it worked. OSC 52 is an order to the terminal that nobody answers, so the
words that go with it promise no more than that it was sent.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liverl_tui.data.own_files import write_own

OSC52_MOST = 74_994  # bytes of text: in base64 just under the 100,000 at which xterm and others give up
TMUX_S = 2.0
FILE = "copied.txt"


@dataclass(frozen=True)
class Copied:
    """``words``: which way and how much. ``ok``: it is, or may be, somewhere."""

    words: str
    ok: bool = True


def amount(text: str) -> str:
    """``1 line (12 B)``, ``310 lines (41 KB)``"""
    lines = text.count("\n") + (not text.endswith("\n"))
    size = len(text.encode(errors="replace"))
    counted = f"{size} B" if size < 1000 else f"{size / 1000:.0f} KB"
    return f"{lines} line{'s' if lines != 1 else ''} ({counted})"


def osc52(text: str) -> str | None:
    """What asks the terminal to take ``text`` into its clipboard; None if that is more than terminals take."""
    data = text.encode(errors="replace")
    if len(data) > OSC52_MOST:
        return None
    return f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"


def to_tmux(text: str) -> str | None:
    """Put it into the newest buffer of the tmux that we are in; None if there is none, or it cannot. It also goes
    on to tmux's own terminal where that is allowed (``set-clipboard``)."""
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
            done = subprocess.run(
                [program, *command],
                input=text.encode(errors="replace"),
                timeout=TMUX_S,
                capture_output=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode == 0:
            return words
    return None


def copy(text: str, write: Callable[[str], None], run_dir: Path, *, in_run: bool) -> Copied:
    """Copy by the first way that works. ``write`` sends to the terminal. It waits for other programs and for the
    disk: not for the event loop."""
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
            f"{amount(text)} not copied: {why}, and {FILE} cannot be written: {error.strerror}", ok=False
        )
    return Copied(f"{amount(text)} written to {path} ({why})")
