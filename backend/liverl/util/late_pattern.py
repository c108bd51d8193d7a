"""Regular expressions that are compiled at their first use: a program that starts pays for none that it never asks."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class LatePattern:
    """Stands for a ``re.Pattern``, and has its methods and attributes. A name is looked up once: from then on
    it costs what it costs with the pattern itself."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._source: tuple[Any, int] = pattern, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        self.__dict__[name] = value
        return value


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """``re.compile(pattern, flags)`` at the first use. It is no ``re.Pattern`` for ``isinstance`` and for the functions
    of ``re``.

    Raises:
        re.error: at its first use, if it is no regular expression. ``tests/unit/test_search_time.py`` uses all.
    """
    return cast("re.Pattern[AnyStr]", LatePattern(pattern, flags))
