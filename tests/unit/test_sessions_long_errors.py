"""What an error quotes of a request is cut: a client that sends a megabyte does not get it back, nor does a log."""

from __future__ import annotations

from typing import Any

import pytest
from kit.session_host import SessionHost

LONG = "x" * 1_000_000
USER = {"role": "user", "content": "Hello."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "role": ("openai", {"messages": [{"role": LONG, "content": ""}]}),
    "role of anthropic": ("anthropic", {"messages": [{"role": LONG, "content": ""}]}),
    "a role that is a list": ("openai", {"messages": [{"role": ["y"] * 100_000, "content": ""}]}),
    "model": ("openai", {"messages": [USER], "model": LONG}),
    "model of anthropic": ("anthropic", {"messages": [USER], "model": LONG}),
    "type of content": ("openai", {"messages": [{"role": "user", "content": [{"type": LONG}]}]}),
    "type of a picture": ("openai", {"messages": [{"role": "user", "content": [{"type": "image" + LONG}]}]}),
    "tool_choice": ("openai", {"messages": [USER], "tools": [TOOL], "tool_choice": LONG}),
    "tool_choice of anthropic": (
        "anthropic",
        {"messages": [USER], "tools": [], "tool_choice": {"type": LONG}},
    ),
    "a tool": (
        "anthropic",
        {"messages": [USER], "tools": [{"name": LONG[:300_000], "type": LONG[:300_000]}]},
    ),
    "max_tokens": ("openai", {"messages": [USER], "max_tokens": -int("9" * 4000)}),
}


@pytest.mark.parametrize("name", BODIES)
async def test_what_an_error_quotes_is_cut(host: SessionHost, replica: Any, name: str) -> None:
    api, body = BODIES[name]
    opened = await host.open()
    path = "chat/completions" if api == "openai" else "messages"
    url = f"{opened['openai_url']}/{path}"
    asked = {"model": "m", "max_tokens": 5, **body}
    async with host.http.post(url, json=asked, headers={"x-api-key": opened["key"]}) as response:
        text = await response.text()
    assert response.status == 404 if name.startswith("model") else response.status == 400, text[:300]
    assert len(text) < 1500, len(text)


async def test_the_name_of_a_session_is_cut(host: SessionHost, replica: Any) -> None:
    status, body = await host.control("GET", f"/sessions/{'s' * 3000}")
    assert status == 404 and len(str(body)) < 500
    status, body = await host.control(
        "POST", "/sessions", {"id": "s" * 3000, "trial_dir": str(host.folder / "trials" / "t")}
    )
    assert status == 400 and "is no session id" in str(body) and len(str(body)) < 500
