"""What the backend tells of clocks that were set, and of a host that was suspended. The clocks are simulated."""

from __future__ import annotations

import pytest

from liverl.observe.clock_jumps import JUMP_S, ClockJumps, Reading, read_clocks, span
from liverl.util import clocks

DAY = 86_400.0
START = Reading(1_790_000_000.0, 5_000.0, 4_000.0)


def looks(*readings: Reading) -> ClockJumps:
    return ClockJumps(iter([START, *readings]).__next__)


def later(seconds: float, *, step: float = 0.0, suspended: float = 0.0) -> Reading:
    """The clocks after the host ran for ``seconds``."""
    wall, boot, ran = START
    return Reading(wall + seconds + suspended + step, boot + seconds + suspended, ran + seconds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"step": 5 * DAY},
            "the clock of this host was set forward by 5 d; time limits and ages of this run do not follow it; its "
            "events are stamped 5 d behind the clock until the next attempt",
        ),
        (
            {"step": -5 * DAY - 7200},
            "the clock of this host was set back by 5 d 2 h; time limits and ages of this run do not follow it; its "
            "events are stamped 5 d 2 h ahead of the clock until the next attempt",
        ),
        (
            {"suspended": 3 * 3600.0 + 60},
            "this host was suspended for 3 h 1 min; time limits stood still; its events are stamped 3 h 1 min behind "
            "the clock until the next attempt",
        ),
        (
            {"suspended": 100.0, "step": -100.0},
            "this host was suspended for 1 min 40 s; time limits stood still; the clock of this host was set back by "
            "1 min 40 s; time limits and ages of this run do not follow it",
        ),
    ],
)
def test_a_jump_is_told_once_with_how_far_and_which_way(change: dict[str, float], words: str) -> None:
    jumps = looks(later(5.0, **change), later(10.0, **change), later(15.0, **change))
    jump = jumps.look()
    assert jump is not None and jump.words == words
    assert (jump.step, jump.suspended) == (change.get("step", 0.0), change.get("suspended", 0.0))
    assert jumps.look() is None and jumps.look() is None


def test_a_clock_that_is_set_back_to_where_it_was_leaves_no_difference() -> None:
    jumps = looks(later(5.0, step=5 * DAY), later(10.0), later(15.0, suspended=60.0))
    there, back, slept = jumps.look(), jumps.look(), jumps.look()
    assert there is not None and there.words.endswith("5 d behind the clock until the next attempt")
    assert back is not None and (back.step, back.behind) == (-5 * DAY, 0.0)
    assert back.words.endswith("time limits and ages of this run do not follow it")
    assert slept is not None and slept.words.endswith("1 min behind the clock until the next attempt")


@pytest.mark.parametrize(
    "change", [{"step": JUMP_S - 0.1}, {"step": 0.1 - JUMP_S}, {"suspended": JUMP_S - 0.1}, {}]
)
def test_what_a_clock_is_slewed_by_is_no_jump(change: dict[str, float]) -> None:
    assert looks(later(3600.0, **change)).look() is None


def test_a_process_that_was_stopped_is_no_jump() -> None:
    assert looks(later(5 * DAY)).look() is None


def test_the_clocks_of_this_host_are_read_at_one_moment() -> None:
    jumps = ClockJumps()
    assert jumps.look() is None
    reading = read_clocks()
    assert reading.since_boot >= reading.ran - 1.0 and reading.wall > 1.7e9
    assert abs(clocks.moment().passed()) < 60.0 and clocks.boot_id()


def test_the_clocks_are_read_again_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: the process was stopped between two of the clocks."""
    times = iter([0.0, 50.0, 50.0, 50.01])
    monkeypatch.setattr(clocks, "ran", lambda: next(times))
    assert read_clocks().ran == 50.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(2.4, "2 s"), (60, "1 min"), (61, "1 min 1 s"), (3601, "1 h"), (90_000, "1 d 1 h"), (0.2, "0 s")],
)
def test_a_span_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_the_age_of_a_file_from_the_future() -> None:
    assert clocks.age_of(90.0, 100.0) == 10.0
    assert clocks.age_of(130.0, 100.0) == -30.0, "the clock of a file server may be ahead"
    assert clocks.age_of(100.0 + 5 * DAY, 100.0) > 1e9, "ours was set back: nothing says that the file is new"
