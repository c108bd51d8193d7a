"""The variables by which Claude Code names its models."""

from __future__ import annotations

# Beside ANTHROPIC_MODEL. Without them it asks for models of Anthropic for titles, summaries and sub-agents, which are
# not served.
MODEL_VARIABLES = (
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
