"""How a turn is asked for: what is tried again, how long it waits between attempts, and when it gives up. The proxy and
the clock are simulated: a wait takes no time here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.agents import loop
from liverl.agents.loop import ContextFull, Conversation, Reply, Talk, TrialFailed, ask
from liverl.sessions.sampling import OVERFLOW, TIME_OVER

ANSWER = b'{"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3}}'
Answer = tuple[int, bytes]


class Clock:
    """Time that passes only by waiting. ``waits``: seconds of each wait, in its order; ``jitter``: of each, the bounds
    from which it was drawn, of which the higher one is taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self.jitter: list[tuple[float, float]] = []
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(loop, "random", SimpleNamespace(uniform=self._uniform))
        names = {"sleep": self._sleep, "TimeoutError": asyncio.TimeoutError}
        monkeypatch.setattr(loop, "asyncio", SimpleNamespace(**names))

    def _uniform(self, low: float, high: float) -> float:
        self.jitter.append((low, high))
        return high

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.now += seconds


class Proxy:
    """Answers what it is told, the last of it again and again. ``seconds``: that each answer takes, of which no more
    pass than the caller waits."""

    def __init__(self, clock: Clock, *answers: Answer, seconds: float = 0.0) -> None:
        self.clock, self.answers, self.seconds = clock, list(answers), seconds
        self.limits: list[float] = []  # seconds that the caller would wait

    @asynccontextmanager
    async def post(self, url: str, *, timeout: Any, **_: Any) -> AsyncIterator[Any]:
        self.limits.append(round(timeout.total, 6))
        assert len(self.limits) < 50, "it asks without an end"
        self.clock.now += min(self.seconds, timeout.total)
        if self.seconds > timeout.total:
            raise asyncio.TimeoutError  # noqa: UP041 (as aiohttp does on 3.10)
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

        async def read() -> bytes:
            return body

        yield SimpleNamespace(status=status, read=read)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def asked(
    clock: Clock, proxy: Proxy, seconds: float = 60.0
) -> tuple[Reply | TrialFailed, Conversation]:
    """What one turn got, and what the conversation says of it."""
    conversation = Conversation([])
    talk = Talk("http://h", {}, {"model": "m"}, 8, seconds, tokens=False)
    try:
        reply = await ask(proxy, talk, conversation, talk.timer(), [], [], {})  # type: ignore[arg-type]
    except TrialFailed as error:
        return error, conversation
    return reply, conversation


async def test_waits_between_attempts_double_up_to_two_seconds_and_end_with_the_trial(clock: Clock) -> None:
    error, conversation = await asked(clock, proxy := Proxy(clock, (503, b"x" * 400)), 10.04)
    assert clock.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 0.94]
    assert set(clock.jitter) == {(0.5, 1.0)}, "not all at the same moment"
    assert proxy.limits == pytest.approx([10.04, 9.94, 9.74, 9.34, 8.54, 6.94, 4.94, 2.94, 0.94])
    assert isinstance(error, TrialFailed)
    assert str(error) == "no time left after 10 s; last: HTTP 503: " + "x" * 300
    assert (error.kind, error.cause, error.same) == ("TrialTimeoutError", "timeout", "timeout")
    assert conversation.retries == len(clock.waits)
    assert conversation.waited_seconds == pytest.approx(10.04) == conversation.asked_seconds


async def test_a_proxy_that_is_away_for_a_while_is_waited_for(clock: Clock) -> None:
    reply, conversation = await asked(clock, Proxy(clock, (502, b"down"), (429, b"full"), (200, ANSWER)))
    assert isinstance(reply, Reply) and reply.message == {"role": "assistant", "content": "hi"}
    assert (conversation.retries, clock.waits) == (2, [0.1, 0.2])
    assert conversation.waited_seconds == conversation.asked_seconds == pytest.approx(0.3)


async def test_a_model_that_writes_until_the_end_has_not_been_waited_for(clock: Clock) -> None:
    error, conversation = await asked(clock, Proxy(clock, (200, ANSWER), seconds=99.0), 5.0)
    assert str(error) == "no time left after 5 s; no response in the last 5.0 s"
    assert (clock.waits, conversation.retries) == ([0.0], 1)
    assert (conversation.waited_seconds, conversation.asked_seconds) == (0.0, 5.0)


async def test_an_answer_that_is_none_is_asked_for_again(clock: Clock) -> None:
    reply, conversation = await asked(clock, Proxy(clock, (200, b"<html>"), (200, ANSWER)))
    assert isinstance(reply, Reply) and conversation.retries == 1


OVER = TIME_OVER.encode()


@pytest.mark.parametrize(
    ("status", "text", "kind", "cause"),
    [
        (410, OVER, "TrialTimeoutError", "timeout"),
        (410, b"the session has ended", "ProxyRefusedError", "infrastructure"),
        (400, OVER, "ProxyRefusedError", "infrastructure"),
        (400, b"bad", "ProxyRefusedError", "infrastructure"),
        (401, b"bad", "ProxyRefusedError", "infrastructure"),
        (404, b"bad", "ProxyRefusedError", "infrastructure"),
        (407, b"bad", "ProxyRefusedError", "infrastructure"),
        (499, b"bad", "ProxyRefusedError", "infrastructure"),
        (400, b"the maximum context length is 5", "ProxyRefusedError", "limit"),
        (400, OVERFLOW.encode(), "ProxyRefusedError", "limit"),
    ],
)
async def test_what_is_not_tried_again(clock: Clock, status: int, text: bytes, kind: str, cause: str) -> None:
    error, conversation = await asked(clock, proxy := Proxy(clock, (status, text)), 8.0)
    assert isinstance(error, TrialFailed)
    assert (error.kind, error.cause) == (kind, cause)
    assert isinstance(error, ContextFull) is (cause == "limit")
    assert (len(proxy.limits), conversation.retries, clock.waits) == (1, 0, [])
    words = f"HTTP {status}: {text.decode()}"
    assert str(error) == (f"no time left after 8 s; last: {words}" if cause == "timeout" else words)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
async def test_what_is_tried_again(clock: Clock, status: int) -> None:
    reply, conversation = await asked(clock, Proxy(clock, (status, b"later"), (200, ANSWER)))
    assert isinstance(reply, Reply) and conversation.retries == 1
