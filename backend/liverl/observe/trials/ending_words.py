"""How trials and their turns end, in the words of their records. Imports nothing that reads trials."""

from __future__ import annotations

from collections.abc import Mapping

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
