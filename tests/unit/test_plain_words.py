"""The program speaks plain English: phrases that were replaced once do not come back, in texts or in comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.drill

ROOT = Path(__file__).parents[2]

# Each phrase with a sentence that it must find, and one in plain words that it must not find.
PHRASES = {
    r"the time is over": (
        "run X is not ready: the time is over",
        "timed out waiting for run X to become ready",
    ),
    r"stop asked by|ending everything": (
        "stop asked by ctl: ending everything in order",
        "stop requested by ctl; stopping services in dependency order",
    ),
    r"replicas serve: the proxy gets them": (
        "all 2 replicas serve: the proxy gets them",
        "2 of 2 replicas are up; adding them to the proxy",
    ),
    r"(something|what) would not die|^would not die": (
        "stopped, but something would not die",
        "stopped, but some processes could not be killed",
    ),
    r"the proxy leaves \S+ alone": (
        "the proxy leaves replica-0 alone",
        "the proxy has put replica-0 in cooldown",
    ),
    r"\bmend what\b": (
        "mend what its log says, then start it again",
        "fix the error shown in its log, then restart it",
    ),
    r"\bverl owns\b": (
        "verl owns r0: it ends and comes back with its trainer",
        "r0 is managed by verl; restart the trainer to restart it",
    ),
    r"the old one goes on": (
        "the new proxy did not start; the old one goes on",
        "the new proxy did not start; the previous process is still serving",
    ),
    r"could not be had from it": (
        "its socket could not be had from it",
        "could not take over its listening socket",
    ),
    r"once more = stop": ("once more = stop --now", "press Ctrl-C again to kill immediately"),
    r"\bneed somebody\b|\bneeds somebody\b": ("1 of 1 need somebody", "1 alert"),
    r"^all equal$": ("all equal", "same reward"),
    r"stopped as asked": ("stopped as asked", "stopped"),
    r"no service that this could be": (
        "restart: there is no service that this could be",
        "restart: no service can be restarted now",
    ),
    r"[Gg]oes the way of a key|right behind it, and a second time": (
        "Goes the way of a key, right behind it, and a second time behind what the key has set going.",
        "Sentinel posted after each key; when it arrives, the key has been handled.",
    ),
    r"a reading only\b|record that is no record|so is a file that is none": (
        "A reading only. It takes what it can: a record that is no record is passed over.",
        "Read-only and tolerant: malformed records and files are skipped.",
    ),
}
PATTERNS = {phrase: re.compile(phrase, re.IGNORECASE) for phrase in PHRASES}

BACKEND = ("backend/liverl", "README.md")
INTERFACE = ("liverl_tui",)


def says(text: str) -> list[str]:
    """The phrases in a text."""
    words = " ".join(text.split())
    return [phrase for phrase, pattern in PATTERNS.items() if pattern.search(words)]


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a file with its line: constants, docstrings and comments of Python, the lines of other files. A
    value in an f-string becomes ``{}``, so that a phrase is found on both sides of one."""
    source = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    if not any(says(line) for line in source.splitlines() if "#" in line):
        return  # what reads tokens is slow
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def found(*places: str) -> list[str]:
    """Every place that says one of the phrases: file, line and the phrase."""
    files = [
        file
        for place in places
        for file in ([ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*")))
        if file.suffix in (".py", ".yaml", ".md", ".tcss")
    ]
    assert files, places
    return [
        f"{file.relative_to(ROOT)}:{line}: {phrase}"
        for file in files
        for line, text in sentences(file)
        for phrase in says(text)
    ]


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_found_and_its_plain_words_are_not(phrase: str) -> None:
    old, plain = PHRASES[phrase]
    assert PATTERNS[phrase].search(old)
    assert not any(pattern.search(plain) for pattern in PATTERNS.values())


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('X = "it was stopped as asked"', 1),
        ('X = (\n    f"{a} {b}: stopped "\n    f"as asked ({c})"\n)', 2),
        ('"""Some module.\n\nIt is stopped\nas asked.\n"""', 1),
        ("x = 1\ny = 2  # stopped as asked", 2),
        ('X = f"the proxy leaves {name} alone"', 1),
    ],
)
def test_every_kind_of_text_is_read(tmp_path: Path, source: str, line: int) -> None:
    path = tmp_path / "a.py"
    path.write_text(source)
    lines = {n for n, text in sentences(path) for p in PATTERNS.values() if p.search(" ".join(text.split()))}
    assert lines == {line}


def test_the_backend_and_the_readme_speak_plainly() -> None:
    assert found(*BACKEND) == []


def test_the_interface_speaks_plainly() -> None:
    assert found(*INTERFACE) == []
