"""Which exception of a traceback states the failure: of a chain, often not the one printed last. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from liverl.logs.record import Raised
from liverl.util.late_pattern import late_pattern

# Raised while something is closed, flushed or ended because of an earlier error.
_EXIT_FRAME = late_pattern(
    r" in (?:\w+\.)*_*(?:close|flush|exit|del|shutdown|cleanup|clean_up|teardown|terminate|kill|stop|join|finalize|"
    r"write_end_of_file|aclose|disconnect|wait)\w*$"
)
_EXIT_TYPES = frozenset(
    (
        "BrokenPipeError",
        "ConnectionResetError",
        "SystemExit",
        "KeyboardInterrupt",
        "CancelledError",
        "GeneratorExit",
    )
)
_EXIT_WORDS = late_pattern(
    r"unexpected pos \d|I/O operation on closed|Event loop is closed|after the interpreter|shutdown|already closed",
    re.IGNORECASE,
)
VAGUE = late_pattern(
    r"(?:see|check) (?:the )?(?:stack trace|error|log|trace|above)|root cause|^(?:\w+ ){0,4}failed\.?$|error occurred|"
    r"job .{0,80}failed|workers? failed",
    re.IGNORECASE,
)
_PLAIN_TYPES = frozenset(("RuntimeError", "Exception", "BaseException", "SystemExit", "Error"))
_ABSENT = late_pattern(r"No module named '(\w+)'")
_IMPORT = late_pattern(r"(?:from|import) [\w.]*\.(\w+)\b")
# What code catches to raise something that says more: a lookup that failed is the way there, not the failure.
_LOOKUPS = frozenset(
    (
        "KeyError",
        "AttributeError",
        "StopIteration",
        "StopAsyncIteration",
        "IndexError",
        "Empty",
        "ModuleNotFoundError",
    )
)


def telling(chain: Sequence[Raised]) -> int:
    """The index of the exception that says most about the failure.

    It is the last one, except that: of a pair joined by "During handling ..." the first counts if the second only
    happened on the way out, says less, or is a second try to import the same module; of a pair joined by "... was the
    direct cause ..." the first counts if it has words of its own and is no failed lookup or bare time-out.
    """
    index = len(chain) - 1
    while index > 0 and _gives_way(chain[index], chain[index - 1]):
        index -= 1
    return max(index, 0)


def kind(raised: Raised) -> str:
    """The exception's class without its module."""
    return raised.type.rpartition(".")[2]


def on_the_way_out(raised: Raised) -> bool:
    """Whether it was raised while something was closed or ended, so that an earlier error is the failure."""
    return (
        kind(raised) in _EXIT_TYPES
        or _EXIT_WORDS.search(raised.message) is not None
        or _EXIT_FRAME.search(raised.frame) is not None
    )


def _gives_way(second: Raised, first: Raised) -> bool:
    if second.how == "context":
        return on_the_way_out(second) or _imports_again(second, first) or _says_less(second, first)
    return second.how == "cause" and _is_root(first, second)


def _imports_again(second: Raised, first: Raised) -> bool:
    """Whether a module, whose import failed as a part of its package, was looked for outside of it then."""
    absent, tried = _ABSENT.match(second.message), _IMPORT.match(first.entry)
    if absent is None or tried is None:
        return False
    return kind(first) in ("ImportError", "ModuleNotFoundError") and absent[1] == tried[1]


def _says_less(second: Raised, first: Raised) -> bool:
    if kind(first) in _LOOKUPS:
        return False
    if first.message and not second.message:
        return True
    return kind(second) in _PLAIN_TYPES and (
        VAGUE.search(second.message) is not None or kind(first) not in _PLAIN_TYPES
    )


def _is_root(first: Raised, second: Raised) -> bool:
    if not first.message:
        return False
    return kind(first) not in _LOOKUPS or VAGUE.search(second.message) is not None
