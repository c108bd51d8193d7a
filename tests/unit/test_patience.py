"""How long tests wait for what comes: on a busy machine everything takes long, and only what never comes is a fault."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import PATIENCE_S

TESTS = Path(__file__).parents[1]
# ``mutation`` bounds mutants that hang; the others are no part of the gate.
ELSEWHERE = {"bench", "data", "docker", "mutation", "slurm"}
LEAST_S = 60.0
# What ends within this is a moment that a test gives on purpose, for what is not to come.
MOMENT_S = 2.0
# Where the seconds stand. A claim about the product, such as that a fault is named in time, has a constant of its own.
POSITIONS = {
    "communicate": 1,
    "create_connection": 1,
    "join": 0,
    "result": 0,
    "settimeout": 0,
    "settle": 0,
    "timeout": 0,
    "until": 2,
    "urlopen": 2,
    "wait": 0,
    "wait_for": 1,
    "wait_procs": 1,
    "wait_until": 1,
    "within": 1,
}
KEYWORDS = {"deadline", "seconds", "timeout"}
DEFAULTS = {"deadline", "seconds"}  # of helpers: a timeout may be what is handed to the product
WITH_KEYWORDS = {*POSITIONS, "call", "check_call", "check_output", "get", "run", "run_cli"}
# Clocks: what is added to one of them is a deadline.
CLOCKS = {"monotonic", "time"}
# (receiver, method): what their number counts is no time.
NO_SECONDS = {("clients", "wait")}


def is_short(value: ast.expr | None) -> bool:
    """Whether it is a number between a moment and patience."""
    seconds = value.value if isinstance(value, ast.Constant) else None
    return isinstance(seconds, int | float) and MOMENT_S < seconds < LEAST_S


def _counts_no_time(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and (ast.unparse(called.value), called.attr) in NO_SECONDS


def _is_clock(read: ast.expr) -> bool:
    """Whether it reads a clock that only goes forward: ``time.monotonic()``, or that of a loop."""
    if not isinstance(read, ast.Call) or not isinstance(read.func, ast.Attribute):
        return False
    return read.func.attr in CLOCKS and ast.unparse(read.func) != "time.time"


def short_waits(source: str) -> Iterator[int]:
    """Lines of calls, of deadlines by a clock, and of defaults of helpers, that give up after so few seconds that a
    busy machine may not be done by then."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args]
            named = positional[len(positional) - len(node.args.defaults) :] + node.args.kwonlyargs
            pairs = zip(named, [*node.args.defaults, *node.args.kw_defaults], strict=True)
            yield from (one.lineno for one, value in pairs if one.arg in DEFAULTS and is_short(value))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_clock(node.left):
            yield from (node.lineno for value in (node.right,) if is_short(value))
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        given = [one.value for one in node.keywords if one.arg in KEYWORDS and name in WITH_KEYWORDS]
        position = POSITIONS.get(name)
        if position is not None and len(node.args) > position and not _counts_no_time(called):
            given.append(node.args[position])
        yield from (node.lineno for value in given if is_short(value))


@pytest.mark.parametrize(
    "call",
    [
        "wait_until(lambda: x, 30, 'x')",
        "wait_until(lambda: x, seconds=5.0)",
        "await wait_for(lambda: x, 30, 'x')",
        "run.until('a', 'ready', 30)",
        "process.wait(10)",
        "process.communicate(timeout=30)",
        "subprocess.run(words, timeout=20)",
        "asyncio.timeout(20)",
        "urllib.request.urlopen(request, timeout=5)",
        "thread.join(30)",
        "asked.result(20)",
        "sock.settimeout(10)",
        "def until(condition, seconds=30.0): ...",
        "give_up = time.monotonic() + 20",
        "late = asyncio.get_running_loop().time() + 30",
        "watcher.settle(30)",
    ],
)
def test_a_short_wait_is_seen(call: str) -> None:
    assert list(short_waits(f"async def f():\n    {call}")) == [2]


@pytest.mark.parametrize(
    "call",
    ["wait_until(lambda: x, what='x')", "process.wait(60)", "asyncio.timeout(0.1)", "wait_until(f, NAMED_S)"],
)
def test_patience_and_a_moment_on_purpose_are_none(call: str) -> None:
    assert list(short_waits(f"async def f():\n    {call}")) == []


def test_no_test_gives_up_before_a_busy_machine_is_done() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS)
        if name.parts[0] not in ELSEWHERE and name != Path("unit/test_patience.py"):
            found += [f"tests/{name}:{line}" for line in short_waits(path.read_text())]
    assert found == [], f"wait for at least {LEAST_S:g} s, or leave the number out ({PATIENCE_S:g} s)"
