"""``fix``: which alert is meant, and what is said where nothing can be applied."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from kit.screens import snapshot

from liverl.config import load_config
from liverl.model import Symptom
from liverl_tui.cli import fix
from liverl_tui.cli.main import run

IDLE = Symptom("replica_idle:r1", "warning", "r1 is idle", "c", "restart it", action="restart r1")
FULL = Symptom("disk_low", "warning", "the disk is full", "c", "delete something")
PARSER = Symptom("zero_tool_calls", "critical", "no calls", "c", "f", patch={"model.tool_parser": "hermes"})
MEMORY = Symptom("service_failed:r1", "critical", "r1 failed", "c", "f", patch={"vllm.gen_tp": "1"})


@pytest.fixture
def alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Symptom]:
    folder = tmp_path / "runs" / "p" / "r"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    monkeypatch.chdir(folder)
    found: list[Symptom] = []
    monkeypatch.setattr(fix, "_snapshot", lambda run: snapshot(symptoms=tuple(found)))
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["fix", *words, "--run", "."])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_nothing_to_mend_is_no_failure(alerts: list[Symptom], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys)[:2] == (0, "no alert of run p/r has a fix to apply\n")
    alerts.append(FULL)
    code, out, _ = said(capsys, "--json")
    assert (code, json.loads(out)) == (0, {"symptom": None, "applied": False})


def test_an_alert_without_a_patch_shows_what_to_run(
    alerts: list[Symptom], capsys: pytest.CaptureFixture[str]
) -> None:
    alerts += [FULL, IDLE]
    code, out, _ = said(capsys)
    assert code == 1 and "r1 is idle" in out and "run: liverl-tui restart r1 --run " in out
    code, out, _ = said(capsys, "disk")
    assert code == 1 and "fix: delete something" in out and "run:" not in out
    found = json.loads(said(capsys, "disk", "--json")[1])
    assert found == {"symptom": "disk_low", "fix": FULL.fix, "command": None, "applied": False}


def test_alerts_with_the_same_patch_are_mended_as_one(
    alerts: list[Symptom], capsys: pytest.CaptureFixture[str]
) -> None:
    alerts += [PARSER, IDLE, msgspec.structs.replace(MEMORY, patch=PARSER.patch)]
    code, _, err = said(capsys)
    assert code == 2 and "config.yaml does not exist" in err, "one was chosen"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (),
            "several alerts have a fix; name one of them:\n  zero_tool_calls: no calls\n  service_failed:r1: r1",
        ),
        (("nothing",), "no alert is called 'nothing'; alerts of p/r:"),
    ],
)
def test_an_alert_must_be_meant_clearly(
    alerts: list[Symptom], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    alerts += [PARSER, MEMORY, IDLE]
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "") and message in err


def test_a_run_without_a_configuration_says_so(
    alerts: list[Symptom], capsys: pytest.CaptureFixture[str]
) -> None:
    alerts += [PARSER, IDLE]
    code, _, err = said(capsys, "--yes")
    assert code == 2 and "config.yaml does not exist" in err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model: " + "[" * 100_000, "nested"),
        ("model:\n" + "\n".join(" " * n + "a:" for n in range(1, 2000)), "nested"),
        ("model: &a [*a]", "*a"),
        ("model: [1, 2", "YAML"),
        ("model: \udcff", "UTF-8"),
    ],
    ids=range(5),
)
def test_an_own_file_that_cannot_be_edited_keeps_the_run_as_it_is(
    alerts: list[Symptom],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    why: str,
) -> None:
    alerts.append(PARSER)
    mine = tmp_path / "mine.yaml"
    mine.write_bytes(text.encode("utf-8", "surrogateescape"))
    changed: list[object] = []
    plan = SimpleNamespace(total_steps=None, settings=None)
    change = SimpleNamespace(changes=[], plan=plan)
    loaded = load_config(env={})
    monkeypatch.setattr("liverl.daemon.next_attempt.changed_run", lambda *_, **__: (loaded, change))
    monkeypatch.setattr("liverl.daemon.user_file.user_file", lambda run: mine)
    monkeypatch.setattr(fix, "_next_attempt", lambda *_: changed.append(1) or "the next attempt has begun")
    code, _, err = said(capsys, "--yes", "--own-file")
    assert (code, changed) == (1, []) and f"nothing was changed: {mine} cannot be: " in err and why in err
    code, _, err = said(capsys, "--yes")
    assert (code, changed) == (0, [1]), "the run itself can be changed"
    assert mine.read_bytes() == text.encode("utf-8", "surrogateescape")
