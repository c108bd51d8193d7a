"""The screen of one trial: turns, folding, kinds, search, other trials, growth; and its pure parts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.hostile import FORBIDDEN
from kit.pilots import Driven, press, until
from kit.screens import NOW, FakeSource, settle, trial, view
from rich.cells import cell_len

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials.message_parts import Part
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.text.words import one_line
from liverl_tui.text.wrapping import wrap_line
from liverl_tui.widgets.base.prompt import TitlePrompt
from liverl_tui.widgets.trajectory.document import Block, build, head_row
from liverl_tui.widgets.trajectory.flow import START, Flow, Place
from liverl_tui.widgets.trajectory.text import (
    argument_lines,
    clean_lines,
    find_places,
    json_spans,
    mark,
    slice_spans,
)

SYSTEM = {"role": "system", "content": "You fix bugs."}
TASK = {"role": "user", "content": "Fix the parser."}
QWEN = "I look.\n<tool_call>\n<function=bash>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>"
LISTING = "\n".join(f"file{n}.py" for n in range(60))


def record(messages: list[Any], answer: dict[str, Any], **other: Any) -> dict[str, Any]:
    finish = "tool_calls" if answer.get("tool_calls") else "stop"
    return {
        "success": True,
        "request_time": 1_795_220_000_000,
        "duration_ms": 1200,
        "replica": "http://127.0.0.1:8000",
        "request_body": {"model": "policy", "messages": messages, "tools": [{"name": "bash"}]},
        "response_body": {"choices": [{"index": 0, "finish_reason": finish, "message": answer}]},
        "usage": {"prompt_tokens": 100, "completion_tokens": 412},
        **other,
    }


def asks(number: int, text: str = "I look.", arguments: str = '{"cmd": "ls\\npwd"}') -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "reasoning_content": "Hm, where?", "tool_calls": calls}


def conversation(turns: int) -> list[dict[str, Any]]:
    messages: list[Any] = [SYSTEM, TASK]
    found = []
    for number in range(turns - 1):
        found.append(record(list(messages), asks(number)))
        messages += [asks(number), {"role": "tool", "tool_call_id": f"c{number}", "content": LISTING}]
    return [*found, record(messages, {"role": "assistant", "content": "Done \x1b[31mred\x07."})]


def write(run: Path, head: TrialHead, *records: dict[str, Any], done: bool = True) -> None:
    folder = run / head.path
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "litellm-trajectory.jsonl").open("a") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)
    if done:
        told = {"verifier_result": {"rewards": {"reward": 0.5, "tests": 3}}}
        (folder / "result.json").write_text(json.dumps(told))


class Shown(Driven):
    def __init__(self, pilot: Any, screen: TrajectoryScreen) -> None:
        super().__init__(pilot)
        self.screen = screen

    @property
    def text(self) -> str:
        return self.screen.pane.text

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def cursor(self) -> str:
        return next(row.text for row in self.screen.pane.rows if row.cursor)

    def style(self, text: str) -> str | object:
        return next(s for row in self.screen.pane.rows for span, s in row.spans if text in span)


async def opened(pilot: Any, path: str, mark_of_content: str = "── turn 1") -> Shown:
    await settle(pilot)
    screen = TrajectoryScreen(path)
    await pilot.app.push_screen(screen)
    shown = Shown(pilot, screen)
    await shown.until(lambda: mark_of_content in shown.text)
    return shown


def app_of(run: Path, *heads: TrialHead) -> LiverlApp:
    return LiverlApp(FakeSource(run, view=view(trials=TrialsStatus(total=len(heads), newest=heads))))


async def test_turn_by_turn_calls_and_results_folded(tmp_path: Path) -> None:
    write(tmp_path, trial(1), *conversation(3))
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        assert (
            "trial-001" in shown.lines[0] and "trial 1/1" in shown.lines[0] and "turn 1/3" in shown.lines[0]
        )
        for words in ("✔ done", "step 7", "3 turns", "2 calls", "reward 0.500  tests 3", "finish stop", "r0"):
            assert words in shown.lines[1]
        assert "▾ user\n│ Fix the parser." in shown.text
        assert "── turn 1 · assistant · 100 → 412 tokens · 1.2 s · finish tool_calls · r0 ──" in shown.text
        assert '▸ bash {"cmd": "ls\\npwd"} (3 lines, ' in shown.text
        assert "▸ result bash file0.py file1.py" in shown.text and "(60 lines, " in shown.text
        assert r"│ Done red\x07." in shown.text, "no escape sequence reaches the terminal"
        # the result of the first turn opens and closes
        await shown.press("right_square_bracket", *"jjjjj")
        assert shown.cursor.startswith("▸ result bash")
        await shown.press("enter")
        assert "▾ result bash" in shown.text and "│ file20.py" in shown.text
        await shown.press("space")
        assert "│ file1.py" not in shown.text
        await shown.press("k", "enter")
        assert '│   "cmd": ↵\n│     ls\n│     pwd' in shown.text, "texts of several lines are written out"
        # everything, and back
        await shown.press("e", "G")
        assert "│ file59.py" in shown.text
        await shown.press("e", "g")
        assert "▸ result bash" in shown.text
        # on a rule: the whole turn
        await shown.press("right_square_bracket", "enter")
        assert "▾ result bash" in shown.text and "▾ bash" in shown.text and "▸ result bash" not in shown.text
        await shown.press("right_square_bracket")
        assert shown.cursor.startswith("── turn 2")
        await shown.press("left_square_bracket")
        assert shown.cursor.startswith("── turn 1")
        # copying takes a part as it was written
        await shown.press(*"jjjj")
        assert shown.screen.pane.copy_line() == '{\n  "cmd": "ls\\npwd"\n}'


async def test_kinds_are_hidden_by_their_keys(tmp_path: Path) -> None:
    write(tmp_path, trial(1), *conversation(2))
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        marks = {"1": "▾ system", "2": "▾ user", "3": "▾ reasoning", "4": "▸ bash", "5": "▸ result"}
        for key, words in marks.items():
            assert words in shown.text
            await shown.press(key)
            assert words not in shown.text
        assert "hidden: call, reasoning, result, system, user" in shown.text and "│ I look." in shown.text
        await shown.press("5")
        assert "▸ result" in shown.text and "▸ bash" not in shown.text


async def test_search_opens_what_it_finds(tmp_path: Path) -> None:
    write(tmp_path, trial(1), *conversation(3))
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        await shown.press("slash", *"FILE59")
        assert "/FILE59▏" in shown.lines[0]
        await shown.press("enter")
        assert "not found" in shown.lines[0], "a capital letter counts"
        await shown.press("slash", *"file59", "enter")
        assert "│ file59.py" in shown.cursor and "1 of 2 lines" in shown.lines[0]
        assert ("file59", "match") in [span for row in shown.screen.pane.rows for span in row.spans]
        await shown.press("n")
        assert "2 of 2" in shown.lines[0] and "turn 2/3" in shown.lines[0]
        await shown.press("n")
        assert "1 of 2" in shown.lines[0]
        await shown.press("N")
        assert "2 of 2" in shown.lines[0]
        await shown.press("slash", "escape")
        assert app.screen is shown.screen and "match" not in {
            s for r in shown.screen.pane.rows for _, s in r.spans
        }


async def test_the_first_escape_ends_the_search_and_the_second_leaves(tmp_path: Path) -> None:
    def marked(shown: Shown) -> bool:
        return "match" in {style for row in shown.screen.pane.rows for _, style in row.spans}

    for number in (1, 2):
        write(tmp_path, trial(number), *conversation(3))
    app = app_of(tmp_path, trial(1), trial(2))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        await shown.press("slash", *"look", "enter")
        assert marked(shown) and "/look" in shown.lines[0]
        await shown.press("J")
        await shown.until(lambda: "trial-002" in shown.lines[0] and marked(shown))
        await shown.press("escape")
        assert app.screen is shown.screen and not marked(shown)
        assert "/look" not in shown.lines[0] and "lines" not in shown.lines[0]
        at = shown.cursor
        await shown.press("n")
        assert shown.cursor == at, "there is nothing left to go to"
        await shown.press("escape")
        assert app.screen is not shown.screen


async def test_the_header_says_of_what_the_list_is_the_newest(tmp_path: Path) -> None:
    heads = [trial(n) for n in range(12)]
    for head in heads[:2]:
        write(tmp_path, head, *conversation(1))
    newest = TrialsStatus(total=1240, newest=tuple(heads))
    app = LiverlApp(FakeSource(tmp_path, view=view(trials=newest)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, heads[1].path)
        assert " trial 2/12 newest of 1,240 · turn 1/1 " in shown.lines[0]
        await pilot.resize_terminal(40, 24)
        await shown.until(lambda: " trial 2/12+ · turn 1/1 " in shown.lines[0])
        await pilot.resize_terminal(120, 40)
        # the same from the pane, where a filter leaves out some of them
        await shown.press("escape", "4", "u", "slash", *"files-1", "enter", "enter")
        await until(pilot, lambda: isinstance(app.screen, TrajectoryScreen), lambda: str(app.screen))
        shown = Shown(pilot, app.screen)  # type: ignore[arg-type]
        await shown.until(lambda: " trial 1/3 in the newest 12 · turn 1/1 " in shown.text)
        await shown.press("escape", "escape", "enter")
        shown = Shown(pilot, app.screen)  # type: ignore[arg-type]
        await shown.until(lambda: "/12 newest of 1,240 · turn 1/1 " in shown.text)


@pytest.mark.parametrize("done", [False, True])
async def test_a_call_that_its_agent_left_is_called_abandoned(tmp_path: Path, done: bool) -> None:
    """Of a trial that was cut off in the middle of a call, that is no failure either."""
    gone = {"error_type": "client_disconnected", "status_code": 499, "message": "the client closed it"}
    left = record([SYSTEM, TASK], {}, success=False, failure=gone, response_body=None, usage=None)
    write(tmp_path, trial(1), *conversation(2)[:1], left, done=done)
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        assert "── turn 2 · assistant · 1.2 s · ○ abandoned (the agent disconnected) · r0 ──" in shown.text
        assert (
            "▾ ○ abandoned (the agent disconnected)\n│ client_disconnected HTTP 499: the client" in shown.text
        )
        assert "✖" not in shown.text and "failed" not in shown.text
        assert shown.style("abandoned") == "dim"
        assert ("failures" in shown.lines[1]) == done, "as the list of trials has it"


async def test_a_call_that_failed_is_called_so(tmp_path: Path) -> None:
    gone = {"error_type": "client_disconnected", "message": "the client closed it"}
    failed = {"error_type": "Timeout", "status_code": 504, "message": "too late"}
    calls = [record([SYSTEM, TASK], {}, success=False, failure=f, response_body=None) for f in (failed, gone)]
    write(tmp_path, trial(1), *calls, done=False)
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        assert "✖ failed" in shown.text and "▾ ✖ failed\n│ Timeout HTTP 504: too late" in shown.text
        assert "○ abandoned" in shown.text and "▲ failures" in shown.lines[1]


async def test_without_tools_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {tool_parser: hermes}\n")
    write(tmp_path, trial(1), record([SYSTEM, TASK], {"role": "assistant", "content": QWEN}))
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, trial(1).path)
        text = " ".join(shown.text.split())
        assert "✖ NO TOOLS: what the model wrote looks like Qwen3-Coder XML" in text
        assert "the run's tool-call parser is hermes (model.tool_parser in config.yaml)" in text
        assert shown.style("✖ NO TOOLS:") == "alarm"
        assert "▲ no tool call was parsed from this text" in text and "│ <function=bash>" in shown.text


async def test_to_the_next_and_the_next_flagged_trial(tmp_path: Path) -> None:
    heads = [trial(n) for n in range(3)] + [trial(3, flags=("zero_tool_calls",), tool_calls=0)]
    for head in heads:
        write(tmp_path, head, *conversation(1))
    app = app_of(tmp_path, *heads)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, heads[1].path)
        for key, name in (("J", "002"), ("K", "001"), (">", "002"), ("<", "001"), (".", "003"), ("J", "003")):
            await shown.press(key)
            await shown.until(
                lambda name=name: f"trial-{name}" in shown.lines[0] and "── turn 1" in shown.text
            )
        await shown.press("comma")
        assert "trial-003" in shown.lines[0]
        assert "▲ no other flagged trial" in [n.message for n in app._notifications]
        await shown.press("escape")
        assert app.screen.scope == "dashboard"  # type: ignore[attr-defined]


def at(second: int, **fields: Any) -> TrialHead:
    return trial(second, started_at=NOW - 100 + second, **fields)


async def test_a_trial_that_has_dropped_off_the_list_keeps_its_neighbours(tmp_path: Path) -> None:
    heads = {n: at(n, flags=("failed_turns",) * (n == 7)) for n in range(10)}
    for head in heads.values():
        write(tmp_path, head, *conversation(1))

    def news(total: int, *numbers: int) -> View:
        listed = tuple(heads[n] for n in numbers)
        return view(trials=TrialsStatus(total=total, newest=listed))

    app = LiverlApp(FakeSource(tmp_path, view=news(20, 5, 4, 3)))
    async with app.run_test(size=(120, 40)) as pilot:
        # from the pane, whose list goes on while the trial is looked at; and by its path
        await settle(pilot)
        await press(pilot, "4", "j", "enter")
        await until(pilot, lambda: isinstance(app.screen, TrajectoryScreen), lambda: str(app.screen))
        for by_path in (False, True):
            app.take(news(20, 5, 4, 3))
            shown = Shown(pilot, app.screen) if not by_path else await opened(pilot, heads[4].path)  # type: ignore[arg-type]
            await shown.until(lambda s=shown: " trial 2/3 newest of 20 · " in s.lines[0])
            app.take(news(24, 8, 7, 6))
            await shown.until(lambda s=shown: " no longer among the newest 3 · " in s.lines[0])
            await shown.press("J")
            assert "trial-004" in shown.lines[0], "there is no older one in the list"
            await shown.press("K")
            await shown.until(lambda s=shown: "trial-006" in s.lines[0] and " trial 3/3 " in s.lines[0])
            app.take(news(28, 9, 8, 7, 5))
            await shown.until(lambda s=shown: "no longer among the newest 4" in s.lines[0])
            await shown.press("J")
            await shown.until(lambda s=shown: "trial-005" in s.lines[0] and " trial 4/4 " in s.lines[0])
            app.take(news(28, 9, 8, 7))
            await shown.press("comma")
            await shown.until(lambda s=shown: "trial-007" in s.lines[0])
            await shown.press("escape")


async def test_raw_record_and_back(tmp_path: Path) -> None:
    write(tmp_path, trial(1), *conversation(3))
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        await shown.press("right_square_bracket", "right_square_bracket", "v")
        await shown.until(lambda: '"request_time": 1795220000000' in shown.text)
        await shown.until(lambda: "── turn 2 · record" in shown.text and "raw record" in shown.lines[0])
        assert shown.style('"success"') == "accent"
        assert "turn 2/3" in shown.lines[0]
        await shown.press("v")
        assert shown.cursor.startswith("── turn 2")
        await shown.press("v")
        await shown.until(lambda: "── turn 2 · record" in shown.text)
        for key, turn in (
            ("right_square_bracket", 3),
            ("right_square_bracket", 3),
            ("left_square_bracket", 2),
            ("left_square_bracket", 1),
        ):
            await shown.press(key)
            await shown.until(lambda turn=turn: f"── turn {turn} · record" in shown.text)
            await shown.until(lambda turn=turn: f"turn {turn}/3" in shown.lines[0])
        await shown.press("v")
        assert shown.cursor.startswith("── turn 1"), "the one that was looked at last"


async def test_a_running_trial_grows_and_keeps_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverl_tui.screens.trajectory.POLL_S", 0.05)
    told = conversation(4)
    write(tmp_path, trial(1), *told[:2], done=False)
    app = app_of(tmp_path, trial(1, state="running"))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        assert "◐ running" in shown.lines[1]
        await shown.press("right_square_bracket", "right_square_bracket", "j")
        before = shown.cursor
        write(tmp_path, trial(1), told[2], done=False)
        await shown.until(lambda: "/3" in shown.lines[0])
        assert shown.cursor == before
        await shown.press("G")
        write(tmp_path, trial(1), told[3])
        await shown.until(lambda: "✔ done" in shown.lines[1] and r"│ Done red\x07." in shown.text)
        await shown.until(lambda: r"Done red\x07." in shown.cursor)  # at the end it goes along


async def test_files_of_the_trial_open(tmp_path: Path) -> None:
    write(tmp_path, trial(1), *conversation(1))
    (tmp_path / trial(1).path / "verifier").mkdir()
    (tmp_path / trial(1).path / "verifier" / "out.txt").write_text("3 passed\n")
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path)
        await shown.press("G")
        assert shown.cursor.startswith("▸ verifier/out.txt  9B")
        await shown.press("enter")
        await shown.until(lambda: "│ 3 passed" in shown.text)


async def test_a_trial_that_is_gone_and_a_tiny_terminal(tmp_path: Path) -> None:
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(40, 10)) as pilot:
        shown = await opened(pilot, trial(1).path, "its directory was removed")
        await shown.press("pagedown", "G", "e", "v", "enter", "n", "right_square_bracket")
        assert all(cell_len(line) <= 40 for line in shown.lines)


async def test_turns_of_the_result_before_the_records_come(tmp_path: Path) -> None:
    write(tmp_path, trial(1))
    (tmp_path / trial(1).path / "result.json").write_text('{"turns": 7}')
    app = app_of(tmp_path, trial(1))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, trial(1).path, "✔ done")
        assert "7 turns" in shown.lines[1]


# -- pure parts


def test_what_went_wrong_stands_in_the_turns() -> None:
    turns = (
        Turn(
            1, success=False, answer=(Part("error", "Timeout: too slow"),), replica="http://h:1", note="odd"
        ),
        Turn(
            2,
            answer=(Part("call", "{oops", "bash", failed=True),),
            finish_reason="length",
            moved_from="http://h:1",
        ),
        Turn(3, answer=(Part("result", "no such file", "bash", failed=True),)),
    )
    found = build(
        Trajectory("t", "/t", "t", turns=turns, torn=True, bad_records=2), names={"http://h:1": "r7"}
    )
    rows = [head_row(b, 120, b.opened).text if b.label else b.text or "" for b in found]
    text = "\n".join(rows)
    assert rows[0] == "▲ before turn 1: odd" and "turn 1 · assistant · ✖ failed · r7" in rows[1]
    assert "✖ failed" in rows[2] and found[2].text == "Timeout: too slow" and found[2].opened
    assert "▲ finish length: cut off · moved from r7" in rows[3] and "✖ bash (not a JSON object)" in rows[4]
    assert "✖ result bash (error) no such file" in text
    assert "the last record is incomplete" in text and "2 records could not be read" in text


def test_long_messages_begin_closed() -> None:
    before = (Part("system", "line\n" * 40), Part("user", "short"), Part("reasoning", "x" * 5000))
    blocks = build(Trajectory("t", "/t", "t", turns=(Turn(1, before=before),)))
    assert [b.opened for b in blocks if b.folds] == [False, True, False]


outside = st.text(st.sampled_from("ab \t\r\n\x1b[31m\x07\u202e漢é🙂\x00\u00a0"), max_size=60)


@given(outside | st.text(max_size=80), st.integers(1, 40))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    for line in clean_lines(text):
        assert not FORBIDDEN.search(line)
        rows = [line[start:end] for start, end in wrap_line(line, width)]
        assert "".join(rows) == line
        assert all(cell_len(row) <= max(width, 2) for row in rows)


def test_words_stay_whole_where_they_can() -> None:
    for line in ("one two three four", "öne two three four"):
        assert [line[a:b] for a, b in wrap_line(line, 10)] == [f"{line[:3]} two ", "three four"]


@given(st.text(max_size=60), st.integers(0, 60), st.integers(0, 60), st.text(min_size=1, max_size=2))
def test_spans_keep_the_text(text: str, start: int, end: int, needle: str) -> None:
    spans = json_spans(text)
    assert "".join(t for t, _ in spans) == text
    assert "".join(t for t, _ in slice_spans(spans, start, end)) == text[start:end]
    places = find_places(text, needle)
    marked = mark(spans, places)
    assert "".join(t for t, _ in marked) == text
    assert [text[a:b].lower() == needle.lower() for a, b in places] == [True] * len(places)
    assert sum(len(t) for t, s in marked if s == "match") == sum(b - a for a, b in places)


def test_tokens_of_json() -> None:
    assert json_spans('  "a": [1.5, "x\\"y", null]') == [
        ("  ", "text"),
        ('"a"', "accent"),
        (":", "dim"),
        (" ", "text"),
        ("[", "dim"),
        ("1.5", "chart4"),
        (",", "dim"),
        (" ", "text"),
        ('"x\\"y"', "ok"),
        (",", "dim"),
        (" ", "text"),
        ("null", "chart4"),
        ("]", "dim"),
    ]


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=5)))
)
def test_arguments_written_out_lose_no_line(arguments: dict[str, Any]) -> None:
    lines, literal = argument_lines(json.dumps(arguments, indent=2, ensure_ascii=False))
    written = "\n".join(lines)
    for value in arguments.values():
        if isinstance(value, str) and "\n" in value:
            assert all(part.strip() in written for part in clean_lines(value))
    assert all(number < len(lines) for number in literal)


def test_progress_bars_and_tabs() -> None:
    assert clean_lines("10%\r50%\r100%\r\na\tb\n") == ["…\\r100%", "a   b"]


blocks = st.lists(
    st.builds(
        lambda text, opened, headless, rule: (text, opened, headless, rule),
        st.none() | outside,
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(blocks, st.integers(3, 30), st.integers(1, 12), st.data())
def test_a_window_is_always_full_and_shows_its_cursor(
    drawn: list[tuple[str | None, bool, bool, bool]], width: int, room: int, data: st.DataObject
) -> None:
    flow = Flow()
    flow.width = width
    flow.replace(
        [
            Block(
                str(n),
                n,
                (("label", "text"),),
                None if rule else text,
                opened=opened,
                headless=headless,
                rule=rule,
            )
            for n, (text, opened, headless, rule) in enumerate(drawn)
        ]
    )
    every = [START]
    while (after := flow.next(every[-1])) is not None:
        every.append(after)
    assert every[-1] == flow.end() and every == sorted(set(every))
    assert all(flow.previous(b) == a for a, b in pairwise(every))
    at, top = data.draw(st.sampled_from(every)), data.draw(st.sampled_from(every))
    top = flow.top_for(top, at, room)
    shown = every[every.index(top) : every.index(top) + room]
    assert at in shown and len(shown) == min(room, len(every))
    assert all(
        cell_len(flow.row(place).text) <= max(width, 4) for place in shown if place.row or not flow.blocks
    )


def test_places_survive_other_blocks() -> None:
    flow = Flow()
    one, two, three = (Block(name, 1, ((name, "text"),), "a\nb") for name in ("1", "2", "3"))
    flow.replace([one, two, three])
    assert flow.replace([one, three], Place(1, 2), Place(2, 1)) == [Place(0, 0), Place(1, 1)]
    assert flow.inside(Place(9, 9)) == Place(1, 2)


@given(outside)
def test_a_pasted_text_is_one_line(text: str) -> None:
    prompt = TitlePrompt()
    prompt.paste(text)
    assert prompt.text.isprintable() and one_line(prompt.text) == prompt.text


async def test_the_step_of_a_trial_in_a_flat_folder_is_that_of_the_list(tmp_path: Path) -> None:
    """Scripts may put all trials into one folder; the list knows the step by the time of the trainer's log."""
    head = trial(1, path="trials/move-003-0000000a")
    write(tmp_path, head, *conversation(1))
    async with app_of(tmp_path, head).run_test(size=(120, 30)) as pilot:
        shown = await opened(pilot, head.path)
        assert "step 7" in shown.text
