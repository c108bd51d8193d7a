"""Logs that stand still, by their own pace."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from kit.screens import service, snapshot

from liverl.watch.alerts import silent
from liverl.watch.quiet import AGAIN_S, LEAST_S, Pace, Paces, pace_of
from liverl.watch.services import quiet_words
from liverl.watch.target import Target
from liverl.watch.watcher import Watcher

NOW = 1_700_000_000.0


def lines(*minutes: float, text: str = "work") -> str:
    at = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW + 60 * minute)) for minute in minutes]
    return "".join(f"[{stamp},000 I 1 2] {text}\n" for stamp in at)


@pytest.mark.parametrize(
    ("text", "pace"),
    [
        ("", Pace(NOW)),
        ("no stamp\n" * 20, Pace(NOW)),
        (lines(-3, -2, -1), Pace(NOW)),  # too few to know its pace
        (lines(*range(-20, 0, 2)), Pace(NOW, 120.0)),
        (lines(-20, *range(-9, 0)), Pace(NOW, 60.0)),  # one long gap is none of its pace
        (
            lines(*range(-90, -80)) + lines(*range(-80, 1), text='"GET /metrics HTTP/1.1" 200 OK'),
            Pace(NOW - 81 * 60, 60.0, True),
        ),
        *(
            (lines(*range(-90, -80)) + lines(*range(-80, 1), text=idle), Pace(NOW - 81 * 60, 60.0, True))
            for idle in (
                '"GET /get_model_info HTTP/1.1" 200 OK',
                '"HEAD / HTTP/1.1" 200 OK',
                "Engine 000: Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs",
                "No available shared memory broadcast block found in 60 seconds.",
            )
        ),
        # the first heartbeat of some counts is news, those that repeat it are not
        (
            lines(*range(-90, -80))
            + lines(*range(-80, 1), text="pending: 0, running: 4, finished: 0, failure: 0"),
            Pace(NOW - 80 * 60, 60.0, True),
        ),
        (lines(-10, -5, text='"GET /health HTTP/1.1" 200 OK'), Pace(NOW)),
        (
            lines(-9, text='"GET /health HTTP/1.1" 200 OK') + lines(*range(-8, 0)),
            Pace(NOW, 60.0),
        ),
    ],
)
def test_the_pace_of_a_log(text: str, pace: Pace) -> None:
    assert pace_of(text.encode(), NOW) == pace


@pytest.mark.parametrize(
    ("pace", "silence", "words"),
    [
        (Pace(NOW), 299.0, ""),
        (Pace(NOW), 301.0, "its log has not grown for 5 min"),
        (Pace(NOW, 60.0), 301.0, "its log has not grown for 5 min, usually every 60 s"),
        (Pace(NOW, 120.0), 599.0, ""),
        (Pace(NOW, 120.0), 1260.0, "its log has not grown for 21 min, usually every 2 min"),
        (Pace(NOW, 0.2, True), 7200.0, "its log has not grown for 2 h except for polls"),
    ],
)
def test_after_five_minutes_or_five_of_its_gaps_it_is_told(pace: Pace, silence: float, words: str) -> None:
    assert quiet_words(pace, NOW + silence) == words


@pytest.mark.parametrize(("step", "told"), [(None, True), (60.0, True), (600.0, False)])
def test_a_trainer_that_writes_nothing_is_an_alert(step: float | None, told: bool) -> None:
    trainer = service("trainer", "trainer", pid=7, log="attempt_001/logs/trainer.1.log")
    now = snapshot(at=NOW + 900.0, services=(trainer,), step_seconds=step)
    found = silent(now, {"trainer": Pace(NOW, 20.0), "gone": Pace(NOW)})
    assert [one.id for one in found] == (["log_silent:trainer"] if told else [])
    if told:
        assert "15 min, usually every 20 s" in found[0].cause and "py-spy dump --pid 7" in found[0].fix
        assert len(found[0].title) <= 60


def test_growth_that_was_seen_is_a_pace_too(tmp_path: Path) -> None:
    log, paces, now = tmp_path / "a.log", Paces(), time.time()
    log.write_text("begin\n")
    for number in range(8):
        with log.open("a") as file:
            file.write("no stamp\n")
        os.utime(log, (now + 200.0 * number, now + 200.0 * number))
        pace = paces.look(log, now + 200.0 * number)
    assert pace == Pace(pytest.approx(now + 1400.0), pytest.approx(200.0))  # type: ignore[arg-type]
    assert pace.allowed == pytest.approx(1000.0) and paces.look(log, now + 9e3) is pace
    with log.open("a") as file:
        file.write("more\n")
    os.utime(log, (now + 1402.0, now + 1402.0))
    assert paces.look(log, now + 1400.0 + AGAIN_S / 2).since == pytest.approx(now + 1402.0)  # type: ignore[union-attr]
    log.unlink()
    assert paces.look(log, now) is None and Pace(NOW).allowed == LEAST_S


def test_a_log_that_only_polls_make_grow_is_of_a_process_that_lives_and_does_nothing(tmp_path: Path) -> None:
    log = tmp_path / "repo/train.log"
    log.parent.mkdir()
    at = time.time()
    stamps = [
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at - 60 * minute)) for minute in range(90, -1, -1)
    ]
    text = [f"[{stamp},000 I 1 2] step:{n} - a:1\n" for n, stamp in enumerate(stamps[:10])]
    text += [f'[{stamp},000 I 1 2] "GET /metrics HTTP/1.1" 200 OK\n' for stamp in stamps[10:]]
    log.write_text("".join(text))
    watcher = Watcher(Target(log.parent), Path(tempfile.mkdtemp(dir=tmp_path)))
    watcher.start()
    try:
        assert watcher.settle(60)
        seen = watcher.poll()
    finally:
        watcher.close()
    trainer = seen.service("trainer")
    assert trainer is not None and trainer.state == "ready" and seen.state == "running"
    assert "its log has not grown for 81 min except for polls, usually every 60 s" in trainer.why
    (alert,) = seen.symptoms  # it says more than that the log is silent
    assert alert.id == "log:hangs" and alert.title.startswith("No progress for 81 min")
    assert [one.log for one in alert.evidence] == [trainer.log]
