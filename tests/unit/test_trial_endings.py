"""How trials end has one word and one count: in the list, the table of steps, reports, ``trials steps`` and filters."""

from __future__ import annotations

import pytest
from kit.screens import NOW, trial
from msgspec.structs import replace

from liverl.model import StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.ending_words import counted_endings, ending_of, endings_of
from liverl.observe.trials.query import parse
from liverl.observe.trials.tallies import sum_of
from liverl.offline.page import page
from liverl_tui.cli.trials_table import step_lines, table
from liverl_tui.widgets.base.trial_words import ending, tally_heads, tally_of

ZERO = ("zero_tool_calls",)
HEADS = [
    *(trial(n, step=1, ended_by="submit", finish_reason="tool_calls") for n in range(4)),
    *(trial(n, step=1, ended_by="max_iterations", finish_reason="tool_calls") for n in range(4, 7)),
    *(trial(n, step=1, ended_by="no_tool_call", flags=ZERO, tool_calls=0) for n in range(7, 12)),
    *(trial(n, step=1, ended_by="no_tool_call") for n in range(12, 14)),
    trial(14, step=1, ended_by=None, finish_reason="stop"),
    *(trial(n, step=1, state="cut_off", finish_reason="tool_calls", ended_by=None) for n in range(15, 23)),
    *(trial(n, step=1, state="running", finish_reason="tool_calls", ended_by=None) for n in range(23, 26)),
]
WORDS = "cut off 8, no tool call 5, submitted 4, max turns 3, answered 2, done 1"


def step_of(heads: list[TrialHead]) -> StepTrials:
    step = sum_of(heads)
    assert step is not None
    return step


def test_one_word_and_one_count() -> None:
    step = step_of(HEADS)
    assert counted_endings(endings_of(step)) == WORDS
    assert counted_endings(tally_of(step).finishes) == WORDS
    assert counted_endings(tally_heads(1, HEADS).finishes) == WORDS
    assert f"  ended by: {WORDS}" in step_lines(step, NOW)
    assert WORDS in page("# a\n", steps=[step])
    for word, trials in step.ends.items():
        alike = [head for head in HEADS if ending(head, "live")[0] == word]
        assert len(alike) == trials == sum(ending_of(head) == word for head in HEADS)
        assert [h for h in HEADS if parse(f'finish="{word}"').holds_for(h)] == alike, word
    assert "max turns" in table([HEADS[4]], NOW)[1]


def test_trials_that_ran_at_the_end_of_the_run_are_counted_as_cut_off() -> None:
    running = StepTrials(1, 5, 1, 0, None, ends={"submitted": 1, "cut off": 1}, cut_off=1)
    (step,) = cut_off(TrialsStatus(5, running=3, finished=1, cut_off=1, steps=(running,))).steps
    assert counted_endings(endings_of(step)) == "cut off 4, submitted 1"


def test_a_running_trial_has_no_ending() -> None:
    running = HEADS[-3:]
    assert counted_endings(endings_of(step_of(running))) == ""
    assert not any(parse("finish~o").holds_for(head) for head in running)


@pytest.mark.parametrize(
    ("zero", "words"),
    [
        (0, "answered 6, cut off 3, submitted 2, done 1"),
        (4, "no tool call 4, cut off 3, answered 2, submitted 2, done 1"),
        (7, "no tool call 7, cut off 3, submitted 2"),
    ],
)
def test_a_step_that_an_earlier_version_counted(zero: int, words: str) -> None:
    old = replace(
        step_of(HEADS), total=12, finished=9, cut_off=3, zero_tool_calls=zero, ends={},
        ended_by={"submit": 2, "no_tool_call": 6},
    )  # fmt: skip
    assert counted_endings(endings_of(old)) == words
