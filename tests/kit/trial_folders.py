"""Folders of trials as the proxy, the agent and the verifier write them, with times that tests choose."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "litellm-trajectory.jsonl"
T = 1_800_000_000.0  # Unix time, whole so that differences are exact
TOOL = {"id": "c", "function": {"name": "bash", "arguments": "{}"}}


def call(*, calls: int = 0, finish: str | None = "stop", **other: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Done.", "tool_calls": [TOOL] * calls}
    return {
        "success": True,
        "request_time": T - 100,
        "request_body": {"messages": [{"role": "user", "content": "Go."}], "tools": [TOOL]},
        "response_body": {"choices": [{"finish_reason": finish, "message": message}]},
        "usage": {"completion_tokens": 4},
        "replica": "http://a:1",
        **other,
    }


FAILED = call(success=False, response_body=None, usage=None, failure={"status_code": 500})
GONE = call(success=False, response_body=None, usage=None, failure={"error_type": "client_disconnected"})


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def put(path: Path, text: str | bytes, at: float = T) -> Path:
    """A file and its folder, both last changed at ``at``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (at, at))
    os.utime(path.parent, (at, at))
    return path
