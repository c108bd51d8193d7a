"""What the keeper writes to ``keeper.log``."""

import os
import time


def complain(text: str) -> None:
    """Write a line to keeper.log. Write errors are ignored: a full disk must not end the keeper."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        pass


class Faults:
    """Faults that may come again and again: one that repeats itself is written once."""

    def __init__(self) -> None:
        self._last = ""

    def complain(self, text: str) -> None:
        """Write a line, unless it is the same as the one before."""
        if text != self._last:
            self._last = text
            complain(text)

    def report(self, error: Exception) -> None:
        """Write a line about an error of the keeper's own, and wait a moment: the same may fail again at once."""
        self.complain(f"internal error, the keeper continues: {type(error).__name__}: {error}")
        time.sleep(0.05)
