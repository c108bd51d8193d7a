"""What is said of an exception that code of no known package raised: the user's own script, reward or agent. Pure."""

from __future__ import annotations

import builtins

import msgspec

from liverl.causes.finding import Evidence, Explanation
from liverl.causes.match import Match
from liverl.causes.verdict.chain import VAGUE, kind, telling
from liverl.causes.verdict.frames import Frame, Origin, frames_of, origin_of, package_of
from liverl.causes.verdict.words import explained, short
from liverl.logs.record import Raised, Record
from liverl.util.late_pattern import late_pattern

# Exceptions that Python code raises by itself; others, such as torch.AcceleratorError or FileNotFoundError, report
# something from outside.
PLAIN = frozenset(
    [
        "ArithmeticError",
        "AssertionError",
        "AttributeError",
        "Exception",
        "FloatingPointError",
        "IndexError",
        "KeyError",
        "LookupError",
        "NameError",
        "NotImplementedError",
        "OverflowError",
        "RecursionError",
        "RuntimeError",
        "StopIteration",
        "TypeError",
        "UnboundLocalError",
        "ValueError",
        "ZeroDivisionError",
    ]
)
STANDARD = late_pattern(r"(?:sqlite3|re|csv|struct|zipfile|tarfile|binascii|configparser|decimal|queue)\.")
# Helpers in which an error is as good as one in the line that calls them.
_LIGHT = frozenset(("numpy", "pandas", "sympy", "regex", "PIL", "yaml", "jinja2", "einops", None, ""))
# An import of a name that the user's own file does not have
_OWN_MODULE = late_pattern(r"cannot import name .{1,200} from .{1,200} \((?P<path>/[^()\n]{1,400})\)$")


class OwnError(msgspec.Struct, frozen=True):
    """An exception of a traceback that comes of code of no known package. ``index``: of it in ``record.raised``;
    ``raised_there``: that code raised it, or a built-in function that it called; else Python's library or a helper like
    numpy did."""

    record: Record
    index: int
    origin: Origin

    @property
    def raised(self) -> Raised:
        """The exception."""
        return self.record.raised[self.index]

    @property
    def raised_there(self) -> bool:
        """Whether the innermost frame of all is of that code."""
        return package_of(self.origin.deep.path) == ""

    @property
    def headline(self) -> str:
        """``train.py:12 (advantages) raised LopsidedBatch: got 31 rewards``."""
        frame, error = self.origin.at, self.raised.text.partition("\n")[0]
        if not self.raised.message and frame.code:
            error += f" ({frame.code})"
        return f"{place(frame)} {'raised' if self.raised_there else 'failed:'} {error}"


def own_error(record: Record) -> OwnError | None:
    """The exception of a traceback that tells most, if it comes of code of no known package: raised by that, by what
    is built into Python, or by a helper in which an error is as good as one in the line that calls it. None for others,
    and for a message that only points to another error."""
    if not record.raised:
        return None
    index = telling(record.raised)
    raised, origin = record.raised[index], origin_of(record, index)
    if origin is None or origin.package or "/" not in origin.at.path or VAGUE.search(raised.message):
        return None
    found = OwnError(record, index, origin)
    plain = kind(raised) in PLAIN or STANDARD.match(raised.type) is not None
    if found.raised_there:
        return found if plain or origin.deep.raises or _of_the_program(raised) else None
    return found if plain and package_of(origin.deep.path) in _LIGHT else None


def _of_the_program(raised: Raised) -> bool:
    """Whether the class of an exception is of the program itself, or an import found the program's own file lacking:
    Python names the module of any class but of those and of its own."""
    own = _OWN_MODULE.search(raised.message) if raised.type == "ImportError" else None
    if own is not None:
        return package_of(own["path"]) == ""
    return "." not in raised.type and not raised.type.endswith(")") and not hasattr(builtins, raised.type)


def place(frame: Frame) -> str:
    """``train.py:12 (advantages)``."""
    function = f" ({frame.function})" if frame.function not in ("", "<module>") else ""
    return f"{frame.path.rpartition('/')[2]}:{frame.line}{function}"


def told_own(
    error: OwnError, id_: str, evidence: tuple[Evidence, ...], row: Match | None = None
) -> Explanation:
    """An error of own code as a cause. ``row``: what the catalogue says of such an exception in general."""
    frame, origin = error.origin.at, error.origin
    line = f": {frame.code}" if frame.code else ""
    what = "raised this in" if error.raised_there else "got this error in"
    why = f"{frame.path}, which is no installed package, {what} line {frame.line}{line}."
    why += f" {origin.caller} called it." if origin.caller else ""
    why += _chained(error)
    general = None if row is None else explained(row, ())
    return Explanation(
        id_,
        "critical",
        short(error.headline),
        short(f"{why} {general.cause}" if general is not None else why),
        f"{_fix(origin)} {general.fix}" if general is not None else _fix(origin),
        "" if general is None else general.command,
        {} if general is None else general.patch,
        evidence,
        general is not None and general.guess,
    )


def _fix(origin: Origin) -> str:
    if origin.at.raises:
        return "That code raised it by itself: look there at what it checks or waits for, and at its message."
    if origin.caller:
        return (
            "Correct the code at that line, or make it accept what it was given: rewards, tools and agents are called "
            "for every sample, also for empty or odd ones."
        )
    return "Correct the code at that line, or what it was given; run it once by hand with those values."


def _chained(error: OwnError) -> str:
    """What the exceptions beside it in its chain were."""
    chain, index = error.record.raised, error.index
    words = ""
    if index > 0 and chain[index].how:
        before = chain[index - 1]
        frames = frames_of(error.record, index - 1)
        where = f" ({frames[-1].short})" if frames else ""
        words += f" Before it came {before.text.partition(chr(10))[0]}{where}."
    after = next((one for one in chain[index + 1 :][-1:] if one.how), None)
    if after is not None:
        words += f" It was caught, and {after.text.partition(chr(10))[0]} was raised instead."
    return words
