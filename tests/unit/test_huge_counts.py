"""Numbers of 400 digits in the files of a trial: whoever reads them goes on, and no other trial is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.observe.trials.dumps import parse_row
from liverl.observe.trials.moments import number, whole
from liverl_tui.cli.main import run

HUGE = 10**400
WHERE: tuple[tuple[str, dict[str, Any]], ...] = (
    (FILE, {"usage": {"completion_tokens": HUGE, "prompt_tokens": HUGE}}),
    (FILE, {"request_time": HUGE, "duration_ms": HUGE, "timestamp": HUGE}),
    (FILE, {"duration_ms": HUGE}),
    (FILE, {"session": {"id": "a", "kind": "main", "rewrites": HUGE, "turn": HUGE, "shared": HUGE}}),
    ("result.json", {"turns": HUGE, "aside_tokens": HUGE, "verifier_result": {"rewards": {"reward": HUGE, "x": HUGE}}}),
    ("result.json", {"started_at": HUGE, "finished_at": HUGE, "step": HUGE}),
    ("liverl.json", {"task": "t", "step": HUGE, "queued_at": HUGE, "uid": "u", "session": HUGE}),
    ("phases.json", {"queued_at": HUGE, "phases": {"queue": HUGE, "setup": [HUGE, HUGE]}}),
    ("proxy_trajectory.json", {"initial_prompt_token_len": HUGE, "traj_acc_ids": [HUGE], "traj_response_mask": [HUGE],
                               "traj_response_logprobs": [HUGE], "messages_missing": HUGE, "policy_version": HUGE}),
    ("proxy_trajectory.json", {"rows": [{"initial_prompt_token_len": 0, "traj_acc_ids": [HUGE],
                                         "traj_response_mask": [1], "traj_response_logprobs": [-HUGE]}]}),
    ("trajectory.json", {"schema_version": "ATIF-v1.4", "steps": [
        {"source": "agent", "message": "m", "metrics": {"completion_tokens": HUGE, "prompt_tokens": HUGE}}]}),
)  # fmt: skip
COMMANDS = (
    "trials ls", "trials ls --step 1", "trials ls --step 1 --json", "trials ls --filter tokens>=0 --json",
    "trials ls --sort tokens", "trials show odd", "trials show odd --json", "trials show odd --tokens",
    "trials steps", "trials export --csv", "trials export --jsonl", "trials tail --no-follow", "status --json",
)  # fmt: skip


def made(folder: Path) -> Path:
    put(folder / "events.jsonl", "", T)
    good = folder / "trials" / "step_0001" / "good"
    put(good / FILE, lines(call(calls=1)), T)
    put(good / "result.json", json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}), T)
    return folder


@pytest.mark.parametrize(("name", "fields"), WHERE)
def test_no_number_of_a_trial_ends_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, fields: dict[str, Any]
) -> None:
    folder = made(tmp_path / "run")
    odd = folder / "trials" / "step_0001" / "odd"
    record = json.loads(lines(call(calls=1)).splitlines()[0])
    put(odd / FILE, json.dumps(record | (fields if name == FILE else {})) + "\n", T)
    if name != FILE:
        put(odd / name, json.dumps(fields), T)
    for command in COMMANDS:
        exit_code = run([*command.split(), "--run", str(folder)])
        out, err = capsys.readouterr()
        assert exit_code == 0 or ("--tokens" in command and "Traceback" not in err), (command, err)
        assert "good" in out or " ls" not in command, command


def test_a_row_of_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path / "run")
    rows = [
        f'{{"uid": "u_{n}_0", "score": {score}, "output": "x"}}' for n, score in enumerate((HUGE, -HUGE, 1))
    ]
    put(folder / "rollouts" / "1.jsonl", "\n".join(rows) + "\n", T)
    for command in COMMANDS:
        assert run([*command.replace("odd", "good").split(), "--run", str(folder)]) in (0, 1), command
        assert "Traceback" not in capsys.readouterr().err
    found = parse_row(rows[0].encode())
    assert found is not None and found.score is None


@pytest.mark.parametrize(
    ("value", "as_whole", "as_number"),
    [
        (5, 5, 5.0), (-3, -3, -3.0), (True, None, None), ("5", None, None), (None, None, None), (2.5, None, 2.5),
        (HUGE, None, None), (-HUGE, None, None), (1 << 53, 1 << 53, 2.0**53), ((1 << 53) + 1, None, 2.0**53),
        (float("inf"), None, None), (float("nan"), None, None),
    ],
)  # fmt: skip
def test_what_is_a_count_and_what_a_number(
    value: object, as_whole: int | None, as_number: float | None
) -> None:
    assert (whole(value), number(value)) == (as_whole, as_number)
