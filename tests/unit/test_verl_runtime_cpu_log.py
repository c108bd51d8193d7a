"""How the engine without a GPU logs: as vLLM does."""

from __future__ import annotations

import logging
import re
import sys

from liverl.verl_runtime.cpuengine.log_lines import LikeVllm


def test_every_line_of_a_traceback_has_the_head() -> None:
    try:
        raise ValueError("substring not found")
    except ValueError:
        caught = sys.exc_info()
    record = logging.LogRecord(
        "liverl", logging.ERROR, "/a/tool_calls.py", 80, "Error in %s.", ("it",), caught
    )
    lines = LikeVllm().format(record).split("\n")
    heads = {
        re.match(r"ERROR \d\d-\d\d \d\d:\d\d:\d\d \[tool_calls\.py:80\] ", line) is not None for line in lines
    }
    assert heads == {True} and lines[0].endswith("Error in it.")
    assert "Traceback (most recent call last)" in lines[1] and lines[-1].endswith(
        "ValueError: substring not found"
    )
