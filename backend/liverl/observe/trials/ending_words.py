"""How trials and their turns end, in the words of their records. Imports nothing that reads trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from liverl.model import StepTrials, TrialHead

# How a trial ended, in the words of its result -> as lists write it.
ENDING_WORDS: Mapping[str, str] = {
    "submit": "submitted",
    "no_tool_call": "answered",
    "max_iterations": "max turns",
    "context_length": "context full",
    "response_length": "length limit",
    "exit_0": "exit 0",
    "AgentTimeoutError": "timed out",
    "TrialTimeoutError": "timed out",
    "VerifierTimeoutError": "verifier timed out",
    "RewardFileNotFoundError": "no reward file",
    "RewardFileEmptyError": "empty reward file",
    "CancelledError": "cancelled",
}
# Finish reasons of a turn that reached the token limit
TRUNCATED = ("length", "max_tokens")

_WITHOUT_CALL = "no tool call"
CUT_OFF = "cut off"
DONE = "done"  # its result does not say how


def ending_word(ended_by: str | None, flags: Collection[str] = ()) -> str:
    """How a finished trial ended, as lists write it; an exception without words of ours is its name. ``flags``: those
    of the trial."""
    if "zero_tool_calls" in flags and ended_by in (None, "no_tool_call"):
        return _WITHOUT_CALL
    return DONE if ended_by is None else ENDING_WORDS.get(ended_by, ended_by)


def ending_of(head: TrialHead) -> str:
    """The same of a trial that may have no result; "" while it runs."""
    if head.state == "finished":
        return ending_word(head.ended_by, head.flags)
    return CUT_OFF if head.state == "cut_off" else ""


def endings_of(step: StepTrials) -> Mapping[str, int]:
    """How the trials of a step ended -> trials: one word and one count wherever it is told."""
    if step.ends:
        return step.ends
    # Counted by an earlier version, which had no words.
    words: Counter[str] = Counter()
    for reason, trials in step.ended_by.items():
        words[ending_word(reason)] += trials
    words[DONE] += max(0, step.finished - sum(step.ended_by.values()))
    words[CUT_OFF] += step.cut_off
    for word in (ENDING_WORDS["no_tool_call"], DONE):
        moved = min(words[word], step.zero_tool_calls - words[_WITHOUT_CALL])
        words[word] -= max(0, moved)
        words[_WITHOUT_CALL] += max(0, moved)
    return +words


def counted_endings(endings: Mapping[str, int]) -> str:
    """``submitted 24, max turns 8``: the most frequent first."""
    ordered = sorted(endings.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{word} {trials}" for word, trials in ordered)
