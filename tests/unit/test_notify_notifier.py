"""Queues, tries and pauses of the notifier; deliveries are simulated, see tests/process for real ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.waiting import until

from liverl.control import history
from liverl.model import Event
from liverl.notify import delivery, notifier
from liverl.notify.delivery import Outcome
from liverl.notify.message import Message
from liverl.notify.notifier import Notifier, Voice
from liverl.plan.spec import NotifyPlan, NotifyTarget
from liverl.rundir.journal import JournalContent

TARGET = NotifyTarget("command", words=("tell",))


class Backend:
    """What a notifier needs: it keeps journal and events, and simulates deliveries by ``answer``."""

    def __init__(self, folder: Path, answer: Callable[[Message], Outcome], **options: Any) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[Event] = []
        self.asked: list[str] = []
        self.answer = answer
        self.unwritable = False
        self.tasks: list[asyncio.Task[None]] = []
        self.hear: Callable[[Event], None] = lambda event: None
        plan = NotifyPlan(
            (TARGET,), ("failed", "alert", "done", "stalled", "resumed", "stopped"), timeout=1.0, **options
        )
        voice = Voice(self.say, self.journal, lambda: "running", lambda text: None, self.spawn, self.guarded)
        self.notifier = Notifier(plan, folder, 1, lambda: 1000.0, voice)

    def say(self, kind: str, text: str, level: Any = "info", **data: Any) -> Event:
        event = Event(len(self.events) + 1, 1000.0, kind, text, level, None, data)
        self.events.append(event)
        self.hear(event)
        return event

    async def journal(self, record: dict[str, Any]) -> None:
        if self.unwritable:
            raise OSError(28, "No space left on device")
        self.records.append({"at": 1000.0, **record})

    def spawn(self, work: Any) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        yield

    async def begin(self, records: list[dict[str, Any]] = []) -> None:  # noqa: B006 - not changed
        def subscribe(hear: Callable[[Event], None]) -> None:
            self.hear = hear

        await self.notifier.begin(JournalContent(tuple(records)), len(self.events), subscribe)
        self.notifier.start()

    def alert(self, name: str) -> None:
        self.say("symptom", f"{name} is wrong", "error", id=name, what="new")

    def end(self, state: str = "done") -> None:
        self.say("run_ended", state, state=state)

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]

    def close(self) -> None:
        self.notifier.close()
        for task in self.tasks:
            task.cancel()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Backend]]:
    made: list[Backend] = []

    async def deliver(
        _target: object, message: Message, _env: object, _timeout: float, _claim: Path
    ) -> Outcome:
        made[-1].asked.append(message.title)
        return made[-1].answer(message)

    async def settle(_claim: Path, _timeout: float) -> None:
        return None

    monkeypatch.setattr(delivery, "deliver", deliver)
    monkeypatch.setattr(delivery, "settle", settle)
    monkeypatch.setattr(notifier, "PAUSE_S", 0.01)
    monkeypatch.setattr("liverl.notify.inbox.HOLD_S", 0.01)

    def new(answer: Callable[[Message], Outcome] = lambda message: Outcome(True), **options: Any) -> Backend:
        made.append(Backend(tmp_path, answer, **options))
        return made[-1]

    yield new


def refusing(*titles: str) -> Callable[[Message], Outcome]:
    return lambda message: Outcome(message.title not in titles, "it refuses this one")


async def test_a_message_that_is_refused_holds_up_no_other(make: Callable[..., Backend]) -> None:
    backend = make(refusing("bad is wrong"))
    await backend.begin()
    backend.alert("bad")
    await until(lambda: len(backend.asked) > 2)
    assert (
        backend.notifier.unreached[0].why == "it refuses this one"
        and backend.notifier.unreached[0].waiting == 1
    )
    backend.alert("good")
    await until(lambda: backend.told("notified"))
    assert backend.told("notified") == ["alert: sent to command tell"]
    backend.close()


async def test_a_target_that_answers_again_is_no_longer_named(make: Callable[..., Backend]) -> None:
    backend = make(refusing("x is wrong"))
    await backend.begin()
    backend.alert("x")
    await until(lambda: backend.notifier.unreached)
    backend.answer = lambda message: Outcome(True)
    await until(lambda: backend.told("notified"))
    assert backend.notifier.unreached == () and ", at try " in backend.told("notified")[0]
    backend.close()


async def test_after_an_hour_it_is_no_news_any_more(
    make: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "GIVE_UP_S", 0.0)
    backend = make(refusing("x is wrong"))
    await backend.begin()
    backend.alert("x")
    await until(lambda: backend.told("not_notified"))
    await until(lambda: any(record.get("what") == "end" for record in backend.records))
    assert backend.told("not_notified") == ["alert: not sent to command tell: it refuses this one"]
    assert len(backend.asked) == 1 and backend.records[-1]["ok"] is False
    backend.close()


async def test_the_end_is_told_first_and_what_is_left_is_named(make: Callable[..., Backend]) -> None:
    backend = make(refusing("a is wrong"))
    await backend.begin()
    backend.alert("a")
    await until(lambda: backend.asked)
    backend.end()
    asked = len(backend.asked)
    await backend.notifier.finish(soon=True)
    assert backend.asked[asked:][:2].count("done") == 1
    assert backend.told("not_notified") == ["alert: not sent to command tell: it refuses this one"]
    assert not any(record.get("ok") is False for record in backend.records), "the next attempt tells it"
    backend.close()


async def test_every_message_and_every_try_is_journalled_before_it_is_made(
    make: Callable[..., Backend],
) -> None:
    seen: list[list[str]] = []
    backend = make()
    backend.answer = lambda message: (seen.append([r["what"] for r in backend.records]), Outcome(True))[1]
    await backend.begin()
    backend.alert("x")
    await until(lambda: backend.told("notified"))
    assert seen == [["begin", "message", "try"]]
    assert [record["what"] for record in backend.records] == ["begin", "message", "try", "end"]
    backend.close()


async def test_a_full_disk_keeps_nobody_from_being_told(make: Callable[..., Backend]) -> None:
    backend = make()
    backend.unwritable = True
    await backend.begin()
    backend.alert("x")
    await until(lambda: backend.told("notified"))
    backend.close()


async def test_what_an_earlier_backend_has_not_told_is_told(
    make: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events from the file, its messages from the journal; what happened before the notifications is not."""
    first = make(refusing("b is wrong"))
    first.alert("old")
    await first.begin()
    first.alert("a")
    first.alert("b")
    await until(lambda: len(first.asked) > 3)
    first.close()
    first.alert("c")  # no message was formed of it
    second = make()
    second.events = list(first.events)
    monkeypatch.setattr(notifier, "read_events", lambda path: iter(first.events))
    await second.begin(first.records)
    await until(lambda: len(second.told("notified")) == 3)
    assert sorted(second.asked) == ["b is wrong", "c is wrong"]
    second.close()


async def test_without_a_target_nothing_is_read_or_written(tmp_path: Path) -> None:
    backend = Backend(tmp_path, lambda message: Outcome(True))
    voice = Voice(backend.say, backend.journal, lambda: "", lambda text: None, backend.spawn, backend.guarded)
    idle = Notifier(NotifyPlan(), tmp_path, 1, lambda: 0.0, voice)
    await idle.begin(JournalContent(), 0, lambda hear: pytest.fail("it listens"))
    idle.start()
    await idle.finish()
    assert backend.records == [] and idle.unreached == () and idle.patience == 0.0
    assert list(history.read_events(tmp_path)) == []
