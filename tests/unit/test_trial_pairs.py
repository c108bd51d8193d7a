"""Two trials of one prompt: which turns differ and how, whom a trial is compared with, and the lines on the screen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.trial_folders import FILE, T, lines
from rich.cells import cell_len

from liverl.model import TrialHead
from liverl.observe.trials.message_parts import Part
from liverl.observe.trials.pairing import (
    LastCommand,
    best_and_worst,
    last_commands,
    opposite,
    pair_of,
)
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl.offline.trial_pair import both, diff_of
from liverl.offline.trials import NoSuchTrial, encoded
from liverl.rundir.layout import RunDir
from liverl.util.visible import visible
from liverl_tui.text.pair_lines import TWO_COLUMNS, begins_open, pair_lines, plain_lines


def turn(number: int, call: str = "", said: str = "", result: str = "", **more: Any) -> Turn:
    answer = [Part("text", said)] if said else []
    answer += [Part("call", call, "bash", f"c{number}")] if call else []
    after = (Part("result", result, "bash", f"c{number}"),) if result else ()
    before = (Part("user", more.pop("prompt", "Go.")),) if number == 1 else ()
    return Turn(number, before=before, answer=tuple(answer), after=after, **more)


def trajectory(name: str, *turns: Turn, **more: Any) -> Trajectory:
    return Trajectory(name, f"/runs/r/trials/{name}", "task", running=False, turns=turns, **more)


SAME = turn(1, "ls", "I look.", "a b")


@pytest.mark.parametrize(
    ("left", "right", "differs", "first"),
    [
        ([SAME], [SAME], [""], None),
        ([SAME], [turn(1, "ls", "Let me see.", "a b")], ["words"], None),
        ([SAME], [turn(1, "pwd", "I look.", "a b")], ["calls"], 1),
        ([SAME], [turn(1, "ls", "I look.", "a c")], ["results"], 1),
        ([SAME], [turn(1, "ls", "I look.", "a b", success=False)], ["calls"], 1),
        ([SAME], [turn(1, "ls", "I look.")], [""], None),
        ([SAME, turn(2)], [turn(1, "ls", "I look."), turn(2)], ["results", ""], 1),
        ([SAME, turn(2, said="x")], [SAME], ["", "missing"], 2),
        ([SAME, turn(2, "a")], [turn(1, "ls", "No.", "a b"), turn(2, "b"), turn(3)], ["words", "calls", "missing"], 2),
        ([turn(1, "cat /trials/left-1/x")], [turn(1, "cat /trials/right-2/x")], [""], None),
        ([], [], [], None),
    ],
)  # fmt: skip
def test_where_two_trials_part(
    left: list[Turn], right: list[Turn], differs: list[str], first: int | None
) -> None:
    pair = pair_of(trajectory("left-1", *left), trajectory("right-2", *right))
    assert [turns.differs for turns in pair.turns] == differs
    assert pair.first == first


@pytest.mark.parametrize(
    ("prompts", "same"),
    [(("Go.", "Go."), True), (("Go in left-1.", "Go in right-2."), True), (("Go.", "Come."), False)],
)
def test_whether_they_were_asked_the_same(prompts: tuple[str, str], same: bool) -> None:
    pair = pair_of(
        *(trajectory(n, turn(1, prompt=p)) for n, p in zip(("left-1", "right-2"), prompts, strict=True))
    )
    assert pair.same_prompt is same
    assert ("prompts differ" in "\n".join(plain_lines(pair, 80))) is not same
    assert pair_of(trajectory("a"), trajectory("b", SAME)).same_prompt is None


def head(name: str, reward: float | None, **more: Any) -> TrialHead:
    values: dict[str, Any] = {
        "name": name, "step": 1, "task": "t", "state": "finished", "turns": 3, "tool_calls": 2, "reward": reward,
        "finish_reason": "stop", "completion_tokens": 9, "replica": None, "started_at": T, "updated_at": T,
        "path": f"trials/step_0001/{name}",
    }  # fmt: skip
    return TrialHead(**{**values, **more})


GROUP = (head("mid", 0.5), head("low", 0.0), head("top", 1.0), head("none", None))


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        (GROUP, ("top", "low")),
        (GROUP[2:], None),
        ((), None),
        ([head("long", 1.0, turns=9), head("short", 1.0, turns=2), head("m", 1.0)], ("short", "long")),
    ],
)
def test_best_and_worst(heads: Any, found: tuple[str, str] | None) -> None:
    pair = best_and_worst(heads)
    assert (None if pair is None else tuple(one.name for one in pair)) == found


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ("mid", ("top", "mid")), ("low", ("top", "low")), ("top", ("top", "low")), ("none", ("top", "none")),
        ("alone", None), ("missing", None),
    ],
)  # fmt: skip
def test_whom_a_trial_is_compared_with(own: str, found: tuple[str, str] | None) -> None:
    others = (head("alone", 1.0, task="other"), head("earlier", 9.0, earlier=True), head("step", 9.0, step=2))
    pair = opposite((*GROUP, *others), f"trials/step_0001/{own}")
    assert (None if pair is None else tuple(one.name for one in pair)) == found


def test_the_last_commands_with_what_they_were_answered() -> None:
    answer = (Part("call", "one", "bash", "a"), Part("call", "two", "bash", "b", failed=True))
    several = Turn(
        2, answer=answer, after=(Part("result", "R2", "bash", "b"), Part("result", "R1", "bash", "a"))
    )
    turns = (turn(1, "ls", result="x"), several, turn(3, said="done"), turn(4, "late"))
    assert last_commands(turns) == (
        LastCommand(2, "bash", "one", "R1"),
        LastCommand(2, "bash", "two", "R2", failed=True),
        LastCommand(4, "bash", "late", None),
    )
    without_ids = Turn(
        1,
        answer=(Part("call", "x", "f"), Part("call", "y", "f")),
        after=(Part("result", "1"), Part("result", "2")),
    )
    assert [command.result for command in last_commands([without_ids])] == ["1", "2"]
    assert last_commands([turn(1, "ls", result="\n".join(map(str, range(90))))])[0].result == "\n".join(
        map(str, range(78, 90))
    )
    assert last_commands([]) == ()


LONG = "\n".join(f"line {n}" for n in range(40))
LEFT = trajectory(
    "left-1", SAME, turn(2, "same", "one way", "r"), turn(3, "make", result=LONG), rewards={"reward": 1.0}
)
RIGHT = trajectory(
    "right-2", SAME, turn(2, "same", "another way", "r"), turn(3, "make", result=LONG.replace("line 30", "line XX")),
    turn(4, "more"), rewards={"reward": 0.0},
)  # fmt: skip
PAIR = pair_of(LEFT, RIGHT)


@pytest.mark.parametrize("width", [40, 80, 109, TWO_COLUMNS, 120, 200])
def test_lines_at_each_width(width: int) -> None:
    found = pair_lines(PAIR, width, lambda turns: False)
    assert all(cell_len(line.text) <= width for line in found)
    rules = [line for line in found if line.rule]
    assert [line.turn for line in rules] == [1, 2, 3, 4] and [line.parts for line in rules] == [
        False,
        False,
        True,
        True,
    ]
    assert [line.turn for line in rules if "first difference" in line.text] == [3]
    text = "\n".join(line.text for line in found)
    assert "line 30" in text and "line XX" in text, (
        "of a long result the lines around the difference are shown"
    )
    assert "line 3\n" not in text and "⋯ 28 lines" in text
    assert "one way" not in text, "turns with other words only are one line"
    marked = [line for line in text.split("\n") if "≠" in line and "line" in line]
    assert marked and all("30" in line or "XX" in line for line in marked if "difference" not in line)
    assert any(" │ " in line.text for line in found) is (width >= TWO_COLUMNS)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_texts_without_calls_stand_beside_each_other_from_their_first_difference_on(width: int) -> None:
    same = "the sum of all stripes of these zebras is " * 5
    left = trajectory("a", turn(1, said=same + "seven. " + "more " * 80))
    pair = pair_of(left, trajectory("b", turn(1, said=same + "eleven.")))
    found = [line.text for line in pair_lines(pair, width, lambda turns: False)]
    assert all(cell_len(line) <= width for line in found)
    text = "\n".join(found)
    assert "seven." in text and "eleven." in text and "different text, no calls" in text
    assert "first different text: turn 1" in text
    marked = [line for line in found if "≠ ⋯" in line]
    if width >= TWO_COLUMNS:
        assert len(marked) == 1 and marked[0].index("seven") < marked[0].index("eleven")
    else:
        assert [line[:4] for line in marked] == ["A▏≠ ", "B▏≠ "]
    shorter = pair_of(trajectory("a", turn(1, said="one")), trajectory("b", turn(1, said="one two")))
    assert any("one (ends here)" in line for line in plain_lines(shorter, width))


def test_an_opened_turn_shows_all_of_its_text() -> None:
    text = "\n".join(line.text for line in pair_lines(PAIR, 120, lambda turns: turns.number == 3))
    assert all(f"line {n}" in text for n in range(40) if n != 30)
    words = "\n".join(line.text for line in pair_lines(PAIR, 120, lambda turns: turns.number == 2))
    assert "one way" in words and "another way" in words
    assert [begins_open(turns) for turns in PAIR.turns] == [False, False, True, True]


def test_another_tool_with_the_same_arguments_is_marked() -> None:
    other = Turn(1, before=SAME.before, answer=(SAME.answer[0], Part("call", "ls", "sh")), after=SAME.after)
    found = list(plain_lines(pair_of(trajectory("a", SAME), trajectory("b", other)), 80))
    assert [line for line in found if line.startswith(("A▏≠", "B▏≠"))] == ["A▏≠ bash ls", "B▏≠ sh ls"]


@given(
    st.lists(st.text(max_size=40), max_size=4),
    st.lists(st.text(max_size=40), max_size=4),
    st.integers(20, 220),
)
def test_no_text_breaks_the_lines(left: list[str], right: list[str], width: int) -> None:
    sides = [
        trajectory(
            name, *(turn(n, text, text, text) for n, text in enumerate(texts, 1)), rewards={"reward": 0.5}
        )
        for name, texts in (("one", left), ("two", right))
    ]
    for opened in (False, True):
        for line in pair_lines(pair_of(*sides), width, lambda turns, opened=opened: opened):
            assert cell_len(line.text) <= width and visible(line.text) == line.text


def write(run: Path, name: str, reward: float | None, call: str) -> None:
    folder = run / "trials" / "step_0001" / name
    (folder / "verifier").mkdir(parents=True)
    tool = {"id": "c", "function": {"name": "bash", "arguments": json.dumps({"cmd": call})}}
    record = {
        "success": True, "request_time": T, "request_body": {"messages": [{"role": "user", "content": "Go."}]},
        "response_body": {"choices": [{"finish_reason": "stop", "message": {
            "role": "assistant", "content": "", "tool_calls": [tool]}}]},
    }  # fmt: skip
    (folder / FILE).write_text(lines(record))
    told = {
        "task_name": "fix",
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
    }
    (folder / "result.json").write_text(json.dumps(told))
    (folder / "verifier" / "checks.json").write_text(json.dumps([{"what": "x", "passed": reward == 1.0}]))


def test_two_trials_of_a_run_for_scripts(tmp_path: Path) -> None:
    for name, reward, call in (("a", 1.0, "ls"), ("b", 0.0, "rm"), ("c", 0.5, "ls")):
        write(tmp_path, name, reward, call)
    run = RunDir(tmp_path)
    one, two, pair = both(run, None, False, "b", None)
    document = json.loads(encoded(diff_of(one, two, pair)))
    assert (document["left"]["name"], document["right"]["name"], document["first_difference"]) == (
        "a",
        "b",
        1,
    )
    assert document["turns"][0]["differs"] == "calls" and document["same_prompt"] is True
    assert "rm" in document["turns"][0]["right"][0]["text"]
    assert document["right_verifier"]["failed"] == 1
    named = both(run, None, False, "b", "c")
    assert [trial.trial.name for trial in named[:2]] == ["b", "c"], "named trials stay in their order"
    write(tmp_path, "alone", None, "ls")
    for name in ("a", "b", "c"):
        (tmp_path / "trials" / "step_0001" / name / "result.json").write_text('{"task_name": "other"}')
    with pytest.raises(NoSuchTrial, match=re.escape("no other trial of the prompt of alone has a reward")):
        both(run, None, False, "alone", None)
