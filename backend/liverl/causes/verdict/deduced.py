"""What is said of an exception that no signature explains, where its frames and its words suffice. Pure."""

from __future__ import annotations

import re

from liverl.causes.finding import Evidence, Explanation
from liverl.causes.verdict.chain import VAGUE, kind, telling
from liverl.causes.verdict.frames import Origin, origin_of, package_of, told_place, versions_command
from liverl.causes.verdict.own_code import PLAIN, STANDARD, own_error, told_own
from liverl.causes.verdict.words import short
from liverl.logs.record import Raised, Record
from liverl.util.late_pattern import late_pattern

OWN_CODE = "own-code"
CHECK = "check-in-library"
DEDUCED = frozenset((OWN_CODE, CHECK))
_CHECKS = frozenset(("AssertionError", "NotImplementedError", "ValueError"))
# What another program answered is no check of the one that reports it.
_ANSWER = late_pattern(r"\b(?:status|HTTP|[Rr]equest failed|response|Traceback|Error code)\b")
_UNSUPPORTED = late_pattern(
    r"\b(?:unsupported|(?:not|n't)(?: yet| currently| be)* (?:support\w*|compatible|implemented|allowed|available|used)"
    r"|only (?:support\w*|works?|available|implemented|allowed)|incompatible|mutually exclusive"
    r"|cannot be (?:used|enabled|set)|conflict\w*|disabled)\b",
    re.IGNORECASE,
)
_NUMBERS = late_pattern(
    r"\b(?:divisible|multiple of|greater|less|larger|smaller|longer|shorter|at least|at most|exceeds?|equals?|equal"
    r"|the same|positive"
    r"|between|too (?:large|small|long|short|many|few)|out of range|mismatch\w*|does not match|not match)\b|[<>=!]=",
    re.IGNORECASE,
)
_REMEDY = late_pattern(
    r"\b(?:try|consider|you can"
    r"|please (?:add|decrease|increase|install|pass|provide|reduce|remove|set|specify|upgrade|use)"
    r"|(?:to|can) (?:allow|avoid|disable|enable|fix|increase)"
    r"|(?:set|use) [`'\"-]{0,3}[\w-]{2,40}[`'\"]? ?(?:=|to |instead))",
    re.IGNORECASE,
)
_INSTALL = late_pattern(r"\b(?:pip install|install\w*|upgrade|newer version|version of)\b", re.IGNORECASE)
_HARDWARE = late_pattern(
    r"compute capability|\b(?:Ampere|Ada|Hopper|Blackwell)\b|\bSM ?\d{2,3}\b", re.IGNORECASE
)
_ABSENT = late_pattern(
    r"\b(?:not found|missing|no such|could not find|cannot find|does not exist|not exist)\b", re.IGNORECASE
)
_WANTED = late_pattern(
    r"\b(?:must|should|shall|requires?|required|needs?|has to|have to|expected|please|invalid|not (?:a )?valid|specify"
    r"|set (?:the|it|to)|provide\w*)\b",
    re.IGNORECASE,
)
_INSIDE = (
    "The condition stands in the code of {package}: compare what it names with the options and the data that were "
    "given (sizes, counts, parallel ranks); if they are right, it is a fault of this version, so try another one."
)
_ASSERTED = late_pattern(r"assert\s{1,4}(?P<condition>.{3,300})")


def deduced(record: Record, evidence: tuple[Evidence, ...]) -> Explanation | None:
    """The failure as the exception itself tells it: code of no installed package failed, or a library's own check says
    what it wants. None where that is not sure."""
    index = telling(record.raised)
    raised = record.raised[index]
    origin = origin_of(record, index)
    if origin is None or not (kind(raised) in PLAIN or STANDARD.match(raised.type)):
        return None
    inner = package_of(origin.deep.path)
    if inner and origin.deep.raises:  # also a helper's own check
        caller = next((name for name in origin.packages if name != inner), "")
        return _checked(raised, Origin(origin.deep, inner, caller, origin.deep), evidence)
    if origin.package:
        return _checked(raised, origin, evidence)
    own = own_error(record)
    return None if own is None else told_own(own, OWN_CODE, evidence)


def _checked(raised: Raised, origin: Origin, evidence: tuple[Evidence, ...]) -> Explanation | None:
    package, source = origin.package, origin.at.source
    message = _said(raised, source)
    told = origin.at.raises or (kind(raised) in _CHECKS and (not source or source[0] in "\"'f"))
    if not message or not (told or kind(raised) == "AssertionError") or origin.deep != origin.at:
        return None
    if _ANSWER.search(message) or VAGUE.search(message):
        return None
    fix = _fix(message, package) if raised.message.strip() else ""
    if not fix and kind(raised) != "AssertionError":
        return None
    return Explanation(
        CHECK,
        "critical",
        short(f"A check in {package} failed: {message}"),
        short(f"{package} checks what it was given and ended with its own message. {told_place(origin)}"),
        fix or _INSIDE.format(package=package),
        command=versions_command(origin.packages),
        evidence=evidence,
    )


def _said(raised: Raised, source: str) -> str:
    """What a check says: its message, or, where it has none, the condition that does not hold."""
    words = raised.message.strip()
    if words:
        lines = [line.strip() for line in words.split("\n") if line.strip()]
        return " ".join(lines[:3]).rstrip(".")
    asserted = _ASSERTED.match(source) if kind(raised) == "AssertionError" else None
    return "" if asserted is None else f"{asserted['condition'].rstrip(', (')} must hold"


def _fix(message: str, package: str) -> str:
    if _HARDWARE.search(message):
        return "Use a GPU that can do what the message names, or turn off the feature that needs it."
    if _REMEDY.search(message):
        return "Do what the message says, in the configuration or the environment of that process."
    if _UNSUPPORTED.search(message):
        return (
            f"Turn off or change one of the options that the message names, or install a version of {package} that "
            "supports them together."
        )
    if _NUMBERS.search(message):
        return "Change one of the values that the message names, so that the condition holds."
    if _INSTALL.search(message):
        return "Install what the message names, in the environment of that process."
    if _ABSENT.search(message):
        return "Provide what the message names, or correct its name or path in the configuration."
    if _WANTED.search(message):
        return "Set or change what the message names, in the configuration of that process."
    return ""
