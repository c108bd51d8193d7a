"""What repeated work raises: logged once per kind, so that the next round follows and no log is flooded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType

_MOST = 1000  # kinds that are remembered; from then on nothing more is logged


class Faults:
    """The faults of one piece of repeated work. A kind is the type of an exception and the place that raised it."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[tuple[str, type[BaseException], str]] = set()

    @contextlib.contextmanager
    def logged(self, what: str, about: str = "") -> Iterator[None]:
        """Go on behind the block whatever it raises, but a cancellation or an exit. ``what``: what did not succeed, as
        a sentence without its end, which belongs to the kind; ``about``: which one of many, which does not."""
        try:
            yield
        except Exception as error:
            kind = (what, type(error), _place(error.__traceback__))
            if kind not in self._logged and len(self._logged) < _MOST:
                self._logged.add(kind)
                text = f"{what} ({about})" if about else what
                why = f"{type(error).__name__}: {error}"
                self._logger.error(
                    "%s; it is tried again, and this is logged once: %s", text, why, exc_info=error
                )


def _place(trace: TracebackType | None) -> str:
    """Where an exception was raised: file and line."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
