"""The table of exit codes: what --help says, and that nobody writes a code as a bare number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from liverl import exit_codes
from liverl.exit_codes import ExitCode
from liverl_tui.cli import main as cli

ROOT = Path(__file__).parents[2]
# Called or raised with an exit code as one of their arguments.
CARRIERS = {"CliError", "LaunchError", "RunHeld", "RunLookupError", "StartProblem", "Verdict"}
ROOMS = (
    "liverl_tui",
    *(f"backend/liverl/{room}" for room in ["daemon", "offline", "control", "rundir", "config"]),
)


def test_the_codes_that_scripts_rely_on_keep_their_numbers():
    names = ["OK", "FAILED", "USAGE", "PREFLIGHT", "NO_RUN", "STOPPED", "LEFT_OVER", "TIMEOUT"]
    expected = dict(zip(names, (0, 1, 2, 3, 4, 5, 75, 124), strict=True))
    assert {name: int(ExitCode[name]) for name in expected} == expected
    assert exit_codes.of_signal(2) == 130


def test_help_prints_the_table(capsys):
    assert cli.run(["--help"]) == 0
    shown = re.findall(r"^ +([0-9]+(?:\+n)?)  +(.+)$", capsys.readouterr().out, re.MULTILINE)
    assert shown == exit_codes.rows()
    assert {code for code, _ in shown} == {"128+n", *(str(int(c)) for c in ExitCode if not c.internal)}


def bare_codes(source: str) -> list[int]:
    """Lines that hand over an exit code as a number."""
    found: list[int] = []
    if not any(word in source for word in (*CARRIERS, "exit_code", "_command")):
        return found  # not to be parsed for nothing
    for node in ast.walk(ast.parse(source)):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CARRIERS:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Assign) and "exit_code" in ast.unparse(node.targets[0]):
            values = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name.endswith("_command"):
            values = [r.value for r in ast.walk(node) if isinstance(r, ast.Return) and r.value is not None]
        found += [leaf.lineno for value in values for leaf in leaves(value) if _is_number(leaf)]
    return found


def leaves(value: ast.expr) -> list[ast.expr]:
    """What an expression may give: itself, or each branch of ``a if b else c``."""
    return [*leaves(value.body), *leaves(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


@pytest.mark.parametrize(
    "source",
    [
        "raise CliError('x', 2)",
        "v = Verdict('stopped', 5 if finite else 0)",
        "class E:\n    exit_code = 4",
        "def ls_command():\n    return 0",
    ],
)
def test_a_bare_code_is_found(source):
    assert bare_codes(source)


def test_no_exit_code_is_a_bare_number():
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    assert [f"{p.relative_to(ROOT)}:{n}" for p in files for n in bare_codes(p.read_text())] == []
