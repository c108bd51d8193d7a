"""Commands to paste begin with the program as it was called."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest import CaptureFixture, MonkeyPatch

from liverl_tui.cli.output import echo
from liverl_tui.text import as_typed


def test_the_program_is_named_as_a_shell_finds_it(tmp_path: Path) -> None:
    here, other, link = (tmp_path / name / "liverl-tui" for name in ("one", "other", "bin"))
    for file in (here, other):
        file.parent.mkdir()
        file.write_text("")
    link.parent.mkdir()
    link.symlink_to(here)
    told = [
        as_typed.program(called, on_path)
        for called, on_path in (
            (str(here), None),
            (str(here), str(other)),
            (str(here), str(here)),
            (str(here), str(link)),
            (".venv/bin/liverl-tui", None),
            ("/my dir/liverl-tui", None),
            ("liverl-tui", None),
            ("/usr/lib/liverl_tui/__main__.py", None),
        )
    ]
    name = "liverl-tui"
    assert told == [
        str(here),
        str(here),
        name,
        name,
        ".venv/bin/liverl-tui",
        "'/my dir/liverl-tui'",
        name,
        name,
    ]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("to attach: liverl-tui attach a/b", "to attach: bin/liverl-tui attach a/b"),
        ("`liverl-tui up` or liverl-tui stop --run x", "`bin/liverl-tui up` or bin/liverl-tui stop --run x"),
        ("see /opt/liverl-tui up", "see /opt/liverl-tui up"),
        ("the program liverl-tui", "the program liverl-tui"),
        ("liverl-tui has crashed; liverl-tui ls", "liverl-tui has crashed; bin/liverl-tui ls"),
        (
            "run: ssh -t h 'liverl-tui attach'\nliverl-tui ls",
            "run: ssh -t h 'liverl-tui attach'\nbin/liverl-tui ls",
        ),
    ],
)
def test_each_command_of_a_text(text: str, typed: str) -> None:
    assert as_typed.as_typed(text, "bin/liverl-tui") == typed
    assert as_typed.as_typed(text, "liverl-tui") == text


def test_messages_on_stderr_are_for_people(capsys: CaptureFixture[str], monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(as_typed, "_this", lambda: "bin/liverl-tui")
    echo("liverl-tui ls", err=True)
    echo("liverl-tui ls")
    assert capsys.readouterr() == ("liverl-tui ls\n", "bin/liverl-tui ls\n")
