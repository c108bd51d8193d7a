"""What a message says, and what the journal says of messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from liverl.model import SCHEMA, Event, Level
from liverl.notify.message import TEXT_MOST, TITLE_MOST, About, Message, of_events, of_many, trial_message
from liverl.notify.records import Begin, End, Formed, Open, Past, Record, Try, journal_record, read_past

ABOUT = About("p/run", 2, "node1", "liverl-tui attach p/run", "liverl-tui up --resume p/run")


def event(seq: int, text: str, level: Level = "error", kind: str = "symptom", **data: Any) -> Event:
    return Event(seq, 1_700_000_000.0, kind, text, level, None, data)


def test_an_alert() -> None:
    down = event(7, "proxy is down: killed by SIGKILL", id="proxy_down", what="new", fix="restart proxy")
    found = of_events(ABOUT, "alert", [down], "running")
    assert msgspec.to_builtins(found) == {
        "id": "p/run#7",
        "run": "p/run",
        "attempt": 2,
        "state": "running",
        "event": "alert",
        "level": "critical",
        "title": "proxy is down",
        "text": "Run p/run on node1: proxy is down: killed by SIGKILL. Restart proxy",
        "hint": "restart proxy",
        "host": "node1",
        "time": "2023-11-14T22:13:20Z",
        "count": 1,
        "schema": SCHEMA,
    }


def test_one_that_flapped_says_how_often_and_that_it_is_over() -> None:
    events = [
        event(1, "x is down: a", id="x", what="new", fix="do it"),
        event(2, 'resolved after 0m01s: "x is down"', "info", id="x", what="cleared"),
        event(3, "x is down: b", "warning", id="x", what="new", fix="do that"),
        event(4, 'resolved after 0m01s: "x is down"', "info", id="x", what="cleared"),
    ]
    found = of_events(ABOUT, "alert", events, "running")
    assert (found.count, found.level, found.id, found.hint) == (2, "warning", "p/run#1", "do that")
    assert found.text == "Run p/run on node1: x is down: b; it is over already (2 times). Do that"
    going = of_events(ABOUT, "alert", events[:3], "running")
    assert "over already" not in going.text and going.count == 2


def test_a_failure_says_what_to_do() -> None:
    failed = event(9, "the run failed: trainer: CUDA out of memory", kind="run_failed")
    why = event(8, "trainer has failed: x", id="service_failed:trainer", what="new", fix="set vllm.gen_tp=2")
    found = of_events(ABOUT, "failed", [failed], "failed", [why])
    assert (found.level, found.title) == ("critical", "the run failed")
    assert found.hint == (
        "set vllm.gen_tp=2. To see it: liverl-tui attach p/run. To go on: liverl-tui up --resume p/run"
    )
    assert of_events(ABOUT, "failed", [failed], "failed").hint.startswith("To see it: ")


@pytest.mark.parametrize(
    ("kind", "one", "level", "title", "hint"),
    [
        ("done", event(1, "done: reward 0.2 -> 0.9", "info", "run_ended"), "info", "done", "To see it: "),
        ("stopped", event(1, "stopped by x", "info", "run_ended"), "warning", "stopped by x", "To go on: "),
        (
            "resumed",
            event(1, "run x (attempt 3) started in /d", "info", "run_started", attempt=3),
            "info",
            "attempt 3 has begun",
            "",
        ),
        (
            "resumed",
            event(1, 'resolved after 9m: "trainer makes no progress"', "info", what="cleared"),
            "info",
            "the trainer makes progress again after a stall",
            "",
        ),
        (
            "stalled",
            event(1, "trainer hangs: y", "warning", what="new", fix="f"),
            "warning",
            "trainer hangs",
            "f",
        ),
    ],
)
def test_other_events(kind: Any, one: Event, level: str, title: str, hint: str) -> None:
    found = of_events(ABOUT, kind, [one], "running")
    assert (found.event, found.level) == (kind, level)
    assert found.title.startswith(title) and found.hint.startswith(hint)
    assert found.hint or not hint


def test_many_alerts_are_one_text() -> None:
    events = [event(n, f"alert {n}", "warning", id=f"a{n}", what="new") for n in range(1, 12)]
    events += [event(20, "resolved", "info", id="a1", what="cleared"), event(21, "bad", id="b", what="new")]
    found = of_many(ABOUT, events, "running")
    assert (found.title, found.level, found.id, found.count) == ("12 alerts", "critical", "p/run#1", 12)
    assert "alert 8; and 4 more. To see them: liverl-tui attach p/run" in found.text


def test_what_leaves_the_host_is_printable_short_and_without_keys() -> None:
    text = "boom \x1b[31m\n\u202e sk-abcdefgh12345678 " + "x" * 5000
    found = of_events(ABOUT, "alert", [event(1, text, id="x", what="new", fix=text)], "running")
    for part, most in ((found.title, TITLE_MOST), (found.text, TEXT_MOST + 2 * 600), (found.hint, 600)):
        assert part.isprintable() and len(part) <= most and "abcdefgh12345678" not in part
    assert trial_message(ABOUT, 0.0).event == "test"


# --- the journal ------------------------------------------------------------------------------------------------------

MESSAGE = trial_message(ABOUT, 0.0)
FORMED = Formed(MESSAGE, (5, 6), ("t1", "t2"), True)


def journalled(*records: Record) -> list[dict[str, Any]]:
    plain = [{"at": 50.0, **journal_record(record), "crc": "x"} for record in records]
    decoded: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(plain))
    return decoded


def open_of(past: Past) -> dict[str, list[tuple[str, int]]]:
    return {target: [(name, one.tries) for name, one in found.items()] for target, found in past.open.items()}


def test_what_is_left_to_tell() -> None:
    name = MESSAGE.id
    past = read_past([{"k": "state"}, *journalled(Begin(4), FORMED, Try(name, "t1", 1))])
    assert (past.upto, past.told) == (4, {5, 6})
    assert open_of(past) == {"t1": [(name, 1)], "t2": [(name, 0)]}
    one = past.open["t1"][name]
    assert one == Open(msgspec.structs.replace(FORMED, at=50.0), 1) and isinstance(
        one.formed.message, Message
    )
    past = read_past(
        journalled(Begin(4), FORMED, Try(name, "t1", 1), End(name, "t1", True), End(name, "t2", False))
    )
    assert open_of(past) == {"t1": [], "t2": []} and past.told == {5, 6}


def test_without_records_nothing_was_begun() -> None:
    assert read_past([{"k": "attempt", "n": 1}]) == Past()


def test_of_a_damaged_journal_nothing_is_told_twice() -> None:
    """The record of a message is lost: events before the newest one that is left are nobody's news."""
    assert read_past(journalled(Begin(4), FORMED), damaged=True).upto == 6
    assert (
        read_past([*journalled(Begin(4), FORMED), {"k": "notify", "what": "message", "seqs": "x"}]).upto == 6
    )
    assert read_past([], damaged=True).upto is None
