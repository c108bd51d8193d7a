"""Who may open, write, copy and remove files by calls of the standard library: the helpers of ``liverl.util`` alone.

Everybody else uses them, so that each file is opened under one rule: ``checked_path`` (links), ``regular_file`` (FIFOs,
size), ``atomic_file`` and ``append`` (whole or not at all), ``remove_tree``."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import liverl
import liverl_tui

# What has calls of its own, and why. A name that ends with / is a folder; those of the interface begin with liverl_tui.
OWN_CALLS = {
    "liverl_tui/cli/main.py": "opens /dev/null in the place of streams that the caller has closed",
    "liverl_tui/cli/live_text.py": "writes into its own pipe in a handler of a signal",
    "liverl_tui/web/session.py": "keys for the pseudo terminal of its own process",
    "util/checked_path.py": "the helper: which links are followed",
    "util/regular_file.py": "the helper: opens again by its path what it knows by its inode",
    "util/atomic_file.py": "the helper: files that are replaced",
    "util/append.py": "the helper: whole lines",
    "util/remove_tree.py": "the helper: removal without recursion",
    "util/kernel_file.py": "the helper: /proc and /sys",
    "util/package_data.py": "the helper: files of our own package",
    "environments/copy_files.py": "gives unchanged files of an earlier copy of an environment a second name",
    "agents/harbor/": "runs in Harbor's interpreter, and imports nothing of ours",
    "procs/procfs.py": "reads /proc only, several thousand files per second",
    "procs/stats.py": "reads /proc only, several thousand files per second",
    "procs/listing.py": "reads /proc only, several thousand files per second",
    "notify/sender.py": "a process of the standard library only: it cannot import the helper",
    "preflight/rows_program.py": "a program for another interpreter: it cannot import the helper",
    "supervise/keeper/process/": "a process of the standard library only: it has a copy of the helper",
    "proxy/runtime/files.py": "runs inside LiteLLM without our package: a copy of the helper",
    "proxy/runtime/assignments.py": "runs inside LiteLLM: a file that two processes keep open and lock",
}

METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "hardlink_to"}
OF_MODULES = {
    "os": {"open", "write", "writev", "pwrite", "truncate", "mkfifo", "link", "makedirs", "removedirs"},
    "shutil": {
        "copy", "copy2", "copyfile", "copyfileobj", "copytree", "copymode", "copystat", "move", "rmtree",
        "unpack_archive", "make_archive",
    },
    "io": {"open", "FileIO"}, "codecs": {"open"},
}  # fmt: skip
MODE = set("rwxabt+U")
# What stands in each module that has such a call: the others are not parsed.
_MAY = re.compile(
    rf"\bopen\(|\.(?:{'|'.join(sorted(METHODS.union(*OF_MODULES.values())))})\b"
    rf"|\bfrom (?:{'|'.join(OF_MODULES)}) import\b"
)


def file_calls(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each call of the standard library that opens, writes, copies or removes a file by its path."""
    if not _MAY.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    modules = {name: name for name in OF_MODULES}
    functions = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {
                each.asname: each.name for each in node.names if each.asname and each.name in OF_MODULES
            }
        elif isinstance(node, ast.ImportFrom) and node.module in OF_MODULES:
            for each in node.names:
                if each.name in OF_MODULES[node.module]:
                    functions[each.asname or each.name] = f"{node.module}.{each.name}"
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and node.attr in OF_MODULES[module]:
                yield node.lineno, f"{module}.{node.attr}"  # also where it is passed on
                continue
        if isinstance(node, ast.Name) and node.id in functions:
            yield node.lineno, functions[node.id]
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            yield node.lineno, "open"
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in METHODS:
                yield node.lineno, node.func.attr
            elif node.func.attr == "open" and _of_path(node):
                yield node.lineno, "Path.open"


def _of_path(call: ast.Call) -> bool:
    """Whether ``x.open(...)`` has the arguments of ``Path.open``."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "tarfile":
        return any(word.arg == "name" for word in call.keywords)
    words = {word.arg for word in call.keywords}
    if words & {"mode", "encoding", "buffering", "newline"} or not (call.args or words):
        return True
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and set(first.value) <= MODE


def _owner(name: str) -> str | None:
    return next(
        (own for own in OWN_CALLS if name == own or (own.endswith("/") and name.startswith(own))), None
    )


def _sources() -> Iterator[tuple[str, str]]:
    for package in (liverl, liverl_tui):
        root = Path(package.__file__).parent
        base = root if package is liverl else root.parent
        for path in sorted(root.rglob("*.py")):
            yield path.relative_to(base).as_posix(), path.read_text(encoding="utf-8")


@functools.cache
def _calls() -> dict[str, list[tuple[int, str]]]:
    """File of our package -> its calls."""
    return {name: sorted(set(file_calls(source))) for name, source in _sources()}


def test_files_are_opened_by_the_helpers_only() -> None:
    found = [
        f"{name}:{line}: {call}"
        for name, calls in _calls().items()
        if _owner(name) is None
        for line, call in calls
    ]
    assert not found, "use the helpers of liverl.util (see the docstring above):\n" + "\n".join(found)


def test_each_exception_is_needed_and_has_its_reason() -> None:
    used = {_owner(name) for name, calls in _calls().items() if calls}
    assert set(OWN_CALLS) - used == set()
    assert all(len(reason.split()) > 2 for reason in OWN_CALLS.values())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("open(name)", ["open"]),
        ("open(name, 'w')", ["open"]),
        ("path.open('rb')", ["Path.open"]),
        ("path.open()", ["Path.open"]),
        ("path.open(encoding='utf-8')", ["Path.open"]),
        ("path.read_text()", ["read_text"]),
        ("path.read_bytes()", ["read_bytes"]),
        ("(a / b).write_text(text)", ["write_text"]),
        ("path.write_bytes(data)", ["write_bytes"]),
        ("import os\nos.open(name, os.O_RDONLY)", ["os.open"]),
        ("import os as o\no.open(name, 0)", ["os.open"]),
        ("from os import open as o\no(name, 0)", ["os.open"]),
        ("from shutil import rmtree\nrmtree(name)", ["shutil.rmtree"]),
        ("import shutil\nshutil.rmtree(name)", ["shutil.rmtree"]),
        ("import shutil\ncall(shutil.copytree, a, b)", ["shutil.copytree"]),
        ("import os\nappend(fd, os.write)", ["os.write"]),
        ("import io\nio.open(name)", ["io.open"]),
        ("sessions.open(trial, directory, limits)", []),
        ("tarfile.open(fileobj=data, mode='r:')", []),
        ("tarfile.open(name=path)", ["Path.open"]),
        ("read_text(path)", []),
        ("import os\nos.close(fd)", []),
    ],
)
def test_the_check_knows_each_form(source: str, found: list[str]) -> None:
    assert [call for _, call in file_calls(source)] == found
