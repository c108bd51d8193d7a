"""Filters of trials: which hold for which trials, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.trial_folders import T
from msgspec.structs import replace

from liverl.model import TrialHead
from liverl.observe.trials.index import TrialIndex
from liverl.observe.trials.query import FIELDS, BadFilter, parse, parsed, without
from liverl_tui.cli.main import run
from liverl_tui.cli.trials_table import COLUMNS
from liverl_tui.widgets.base.trial_words import NO_TOOLS, calls_of

TRIAL = TrialHead(
    name="move-001-ab12", step=5, task="move-001", state="finished", turns=4, tool_calls=0, reward=0.5,
    finish_reason="stop", completion_tokens=90, replica="http://127.0.0.1:8000", started_at=T, updated_at=T + 90,
    ended_at=T + 90, ended_by="AgentTimeoutError", error="AgentTimeoutError", cause="timeout", kind="command",
    flags=("failed_turns",), rewards={"reward": 0.5, "tests": 1.0}, phases={"verifier": 2.5}, spent_on="tool",
    preview='bash {"cmd": "make Test"}', path="trials/step_0005/move-001-ab12",
)  # fmt: skip
RUNNING = TrialHead(
    name="r", step=None, task="t", state="running", turns=0, tool_calls=0, reward=None, finish_reason=None,
    completion_tokens=0, replica=None, started_at=T, updated_at=T,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True), ("reward<1", True), ("reward<0.5", False), ("reward<=.5", True), ("reward>5e-1", False),
        ("reward>=0.5", True), ("reward=0.5", True), ("reward==0.5", True), ("reward!=0.5", False), ("calls=0", True),
        ("step=3..9", True), ("step=..4", False), ("step=5..", True), ("step!=3..9", False), ("step!=6..", True),
        ("time=30s..60s", False), ("time=1m..2m", True), ("time=30..60s", False), ("time=80..100s", True),
        ("time=80s..100", True), ("time=..2m", True), ("time=2m..", False), ("time!=1m..2m", False),
        ("time=0.01h..2m", True), ("verifier=2500ms..3s", True), ("verifier=2..3", True),
        ("STEP=5", True), ("time>1m", True), ("time<90s", False), ("time=90", True), ("time<0.1h", True),
        ("verifier>2500ms", False), ("verifier>=2.5", True), ("queue>0", False), ("queue=none", True),
        ("reward=none", False), ("reward!=none", True), ("rewards.tests=1", True), ("rewards.lint<1", False),
        ("rewards.lint=none", True), ("task~move", True), ("task~MOVE", True), ("task=move", False),
        ("task=move_001", True), ("task!~move", False), ("task!=other", True), ("finish=timeout", True),
        ("finish=timed_out", True), ('finish="timed out"', True), ("finish~Agent", True), ("finish=submit", False),
        ("kind=command", True), ("kind=none", False), ("state=done", True), ("state=finished", True),
        ("state=running", False), ("flag=failed_turns", True), ("flag~failed", True), ("flag=none", False),
        ("flag!=failed-turns", False), ("error~timeout", True), ("waits=tool", True), ("cause=timeout", True),
        ("outcome=none", True), ("replica~8000", True), ("name~ab12", True), ("last~cmd", True),
        ("make", True), ("make Test", True), ("test", True), ("TEST", False), ('"make Test"', True),
        ('"Test make"', False), ("reward<1 calls=0 step=3..9 task~move finish=timeout kind=command", True),
        ("reward<1 calls=1", False), ("reward<1 nothing", False),
    ],
)  # fmt: skip
def test_what_holds(text: str, holds: bool) -> None:
    assert parsed(text).holds_for(TRIAL) is holds


@pytest.mark.parametrize(
    ("text", "present", "earlier"),
    [
        ("", True, False), ("step=5", True, False), ("move", True, False), ("any", False, False), ("yes", False, False),
        ("earlier=yes", False, True), ("earlier=any step=5", True, True), ("earlier=no", True, False),
        ("earlier!=no", False, True), ("earlier=yes step=6", False, False),
    ],
)  # fmt: skip
def test_trials_of_an_earlier_attempt_are_left_out_unless_they_are_asked_for(
    text: str, present: bool, earlier: bool
) -> None:
    """The policy was not trained on them: the same in a head and in the index of all trials."""
    other = replace(TRIAL, name="old-1", path="trials/step_0005/old-1", earlier=True, task="move-002")
    query = parsed(text)
    assert (query.holds_for(TRIAL), query.holds_for(other)) == (present, earlier)
    index = TrialIndex()
    rows = [index.put(TRIAL), index.put(replace(other, earlier=False))]
    index.mark_earlier(rows[1:])
    assert index.select(query) == [row for row, holds in zip(rows, (present, earlier), strict=True) if holds]
    assert index.earlier == (1, 0)
    assert sorted(index.order(rows, "earlier", True)) == rows


@pytest.mark.parametrize(
    ("text", "holds"),
    [("reward<1", False), ("reward>=0", False), ("reward!=1", False), ("reward=none", True), ("step=none", True),
     ("finish=none", True), ("finish!=submit", True), ("state=running", True), ("time>0", False), ("kind=none", True)],
)  # fmt: skip
def test_what_is_not_known(text: str, holds: bool) -> None:
    assert parsed(text).holds_for(RUNNING) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rewrd<1", "rewrd<1: no field 'rewrd': did you mean reward?"),
        ("x<1", "x<1: no field 'x': expected one of reward, calls,"),
        ("task<3", "task<3: task is text; expected one of = != ~ !~, found <"),
        ("reward~1", "reward~1: reward is a number; expected one of < <= > >= = !=, found ~"),
        ("reward<", "reward<: expected a number behind <"),
        ("reward<much", "reward<much: expected a number behind <, found 'much'"),
        ("reward=1..x", "expected a number, a range such as 3..9, or none behind =, found '1..x'"),
        ("reward=..", "found '..'"),
        ("time<5d", "expected a number or a time such as 30s or 5m behind <, found '5d'"),
        ("step<3..9", "step<3..9: expected a number behind <, found '3..9'"),
        ("task~", "task~: expected a text behind ~"),
        ("@slow", "no saved filter @slow: none is saved yet"),
        ("reward >=0", "a term has no blanks in it: reward>=0"),
        ("calls <1", "a term has no blanks in it: calls<1"),
        ("step=9..3", "expected the lower end first: 3..9"),
        ("time=2m..1m", "expected the lower end first: 1m..2m"),
        ("time=2m..30s", "expected the lower end first: 30s..2m"),
        ("time=1..2m", "in which unit is 1? expected 1m..2m, or 1s..2m"),
        ("time=1h..90", "in which unit is 90? expected 1h..90h, or 1h..90s"),
        ("step=3s..9s", "step is no time, and has no unit"),
        ("step>val8", "step>val8: a validation is no number; expected = or !=, as in step=val8"),
        ("kind=val8", "kind=val8: for the validations after one step expected val=8"),
        ("time=1d..2d", "a range such as 30s..2m, or none behind =, found '1d..2d'"),
    ],
)
def test_what_is_said_of_a_wrong_filter(text: str, words: str) -> None:
    with pytest.raises(BadFilter) as error:
        parsed(f"calls=0 {text}")
    assert words in str(error.value)
    assert len(parse(f"calls=0 {text}").terms) == 1, "the rest of the filter holds"


def test_saved_filters() -> None:
    saved = {"bad": "reward<1 calls=0", "slow": "time>10m"}
    assert parsed("@bad step=5", saved).holds_for(TRIAL)
    assert not parsed("@bad @slow", saved).holds_for(TRIAL)
    with pytest.raises(BadFilter, match=r"no saved filter @slw: did you mean @slow\?"):
        parsed("@slw", saved)


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    query = parse(text)
    query.holds_for(TRIAL), query.holds_for(RUNNING)


def test_each_field_reads_each_trial() -> None:
    for field in FIELDS:
        value: Any = field.read(TRIAL)
        assert isinstance(value, tuple | int | float | None) and field.help


def test_a_word_that_begins_like_an_operator_is_a_word() -> None:
    assert parse("<think> =x").words == ("<think>", "=x")


def test_terms_on_a_field_are_left_out_and_the_rest_stays_as_it_was() -> None:
    text = 'Reward<1 task~"a reward=1 b" plain reward>=0 @slow rewards.tests=1'
    assert without(text, {"reward"}) == 'task~"a reward=1 b" plain @slow rewards.tests=1'
    assert without(text, {"step"}) == text


@pytest.mark.parametrize(
    ("state", "calls", "flags", "dumped", "known"),
    [
        ("running", 0, (), False, None), ("running", 2, (), False, 2), ("cut_off", 0, (), False, None),
        ("cut_off", 2, (), False, 2), ("finished", 0, (), False, 0), ("finished", 3, (), False, 3),
        ("running", 0, ("zero_tool_calls",), False, 0), ("finished", 0, ("zero_tool_calls",), False, 0),
        ("finished", 0, ("not_recorded",), False, None), ("finished", 1, ("not_recorded",), False, 1),
        ("finished", 0, (), True, None),
    ],
)  # fmt: skip
def test_no_call_is_known_of_trials_that_have_ended(
    state: str, calls: int, flags: tuple[str, ...], dumped: bool, known: int | None
) -> None:
    """The filter, the index, the lists and ``trials ls`` say the same, and as the flag does."""
    head = replace(TRIAL, state=state, tool_calls=calls, flags=flags, dumped=dumped)
    index = TrialIndex()
    row = index.put(head)
    for text, holds in (("calls=0", known == 0), ("calls=none", known is None), ("calls>=1", bool(known))):
        assert parsed(text).holds_for(head) is holds, text
        assert index.select(parsed(text)) == ([row] if holds else []), text
    shown = {column.title: column.text(head, T) for column in COLUMNS}["CALLS"]
    assert shown == ("-" if known is None else str(known))
    assert calls_of(head)[0] == (NO_TOOLS if "zero_tool_calls" in flags else shown)


@pytest.mark.parametrize(
    ("text", "of_validation", "of_training"),
    [("val", True, False), ("val8", True, False), ("validation", True, False), ("v8", True, False),
     ("val=8", True, False), ("val=val8", True, False), ("val=9", False, False), ("val=none", False, True),
     ("val!=none", True, False), ("val=validation", True, False), ("step=val8", True, False), ("step=v8", True, False),
     ("step=val9", False, False), ("step!=val8", False, True), ("step=val", True, False),
     ("step=Validation", True, False), ("step=VAL8", True, False), ("step=8", False, False),
     ("kind=validation", True, False), ("kind!=validation", False, True), ("kind=val", True, False),
     ("kind~validation", True, False), ("kind!~validation", False, True), ("kind=v", False, False)],
)  # fmt: skip
def test_a_filter_finds_validations(text: str, of_validation: bool, of_training: bool) -> None:
    validation = replace(TRIAL, step=None, validated=8, path="trials/move-001-ab12")
    assert parsed(text).holds_for(validation) is of_validation
    assert parsed(text).holds_for(TRIAL) is of_training
    index = TrialIndex()
    rows = (index.put(validation), index.put(TRIAL))
    assert index.select(parsed(text)) == [
        row for row, held in zip(rows, (of_validation, of_training), strict=True) if held
    ]


def test_a_step_of_the_command_line_says_how_validations_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (("ls", "--step", "val8"), ("export", "--step", "v8")):
        assert run(["trials", *words]) == 2
        assert "for those after step 8: --filter val=8" in " ".join(capsys.readouterr().err.split())
