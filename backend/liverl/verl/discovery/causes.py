"""Why an actor died, in Ray's own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from liverl.util import redact

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*")
# From here on, Ray's text is the same for every process that ended without a known cause.
_ADVICE = " Some common causes include"
_LONGEST = 300  # characters of a cause within a sentence


def death_words(cause: object) -> str:
    """The message in ``death_cause`` of the REST API, without colours and with secrets redacted; "" if there is none.

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
    lines = [line for line in death.splitlines() if line.strip()]
    if not lines:
        return "Ray reports no cause"
    line = lines[0].partition(_ADVICE)[0].strip()
    if len(lines) > 1:
        exception = next((x for x in reversed(lines) if _EXCEPTION.fullmatch(x)), lines[-1]).strip()
        # the first line of a traceback is useless; that of another message says what was being done
        line = exception if line.startswith("Traceback (") else f"{line} {exception}"
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
