"""Trials that LiveRL's second generation writes: their session's end, a ``proxy_trajectory.json``, is all there is."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from kit.cli import run_cli
from kit.screens import NOW, snapshot
from kit.trial_folders import T, put
from msgspec.structs import replace

from liverl.diagnose.catalogue.rows import rows_damaged
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import StepTrials, Symptom, TrialHead, TrialsStatus
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import REWARD_DUE
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import trial_words
from liverl_tui.widgets.base.trial_words import flag_words, flagged, tally_heads, tally_of
from liverl_tui.widgets.dashboard.trial_title import newest_words

FILE = "proxy_trajectory.json"
CALL = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
MESSAGES = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "a"},
    {"role": "assistant", "content": "done"},
]
SILENT = [MESSAGES[0], MESSAGES[3]]


def document(prompt: int = 10, mask: int = 10, value: float = -0.1, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "messages_snapshot": MESSAGES,
        "tools": [],
        "traj_acc_ids": list(range(20)),
        "initial_prompt_token_len": prompt,
        "traj_response_mask": [1] * mask,
        "traj_response_logprobs": [value] * 10,
    } | more


SHAPES: list[tuple[str, Any, tuple[str, ...]]] = [
    ("sound", document(), ()),
    ("only messages", {"session_id": "s", "messages_snapshot": MESSAGES}, ()),
    ("certain end", document(traj_response_logprobs=[-0.1] * 8 + [0.0] * 2), ()),
    ("zeros", document(value=0.0), ("zero_logprobs",)),
    ("integer zeros", document(value=0), ("zero_logprobs",)),
    ("short mask", document(mask=7), ("mask_mismatch",)),
    ("long mask", document(mask=12), ("mask_mismatch",)),
    ("fewer probabilities", document(traj_response_logprobs=[-0.1] * 9), ("mask_mismatch",)),
    ("longer prompt than ids", document(prompt=25), ("mask_mismatch",)),
    ("others' tokens with one", document(traj_response_mask=[1] * 9 + [0]), ("mask_mismatch",)),
    ("rows of two", {**document(), "rows": [document(), document(mask=7)]}, ("mask_mismatch",)),
    (
        "rows with both",
        {**document(), "rows": [document(value=0.0), document(mask=7)]},
        ("zero_logprobs", "mask_mismatch"),
    ),
    ("cut off", '{"session_id": "x", "messages_snap', ("unreadable",)),
    ("no object", "[1, 2]", ("unreadable",)),
    ("another shape", {"session_id": "x", "token_ids": [1], "mask": [1]}, ("unreadable",)),
    ("no JSON", "\x00\x01", ("unreadable",)),
]


@pytest.mark.parametrize(("name", "content", "flags"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_a_session_that_has_ended_is_a_finished_trial(
    name: str, content: Any, flags: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "trials/step_0001/a-00000001"
    put(folder / FILE, content if isinstance(content, str) else json.dumps(content), T)
    scanner = TrialScanner(tmp_path)
    status = scanner.scan(now=T + 1)
    (head,) = status.newest
    assert (head.state, head.flags, head.ended_at) == ("finished", flags, T)
    assert status.steps[0].damaged == dict.fromkeys(flags, 1)
    assert bool(scanner.unreadable) == ("unreadable" in flags)
    page = read_trajectory(folder)
    assert not page.running and set(flags) <= set(page.flags)
    assert flagged(head) == bool(flags)
    assert len([text for text, style in flag_words(head) if style == "bad"]) == len(flags)
    words, style = newest_words(status, [tally_of(status.steps[0])], None)
    assert sum(word.startswith("▲ 1 ") for word in words) == len(flags) and (style == "warn") == bool(flags)
    assert tally_heads(1, status.newest).damaged == tally_of(status.steps[0]).damaged
    assert scanner.scan(now=T + REWARD_DUE + 60).finished == 1, "and stays so when it is read no more"


def test_a_reward_that_is_written_later_counts(tmp_path: Path) -> None:
    folder = tmp_path / "trials/step_0001/a-00000001"
    put(folder / FILE, json.dumps(document()), T)
    scanner = TrialScanner(tmp_path)
    assert scanner.scan(now=T + 1).newest[0].reward is None
    put(folder / "result.json", json.dumps({"verifier_result": {"rewards": {"reward": 0.5}}}), T + 60)
    os.utime(folder, (T + 60, T + 60))
    assert scanner.scan(now=T + 61).newest[0].reward == 0.5


@pytest.mark.parametrize("beside", ["liverl.json", "litellm-trajectory.jsonl"])
def test_where_a_result_is_due_the_sessions_end_is_none(beside: str, tmp_path: Path) -> None:
    folder = tmp_path / "trials/step_0001/a-00000001"
    put(folder / beside, json.dumps({"task": "a", "success": True}) + "\n", T)
    put(folder / FILE, json.dumps(document()), T)
    assert TrialScanner(tmp_path).scan(now=T + 1).newest[0].state == "running"
    put(folder / "result.json", json.dumps({"turns": 2}), T)
    assert TrialScanner(tmp_path).scan(now=T + 1).newest[0].state == "finished"


def test_no_share_is_above_all_of_them(tmp_path: Path) -> None:
    """Sessions of trials that run, were cut off, or ended: the share is of those that show it."""
    for number in range(8):
        text = json.dumps({"messages": SILENT, "tools": [CALL]})
        put(tmp_path / f"trials/step_0001/a-{number}" / FILE, text, T)
        put(tmp_path / f"trials/step_0001/a-{number}" / "liverl.json", "{}", T)
    run = cut_off(TrialScanner(tmp_path).scan(now=T + 1))
    assert (run.finished, run.cut_off, run.zero_tool_calls, run.judged) == (0, 8, 8, 8)
    seen = snapshot(trials=run, step=1)
    assert "8 of 8 (100%)" in str(trial_words(seen))
    assert "▲ 8 of 8 trials (100%) made no tool call" in render(seen, width=120, colour=False)


@pytest.mark.parametrize(("number", "severity"), [(1, "warning"), (7, "warning"), (8, "critical")])
@pytest.mark.parametrize("flag", ["zero_logprobs", "mask_mismatch", "unreadable"])
def test_the_alert(flag: str, number: int, severity: str) -> None:
    heads = tuple(
        TrialHead(f"t{n}", 3, "t", "finished", 1, 1, None, None, 0, None, None, NOW, (flag,), f"trials/t{n}")
        for n in range(number)
    )
    step = StepTrials(3, 16, 16, 0, None, damaged={flag: number})
    now = snapshot(trials=TrialsStatus(16, 0, 16, newest=heads, steps=(step,)))
    (alert,) = rows_damaged(Window(now, None, RunContext()))
    assert isinstance(alert, Symptom) and (alert.id, alert.severity) == (f"rows_{flag}", severity)
    assert f"{number} of 16 trials of step 3" in alert.cause and len(alert.title) <= 60
    assert alert.evidence[0].text == "trials/t0"
    well = replace(now, trials=replace(now.trials, steps=(replace(step, damaged={}),)))
    assert not list(rows_damaged(Window(well, None, RunContext())))


def test_watch_shows_it(tmp_path: Path) -> None:
    root = tmp_path / "repo/harbor_trials/swe/live1/step_0001"
    for number in range(6):
        put(root / f"a-{number}" / FILE, json.dumps(document(value=0.0)), T)
    done = run_cli("watch", tmp_path / "repo", "--once", TMPDIR=tempfile.mkdtemp(dir=tmp_path))
    assert done.returncode == 0, done.stderr
    assert "6 with log-probabilities" in done.stdout
    assert "trials have log-probabilities of zero" in done.stdout
