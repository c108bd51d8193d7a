"""The end of a batch job as text: what ``batch.end_time``, SLURM_JOB_END_TIME and squeue say. Pure."""

from __future__ import annotations

import re
from datetime import datetime

EXPECTED = "a date with a time, such as 2026-11-30T08:00:00, or Unix seconds"
# Unix seconds from 2001 to 5138: fewer digits are no date of a job, more are milliseconds.
_UNIX = re.compile(r"\d{10,11}(?:\.\d{1,9})?")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*")


def end_seconds(text: str) -> float:
    """Unix seconds of an end time. A date without an offset is in the time zone of this process.

    Raises:
        ValueError: it is no end time; the message quotes it and says what was expected.
    """
    text = text.strip()
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        if _ISO.fullmatch(text):
            return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"found {text!r:.60}, expected {EXPECTED}")
