"""Access lines of polls and model calls: which they are, and a log view without them."""

from __future__ import annotations

import itertools
import logging
import socket
import tempfile
import time
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liverl.logs import picking, segment
from liverl.logs.access_lines import is_access_line
from liverl.logs.prefixes import plain
from liverl.logs.query import Picked, Query, needle
from liverl.sessions import access_log, routes
from liverl.sessions.__main__ import LOG_FORMAT
from liverl.sessions.access_log import access_logger, access_logger_class
from liverl.sessions.service import http_server
from liverl.util.http_server import Caller
from liverl_tui.widgets.log import seek
from liverl_tui.widgets.log.frame import Filter, Frame
from liverl_tui.widgets.log.rows import rows_of
from liverl_tui.widgets.log.session import LogSession

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
ROUTES = ("RENDER", "DERENDER", "GENERATE", "DETOKENIZE")
CALL = '(APIServer pid=1) INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


@pytest.mark.parametrize(
    "line",
    [
        CALL,
        'INFO:     10.0.146.90:32771 - "GET /health HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /health/liveliness HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /metrics?name=x HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /policy_version HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /v1/models HTTP/1.1" 200 OK',
        'INFO:     [::1]:1 - "POST /v1/messages?beta=true HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "POST /openai/deployments/policy/chat/completions HTTP/1.1" 201 Created',
        '127.0.0.1 - - [20/Nov/2026 10:00:00] "GET /metrics HTTP/1.1" 200 -',
        '10.1.1.1 [20/Nov/2026:10:00:00 +0000] "GET /health HTTP/1.1" 204 150 "-" "curl/8"',
        '(vLLMHttpServer pid=4, ip=10.0.0.1) INFO:     10.0.0.2:1 - "POST /generate HTTP/1.1" 200 OK '
        "[repeated 31x across cluster]",
        '2026-11-27 09:00:01,861 INFO liverl-sessions: 127.0.0.1 "POST /sess/t-1-aa/v1/chat/completions HTTP/1.1" 200, '
        "0.255 s",
        '2026-11-27 09:00:01,970 INFO liverl-sessions: unix "POST /sessions/t-1-aa/finish HTTP/1.1" 200, 0.010 s',
        '2026-11-27 09:00:01,986 INFO liverl-sessions: unix "POST /sessions HTTP/1.1" 201, 0.002 s',
        '2026-11-27 09:00:01,986 INFO liverl-sessions: ::1 "GET /sess/t/v1/models HTTP/1.1" 200, 12.002 s',
    ],
)
def test_polls_and_model_calls_that_succeeded(line):
    assert is_access_line(line)


@pytest.mark.parametrize("path", [value for name, value in vars(routes).items() if name in ROUTES])
def test_what_our_sessions_ask_of_an_engine_for_every_turn(path):
    assert is_access_line(CALL.replace("/v1/chat/completions", path))
    assert not is_access_line(CALL.replace("/v1/chat/completions", path).replace("200 OK", "400 Bad Request"))


@pytest.mark.parametrize(
    "line",
    [
        "",
        '"',
        CALL.replace("200 OK", "500 Internal Server Error"),
        CALL.replace("200 OK", "408 Request Timeout"),
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
        'INFO:     127.0.0.1:1 - "POST /update_weights HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "POST /v1/load_lora_adapter HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "POST /model/new HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "DELETE /v1/models HTTP/1.1" 200 OK',
        'ERROR: the probe said "GET /health HTTP/1.1" 200 OK',
        CALL + ", but the answer had no choices",
        CALL + " " + "x" * 5000,
        'ERROR said: "no" - "GET /health HTTP/1.1" 200 OK',
        '2026-11-27 09:00:01,861 INFO liverl-sessions: ::1 "POST /sess/t/v1/messages HTTP/1.1" 404, 0.003 s',
        '2026-11-27 09:00:01,861 INFO liverl-sessions: ::1 "POST /sess/t/v1/messages HTTP/1.1" 503, 90.003 s',
        '2026-11-27 09:00:01,861 INFO liverl-sessions: ::1 "POST /other HTTP/1.1" 200, 0.003 s',
        '2026-11-27 09:00:01,861 WARNING liverl-sessions: "POST /sess/t/v1/messages HTTP/1.1" 200, but no answer',
        '2026-11-27 09:00:01,861 INFO other: ::1 "POST /sess/t/v1/messages HTTP/1.1" 200, 0.003 s',
    ],
)
def test_failures_and_other_lines_are_not_among_them(line):
    assert not is_access_line(line)


async def test_the_log_of_the_sessions_as_they_write_it(caplog: pytest.LogCaptureFixture) -> None:
    """A real server with the logger of the sessions, a request that succeeds and one that fails."""

    async def reply(request: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/sess/{id}/v1/chat/completions", reply)
    runner = web.AppRunner(app, access_log=access_logger, access_log_class=access_logger_class())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    with caplog.at_level(logging.INFO, access_logger.name):
        async with ClientSession(f"http://{host}:{port}") as client:
            for path in ("/sess/a/v1/chat/completions", "/sess/a/v1/other"):
                async with client.post(path, json={}):
                    pass
        await runner.cleanup()
    written = [logging.Formatter(LOG_FORMAT).format(record) for record in caplog.records]
    assert [is_access_line(line) for line in written] == [True, False], written


def test_of_many_requests_that_succeed_in_a_second_some_have_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = [100.2]
    monkeypatch.setattr(access_log.clocks, "ran", lambda: ran[0])
    made = access_logger_class()(access_logger, "")
    request = make_mocked_request("POST", "/sess/a/v1/messages")
    with caplog.at_level(logging.INFO, access_logger.name):
        for number in range(access_log.MOST + 5):
            made.log(request, web.Response(), number / 1000)
        made.log(request, web.Response(status=503), 9.0)
        made.log(request, web.Response(), 9.1)
        ran[0] = 101.0
        made.log(request, web.Response(), 9.2)
        made.log(request, web.Response(), 9.3)
    lines = [record.getMessage().rpartition('"')[2] for record in caplog.records]
    assert lines[access_log.MOST :] == [
        " 503, 9.000 s; 5 more succeeded before",
        " 200, 9.200 s; 1 more succeeded before",
        " 200, 9.300 s",
    ]
    written = [logging.Formatter(LOG_FORMAT).format(record) for record in caplog.records[-2:]]
    assert all(map(is_access_line, written)), "hidden as the others"


async def test_the_connections_of_a_server_share_its_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent has a connection of its own, for which aiohttp makes a logger; a poll has no line to say anything."""
    monkeypatch.setattr(access_log.clocks, "ran", lambda: 100.2)

    async def reply(request: web.Request) -> web.Response:
        return web.json_response({}, status=503 if "lost" in request.path else 200)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", reply)
    server = http_server(app, lambda request: Caller(), 1 << 20)
    sock = socket.create_server(("127.0.0.1", 0))
    host, port = sock.getsockname()[:2]
    await server.start(sock)
    with caplog.at_level(logging.INFO, access_logger.name):
        asked = [("POST", f"/sess/{number}/v1/messages") for number in range(access_log.MOST + 4)]
        for method, path in (*asked, ("GET", "/health"), ("POST", "/sess/lost/v1/messages")):
            async with ClientSession(f"http://{host}:{port}") as client, client.request(method, path):
                pass
        await server.close()
    lines = [record.getMessage() for record in caplog.records if record.name == access_logger.name]
    assert len(lines) == access_log.MOST + 1
    assert lines[-1].endswith("; 4 more succeeded before")


@pytest.mark.parametrize(
    ("name", "hidden", "with_http"),
    # counted with grep: all that succeeded are polls and model calls
    [("litellm_backend_down.log", 63, 67), ("litellm_startup.log", 8, 10), ("vllm_startup.log", 1, 1)],
)
def test_in_logs_of_real_servers(name, hidden, with_http):
    lines = [plain(line) for line in (RECORDINGS / name).read_text(errors="replace").split("\n")]
    requests = [line for line in lines if 'HTTP/1.1"' in line]
    assert (sum(map(is_access_line, lines)), len(requests)) == (hidden, with_http)


def test_a_query_leaves_them_out_counts_them_and_spares_those_that_are_searched():
    text = f"a\n{CALL}\nb\n{CALL.replace('40000', '40001')}"
    assert Query().pick(text, "") == Picked([0, 1, 2, 3])
    assert Query(without_routine=True).pick(text, "") == Picked([0, 2], [1, 3])
    assert Query(without_routine=True, spared=needle("40001")).pick(text, "") == Picked([0, 2, 3], [1])
    assert Query((needle("1"),), without_routine=True).pick(text, "") == Picked([], [1, 3])
    assert Query(exclude=(needle("40001"),), without_routine=True).pick(text, "") == Picked([0, 2], [1])


RAY = "(TaskRunnerV1 pid=2809) "
BAR = "Training Progress:  50%|█████     | 8/16 [01:28<01:18,  9.77s/it]"


@pytest.mark.parametrize(
    "bar",
    [
        BAR,
        f"{RAY}{BAR}",
        "Training Progress:   0%|          | 0/16 [00:00<?, ?it/s]  ",
        "trainer-1  | 2026-11-27T09:00:01.861Z Training Progress:   1%|#4   | 16/1155 [1:02:43<27:30:48, 12.3it/s]",
        "Training Progress: 3it [00:10,  3.33s/it]",
    ],
)
def test_the_trainers_bar_is_routine_as_the_interface_has_its_own_eta(bar):
    assert Query(without_routine=True).pick(f"a\n{bar}\nb", "") == Picked([0, 2], [1])
    assert Query(without_routine=True, spared=needle("training")).pick(f"a\n{bar}\nb", "") == Picked(
        [0, 1, 2]
    )
    assert Query().pick(bar, "") == Picked([0])


@pytest.mark.parametrize(
    "line",
    [
        f"{BAR}{RAY}step:8 - actor/entropy:0.048",  # what stands behind a bar is a line of its own
        BAR.replace("Training Progress", "Loading safetensors checkpoint shards"),
        "Training Progress: see [1] and below",
        "a Training Progress: is made [by tqdm] here",
        "Training Progress:",
        f"ValueError: loss is not finite {BAR}",  # written without a newline behind it
        f"2026-11-27 09:00:01,861 ERROR trainer: checkpoint failed {BAR}",
        f"{RAY}Killed {BAR}",
        BAR.replace("|█████     |", "| torch.OutOfMemoryError: CUDA out of memory |"),
        BAR.replace("9.77s/it", "9.77s/it, loss=nan"),
    ],
)
def test_no_bar_of_the_trainer(line):
    assert Query(without_routine=True).pick(line, "") == Picked([0])


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 4 KiB, so that a small file has many."""
    monkeypatch.setattr(segment, "BLOCK", 4096)
    monkeypatch.setattr(picking, "BLOCK", 4096)
    monkeypatch.setattr(segment, "LONG", 64)
    monkeypatch.setattr(seek, "NEAR", 16384)
    monkeypatch.setattr(seek, "FRESH", 4096)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the size of a block stays the same
@given(
    st.lists(st.sampled_from([CALL, "a line", "x" * 300, ""]), max_size=40),
    st.lists(st.integers(1, 400), max_size=40),
)
def test_a_file_that_grows_in_pieces_has_the_same_lines_hidden_as_at_once(small_blocks, lines, sizes):
    whole = "".join(f"{line}\n" for line in lines).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proxy.log"
        path.write_bytes(b"")
        log = segment.Segment(path)
        log.look(0.0)
        matches = picking.Matches(Query(without_routine=True))
        matches.begin(log, 0)
        ends = [*itertools.accumulate(sizes), len(whole)]
        for begin, end in itertools.pairwise([0, *(end for end in ends if end < len(whole)), len(whole)]):
            with path.open("ab") as out:
                out.write(whole[begin:end])
            log.look(0.0)
            while matches.newer(log) is not None:
                matches.step_newer(log)
            complete = whole[: whole.rfind(b"\n", 0, end) + 1]
            assert matches.hidden([log]) == complete.count(b"HTTP/1.1")
        offsets = itertools.accumulate((len(line) + 1 for line in lines), initial=0)
        shown = [at for at, line in zip(offsets, lines, strict=False) if line != CALL]
        assert matches.after(log, 0, 1000).offsets == shown
        log.close()


def test_of_a_block_that_grows_only_what_is_new_is_searched(tmp_path, monkeypatch):
    path = tmp_path / "proxy.log"
    path.write_text(f"{CALL}\na line\n" * 500)
    log = segment.Segment(path)
    log.look(0.0)
    matches = picking.Matches(Query(without_routine=True))
    matches.begin(log, 0)
    matches.step_newer(log)
    texts: list[str] = []
    pick = Query.pick
    monkeypatch.setattr(
        Query, "pick", lambda query, text, above: texts.append(text) or pick(query, text, above)
    )
    for more in ("new\n", "half a ", "line\n"):
        with path.open("a") as out:
            out.write(more)
        log.look(1.0)
        matches.step_newer(log)
    assert texts == ["new", "half a ", "half a line"]
    assert (matches.total([log]), matches.hidden([log])) == (502, 500)


# --- a view


def opened(path: Path) -> LogSession:
    view = LogSession(rows_of)
    view.resize(100, 5)
    view.open(path)
    view.poll()
    return view


def finish(view: LogSession) -> Frame:
    give_up = time.monotonic() + 60
    while view.work(0.01):
        assert time.monotonic() < give_up
    return view.frame()


def shown(frame: Frame) -> list[str]:
    return [line.copy for line in frame.lines]


def selected(frame: Frame) -> str:
    assert frame.cursor is not None
    return frame.lines[frame.cursor].copy


def write(path: Path, count: int, begin: int = 0, calls: int = 20) -> None:
    """Lines of a trainer, each behind so many model calls."""
    with path.open("a") as out:
        out.write("".join(f"{CALL}\n" * calls + f"step {n}\n" for n in range(begin, begin + count)))


def test_the_view_hides_them_by_default_and_says_how_many(tmp_path):
    path = tmp_path / "a.log"
    write(path, 8)
    view = opened(path)
    frame = view.frame()
    assert shown(frame) == [f"step {n}" for n in range(3, 8)], "the first frame has them already"
    frame = finish(view)
    assert (frame.hidden, frame.all_filtered, frame.scanned) == (160, True, None)
    view.set_filter(Filter(access=True))
    frame = finish(view)
    assert shown(frame) == [CALL] * 4 + ["step 7"] and frame.hidden == 0
    view.set_filter(Filter(include=needle("step")))
    assert shown(finish(view))[0] == "step 3"
    view.close()


def test_only_what_is_near_the_view_is_filtered(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 2000)
    view = opened(path)
    frame = finish(view)
    assert shown(frame)[-1] == "step 1999" and not frame.all_filtered
    assert 0 < frame.hidden < 1000, "of 40,000"
    view.first()
    frame = finish(view)
    assert shown(frame) == [f"step {n}" for n in range(5)] and selected(frame) == "step 0"
    assert 0 < frame.hidden < 1000
    for _ in range(3):
        view.page(1)
        finish(view)
    assert shown(view.frame()) == [f"step {n}" for n in range(12, 17)]
    view.end()
    assert shown(finish(view))[-1] == "step 1999"
    view.page(-1)
    view.page(-1)
    assert shown(finish(view)) == [f"step {n}" for n in range(1987, 1992)]
    view.close()


def test_lines_between_thousands_of_them_are_found(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 2, calls=2000)
    view = opened(path)
    frame = finish(view)
    assert shown(frame) == ["step 0", "step 1"] and frame.hidden == 4000
    path.write_text(f"{CALL}\n" * 3000)
    view.poll()
    assert [line for line in finish(view).lines if not line.mark] == []
    view.close()


def test_it_follows_what_is_written_also_much_at_once(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 3)
    view = opened(path)
    assert shown(finish(view))[-1] == "step 2"
    write(path, 1, 3)
    view.poll()
    assert shown(finish(view))[-1] == "step 3"
    write(path, 500, 4)
    view.poll()
    frame = view.frame()
    assert shown(frame)[-1] == "step 503" and frame.hidden < 1000, "not all of it was filtered first"
    view.close()


def test_while_paused_only_lines_that_will_be_shown_count_as_new(tmp_path):
    path = tmp_path / "a.log"
    write(path, 8)
    view = opened(path)
    view.move(-1)
    assert view.frame().fresh == 0
    write(path, 3, 8)
    view.poll()
    frame = finish(view)
    assert (frame.follow, frame.fresh, selected(frame)) == (False, 3, "step 6")
    view.set_filter(Filter(access=True))
    write(path, 1, 11)
    view.poll()
    assert finish(view).fresh == 21
    view.close()


def test_a_search_shows_the_hits_that_are_hidden_otherwise(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 100)
    with path.open("a") as out:
        out.write(CALL.replace("40000", "40777") + "\n")
    write(path, 100, 100)
    view = opened(path)
    view.search(needle(":40777"))
    frame = finish(view)
    assert selected(frame) == CALL.replace("40000", "40777")
    assert frame.search is not None and (frame.search.number, frame.search.total) == (1, 1)
    assert [line for line in shown(frame) if line != selected(frame)] == [
        line for line in shown(frame) if line.startswith("step ")
    ], "others stay hidden"
    view.search(needle("step 150$"))
    assert selected(finish(view)) == "step 150", "far from the end"
    view.end_search()
    assert "step 151" in shown(finish(view))
    view.close()


def test_a_time_in_hidden_lines_leads_to_the_next_shown_one(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 200)
    half = len(path.read_bytes()) // 2
    path.with_name("a.log.idx").write_text(f"{half} 100\n{2 * half} 200\n")
    view = opened(path)
    finish(view)
    view.at_time(150.0)
    frame = finish(view)
    assert selected(frame) == "step 100" and not frame.follow
    view.close()


def test_a_line_that_was_asked_for_is_marked(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    write(path, 300)
    offset = path.read_bytes().index(b"step 100\n")
    view = opened(path)
    finish(view)
    view.show_line("a.log", path, offset + 2)
    frame = finish(view)
    assert selected(frame) == "step 100" and frame.marked == frame.cursor
    view.move(2)
    finish(view)
    view.resize(100, 2)
    assert selected(finish(view)) == "step 102", "a smaller view keeps it"
    view.end()
    assert finish(view).marked is None
    view.close()
