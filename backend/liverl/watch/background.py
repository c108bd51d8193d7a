"""Work that may block, repeated in a thread of its own, so that one silent server or driver delays nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from liverl.model import UnreadableFile
from liverl.util.faults import Faults

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background(Generic[T]):
    """Calls ``work`` every ``interval`` seconds (after its end), or ``share`` times as long as it took where that is
    longer, and keeps its last result in ``value``. A call that raises keeps the result before; what is no OSError is
    logged once per kind. ``problem``: what the last call could not read, None if it gave a result."""

    def __init__(
        self, name: str, work: Callable[[], T], interval: float, value: T, share: float = 0.0
    ) -> None:
        self.value = value
        self.problem: UnreadableFile | None = None
        self._name = name
        self._work = work
        self._interval = interval
        self._share = share
        self._faults = Faults(logger)
        self._ready = threading.Event()
        self._over = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin; the first result comes at once."""
        self._thread.start()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the first result, at most ``seconds``; whether it is there."""
        return self._ready.wait(seconds)

    @property
    def ready(self) -> bool:
        """Whether the first result is there."""
        return self._ready.is_set()

    def again(self, seconds: float | None) -> bool:
        """Work once more now, and wait for that result; whether it is there."""
        self._ready.clear()
        self._soon.set()
        return self._ready.wait(seconds)

    def soon(self) -> None:
        """Work once more now, without waiting for it."""
        self._soon.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._soon.clear()
            began = time.monotonic()
            what = f"{self._thread.name}: the present state cannot be read"
            self.problem = self._try(what)
            self._ready.set()
            self._soon.wait(max(self._interval, self._share * (time.monotonic() - began)))

    def _try(self, what: str) -> UnreadableFile | None:
        """Work once; what could not be read, None if the work gave a result."""
        problem: UnreadableFile | None = UnreadableFile(
            self._name, "the look failed; the program's log says why"
        )
        with self._faults.logged(what):
            try:
                self.value = self._work()
                problem = None
            except OSError as error:  # storage failed; the next call tries again
                problem = UnreadableFile(str(error.filename or self._name), error.strerror or str(error))
        return problem

    def close(self) -> None:
        """Stop after the present call; does not wait for it."""
        self._over.set()
        self._soon.set()
