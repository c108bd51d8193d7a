"""The event that says who asked for what."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from liverl.daemon.commands import Commands


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"delta": 1}, "scale +1"),
        ({"delta": -2}, "scale -2"),
        ({"to": 4}, "scale 4"),
        ({"remove": "r1"}, "remove r1"),
    ],
)
def test_a_change_of_the_replicas_is_told_as_it_was_asked(args: dict[str, Any], words: str) -> None:
    said: list[str] = []

    async def scale(*_: Any) -> dict[str, Any]:
        return {}

    supervisor = SimpleNamespace(say=lambda _kind, text, **_data: said.append(text))
    scaling = SimpleNamespace(scale=scale)
    commands = Commands(cast(Any, supervisor), cast(Any, scaling), cast(Any, None), lambda **_: None, None)
    asyncio.run(commands.run("scale", args, "cli pid 7"))
    assert said == [f"cli pid 7: {words}"]
