"""Trials whose step was begun again after them are no part of what a run is said to have trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.screens import snapshot

from liverl.mcp_server import answers
from liverl.model import EarlierTrials, TrialsStatus
from liverl.rundir.layout import RunDir
from liverl_tui.text.facts import trial_words

GONE = EarlierTrials(total=5, finished=4, cut_off=1, zero_tool_calls=2)
TRIALS = TrialsStatus(total=21, finished=18, cut_off=1, running=2, zero_tool_calls=3, earlier=GONE)


def test_words_name_them_apart() -> None:
    words = str(trial_words(snapshot(trials=TRIALS)))
    assert "14 of 16 finished" in words and "5 more of an earlier attempt" in words
    assert "made no tool call at all, those of an earlier attempt included" in words


def test_agents_that_ask_are_told_them_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(answers, "seen", lambda _run: (snapshot(trials=TRIALS), True))
    told = answers.status(RunDir(tmp_path))
    trials = json.loads(json.dumps(told))["trials"]
    assert (trials["finished"], trials["without_tool_calls"], trials["more_of_an_earlier_attempt"]) == (
        14,
        1,
        5,
    )
