"""The screen of a trial's tokens: what is shown of each, jumps, rows, and what is said where something is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import Driven
from kit.screens import FakeSource, settle, trial, view
from kit.token_documents import DIALOGUE, said, write_run

from liverl.embedded import tokenizer as embedded
from liverl.model import TrialsStatus
from liverl.observe.trials.token_rows import token_rows
from liverl.observe.trials.token_texts import TokenTexts, embedded_texts
from liverl.offline.trial_tokens import RowText
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.tokens import TokensScreen
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.text.wrapping import columns
from liverl_tui.widgets.tokens.layout import (
    CURSOR,
    MARKS,
    STYLES,
    chunk_of,
    column_of,
    line_of,
    lines_of,
    text_row,
    token_at,
)
from liverl_tui.widgets.tokens.pane import TokensPane

TRIAL = trial(1)


class Shown(Driven):
    @property
    def pane(self) -> TokensPane:
        found: TokensPane = self.pilot.app.screen.query_one(TokensPane)
        return found

    @property
    def text(self) -> str:
        return self.pane.text

    @property
    def fact(self) -> str:
        """The line of facts on the token under the cursor."""
        return self.text.split("\n")[1]

    @property
    def marked(self) -> str:
        """The text in the style of the cursor, without the title."""
        return "".join(text for row in self.pane.rows[2:] for text, style in row.spans if style == CURSOR)


def app_of(run: Path) -> LiverlApp:
    return LiverlApp(FakeSource(run, view=view(trials=TrialsStatus(total=1, newest=(TRIAL,)))))


async def opened(pilot: Any, turn: int = 0) -> Shown:
    await settle(pilot)
    await pilot.app.push_screen(TokensScreen(TRIAL.path, turn))
    shown = Shown(pilot)
    await shown.until(lambda: "reading" not in shown.text and "Tokens" in shown.text)
    return shown


async def test_the_key_of_a_trajectory_opens_its_tokens_at_the_turn(tmp_path: Path) -> None:
    write_run(tmp_path, TRIAL.path, said(*DIALOGUE))
    async with app_of(tmp_path).run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        screen = TrajectoryScreen(TRIAL.path)
        await pilot.app.push_screen(screen)
        driven = Driven(pilot)
        await driven.until(lambda: "── turn 2" in screen.pane.text)
        await driven.press("right_square_bracket", "right_square_bracket", "t")
        shown = Shown(pilot)
        await driven.until(lambda: isinstance(pilot.app.screen, TokensScreen) and "── turn 2" in shown.text)
        await driven.until(lambda: "turn 2" in shown.fact and "sampled" in shown.fact)
        await driven.press("escape")
        await driven.until(lambda: pilot.app.screen is screen)


async def test_the_worst_tokens_come_one_after_another(tmp_path: Path) -> None:
    write_run(tmp_path, TRIAL.path, said(*DIALOGUE))
    async with app_of(tmp_path).run_test(size=(120, 30)) as pilot:
        shown = await opened(pilot)
        (row,) = token_rows(said(*DIALOGUE)).rows
        worst = row.worst(row.sampled)
        for rank, index in enumerate([*worst[:3], worst[1]]):
            await shown.press("N" if rank == 3 else "n")
            token = row.window(index, 1)[0]
            text = (embedded_texts().bytes_of(token.id) or b"").decode()
            place = 2 if rank == 3 else rank + 1
            assert shown.pane.cursor == index
            for words in (
                f"{token.id} '",
                f"log-prob {token.logprob:.3f}",
                f"worst {place}/{len(worst)}",
                "sampled",
            ):
                assert words in shown.fact
            assert shown.marked.replace("↵", "\n").lstrip("".join(MARKS)) == text
        await shown.press("N", "N")
        assert shown.pane.cursor == worst[-1] and f"worst {len(worst)}/{len(worst)}" in shown.fact
        await shown.press("right")
        assert "worst" not in shown.fact


async def test_turns_tokens_and_ends(tmp_path: Path) -> None:
    write_run(tmp_path, TRIAL.path, said(*DIALOGUE))
    (row,) = token_rows(said(*DIALOGUE)).rows
    begins = [reply.begin for reply in row.replies]
    async with app_of(tmp_path).run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot)
        for key, index in (
            ("right_square_bracket", begins[0]), ("right_square_bracket", begins[1]),
            ("right_square_bracket", begins[1]), ("right", begins[1] + 1), ("left_square_bracket", begins[1]),
            ("left_square_bracket", begins[0]), ("left", begins[0] - 1), ("end", len(row.ids) - 1),
            ("right", len(row.ids) - 1), ("home", 0), ("left", 0),
        ):  # fmt: skip
            await shown.press(key)
            assert shown.pane.cursor == index, key
            assert shown.marked, f"{key}: the token under the cursor is on the screen"
        assert "── turn 1" in shown.text
        for _ in range(20):
            await shown.press("down")
            assert shown.marked
        assert shown.pane.cursor >= begins[1], "down reaches the last line"
        before = shown.pane.cursor
        await shown.press("up")
        assert shown.pane.cursor < before
        for _ in range(20):
            await shown.press("up")
            assert shown.marked
        assert shown.pane.cursor < begins[0] and "── turn 1" in shown.text, "with the rule above it"


async def test_a_jump_shows_what_comes_behind_the_token(tmp_path: Path) -> None:
    parts = [("start", 0), ("abc\n" * 90, 1)]
    probabilities = [-0.5] * len(embedded.encode(parts[1][0]))
    probabilities[120] = -9.0
    write_run(tmp_path, TRIAL.path, said(*parts, traj_response_logprobs=probabilities))
    async with app_of(tmp_path).run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot)
        await shown.press("n")
        at = next(
            n for n, row in enumerate(shown.pane.rows) if n > 2 and any(s == CURSOR for _, s in row.spans)
        )
        assert 4 < at < len(shown.pane.rows) - 4
        for _ in range(at):
            await shown.press("up")
            assert shown.marked, "the window follows the cursor"


async def test_a_row_beside_the_conversation_says_why_it_is_one(tmp_path: Path) -> None:
    rows = [said(("a", 0), ("of a sub-agent", 1), kind="sub"), said(*DIALOGUE)]
    write_run(tmp_path, TRIAL.path, {"rows": rows, "not_trained": {"hidden": 7}})
    async with app_of(tmp_path).run_test(size=(100, 30)) as pilot:
        shown = await opened(pilot)
        assert "row 2 of 2 (main)" in shown.text and "in no row: 7 hidden" in shown.text
        await shown.press("v")
        assert (
            "row 1 of 2 (sub)" in shown.text
            and "a row of its own: a conversation of a sub-agent" in shown.text
        )
        assert "of a sub-agent" in "".join(mark for mark in shown.text if mark not in MARKS[1:])
        await shown.press("v")
        assert "row 2 of 2 (main)" in shown.text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "went through no session"),
        (b"{", "cannot read proxy_trajectory.json"),
        ({"messages_snapshot": []}, "it has messages, but no tokens"),
        (said(*DIALOGUE, traj_response_logprobs=None), "log-probabilities are not recorded"),
        (said(*DIALOGUE, traj_response_mask=[1]), "which tokens were sampled is not recorded"),
    ],
)
async def test_what_is_missing_is_said(tmp_path: Path, document: Any, words: str) -> None:
    write_run(tmp_path, TRIAL.path, document)
    async with app_of(tmp_path).run_test(size=(120, 24)) as pilot:
        shown = await opened(pilot)
        await shown.until(lambda: words in shown.text)
        before = shown.text
        await shown.press("n", "N", "right_square_bracket", "home", "v", "up", "down", "left")
        await shown.press("home")
        assert "heat:" not in shown.text and "%" not in shown.text and "worst" not in shown.text
        assert words in shown.text and shown.text == before


async def test_without_a_tokenizer_ids_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path, TRIAL.path, said(*DIALOGUE))
    (tmp_path / "config.yaml").unlink()
    async with app_of(tmp_path).run_test(size=(100, 24)) as pilot:
        shown = await opened(pilot)
        await shown.until(lambda: "ids are shown, not their text: the run has no config.yaml" in shown.text)
        assert f"<{embedded.encode(DIALOGUE[0][0])[0]}>" in shown.text


async def test_a_trial_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, TRIAL.path, said(*DIALOGUE))
    folder = tmp_path / TRIAL.path
    (folder / "litellm-trajectory.jsonl").unlink()
    (folder / "proxy_trajectory.json").unlink()
    (folder / "proxy_trajectory.json").mkdir()
    async with app_of(tmp_path).run_test(size=(100, 24)) as pilot:
        shown = await opened(pilot)
        await shown.until(lambda: "cannot read proxy_trajectory.json" in shown.text)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_every_line_fits_the_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    long = said(("start", 0), ("wörter " * 200, 1), ("x" * 700, 0), ("€" * 300 + "\x1b[31m", 1))
    write_run(tmp_path, TRIAL.path, long)
    async with app_of(tmp_path).run_test(size=size) as pilot:
        shown = await opened(pilot)
        for key in ("home", "pagedown", "pagedown", "end", "n", "pageup"):
            await shown.press(key)
            assert all(columns(row.text) <= size[0] for row in shown.pane.rows)
            assert "\x1b" not in shown.text and shown.marked


# -- lines


@given(
    pieces=st.lists(st.text(alphabet="ab é中\n", max_size=7), min_size=1, max_size=20),
    mask=st.lists(st.integers(0, 1), min_size=20, max_size=20),
    width=st.integers(10, 30),
    data=st.data(),
)
def test_a_token_is_found_where_it_is_drawn(
    pieces: list[str], mask: list[int], width: int, data: Any
) -> None:
    bits = mask[: len(pieces) - 1]
    (row,) = token_rows(
        {
            "initial_prompt_token_len": 1,
            "traj_acc_ids": list(range(len(pieces))),
            "traj_response_mask": bits,
            "traj_response_logprobs": [-0.5 * bit for bit in bits],
        }
    ).rows
    text = RowText(row, TokenTexts("made here", lambda token: pieces[token].encode()))
    lines = lines_of(row, text, 0, len(row.ids), width)
    index = data.draw(st.integers(0, len(row.ids) - 1))
    line = lines[line_of(lines, index)]
    assert index in [number for number, _ in line.pieces]
    assert token_at(line, column_of(line, index)) == index
    used = 0
    for number, piece in line.pieces:
        assert {token_at(line, used + at) for at in range(columns(piece))} <= {number}
        used += columns(piece)
    assert not [each for each in lines[: line_of(lines, index)] if index in dict(each.pieces)], (
        "its first line"
    )
    token = row.window(index, 1)[0]
    assert line.sampled is token.sampled
    assert all(row.window(number, 1)[0].sampled is line.sampled for number, _ in line.pieces)
    assert sorted({n for each in lines for n, _ in each.pieces}) == list(range(len(row.ids)))
    assert [each.reply for each in lines if each.reply is not None] == list(range(len(row.replies)))


@pytest.mark.parametrize(("logprob", "step"), [(-0.01, 0), (-0.5, 1), (-2.0, 2), (-4.0, 3), (-9.0, 4)])
def test_heat_is_seen_by_mark_and_by_hue(logprob: float, step: int) -> None:
    (row,) = token_rows(said(("x", 0), ("ab", 1), traj_response_logprobs=[logprob])).rows
    text = RowText(row, embedded_texts())
    line = lines_of(row, text, 0, 2, 40)[-1]
    assert text_row(line, row, None).spans[-1] == (f"{MARKS[step]}ab", STYLES[step])
    assert text_row(line, row, 1).spans[-1] == (f"{MARKS[step]}ab", CURSOR)


@given(st.integers(0, 100_000), st.integers(1, 100_000))
def test_the_cursor_is_among_the_tokens_whose_lines_are_made(index: int, more: int) -> None:
    total = index + more
    begin, end = chunk_of(index, total)
    assert 0 <= begin <= index < end <= total


async def test_a_long_row_is_shown_around_the_cursor(tmp_path: Path) -> None:
    count = 60_000
    document = {
        "initial_prompt_token_len": 10,
        "traj_acc_ids": [97] * count,
        "traj_response_mask": [1] * (count - 10),
        "traj_response_logprobs": [-0.5] * 45_000 + [-7.0] + [-0.5] * (count - 45_011),
    }
    write_run(tmp_path, TRIAL.path, json.dumps(document).encode())
    async with app_of(tmp_path).run_test(size=(100, 24)) as pilot:
        shown = await opened(pilot)
        await shown.press("n")
        assert shown.pane.cursor == 45_010 and shown.marked == "█a"
        await shown.press("end")
        assert shown.pane.cursor == count - 1 and shown.marked == "▁a"
        await shown.press("pageup", "home")
        assert shown.pane.cursor == 0 and shown.marked == "a"
