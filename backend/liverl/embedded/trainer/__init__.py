"""The embedded trainer: GRPO through the proxy."""
