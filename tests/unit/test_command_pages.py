"""Manual pages, ``docs/commands.md`` and completion are what the parser says, and the wheel installs them.

Where they differ and should: ``pytest tests/unit/test_command_pages.py --update-documents``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from kit import command_pages
from kit.command_pages import COMPLETIONS, MANUAL, PROGRAM, ROOT, commands, generated, manuals

from liverl_tui.cli.main import COMMANDS, cli

FILES = {str(path.relative_to(ROOT)): text for path, text in generated().items()}


@pytest.mark.parametrize("name", FILES)
def test_a_page_is_current(name: str, request: pytest.FixtureRequest) -> None:
    path = ROOT / name
    if request.config.getoption("--update-documents"):
        path.write_text(FILES[name], "utf-8")
    assert path.is_file(), "made by --update-documents"
    assert path.read_text("utf-8") == FILES[name], "if this is meant: --update-documents"


def test_there_is_no_page_of_a_command_that_is_gone() -> None:
    there = {path for folder in (MANUAL, COMPLETIONS) for path in folder.iterdir()}
    assert {str(path.relative_to(ROOT)) for path in there} <= set(FILES)


def test_every_command_and_option_has_its_words() -> None:
    found = {one.words: one for one in commands()}
    assert set(COMMANDS) <= set(found) and "rules test" in found
    for one in found.values():
        assert one.short.endswith(".") and one.text, one.words
    without = [p.name for c in parsed() for p in c.params if isinstance(p, click.Option) and not p.help]
    assert without == []
    assert ("--prometheus", "Print the state as metrics, in the text format of Prometheus.") in found[
        "status"
    ].terms
    assert found["rules test"].usage.startswith("[OPTIONS]")


def parsed() -> list[click.Command]:
    context = click.Context(cli)
    return [command for name in COMMANDS if (command := cli.get_command(context, name)) is not None]


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
@pytest.mark.parametrize(
    "name", ["liverl-tui.1", "liverl-tui-up.1", "liverl-tui-rules.1", "liverl-tui-config.1"]
)
def test_man_shows_it_without_a_warning(name: str) -> None:
    done = subprocess.run(
        ["man", "--warnings", "-l", str(MANUAL / name)],
        capture_output=True,
        text=True,
        check=False,
        env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION"):
        assert re.search(rf"^{heading}$", done.stdout, re.MULTILINE)
    assert name.removesuffix(".1") in done.stdout


def test_no_text_becomes_a_request_of_the_manual() -> None:
    assert command_pages._roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert command_pages._roff("'x\\y --a") == "\\&'x\\ey \\-\\-a"
    allowed = (".TH ", ".SH ", ".B ", ".BR ", ".TP", ".PP")
    for name, text in manuals().items():
        for line in text.splitlines():
            assert not line.startswith((".", "'")) or line.startswith(allowed), (name, line)


def test_the_wheel_installs_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert wheel["shared-data"] == {
        "share/man/man1": "share/man/man1",
        "share/completions/liverl-tui": "share/bash-completion/completions/liverl-tui",
        "share/completions/_liverl-tui": "share/zsh/site-functions/_liverl-tui",
        "share/completions/liverl-tui.fish": "share/fish/vendor_completions.d/liverl-tui.fish",
    }
    assert all((ROOT / name).exists() for name in wheel["shared-data"])
    assert {path.suffix for path in MANUAL.iterdir()} == {".1"}, "the whole folder is installed"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["liverl-tui", "st"], {"status", "start", "stop"}),
        (["liverl-tui", "status", "--pro"], {"--prometheus"}),
        (["liverl-tui", "completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes_by_the_installed_script(typed: list[str], offered: set[str], tmp_path: Path) -> None:
    """The script as it is installed, in a real bash."""
    program = tmp_path / PROGRAM
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m liverl_tui "$@"\n')
    program.chmod(0o755)
    words = " ".join(f"'{word}'" for word in typed)
    script = (
        f"source {COMPLETIONS / 'liverl-tui'}; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; "
        'COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; '
        "_liverl_tui_completion liverl-tui; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert set(done.stdout.split()) == offered
