"""``plan`` says what was checked and what was not, in both forms, and a script can rely on its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liverl.preflight.running import HOST
from liverl.util.parquet import parquet
from liverl_tui.cli import main as cli

SCRIPT = "run: {topology: verl, engine: vllm}\ntrainer: {kind: command, command: [bash, start.sh]}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LIVERL_CACHE_DIR", raising=False)
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str], dict[str, str]]:
    """Exit code; check -> status; what was not looked at -> why. Text and JSON say the same. What looks at this host is
    left out."""
    words = ("plan", "--name", "x", "--other-host", *words)
    code = cli.run([*words])
    written = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert cli.run([*words, "--json"]) == code
    checks = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["id"] != HOST]
    for check in checks:
        assert [check["status"], *check["name"].split(), *check["text"].split()] in written
    skipped = {check["name"]: check["text"] for check in checks if check["status"] == "skipped"}
    return code, {check["name"]: check["status"] for check in checks}, skipped


def test_a_run_of_verl_without_its_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks, skipped = planned(capsys, "--profile", "cpu-verl")
    assert code == 0 and "fail" not in checks.values()
    assert set(skipped) == {
        "environment proxy",
        "environment verl",
        "data",
        "verl's keys",
        "model",
        "versions",
        "tool parser",
        "installed parsers",
    }
    assert "the keys were not looked for" in skipped["verl's keys"]


def test_rows_that_nothing_can_read_are_skipped(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "t.parquet").write_bytes(parquet({"prompt": ["a"]}, {"prompt": str}))
    words = ("--set", f"data.train_index={home}/t.parquet", "--set", f"data.val_index={home}/t.parquet")
    _, checks, skipped = planned(capsys, "--profile", "cpu-verl", *words)
    assert checks["data.train_index"] == "skipped" and "no row was read" in skipped["data rows"]


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
    code, checks, _ = planned(capsys, "--config", str(file))
    assert (code, checks["launch script"]) == (3, "fail")
    (home / "start.sh").write_text("true\n")
    code, checks, skipped = planned(capsys, "--config", str(file))
    assert (code, checks["launch script"], set(skipped)) == (0, "ok", {"what the script starts"})
    assert "chooses model, data, sizes and environment itself" in skipped["what the script starts"]


def test_a_managed_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks, _ = planned(capsys, "--profile", "embedded")
    assert (code, checks["model"]) == (0, "ok")
    code, checks, _ = planned(capsys, "--profile", "vllm-managed", "--set", "model.model_path=/m/some")
    assert (code, checks["model"]) == (3, "fail")


def test_a_stored_plan_is_not_checked(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert cli.run(["plan", "--name", "x", "--other-host", "--json"]) == 0
    run = home / "runs" / "p" / "x"
    run.mkdir(parents=True)
    (run / "plan.json").write_text(capsys.readouterr().out)
    assert cli.run(["plan", "--json", "--run", str(run)]) == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert (check["id"], check["status"]) == ("plan", "skipped")


def test_a_warning_stands_there_once(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    words = ("plan", "--name", "x", "--other-host", "--profile", "cpu-verl", "--set", f"data.data_dir={home}")
    assert cli.run([*words]) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).count("data.data_dir has no effect") == 1
    assert cli.run([*words, "--json"]) == 0
    told = capsys.readouterr()
    assert sum("data.data_dir has no effect" in one for one in json.loads(told.out)["warnings"]) == 1
    assert told.err.count("data.data_dir has no effect") == 1
