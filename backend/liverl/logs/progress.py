"""Signs in a log that its process, or the whole run, works. Pure."""

from __future__ import annotations

import re

from liverl.util.late_pattern import late_pattern

SURVIVED = 20  # a process that gave more signs than this after an error did not end by it
STARTED = "Application startup complete"  # how uvicorn says that its server is up
_VERL_STEP = late_pattern(r"(?:^|\s)step:\d+ - ")
# A counter of a training loop with what it measured, as most trainers print it: "epoch 1 step 20 loss 0.31",
# "iteration 100/ 1000 | consumed samples: ... | lm loss: 1.2E+00", "{'loss': 0.53, 'epoch': 0.1}"
_LOOP = late_pattern(
    r"\b(?:steps?|iteration|iter|epoch|episode|update)\b[\s:=#\[(]{0,3}\d[^\n]{0,300}?"
    r"\b(?:loss|reward|lr|learning[ _]rate|grad[ _]norm|acc|accuracy|kl|it/s|s/it|tokens/s)\b[^\n]{0,4}\d"
    r"|^\{'(?:train_|eval_)?(?:loss|reward|runtime)': ",
    re.IGNORECASE,
)
# What a program prints last if all of it went well: pytest's summary
_PASSED = late_pattern(
    r"=+ (?:\d{1,6} (?:skipped|deselected|x?passed|xfailed|warnings?), )*\d{1,6} passed"
    r"(?:, \d{1,6} (?:skipped|deselected|xfailed|xpassed|warnings?))* in [\d.]"
)
_FAILS = late_pattern(r"rror\b|xception\b|\bnan\b", re.IGNORECASE)


def progress_of(text: str) -> int:
    """How many answered requests a line of progress counts as; 0 if it is none. A finished step of verl, or tests that
    all passed, outweigh every error before; three lines of another training loop do."""
    if ("step:" in text and _VERL_STEP.search(text)) or _PASSED.match(text):
        return SURVIVED + 1
    if not text.startswith("{") and not _counts(text.lower()):
        return 0
    if _LOOP.search(text) and not _FAILS.search(text):
        return SURVIVED // 3 + 1
    return 0


def _counts(lower: str) -> bool:
    """Whether the text has a word without which ``_LOOP`` cannot match. Looking for words is faster than it."""
    return "step" in lower or "iter" in lower or "epoch" in lower or "episode" in lower or "update" in lower
