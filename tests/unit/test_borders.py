"""What importing costs: the backend must be usable from a program that has no terminal and no time."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

HEAVY = {"textual", "rich", "ray", "litellm", "aiohttp", "torch", "vllm", "verl"}


def imported(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after ``code``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in re.findall(r"\|\s*([\w.]+)$", done.stderr, re.MULTILINE)}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import liverl", HEAVY),
        ("import liverl.model, liverl.plan, liverl.config, liverl.daemon.main", HEAVY),
        ("import liverl_tui.cli.main", {"textual", "asyncio", "yaml", "aiohttp"}),
    ],
)
def test_imports_stay_light(code: str, heavy: set[str]) -> None:
    assert not imported(code) & heavy
