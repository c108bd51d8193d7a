"""Follows growing logs: what is counted, once, in bounded memory, and again after a restart of the backend."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from kit.live_logs import Followed

from liverl.causes.catalogue import outlines, rows
from liverl.causes.match import Matcher
from liverl.logs.access_lines import UPDATES
from liverl.logs.last_lines import TailIndex
from liverl.logs.records import RecordReader
from liverl.observe.live_logs import reader
from liverl.observe.live_logs.counting import MOST_KEYS, SLOT_S, Counter
from liverl.observe.live_logs.facts import WINDOW_S, LiveLog
from liverl.observe.live_logs.reader import (
    BEFORE,
    BLOCK,
    HEAD,
    LONGEST,
    MOST,
    MOST_FED,
    OLD_BLOCK,
    RATE,
    FollowedLog,
    LiveLogs,
)
from liverl.observe.live_logs.responses import response_of
from liverl.observe.live_logs.watched import MOST_DULL, DullLines, watched
from liverl.util.weight_requests import ROUTES

WAIT = "INFO 07-15 15:33:47 [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds."
BAD = 'INFO:     10.0.0.1:4000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
POLL = 'INFO:     10.0.0.1:4000 - "GET /health HTTP/1.1" 200 OK'
OK = 'INFO:     10.0.0.1:4000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


@pytest.fixture
def run(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def facts(run: Followed, seconds: float = 1.0) -> LiveLog:
    (one,) = run.look(seconds)
    return one


def failed(one: LiveLog) -> dict[tuple[int, str], int]:
    return {(f.status, f.message): f.counted.since(0) for f in one.failed}


def complaints(one: LiveLog) -> dict[str, int]:
    return {c.signature: c.counted.since(0) for c in one.complaints}


@pytest.mark.parametrize(
    ("line", "status", "asked", "message", "ours"),
    [
        (BAD, 400, "POST /v1/chat/completions", "", False),
        (OK, 200, "POST /v1/chat/completions", "", False),
        (
            '(vLLMHttpServer pid=7, ip=10.0.0.1) INFO:     1.2.3.4:5 - "POST /v1/completions?x=1 HTTP/1.1" 503 Busy',
            *(503, "POST /v1/completions", "", False),
        ),
        (
            '2026-11-24 17:00:00,1 INFO liverl-sessions: ::1 "POST /s/trial-17/v1/messages HTTP/1.1" 404, 0.003 s',
            *(404, "POST /s/*/v1/messages", "", False),
        ),
        (
            '2026-11-24 17:00:00,1 INFO liverl-sessions: ::1 "POST /s/trial-17/v1/messages HTTP/1.1" 400, '
            "0.003 s; 2 more succeeded before: n is not supported",
            *(400, "POST /s/*/v1/messages", "n is not supported", False),
        ),
        ("liverl-proxy: 401 POST /v1/messages", 401, "POST /v1/messages", "", False),
        (
            "liverl-proxy: 400 POST /v1/messages trial=t0 replica=http://127.0.0.1:43561",
            *(400, "POST /v1/messages", "", False),
        ),
        (
            "liverl-proxy: 400 POST /v1/messages trial=t0 replica=None the body is no JSON",
            *(400, "POST /v1/messages", "the body is no JSON", False),
        ),
        (
            "openai.NotFound: Error code: 404 - {'error': {'message': \"The model `x` isn't there\", 'code': 404}}",
            *(404, "", "The model `x` isn't there", True),
        ),
        (
            'anthropic.RateLimitError: Error code: 429 - {"type": "error", "error": {"message": "slow down"}}',
            *(429, "", "slow down", True),
        ),
        (
            'INFO 2026-11-24 httpx HTTP Request: POST http://10.0.0.1:8002/v1/messages "HTTP/1.1 404 Not Found"',
            *(404, "POST /v1/messages", "", True),
        ),
    ],
)
def test_forms_of_requests(line: str, status: int, asked: str, message: str, ours: bool) -> None:
    reader = RecordReader()
    (record,) = [*reader.feed(line.encode() + b"\n"), *reader.end()]
    assert response_of(record) == (status, asked, message, ours)


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503 Service Unavailable',
        'INFO:     1.2.3.4:5 - "HEAD /v1/models HTTP/1.1" 404 Not Found',
        "liverl-proxy: 404 GET /nothing",
        "liverl-proxy: generation 1 is serving on 127.0.0.1:44373; replicas: 2",
        'INFO httpx HTTP Request: GET http://10.0.0.1:8002/v1/models "HTTP/1.1 404 Not Found"',
        "the agent was told 404 POST /v1/messages",
        "Error code: 7 - {}",
    ],
)
def test_what_is_no_request(line: str) -> None:
    reader = RecordReader()
    (record,) = [*reader.feed(line.encode() + b"\n"), *reader.end()]
    assert response_of(record) is None


@pytest.mark.parametrize(
    "path",
    [
        *("/update_weights", "/update_weights_from_tensor", "/update_weight_version", "/start_weight_update"),
        *("/collective_rpc", "/sleep?level=2", "/wake_up", "/reset_prefix_cache", "/flush_cache"),
        *("/release_memory_occupation", "/resume_memory_occupation", "/v1/load_lora_adapter"),
    ],
)
@pytest.mark.parametrize(("status", "failed"), [("200 OK", 0), ("500 Internal Server Error", 1)])
def test_an_update_of_weights_is_no_traffic(run: Followed, path: str, status: str, failed: int) -> None:
    update = OK.replace("/v1/chat/completions", path).replace("200 OK", status)
    assert path in update
    run.write("r0", OK, update)
    one = facts(run)
    assert (one.answered.since(0), sum(f.counted.since(0) for f in one.failed)) == (1, failed)


def test_what_a_trainer_asks_of_the_sessions_is_no_request_of_a_trial(run: Followed) -> None:
    """It would look as if most of the agents' requests succeeded."""
    head = "2026-11-24 17:00:00,1 INFO liverl-sessions: "
    for path in ("/sessions", "/sessions/t-1/finish", "/sess/t-1/v1/messages"):
        run.write("r0", f'{head}unix "POST {path} HTTP/1.1" 200, 0.001 s')
    assert facts(run).answered.since(0) == 1


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_each_request_that_may_change_weights_is_an_update(route: str) -> None:
    assert route.startswith(UPDATES)


def test_lines_are_counted_once_as_they_are_written(run: Followed) -> None:
    run.write("r0", BAD, OK, WAIT)
    one = facts(run)
    assert failed(one) == {(400, ""): 1} and complaints(one) == {"vllm-broadcast-wait": 1}
    assert (one.answered.since(0), one.healthy_at is not None) == (1, True)
    assert complaints(facts(run)) == {"vllm-broadcast-wait": 1}
    text = f"{BAD}\n"
    with run.path("r0").open("a") as file:
        file.write(text[:40])
        file.flush()
        assert failed(facts(run)) == {(400, ""): 1}, "half a line"
        file.write(text[40:])
        file.flush()
        assert failed(facts(run)) == {(400, ""): 2}
    (last,) = facts(run).failed
    assert run.path("r0").read_bytes()[last.last.offset :].decode() == text


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("status", [404, 503])
def test_a_request_of_a_client_that_failed_is_found_among_lines_without_news(
    run: Followed, version: str, status: int
) -> None:
    """Such a line has neither the word error nor a text of the catalogue."""
    told = f'INFO httpx HTTP Request: POST http://10.0.0.1:80/v1/messages "HTTP/{version} {status} It failed"'
    run.write("trainer", *[f"step {number} goes on" for number in range(9)], told, *["goes on"] * 9)
    assert failed(facts(run)) == {(status, ""): 1}


def test_an_error_explains_the_request_behind_it_and_no_other(run: Followed) -> None:
    run.write("r0", "ERROR 01-30 16:17:00 [serving_chat.py:222] ValueError: no such tool", BAD, BAD)
    assert failed(facts(run)) == {(400, "ValueError: no such tool"): 1, (400, ""): 1}
    run.write("r0", "ERROR 01-30 16:17:00 [a.py:2] ValueError: long ago", *["x" * 80] * (BEFORE // 80), BAD)
    assert failed(facts(run)) == {(400, "ValueError: no such tool"): 1, (400, ""): 2}


def test_a_traceback_that_is_written_in_pieces(run: Followed) -> None:
    log = FollowedLog("r0", run.path("r0"))
    head = (
        'ERROR the tool failed\nTraceback (most recent call last):\n  File "a.py", line 3, in run\n    go()\n'
    )
    for text in (head, "    ^^^^\nsubprocess.TimeoutExpired: the command hung\n", "on\n", f"{BAD}\n"):
        with run.path("r0").open("a") as file:
            file.write(text)
        run.live.look([log], run.now)
    run.live.look([log], run.now)
    (one,) = run.live.facts
    assert failed(one) == {(400, "subprocess.TimeoutExpired: the command hung"): 1}


def test_requests_that_failed_for_the_same_reason_are_one(run: Followed) -> None:
    for i in range(3):
        run.write("r0", f"ERROR 01-30 16:17:00 [s.py:2] Error: request chat-{i}f00 has {900 + i} tokens", BAD)
    assert list(failed(facts(run)).values()) == [3]


def test_ray_merges_equal_lines(run: Followed) -> None:
    run.write("trainer", f"(EngineCore pid=7) {WAIT} [repeated 3x across cluster]", "(EngineCore pid=7) on")
    assert complaints(facts(run)) == {"vllm-broadcast-wait": 4}


def test_what_is_older_than_the_window_is_forgotten(run: Followed) -> None:
    run.path("r0").touch()
    run.look()
    run.write("r0", BAD, WAIT, OK)
    assert failed(facts(run)) == {(400, ""): 1}
    one = facts(run, WINDOW_S - SLOT_S)
    assert failed(one) == {(400, ""): 1}
    one = facts(run, 2 * SLOT_S)
    assert (one.failed, one.complaints, one.answered.since(0)) == ((), (), 0)


def test_keys_are_bounded(run: Followed) -> None:
    run.write("r0", *[BAD.replace("completions", "x" * (i + 1)) for i in range(2 * MOST_KEYS)])
    one = facts(run)
    assert len(one.failed) == MOST_KEYS
    assert one.failed[-1].request.endswith("x" * 2 * MOST_KEYS), "the newest are kept"
    oldest = one.failed[0].request
    run.write(
        "r0",
        *[BAD.replace("completions", "x" * (oldest.count("x") if i == 0 else i + 500)) for i in range(9)],
    )
    requests = [failed.request for failed in facts(run).failed]
    assert oldest in requests and one.failed[1].request not in requests, "what was seen again stays"


def test_a_log_that_is_replaced_is_read_from_its_start(run: Followed) -> None:
    run.write("r0", BAD, BAD, OK)
    facts(run)
    os.truncate(run.path("r0"), 0)
    run.write("r0", WAIT)
    one = facts(run)
    assert complaints(one) == {"vllm-broadcast-wait": 1} and one.complaints[0].last.offset == 0
    assert one.complaints[0].last.at == run.now, "what was known of its times is over"
    assert failed(one) == {(400, ""): 2}


def test_a_log_that_is_missing_or_unreadable_hides_no_other(run: Followed) -> None:
    run.write("r0", BAD)
    (run.run_dir / "folder").mkdir()
    live = LiveLogs(run.run_dir)
    logs = [FollowedLog("gone", run.run_dir / "gone.log"), FollowedLog("folder", run.run_dir / "folder")]
    live.look([*logs, FollowedLog("r0", run.path("r0"))], run.now)
    live.look([*logs, FollowedLog("r0", run.path("r0"))], run.now)
    assert {one.service for one in live.facts if one.failed} == {"r0"}
    assert list(live.unreadable) == [run.run_dir / "folder"]


def test_only_the_newest_process_of_a_service_is_followed(run: Followed) -> None:
    path = run.path("r0")
    path.write_text(f"{BAD}\n" * 3)
    start = path.stat().st_size
    run.write("r0", WAIT)
    live = LiveLogs(run.run_dir)
    log = FollowedLog("r0", path, start)
    live.look([log], run.now)
    live.look([log], run.now)
    (one,) = live.facts
    assert one.failed == () and complaints(one) == {"vllm-broadcast-wait": 1}
    live.look([], run.now)
    assert live.facts == ()


# --- logs of others, whose lines have no times but those that they state ------------------------------------


STAMPED = "{} - LiteLLM Router:ERROR: router.py:1 - BadRequestError: too long"


@pytest.mark.parametrize(
    ("ago", "between", "counted", "undated"),
    [
        (60.0, 0, 3, 0),
        (3000.0, 0, 0, 0),  # before the window, although the log was written just now
        (3000.0, 1000, 0, 3),  # too far behind the last stamp
        (60.0, 1000, 0, 3),
        (None, 0, 0, 3),
    ],
)
def test_requests_of_before_the_watch_have_the_times_of_their_stamps(
    run: Followed, ago: float | None, between: int, counted: int, undated: int
) -> None:
    if ago is not None:
        run.write("r0", STAMPED.format(time.strftime("%H:%M:%S", time.localtime(run.now - ago))))
    run.write("r0", *[POLL] * between, *[BAD] * 3)
    live = LiveLogs(run.run_dir, foreign=True)
    log = FollowedLog("r0", run.path("r0"))
    for _ in range(2):
        live.look([log], run.now)
    (one,) = live.facts
    assert (sum(each.counted.since(0.0) for each in one.failed), one.undated) == (counted, undated)
    run.write("r0", BAD)  # what comes from now on comes now
    for _ in range(2):
        live.look([log], run.now + 1)
    (one,) = live.facts
    assert (sum(each.counted.since(0.0) for each in one.failed), one.undated) == (counted + 1, undated)


# --- restarts of the backend, and large logs --------------------------------------------------------------


def test_a_backend_that_takes_over_counts_what_the_one_before_it_saw(tmp_path: Path) -> None:
    began = time.time() - 1000.0
    first = Followed(tmp_path, began)
    index = TailIndex(first.path("r0"))
    for lines in ([BAD] * 7, [WAIT], [BAD, BAD, OK]):
        first.write("r0", *lines)
        index.tick(first.now)
        seen = facts(first, 140.0)
    again = Followed(tmp_path, first.now)
    again.path("r0")
    one = facts(again, 0)
    assert failed(one) == {(400, ""): 2} == failed(seen), "the first seven are too old"
    assert complaints(one) == {"vllm-broadcast-wait": 1} == complaints(seen)
    assert complaints(facts(again)) == complaints(one)
    for older, newer in zip(seen.complaints, one.complaints, strict=True):
        assert abs(older.last.at - newer.last.at) <= 141.0 and older.last.offset == newer.last.offset
    assert failed(facts(again, 40.0)) == {(400, ""): 2}
    assert complaints(facts(again)) == {}, "its age counts from when it was written"


def test_answers_behind_lines_without_news_have_the_time_of_their_own_lines(tmp_path: Path) -> None:
    """Of an old log that repeats a line, more is passed over at a time than has one time."""
    first = Followed(tmp_path, time.time() - 200.0)
    index = TailIndex(first.path("r0"))
    first.write("r0", *["a line without news 7"] * (2 * OLD_BLOCK // 20))
    index.tick(first.now)
    first.now += 120.0
    first.write("r0", *["a line without news 8"] * (OLD_BLOCK // 20), OK)
    index.tick(first.now)
    again = Followed(tmp_path, first.now)
    again.path("r0")
    one = facts(again, 0)
    assert one.answered.since(first.now - 60.0) == 1
    assert one.healthy_at is not None and one.healthy_at >= first.now - 1.0


def test_an_old_log_without_an_index_is_passed_over(run: Followed) -> None:
    run.write("r0", BAD, WAIT)
    old = run.now - 2 * WINDOW_S
    os.utime(run.path("r0"), (old, old))
    one = facts(run)
    assert (one.failed, one.complaints) == ((), ())
    run.write("r0", BAD)
    assert failed(facts(run)) == {(400, ""): 1}


def test_of_a_large_log_the_end_is_read(run: Followed) -> None:
    line = f"{OK}\n".encode()
    with run.path("r0").open("wb") as file:
        file.write(line * (3 * MOST // len(line)))
        file.write(f"{BAD}\n".encode())
    one = facts(run)
    assert failed(one) == {(400, ""): 1}
    assert MOST < one.left_out < 3 * MOST
    assert run.path("r0").read_bytes()[one.failed[0].last.offset :].startswith(BAD.encode())


def test_of_a_flood_of_errors_a_part_is_read(run: Followed) -> None:
    line = f"{BAD}\n".encode()
    run.path("r0").touch()
    run.look()
    with run.path("r0").open("ab") as file:
        file.write(line * (MOST // len(line)))
    one = facts(run)
    (number,) = failed(one).values()
    assert MOST_FED // len(line) <= number <= (MOST_FED + BLOCK) // len(line) + 1
    assert abs(one.left_out + number * len(line) - MOST) < 2 * BLOCK
    run.write("r0", WAIT)
    assert complaints(facts(run)) == {"vllm-broadcast-wait": 1}
    (complaint,) = facts(run).complaints
    assert WAIT in run.path("r0").read_bytes()[complaint.last.offset :].decode(), (
        "offsets are right behind it"
    )


@pytest.mark.parametrize("tail", [b"", b"\n"])
def test_a_line_without_an_end_is_no_flood(run: Followed, tail: bytes) -> None:
    run.write("r0", BAD)
    facts(run)
    for _ in range(5):
        with run.path("r0").open("ab") as file:
            file.write(b"\rx" * LONGEST + tail)
        facts(run)
        assert len(run.live._readers[run.path("r0")]._rest) <= LONGEST
    with run.path("r0").open("ab") as file:
        file.write(f"\n{BAD}\n".encode())
    assert failed(facts(run)) == {(400, ""): 2}


def test_a_line_without_news_hides_none_that_differs_in_its_digits(run: Followed) -> None:
    """Lines in which nothing was found are not searched again, and are told apart without their digits."""
    run.path("r0").touch()
    run.look()
    with_digits = [row for row in watched(rows()) if re.search(r"\d", row.needle)]
    assert with_digits
    for number, row in enumerate(with_digits, 1):
        other = row.fires.translate(str.maketrans("0123456789", "9999999999"))
        run.write("r0", *[other] * 3)
        run.look()
        run.write("r0", row.fires)
        assert complaints(facts(run)).get(row.id, 0) >= 1, (number, row.id)
    run.write("r1", POLL, POLL.replace("200", "204"), BAD.replace("400", "200"))
    run.look()
    run.write("r1", BAD)
    assert failed(run.look()[1]) == {(400, ""): 1}


@pytest.mark.parametrize(
    "sign",
    [OK, "Avg generation throughput: 7.5 tokens/s", "step:7 - reward 1", "method=POST x status_code=200 y"],
)
def test_a_sign_of_work_is_one_each_time(run: Followed, sign: str) -> None:
    run.path("r0").touch()
    run.look()
    for _ in range(3):
        run.write("r0", sign)
        assert facts(run).healthy_at == run.now


def test_what_is_known_of_one_log_changes_nothing_of_another(run: Followed, tmp_path: Path) -> None:
    lines = [line for row in watched(rows()) for line in ("a line without news 7", row.spares, row.fires, OK)]
    for name in ("r0", "r1"):
        run.path(name).touch()
        run.look()
        for number in range(0, len(lines), 40):
            run.write(name, *lines[number : number + 40])
            run.look()
    first, second = run.live.facts
    assert complaints(first) == complaints(second) and len(complaints(first)) > 10
    assert failed(first) == failed(second)


def test_among_many_lines_without_news_each_other_one_of_an_old_log_is_read(run: Followed) -> None:
    """What was written before the backend began is read in small blocks, and in large ones where lines repeat."""
    dull = ["a line without news 7"] * (OLD_BLOCK // 10)
    run.write("r0", *dull, OK, *dull, BAD, *dull, WAIT, *dull, BAD, OK)
    one = facts(run)
    assert (failed(one), list(complaints(one).values())) == ({(400, ""): 2}, [1])
    assert (one.answered.since(0), one.left_out) == (2, 0) and one.healthy_at is not None


def test_lines_without_news_are_searched_once(run: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that prints one line without an end costs next to nothing."""
    searched: list[bytes] = []

    def search(block: bytes, kinds: bytes, needles: Iterable[tuple[bytes, bytes]]) -> bool | None:
        searched.append(kinds)
        return whole_search(block, kinds, needles)

    whole_search = reader._matters
    monkeypatch.setattr(reader, "_matters", search)
    run.path("r0").touch()
    run.look()
    for number in range(20):
        run.write("r0", *[f"step {number} of {10**6} is done"] * 100)
        run.look()
    assert [kinds.strip() for kinds in searched] == [b"step  of  is done"]


def test_lines_that_never_come_again_do_not_fill_the_memory() -> None:
    dull = DullLines()
    for number in range(40):
        lines = {f"{number} {other} {'x' * 90}".encode() for other in range(500)}
        assert dull.others(lines) == lines
        dull.add(lines)
        assert dull.others(lines) == set() and dull.size <= MOST_DULL
    large = {b"x" * (MOST_DULL + 1)}
    dull.add(large)
    assert dull.others(large) == large and dull.size <= MOST_DULL


def test_a_log_without_news_is_read_without_the_rows(run: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """To unpack all rows takes 10 ms and some MiB, which most backends need never."""
    run.live = LiveLogs(run.run_dir, Matcher(lambda: pytest.fail("rows were unpacked"), outlines))
    run.path("r0").touch()
    run.look()
    run.write("r0", "a line without news", OK)
    assert facts(run).answered.since(0) == 1


def test_records_across_blocks(run: Followed) -> None:
    """A record that goes on in the next block, and quiet blocks between: every failing request is counted."""
    quiet = "INFO 07-15 15:33:47 [x.py:1] " + "quiet " * 20
    for _ in range(3):
        run.write("r0", "ERROR 07-15 15:33:47 [s.py:2] ValueError: no such tool", BAD)
        run.write("r0", *[quiet] * (3 * BLOCK // len(quiet)))
    assert failed(facts(run)) == {(400, "ValueError: no such tool"): 3}


def test_what_began_a_flood_is_read(run: Followed) -> None:
    """The lines right before a flood, also a record that goes on where nothing is read."""
    run.write("r0", OK)
    facts(run)
    error = "ERROR 07-15 15:33:47 [s.py:2] ValueError: no such tool"
    quiet = f"{OK}\n" * (HEAD // (len(OK) + 1) - 4)
    with run.path("r0").open("ab") as file:
        file.write(f"{error}\n{BAD}\n{quiet}{error}\n{BAD}\n".encode())
        file.write(f"{OK}\n".encode() * (3 * MOST // len(OK)))
    one = facts(run)
    assert failed(one) == {(400, "ValueError: no such tool"): 2}
    assert one.left_out > MOST


def test_of_a_flood_that_lasts_a_part_is_read(run: Followed) -> None:
    """``RATE`` bytes per second, and ``MOST`` again after a while in which little was written."""
    run.write("r0", OK)
    facts(run, 60.0)
    line = f"{OK}\n".encode()
    read, left_out = [], 0
    for size, later in ((4 * MOST, 0.0), (4 * MOST, 2.0), (4 * MOST, 1.0), (RATE // 2, 1.0), (MOST, 60.0)):
        grown = line * (size // len(line))
        with run.path("r0").open("ab") as file:
            file.write(grown)
        before, left_out = left_out, facts(run, later).left_out
        read.append(len(grown) - (left_out - before))
    for found, expected in zip(read, (HEAD + MOST, 2 * RATE, RATE, RATE // 2, MOST), strict=True):
        assert abs(found - expected) < 3 * BLOCK, read


@pytest.mark.parametrize(
    "line, works",
    [
        (OK, True),
        ("INFO: method=POST path=/v1/chat status_code=200 took 3 ms", True),
        ("INFO: Avg generation throughput: 12.0 tokens/s, Running: 1 reqs", True),
        ("INFO: Avg generation throughput: 0.0 tokens/s, Running: 1 reqs", False),
        ("step:12 - reward:0.5", True),
        ("trainer step:12 - reward:0.5", True),
        ('INFO: 127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK', False),
        ("footstep:12 - reward:0.5", False),
    ],
)
def test_signs_of_work_among_lines_that_do_not_matter(run: Followed, line: str, works: bool) -> None:
    run.write("r0", "INFO: starting")
    assert facts(run).healthy_at is None
    run.write("r0", *["INFO: quiet"] * 20, line, *["INFO: quiet"] * 20)
    assert (facts(run).healthy_at is not None) == works


def test_slots_of_a_counter() -> None:
    counter = Counter()
    for at in (0.0, SLOT_S - 1, SLOT_S + 1):
        counter.add(at, 2)
    assert counter.counted().times == ((0.0, 4), (SLOT_S + 1, 2))
    assert counter.counted().since(SLOT_S) == 2
    assert counter.expire(WINDOW_S + 1) and counter.counted().times == ((SLOT_S + 1, 2),)
    assert not counter.expire(2 * WINDOW_S)
