"""A blocking call that may never return, as of a file system whose server is gone: given up after a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NoAnswer(Exception):
    """A call did not return in time."""


def answered(work: Callable[[], T], seconds: float) -> T:
    """What ``work`` returns, or its exception. It runs in a daemon thread, which is left behind if it hangs.

    Raises:
        NoAnswer: it did not return within ``seconds``.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run, name="answered", daemon=True)
    thread.start()
    thread.join(seconds)
    if returned:
        return returned[0]
    if raised:
        raise raised[0]
    raise NoAnswer
