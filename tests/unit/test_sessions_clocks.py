"""The time of a session while the system's clock is set, and while the host is suspended. The clocks are simulated."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from kit.session_host import SessionHost

from liverl.model import SessionsStatus
from liverl.serving.session_events import with_moments
from liverl.sessions.journal import Opened
from liverl.sessions.sampling import Limits
from liverl.sessions.session import Session
from liverl.sessions.store import EXPIRED_S
from liverl.sessions.time_limit import PAUSE_S, Looks, time_limit
from liverl.util import clocks

DAY = 86_400.0
USER = {"role": "user", "content": "Hello."}


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


class Clocks:
    """The three clocks of a host, to be moved apart: begun as they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_step = self.suspended = self.run_on = 0.0
        wall, monotonic = time.time, time.monotonic
        boottime = time.clock_gettime
        monkeypatch.setattr(time, "time", lambda: wall() + self.wall_step + self.suspended + self.run_on)
        monkeypatch.setattr(clocks, "ran", lambda: monotonic() + self.run_on)
        monkeypatch.setattr(
            clocks,
            "since_boot",
            lambda: boottime(time.CLOCK_BOOTTIME) + self.suspended + self.run_on,
        )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


JUMPS = {
    "a first NTP step": {"wall_step": 1.7e9},
    "5 days forward": {"wall_step": 5 * DAY},
    "5 days back": {"wall_step": -5 * DAY},
    "suspended for 5 days": {"suspended": 5 * DAY},
    "suspended, and set back": {"suspended": DAY, "wall_step": -DAY},
}


def jump(here: Clocks, **steps: float) -> None:
    for name, step in steps.items():
        setattr(here, name, step)


@pytest.mark.parametrize("told", ["seconds", "deadline"])
@pytest.mark.parametrize("name", JUMPS)
async def test_a_jump_ends_no_session_and_gives_none_more_time(
    host: SessionHost, replica: Any, here: Clocks, name: str, told: str
) -> None:
    """Simulated."""
    limit = {"seconds": 600.0} if told == "seconds" else {"deadline": time.time() + 600.0}
    opened = await host.open(**limit)
    jump(here, **JUMPS[name])
    assert await host.store.expire(clocks.ran()) == []
    assert (await host.chat(opened, USER))[0] == 200
    left = host.store.session(opened["id"]).time.left()
    assert left is not None and 0.0 < left <= 600.0
    assert abs(host.store.session(opened["id"]).counters.proxy_model_inference_sec) < 600
    here.run_on = 601.0
    assert (await host.chat(opened, USER))[0] == 410
    here.run_on = 600.0 + EXPIRED_S + 5.0
    assert await host.store.expire(clocks.ran()) == [opened["id"]]


@pytest.mark.parametrize("name", JUMPS)
async def test_a_restarted_service_counts_on_whatever_the_clock_says(
    host: SessionHost, replica: Any, here: Clocks, name: str
) -> None:
    """Simulated."""
    opened = await host.open(seconds=600.0)
    assert (await host.chat(opened, USER))[0] == 200
    await host.stop()
    jump(here, **JUMPS[name])
    here.run_on = 100.0
    await host.start()
    session = host.store.session(opened["id"])
    left = session.time.left()
    assert left is not None and 480.0 < left <= 500.0
    (silent,) = host.store.facts()["silent"]
    now = 5e9  # of a backend, whose clock is its own
    status = msgspec.convert(
        with_moments(msgspec.json.decode(msgspec.json.encode({"silent": [silent]})), now), SessionsStatus
    )
    assert 99.0 < now - status.silent[0].since < 120.0
    end = {"process": 1, "of": 2, "how": "SIGKILL", "since": silent["since"], "at": silent["at"]}
    told = with_moments(msgspec.json.decode(msgspec.json.encode({"process_ends": [end]})), now)
    assert msgspec.convert(told, SessionsStatus).process_ends[0].since == pytest.approx(
        status.silent[0].since, abs=20.0
    )


def test_the_silence_of_a_session_on_another_host_is_as_it_told() -> None:
    at = {"wall": 100.0, "ran": 5.0, "boot": "another"}
    report = {"silent": [{"id": "t", "since": 100.0, "at": at}, {"id": "old", "since": 90.0}, 7]}
    assert with_moments(report, 1000.0) == report
    assert with_moments({}, 1.0) == {} and with_moments({"silent": 3}, 1.0) == {"silent": 3}


def test_the_time_of_a_journal_of_an_earlier_version() -> None:
    now = time.time()
    opened = Opened("t", "key", "/t", now - 100.0, Limits(deadline=now + 500.0))
    left = time_limit(opened.limits, opened.moment).left()
    assert left is not None and 498.0 < left <= 500.0
    assert time_limit(Limits(), opened.moment).left() is None


def test_after_a_reboot_the_system_s_clock_is_all_there_is() -> None:
    before = clocks.Moment(time.time() - 50.0, 1e6, "another boot")
    assert 49.0 < before.passed() < 60.0
    assert clocks.Moment(time.time() + 1e6, 3.0, "another boot").passed() == 0.0


def test_a_service_that_was_stopped_gives_everybody_time_again(here: Clocks) -> None:
    """Simulated: SIGSTOP, a debugger, a machine without CPU time. Requests could not reach it meanwhile."""
    looks = Looks(grace=EXPIRED_S)
    assert looks.steady() and looks.steady()
    here.run_on += PAUSE_S + 1.0
    assert not looks.steady()
    here.run_on += PAUSE_S - 1.0
    assert not looks.steady(), "the grace goes on"
    for _ in range(5):
        here.run_on += PAUSE_S - 1.0
        steady = looks.steady()
    assert steady


def test_no_session_reads_the_system_s_clock_for_its_time() -> None:
    assert "time" not in vars(__import__(Session.__module__, fromlist=["x"]))
