"""``events --since`` and ``--after``, and ``--run-root`` that is no directory: one meaning in all commands."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kit.cli import run_cli


@pytest.fixture
def run(tmp_path: Path) -> Path:
    found = tmp_path / "p" / "r"
    found.mkdir(parents=True)
    (found / "plan.json").write_text("{}")
    (found / "config.yaml").write_text("")
    events = [{"seq": n, "at": time.time() - age, "kind": "run", "level": "info", "text": f"event {n}"}
              for n, age in ((1, 7200), (2, 1800), (3, 60))]  # fmt: skip
    (found / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return found


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ((), [1, 2, 3]),
        (("--since", "1h"), [2, 3]),
        (("--since", "5m"), [3]),
        (("--since", "2"), [3]),
        (("--after", "1"), [2, 3]),
        (("--after", "1", "--since", "5m"), [3]),
        (("--since", "3h", "-n", "1"), [3]),
    ],
)
def test_events_since_a_time_or_after_a_number(
    run: Path, options: tuple[str, ...], numbers: list[int]
) -> None:
    out = run_cli("events", "--json", "--run", run, *options)
    assert out.returncode == 0, out.stderr
    assert [json.loads(line)["seq"] for line in out.stdout.splitlines()] == numbers


def test_a_wrong_time_is_told(run: Path) -> None:
    out = run_cli("events", "--run", run, "--since", "soon")
    assert (out.returncode, out.stdout) == (2, "") and "--since: 'soon' is not a time span" in out.stderr


@pytest.mark.parametrize("command", [("ls",), ("attach",), ("status",), ("up", "--detach")])
def test_a_run_root_that_is_a_file_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    out = run_cli(*command, "--run-root", file)
    assert out.returncode == 2 and f"{file} is a file" in out.stderr


def test_a_run_root_that_is_not_there_has_no_runs_to_list(tmp_path: Path) -> None:
    out = run_cli("ls", "--run-root", tmp_path / "none")
    assert out.returncode == 2 and f"there is no directory {tmp_path / 'none'}" in out.stderr
