"""The embedded engine: vLLM's HTTP API for a small policy."""
