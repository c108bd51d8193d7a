"""The tools that the embedded trainer offers to the policy, as OpenAI schemas."""

from __future__ import annotations

from typing import Any


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {p: {"type": "string", "description": d} for p, d in parameters.items()},
                "required": list(parameters),
            },
        },
    }


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("list_files", "List a directory.", path="directory"),
    _tool("read_file", "Read a text file.", path="file"),
    _tool("write_file", "Create a new text file.", path="file", content="its text"),
    _tool("replace_text", "Replace text in a file read before.", path="file", old="old", new="new"),
    _tool("move_file", "Move a file.", source="file", destination="file"),
    _tool("submit", "Hand in the work; ends the task."),
)
TOOL_NAMES: tuple[str, ...] = tuple(tool["function"]["name"] for tool in TOOLS)
SUBMIT = "submit"
