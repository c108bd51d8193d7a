"""``plan`` says what was checked and what was not, in both forms, and a script can rely on its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liverl_tui.cli import main as cli

SCRIPT = "run: {topology: verl, engine: vllm}\ntrainer: {kind: command, command: [bash, start.sh]}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LIVERL_CACHE_DIR", raising=False)
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str], dict[str, str]]:
    """Exit code; check -> status; what was not checked -> why. Text and JSON say the same."""
    code = cli.run(["plan", "--name", "x", *words])
    lines = [
        line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line[:1] not in ("", " ")
    ]
    assert cli.run(["plan", "--name", "x", "--json", *words]) == code
    document = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check["status"] for check in document["checks"]}
    unchecked = {one["name"]: one["text"] for one in document["unchecked"]}
    written = [words for words in lines if words[0] in ("check", "warn", "fail")]
    assert [
        f"{'check' if check['status'] == 'ok' else check['status']} {check['name']}: {check['text']}"
        for check in document["checks"]
    ] == [" ".join(words) for words in written]
    assert [f"{name}: {text}" for name, text in unchecked.items()] == [
        w[1] for w in lines if w[0] == "unchecked"
    ]
    return code, checks, unchecked


def test_a_run_of_verl_without_its_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks, unchecked = planned(capsys, "--profile", "cpu-verl")
    assert code == 0 and set(checks.values()) == {"ok"}
    assert "data rows" not in checks and "environment verl" not in checks, "what was not looked at is not ok"
    assert set(unchecked) == {"host", "data rows", "environment verl", "trainer.overrides"}
    assert "no row was read" in unchecked["data rows"]


@pytest.mark.parametrize(
    ("sets", "failed"),
    [
        (("--set", "data.train_index=/no/such.parquet"), "data.train_index"),
        (("--set", "agent.kind=tools", "--set", "agent.tools=/no/such.yaml"), "agent.tools"),
        (("--set", "training.n_resp_per_prompt=2"), ""),
        (("--set", 'trainer.overrides={"trainer.logger": "[consol]"}'), "loggers"),
    ],
)
def test_a_fault_ends_with_3_in_both_forms(
    capsys: pytest.CaptureFixture[str], sets: tuple[str, ...], failed: str
) -> None:
    code, checks, _ = planned(capsys, "--profile", "cpu-verl", *sets)
    assert code == (3 if failed else 0)
    assert ([name for name, status in checks.items() if status == "fail"][:1] == [failed]) == bool(failed)


def test_a_launch_script(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    file = home / "my.yaml"
    file.write_text(SCRIPT)
    assert planned(capsys, "--config", str(file))[:2] == (3, {"launch script": "fail"})
    (home / "start.sh").write_text("true\n")
    code, checks, unchecked = planned(capsys, "--config", str(file))
    assert (code, checks, set(unchecked)) == (0, {"launch script": "ok"}, {"host", "what the script starts"})


def test_a_managed_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(planned(capsys, "--profile", "embedded")[2]) == {"host"}
    words = ("--profile", "vllm-managed", "--set", "model.model_path=/m/some")
    code, checks, unchecked = planned(capsys, *words)
    assert (code, checks, set(unchecked)) == (0, {}, {"host", "model"})
