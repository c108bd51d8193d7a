"""Results of tools, cut as verl cuts them."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from liverl.agents.tool_results import cut

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
SIDES = ("left", "right", "middle")
# verl's own agent with one tool that returns what it is given.
_VERL = """
import asyncio, json, sys
from types import SimpleNamespace
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import ToolResponse

class Echo:
    async def create(self, create_kwargs=None):
        return "1", None
    async def execute(self, instance, arguments, agent_data=None):
        return ToolResponse(text=arguments["text"]), 0.0, {}
    async def release(self, instance):
        pass

async def answer(text, most, side):
    loop = object.__new__(ToolAgentLoop)
    loop.tools = {"echo": Echo()}
    loop.max_tool_response_length, loop.tool_response_truncate_side = most, side
    call = FunctionCall(name="echo", arguments=json.dumps({"text": text}))
    response, *_ = await loop._call_tool(call, {}, SimpleNamespace())
    return response.text

print(json.dumps([asyncio.run(answer(*case)) for case in json.load(sys.stdin)]))
"""


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ("left", "(truncated)...defg"),
        ("right", "abcd...(truncated)"),
        ("middle", "ab...(truncated)...fg"),
        ("other", "ab...(truncated)...fg"),
    ],
)
def test_a_long_result_is_cut_at_its_side(side: str, expected: str) -> None:
    assert cut("abcdefg", 4, side) == expected


def test_an_odd_length_keeps_half_of_it_on_both_sides() -> None:
    assert cut("abcdefg", 5, "middle") == "ab...(truncated)...fg"


@pytest.mark.parametrize("side", SIDES)
def test_a_result_that_fits_is_unchanged(side: str) -> None:
    assert cut("abcd", 4, side) == "abcd" and cut("", 4, side) == ""
    assert cut("abcde", 4, side) != "abcde"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
def test_results_are_cut_as_by_verls_own_agent() -> None:
    texts = ("", "a", "abcd", "abcde", "zwölf Größen", "line\n" * 100)
    cases = [(text, most, side) for text in texts for most in (2, 4, 5, 256) for side in SIDES]
    process = subprocess.run(
        [PYTHON, "-c", _VERL],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    given = json.loads(process.stdout.splitlines()[-1])
    assert [cut(*case) for case in cases] == [text or "" for text in given]
