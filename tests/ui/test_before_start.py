"""Before a run is started in the interface: what preflight found, and the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kit.pilots import press, until
from msgspec.structs import replace
from rich.cells import cell_len

from liverl.model import Check, Evidence
from liverl_tui.app.before_start import BeforeStartApp
from liverl_tui.screens.before_start import ChecksPane
from liverl_tui.text.checks import suggested
from liverl_tui.widgets.base.cells import CellPanel

OK = Check("KV heads", "ok", "8 KV heads over vllm.gen_tp 4: two on each GPU", id="kv-heads")
SKIPPED = Check(
    "imports", "skipped", "environment verl is not built yet; check --build builds it", id="imports"
)
WARN = Check(
    "learning rate",
    "warn",
    "the schedule decays over training.total_steps, which is not known before the first epoch has ended",
    id="lr",
    fix="set training.total_steps, or a constant schedule",
    patch={"training.total_steps": "120"},
    guess=True,
)
FAIL = Check(
    "port 8002",
    "fail",
    "it is held by pid 4711 (python -m litellm) of user anna, not by a run of yours",
    id="ports",
    evidence=(Evidence("LISTEN 127.0.0.1:8002"),),
    fix="end that process, or take another port",
    patch={"infrastructure.litellm_port": "8003"},
)
MANY = tuple(Check(f"check {number}", "ok", "looked at") for number in range(60))
BRIEF = "run        liverl/first\nstarts     4 replicas: 8 GPUs\nwarning: nobody looks at validation\n"
SIZES = [(40, 12), (80, 24), (120, 40), (200, 50)]


def text(app: BeforeStartApp) -> str:
    return "\n".join(panel.text for panel in app.screen.query(CellPanel))


async def opened(pilot: Any) -> None:
    """Wait until both parts are drawn."""
    await until(
        pilot,
        lambda: "warned" in text(pilot.app) and "nothing is started" in text(pilot.app),
        lambda: text(pilot.app),
    )


@pytest.mark.parametrize("size", SIZES)
async def test_the_list_has_what_is_wrong_first_and_in_full(size: tuple[int, int]) -> None:
    app = BeforeStartApp((OK, SKIPPED, WARN, FAIL), BRIEF)
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        pane = app.screen.query_one(ChecksPane)
        rows = pane.lines(size[0], size[1])
        assert max(cell_len(row.text.rstrip()) for row in rows) <= size[0]
        words = " ".join(" ".join(row.text for row in rows).split())
        found = [words.index(status) for status in ("failed", "warned", "skipped", "ok")]
        assert found == sorted(found), words
        told = (FAIL.text, WARN.text, SKIPPED.text, OK.text, FAIL.fix, "--set infrastructure.litellm_port=8003",
                "--set training.total_steps=120 (a rule of thumb", "LISTEN 127.0.0.1:8002")  # fmt: skip
        assert [one for one in told if one not in words] == []
        assert "1 check failed: nothing is started" in text(app)
        assert "4 replicas" not in words, "nothing is started"
    pane = ChecksPane((OK, SKIPPED, WARN), BRIEF)
    words = " ".join(" ".join(row.text for row in pane.lines(*size)).split())
    assert words.index("warned") < words.index("4 replicas: 8 GPUs") < words.index("skipped")


@pytest.mark.parametrize(
    ("checks", "keys", "agreed"),
    [
        ((OK, WARN), ("enter",), True),
        ((OK, WARN), ("y",), True),
        ((OK, WARN), ("escape",), False),
        ((OK, WARN), ("q",), False),
        ((OK, WARN), ("ctrl+c",), False),
        ((OK, WARN), ("n",), False),
        ((OK, WARN, FAIL), ("enter",), False),
        ((OK, WARN, FAIL), ("y",), False),
        ((WARN, *MANY), ("G", "g", "space", "enter"), True),
    ],
)
async def test_a_run_is_started_only_if_nothing_failed_and_somebody_agrees(
    checks: Sequence[Check], keys: tuple[str, ...], agreed: bool
) -> None:
    app = BeforeStartApp(checks, BRIEF)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for key in keys[:-1]:
            await press(pilot, key)
            assert app.is_running
        await press(pilot, keys[-1])
    assert app.agreed is agreed


@pytest.mark.parametrize("key", ["enter", "y"])
async def test_a_port_that_was_taken_since_is_shown_and_nothing_is_started(key: str) -> None:
    app = BeforeStartApp((OK, WARN), BRIEF, again=lambda: (OK, WARN, FAIL))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await press(pilot, key)
        shown = (FAIL.fix, "--set infrastructure.litellm_port=8003", "1 check failed: nothing is started")
        await until(pilot, lambda: all(words in text(app) for words in shown), lambda: text(app))
        await press(pilot, key)
    assert app.agreed is False and FAIL in app.checks


async def test_a_run_is_started_with_what_was_found_last() -> None:
    app = BeforeStartApp((OK, WARN), BRIEF, again=lambda: (OK,))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await press(pilot, "enter")
    assert app.agreed is True and app.checks == (OK,)


async def test_a_key_sets_what_the_checks_suggest() -> None:
    app = BeforeStartApp((OK, WARN, FAIL), BRIEF)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert "f set these values" in text(app)
        await press(pilot, "f")
    assert app.values == {"infrastructure.litellm_port": "8003", "training.total_steps": "120"}
    assert app.agreed is False


async def test_without_a_suggestion_the_key_does_nothing_and_is_not_named() -> None:
    app = BeforeStartApp((OK, replace(WARN, patch={})), BRIEF)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert " f set" not in text(app)
        await press(pilot, "f")
        assert app.is_running and app.values == {}
        await press(pilot, "enter")
    assert app.agreed is True


def test_of_two_suggestions_for_one_key_that_of_the_worse_check_holds() -> None:
    other = replace(WARN, patch={"infrastructure.litellm_port": "1", "data.seed": "2"})
    assert suggested((OK, other, FAIL)) == {"infrastructure.litellm_port": "8003", "data.seed": "2"}
    assert suggested((replace(OK, patch={"data.seed": "1"}),)) == {}


async def test_a_long_list_is_scrolled() -> None:
    app = BeforeStartApp((WARN, *MANY), BRIEF)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert "learning rate" in text(app) and "What will be started" in text(app)
        assert "check 59" not in text(app)
        await press(pilot, "G")
        await until(pilot, lambda: "check 59" in text(app), lambda: text(app))
        assert "learning rate" not in text(app)
