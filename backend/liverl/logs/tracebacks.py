"""Reads Python's tracebacks out of the lines of one record: chains, groups, Ray's and logged ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from liverl.logs.record import Raised
from liverl.util.late_pattern import late_pattern

BEGINS = "Traceback (most recent call la"  # LiteLLM cuts long records right behind these characters
_QUOTED = "(most recent call last):\\n"
_FINAL = late_pattern(r"((?:[A-Za-z_]\w*\.){0,12}[A-Za-z_]\w*(?:\([\w.]*\))?)(?::(?: (.*))?)?$", re.DOTALL)
# An exception that was never raised, only chained, has no frames: its last line follows the link at once.
_NAMED = late_pattern(
    r"(?:[A-Za-z_]\w*\.){0,12}[A-Z]\w*(?:Error|Exception|Timeout|Refused|Exit|Interrupt)(?:\(\w+\))?(?::|$)"
)
_FRAME = late_pattern(r'\s{1,8}File "(?:[^"\n]*/)?([^"/\n]*)", line (\d+)(?:, in (.*))?')
_MARKS = late_pattern(r"\s*[\^~]+[\s\^~]*$")
_GROUP = late_pattern(r"\s*(?:\| ?|\+ (?=Exception Group))+")
# Of a traceback that Rich draws as a box: a frame, and the line of it that failed
_BOX = frozenset("\u2502\u256d\u2570")
_BOXED_FRAME = late_pattern(r"\u2502 (\S{1,400}):(\d{1,7}) in (\S{1,200})\s{0,400}\u2502?$")
_BOXED_LINE = late_pattern(r"\u2502 \u2771 {1,8}\d{1,7} ([^\n]{1,400}?)\s{0,400}\u2502?$")
DRAWN = _BOX | {">"}  # how lines begin of tracebacks that other programs than Python draw
_NO_CODE = "    ^"  # a line of marks: it says nothing of a frame
_BETWEEN = late_pattern(r"\s*\+[-+]")  # "+-+---------------- 1 ----------------"
_ENDS_ONE = ("Set the environment variable HYDRA_FULL_ERROR",)
# torch raises what another process raised again, with its whole traceback as the message
_CAUGHT = late_pattern(r"Caught \w+ in (?:DataLoader worker process|pin memory thread|replica|\w+ worker)\b")
Link = Literal["", "cause", "context"]


def begins_in(text: str) -> bool:
    """Whether frames follow this line: not if it quotes a whole traceback, with its newlines as \\n."""
    return BEGINS in text and _QUOTED not in text


def link_of(text: str) -> Link:
    """What the exception behind this line is to the one before it; "" if the line says nothing about it."""
    if text.startswith("The above exception was the direct cause"):
        return "cause"
    return "context" if text.startswith("During handling of the above exception") else ""


def ungrouped(text: str) -> str:
    """Return a line of an exception group as it would be without the group, "" for a line between its members."""
    if not text.lstrip().startswith(("|", "+")):
        return text
    if _BETWEEN.match(text):
        return ""
    match = _GROUP.match(text)
    return text[match.end() :] if match is not None else text


def undrawn(text: str) -> str:
    """A line of a traceback that Rich or loguru has drawn as Python would print it; any other line as it is."""
    if text.startswith('> File "'):
        return f"  {text[2:]}"  # loguru points at the frame in which an exception was caught
    if text[:1] not in _BOX:
        return text
    if BEGINS in text:
        return f"{BEGINS}st):"
    frame = _BOXED_FRAME.match(text)
    if frame is not None:
        return f'  File "{frame[1]}", line {frame[2]}, in {frame[3]}'
    line = _BOXED_LINE.match(text)
    return _NO_CODE if line is None else f"    {line[1].strip()}"


def final_of(text: str) -> tuple[str, str] | None:
    """Return type and message of the last line of a traceback, such as ``ValueError: no``; None if it is none: a single
    word in small letters is the name of a program, whose line stands where a traceback broke off ("wandb: ...")."""
    match = _FINAL.match(text)
    if match is None or (match[1][0].islower() and "." not in match[1]):
        return None
    return match[1], match[2] or ""


def frameless(text: str) -> bool:
    """Whether this line, behind that of a link, is an exception without a traceback."""
    return _NAMED.match(text) is not None


def breaks_off(lines: Sequence[str]) -> str:
    """The innermost frame of a traceback that has no last line, "train.py:8 in fit"; "" for other lines."""
    if not lines or not begins_in(lines[0]):
        return ""
    frames = [at for at in map(_FRAME.match, lines) if at is not None]
    return (
        ""
        if not frames
        else f"{frames[-1][1]}:{frames[-1][2]}" + (f" in {frames[-1][3]}" if frames[-1][3] else "")
    )


def raised_in(lines: Iterable[str]) -> tuple[Raised, ...]:
    """Return the exceptions whose tracebacks stand in ``lines``, in the order printed."""
    found: list[Raised] = []
    message: list[str] = []
    frame = source = entry = ""
    how: Link = ""
    in_frames = wants_source = linked = False

    def close() -> None:
        if found and message:
            last = found[-1]
            whole = "\n".join((last.message, *message)).rstrip()
            found[-1] = Raised(last.type, whole, last.frame, last.source, last.how, last.entry)
        message.clear()

    for line in lines:
        if found and _BETWEEN.match(line):  # the next member of a group, which may have no frames
            close()
            in_frames, frame, source, entry, how = True, "", "", "", ""
            continue
        text = ungrouped(line)
        if begins_in(text) or text.startswith("Exception Group Traceback"):
            close()
            in_frames, frame, source, entry = True, "", "", ""
            continue
        if (link := link_of(text)) != "":
            close()
            how, in_frames, linked = link, False, True
            continue
        if linked and text.strip():
            linked = False
            if frameless(text) and (final := final_of(text)) is not None:
                found.append(Raised(final[0], final[1].rstrip(), "", "", how))
                how = ""
                continue
        at = _FRAME.match(text)
        if at is not None and (in_frames or not text.startswith('  File "<unicode')):
            close()
            in_frames, wants_source, source = True, True, ""
            frame = f"{at[1]}:{at[2]}" + (f" in {at[3]}" if at[3] else "")
        elif in_frames:
            if not text.strip() or _MARKS.match(text):
                continue
            if text[0].isspace():
                if wants_source:
                    source, wants_source = text.strip(), False
                    entry = entry or source
                continue
            final = final_of(text)
            if final is not None:
                found.append(Raised(final[0], final[1].rstrip(), frame, source, how, entry))
                in_frames, how, frame, source, entry = False, "", "", "", ""
        elif found and found[-1].type.endswith(")") and not message and (final := final_of(text)) is not None:
            found.append(Raised(final[0], final[1].rstrip()))  # of Ray: one task failed in another
        elif found and not text.startswith(_ENDS_ONE):
            message.append(text.rstrip())
    close()
    inner = found[1:] and [one for one in found if not _CAUGHT.match(one.message)]
    return tuple(inner or found)
