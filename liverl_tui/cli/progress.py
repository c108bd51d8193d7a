"""What a command says on stderr while it works for longer than a moment."""

from __future__ import annotations

import threading
from typing import Self

from liverl_tui.cli.output import echo

QUIET = 1.0  # seconds without a line on stderr
INTERVAL = 2.0  # seconds between two lines at first; twice as long each time while the same log is read,
SELDOM = 8.0  # until it is so long


class Progress:
    """While it is entered, says on stderr what is being read: after ``quiet`` seconds, and then every ``INTERVAL``, or
    ever more seldom while that is the same."""

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._text = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def say(self, text: str) -> None:
        """What is being read from now on."""
        self._text = text

    def _run(self) -> None:
        wait, said = self._quiet, ""
        while not self._over.wait(wait):
            wait = min(2 * wait, SELDOM) if said and self._text == said else INTERVAL
            said = self._text
            if said:
                echo(said, err=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
