"""``rules``: files of rules are checked and tried, and rows are listed and explained; a fault refuses a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.cli import run_cli

from liverl.causes.catalogue import rows
from liverl_tui.cli.main import run

GOOD = """\
silence = ["ray-nodes-missing"]

[[row]]
id = "cache-drains"
role = "cause"
pattern = 'cache (?P<node>[\\w-]{1,40}) is draining'
title = "The cache node {node} drains"
cause = "It is being emptied."
fix = "Wait."
command = "cachectl status"
source = "operators"
fires = 'ERROR cache c-1 is draining now'
spares = 'cache c-1 has drained'
"""
BAD = GOOD.replace("[\\w-]{1,40}", ".*").replace("ray-nodes-missing", "ray-node-missing")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "site.toml"
    file.write_text(GOOD)
    file.chmod(0o644)
    (tmp_path / "bad.toml").write_text(BAD)
    return file


def test_check_says_what_is_wrong(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "check", str(site)]) == 0
    said = capsys.readouterr().out
    assert (
        said
        == f"{site}: 1 rule; each matches its `fires` and not its `spares`; silenced: ray-nodes-missing\n"
    )
    bad = site.with_name("bad.toml")
    assert run(["rules", "check", str(site), str(bad)]) == 2
    told = capsys.readouterr().out.splitlines()
    begins = (
        f"{bad}:1: silence: there is no row ray-node-missing of ours; did you mean ray-nodes-missing?",
        f"{bad}:6: cache-drains: pattern: a repetition without end",
        f"{bad}:4: cache-drains: id: {site} has a row of this id, too",
    )
    assert [line.startswith(begin) for line, begin in zip(told, begins, strict=True)] == [True] * 3, told


def test_check_as_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "check", "--json", str(site)]) == 0
    good = json.loads(capsys.readouterr().out)
    assert (good["ok"], good["rules"], good["silenced"], good["faults"]) == (
        True,
        1,
        ["ray-nodes-missing"],
        [],
    )
    assert run(["rules", "check", "--json", str(site.with_name("bad.toml"))]) == 2
    bad = json.loads(capsys.readouterr().out)
    assert (bad["ok"], bad["rules"]) == (False, 0)
    assert [(one["line"], one["row"], one["key"]) for one in bad["faults"]] == [
        (1, "", "silence"),
        (6, "cache-drains", "pattern"),
    ]


def test_test_names_the_lines_that_a_row_matches(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, other = site.with_name("a.log"), site.with_name("b.log")
    lines = ["INFO start"] * 3 + ["INFO cache c-7 is draining"] + ["INFO cache c-9 is draining"] * 30
    log.write_text("".join(f"{line}\n" for line in lines))
    other.write_text("INFO all is well\n")
    assert run(["rules", "test", str(site), str(log), str(other)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:3] == [
        f"{log}:4: cache-drains: The cache node c-7 drains",
        "    INFO cache c-7 is draining",
    ]
    assert f"{log}: cache-drains: 11 more" in said
    assert said[-1] == f"{other}: no row of {site} matches any line"
    assert run(["rules", "test", str(site), str(other)]) == 1
    assert run(["rules", "test", str(site), str(site.with_name("none.log"))]) == 4
    assert run(["rules", "test", str(site.with_name("bad.toml")), str(log)]) == 2


def test_ls_lists_the_rows_with_these_words(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "ls", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in every] == sorted(row.id for row in rows())
    assert run(["rules", "ls", "--rules", str(site), "CACHE", "draining", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one == {
        "id": "cache-drains",
        "program": "site",
        "role": "cause",
        "title": "The cache node c-1 drains",
        "rules": str(site),
    }
    assert run(["rules", "ls", "nccl", "watchdog"]) == 0
    assert any(line.startswith("nccl-watchdog ") for line in capsys.readouterr().out.splitlines())
    assert run(["rules", "ls", "no row says this"]) == 1


def test_explain_says_a_row_in_words(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "explain", "cache-drains", "--rules", str(site)]) == 0
    said = capsys.readouterr().out
    for words in (
        "cache-drains: The cache node {node} drains",
        "It is being emptied.",
        "Wait.",
        "cachectl status   (it is shown; nothing runs it)",
        "operators",
        str(site),
    ):
        assert words in said
    assert run(["rules", "explain", "nccl-watchdgo"]) == 2
    assert "did you mean nccl-watchdog?" in capsys.readouterr().err


def test_an_action_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "chek"]) == 2
    assert "did you mean check?" in capsys.readouterr().err


def test_doctor_uses_rules(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = site.with_name("a.log")
    log.write_text("INFO cache c-7 is draining\n")
    assert run(["doctor", str(log)]) == 0
    capsys.readouterr()
    assert run(["doctor", "--rules", str(site), str(log)]) == 1
    assert capsys.readouterr().out.startswith("cause: The cache node c-7 drains\n")
    assert run(["doctor", "--rules", str(site.with_name("bad.toml")), str(log)]) == 2
    assert "these rules cannot be used:" in capsys.readouterr().err


def test_a_faulty_file_refuses_a_start_with_its_place(site: Path) -> None:
    """Its path starts at the configuration file, and alerts of a right file can be muted."""
    config = site.with_name("c.yaml")
    text = "run: {name: n}\ndiagnosis:\n  rules: [bad.toml]\n  mute: ['log:cache-drains']\n"
    config.write_text(text)
    bad = site.with_name("bad.toml")
    for command in (("plan",), ("check",), ("up", "--no-ui", "--yes")):
        done = run_cli(*command, "--config", config, "--run-root", site.parent / "runs", PYTHONPATH="")
        assert done.returncode == 3 and "Traceback" not in done.stderr
        assert f"{bad}:6: cache-drains: pattern: a repetition without end" in done.stdout + done.stderr
    assert not (site.parent / "runs").exists()
    config.write_text(text.replace("bad.toml", "site.toml"))
    done = run_cli("plan", "--config", config)
    assert done.returncode == 0 and f"\nrules      {site}\n" in done.stdout
