"""Why an actor died, in Ray's own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from liverl.util import redact

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*")
# What Ray says at this point is the same for every process that ended without telling.
_ADVICE = " Some common causes include"
_LONGEST = 300  # characters of a cause within a sentence


def death_words(cause: object) -> str:
    """Everything that ``death_cause`` of the REST API says, without colours and keys; "" if it says nothing.

    It is a mapping of one of several contexts (the actor died, its constructor raised, its runtime environment
    failed, it cannot be scheduled, out of memory), each with a message of its own.
    """
    if not isinstance(cause, Mapping):
        return ""
    for context in cause.values():
        if not isinstance(context, Mapping):
            continue
        for field in ("formatted_exception_string", "error_message"):
            text = context.get(field)
            if isinstance(text, str) and text.strip():
                return redact.value(_ANSI.sub("", text).strip())
    return ""


def short_cause(death: str) -> str:
    """One line of at most 300 characters: a traceback's own exception, or the message without Ray's advice."""
    if not death:
        return "Ray reports no cause"
    lines = [line for line in death.splitlines() if line.strip()]
    line = lines[0].partition(_ADVICE)[0].strip()
    if len(lines) > 1:
        raised = next((x for x in reversed(lines) if _EXCEPTION.fullmatch(x)), lines[-1]).strip()
        # a traceback's head says nothing; another message's first line says what was being done
        line = raised if line.startswith("Traceback (") else f"{line} {raised}"
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
