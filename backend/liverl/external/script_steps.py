"""The number of all steps by the logs of a launch script, while it runs."""

from __future__ import annotations

from pathlib import Path

from liverl.causes.quiet.owed import owed
from liverl.causes.quiet.told import Listening, joined
from liverl.logs.files import also_written
from liverl.logs.follow import LineFollower

READ = 4 << 20  # bytes of one log in one look


class ScriptSteps:
    """``total``: steps of the whole training, None before anything tells."""

    def __init__(self) -> None:
        self.total: int | None = None
        self._output: Path | None = None
        self._logs: dict[Path, tuple[LineFollower, Listening]] = {}

    def look(self, output: Path) -> None:
        """Read what was added to the script's output and to the logs that it writes elsewhere. Blocks on the disk.

        Raises:
            OSError: a log cannot be read.
        """
        if output != self._output:
            self._output, self._logs, self.total = output, {}, None
        for path in (output, *also_written(output)):
            follower, listening = self._logs.setdefault(path, (LineFollower(path), Listening()))
            lines = follower.poll(READ)
            if lines:
                listening.hear(b"\n".join(lines), 0)
        whole = owed(joined([listening.told for _, listening in self._logs.values()]))
        self.total = whole.steps if whole is not None else None
