"""Programs of ours that begin with something of a test: real processes, with one seam in the test's hand."""

from __future__ import annotations

import os
from pathlib import Path

_CLOCK = """
import os
from liverl.util.signals import StopRequests
window, _ = StopRequests.__init__.__defaults__
StopRequests.__init__.__defaults__ = (window, lambda: 1000.0 * len(os.listdir({folder!r})))
"""
_HOLD = """
import os, sys, time
if {program!r} in sys.orig_argv:
    while os.path.exists({file!r}):
        time.sleep(0.02)
"""


def begins_with(folder: Path, code: str) -> dict[str, str]:
    """The variables with which each Python process, but those with ``-S`` or ``-I``, runs ``code`` before its program.
    ``folder``: an empty place for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    others = os.environ.get("PYTHONPATH")  # an empty one would be the working directory
    return {"PYTHONPATH": f"{folder}{os.pathsep}{others}" if others else str(folder)}


class StopClock:
    """The clock by which signals that come together are one request to stop, in processes with the variables ``env``:
    it stands until the test has it go on, so that a slow machine counts as a fast one does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "clock"
        self._folder.mkdir(parents=True)
        self.env = begins_with(folder / "site", _CLOCK.format(folder=str(self._folder)))

    def later(self) -> None:
        """What comes from now on is a request of its own."""
        (self._folder / str(len(os.listdir(self._folder)))).touch()


class HeldStart:
    """Holds processes of ``program`` (a word of their command line) with the variables ``env`` before they do
    anything, until they are let go. ``held``: from the first one on."""

    def __init__(self, folder: Path, program: str, *, held: bool = True) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "hold"
        if held:
            self.hold()
        self.env = begins_with(folder / "site", _HOLD.format(program=program, file=str(self._file)))

    def hold(self) -> None:
        """Those that start from now on are held."""
        self._file.touch()

    def let_go(self) -> None:
        """From now on they begin."""
        self._file.unlink(missing_ok=True)
