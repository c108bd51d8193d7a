"""``liverl-tui web``: the interface in a browser, by its own server and a real process for each browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pyte
import pytest
from click.testing import CliRunner
from kit.ended_runs import a_run
from kit.terminal import clean_environment
from kit.waiting import wait_until

from liverl.util.token_guard import Token
from liverl_tui.cli.main import cli
from liverl_tui.web import page
from liverl_tui.web import server as web
from liverl_tui.web.session import Session, program

TOKEN = "right-token-of-this-test"
WAIT_S = 120
pytestmark = pytest.mark.drill
# Draws its size, and then what it is told; SIGWINCH says the size again.
ECHO = """
import os, signal, sys
def say(*_):
    size = os.get_terminal_size()
    print(f"size {size.columns} x {size.lines}", flush=True)
signal.signal(signal.SIGWINCH, say)
print("pid", os.getpid(), "terminal", os.isatty(0), os.environ["TERM"], os.environ.get("TMUX"), flush=True)
say()
for line in sys.stdin:
    print("told", line, flush=True)
"""
STUBBORN = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
while True:
    signal.pause()
"""


def told(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@asynccontextmanager
async def serving(command: list[str], folder: Path) -> AsyncIterator[tuple[web.WebServer, str]]:
    server = web.WebServer(command, "a <run>", folder)
    port = await server.listen(0, Token(TOKEN))
    try:
        yield server, f"http://127.0.0.1:{port}"
    finally:
        await server.close()


async def until(socket_: aiohttp.ClientWebSocketResponse, wanted: str, seen: str = "") -> str:
    async with asyncio.timeout(WAIT_S):
        while wanted not in seen:
            message = await socket_.receive()
            assert message.type is aiohttp.WSMsgType.BINARY, (message, seen)
            seen += message.data.decode(errors="replace")
    return seen


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(seen: str) -> int:
    found = re.search(r"pid (\d+)", seen)
    assert found
    return int(found[1])


async def test_nothing_is_answered_without_the_token(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "textual.js").write_text("x")
    async with serving(told(ECHO), tmp_path) as (_, url), aiohttp.ClientSession() as http:
        for path in (
            "/",
            "/ws",
            "/wrong/",
            "/wrong/ws",
            "/wrong/textual.js",
            "/wrong/focus.js",
            f"/{TOKEN}x/",
            f"/wrong/{TOKEN}/",
        ):
            async with http.get(url + path) as answer:
                assert answer.status == 401 and TOKEN not in await answer.text(), path
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await http.ws_connect(url + path)
        for path, headers, status in (
            (f"/{TOKEN}/", {}, 200),
            (f"/{TOKEN}/textual.js", {}, 200),
            (f"/{TOKEN}/focus.js", {}, 200),
            (f"/{TOKEN}/../{TOKEN}/other.js", {}, 404),
            (f"/{TOKEN}/..%2f..%2fetc%2fpasswd", {}, 404),
            ("/any/", {"Authorization": f"Bearer {TOKEN}"}, 200),
            (f"/{TOKEN}/", {"Host": "x;y"}, 400),
        ):
            async with http.get(url + path, headers=headers) as answer:
                assert answer.status == status, path


async def test_the_page_loads_nothing_from_another_host(tmp_path: Path) -> None:
    async with (
        serving(told(ECHO), tmp_path) as (_, url),
        aiohttp.ClientSession() as http,
        http.get(f"{url}/{TOKEN}/") as answer,
    ):
        text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer" and "Set-Cookie" not in answer.headers
    host = url.removeprefix("http://")
    assert re.findall(r"\w+://[^\"' ]+", text) == [f"ws://{host}/{TOKEN}/ws"]
    assert "<title>a &lt;run&gt;</title>" in text
    assert "default-src 'none'" in policy and f"connect-src 'self' ws://{host};" in policy
    static = page.static_folder()
    assert static is not None
    assert all((static / name).is_file() for name, _ in page.FILES.values())
    loaded = re.findall(r"(?:src|href|url)=?[\"'(]+([\w.]+)[\"')]", text)
    assert set(loaded) >= {*page.FILES, page.FOCUS} - {"italic.ttf"}, "what it loads is served"


async def test_it_listens_on_the_loopback_address_only(tmp_path: Path) -> None:
    async with serving(told(ECHO), tmp_path) as (_, url):
        port = int(url.rpartition(":")[2])
        assert {
            c.laddr.ip
            for c in psutil.Process().net_connections()
            if c.status == "LISTEN" and c.laddr.port == port
        } == {"127.0.0.1"}


async def test_keys_and_sizes_reach_a_terminal_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", "of this test")
    async with serving(told(ECHO), tmp_path) as (_, url), aiohttp.ClientSession() as http:
        seen = ""  # the page is closed before the server is
        async with http.ws_connect(f"{url}/{TOKEN}/ws?width=91&height=31") as browser:
            seen = await until(browser, "size 91 x 31")
            assert "terminal True xterm-256color None" in seen
            await browser.send_json(["stdin", "häl\r"])
            await until(browser, "told häl")
            for unknown in ("{", '["stdin"]', '["resize", {"width": "x"}]', "[" * 5000, '["other", 1]', "7"):
                await browser.send_str(unknown)
            await browser.send_json(["resize", {"width": 10**30, "height": -5}])
            await until(browser, "size 1000 x 1")
            await browser.send_json(["ping", "17"])
            while (message := await browser.receive(WAIT_S)).type is not aiohttp.WSMsgType.TEXT:
                continue
            assert json.loads(message.data) == ["pong", "17"]
            pid = pid_of(seen)
            assert alive(pid)
    await asyncio.to_thread(wait_until, lambda: not alive(pid), what=f"process {pid} ends")


async def test_a_process_that_outlives_its_terminal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl_tui.web.session.END_S", 0.2)
    session = await Session.start(told(STUBBORN), 80, 24)
    seen = b""
    while b"\n" not in seen:
        seen += await session.read()
    pid = pid_of(seen.decode())
    await session.close()
    assert not alive(pid)


async def test_the_end_of_the_interface_closes_the_page_and_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MOST", 1)
    async with serving(told(ECHO), tmp_path) as (_, url), aiohttp.ClientSession() as http:
        async with http.ws_connect(f"{url}/{TOKEN}/ws") as browser:
            await until(browser, "size")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await http.ws_connect(f"{url}/{TOKEN}/ws")
            await browser.send_json(["stdin", "\x04"])  # the end of its input
            async with asyncio.timeout(WAIT_S):
                while (await browser.receive()).type is aiohttp.WSMsgType.BINARY:
                    continue
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    async with http.ws_connect(f"{url}/{TOKEN}/ws") as browser:
                        await until(browser, "size")
                    break
                except aiohttp.WSServerHandshakeError:
                    await asyncio.sleep(0.02)  # the other one's place


async def test_an_open_page_is_no_body_that_does_not_come(tmp_path: Path) -> None:
    """The rules for connections of all our servers hold, and a websocket stays open longer than a body may take."""
    async with (
        serving(told(ECHO), tmp_path) as (server, url),
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{url}/{TOKEN}/ws") as browser,
    ):
        await until(browser, "size")
        (guarded,) = server._server._known.values()  # type: ignore[union-attr]
        guarded.give_up_late_body(time.monotonic() + 1000)  # as if so many seconds had passed
        await browser.send_json(["stdin", "still\r"])
        await until(browser, "told still")


def test_the_demo_in_a_browser_and_what_it_says_on_the_command_line() -> None:
    """The whole way: the command, its address, the real interface, a key, and Ctrl-C."""
    served = subprocess.Popen(
        program("web", "--demo", "--port", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    try:
        assert served.stdout is not None and served.stderr is not None
        url = served.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)
        assert served.stderr.readline() == "read-only; press Ctrl-C to stop this server: the run goes on\n"
        asyncio.run(_look(url))
        served.send_signal(signal.SIGINT)
        assert served.wait(WAIT_S) == 130
    finally:
        served.kill()
        served.wait()


async def _look(url: str) -> None:
    screen = pyte.Screen(120, 40)
    stream = pyte.ByteStream(screen)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}ws?width=120&height=40") as browser:
        async with asyncio.timeout(WAIT_S):
            for key, wanted in (("", "1 GPUs"), ("E", "events"), ("\x1b", "3 Logs")):
                if key:
                    await browser.send_json(["stdin", key])
                while wanted not in "\n".join(screen.display):
                    message = await browser.receive()
                    assert message.type is aiohttp.WSMsgType.BINARY, message
                    stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*u", b"", message.data))


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["web", *arguments], standalone_mode=False)
    return done.exit_code if done.exception is None else 1, str(done.exception)


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = run("--demo", "--port", str(port))
        assert (
            code
            and f"port {port} of 127.0.0.1 cannot be used: Address already in use; give another one" in said
        )
    assert "there is no folder" in run("--watch", str(tmp_path / "none"))[1]
    assert "give only one of RUN, --demo and --watch" in run("--demo", "--watch", str(tmp_path))[1]
    assert "--demo and --watch change nothing" in run("--demo", "--allow-changes")[1]
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    assert run("--demo")[1] == "the package textual-serve is not installed: pip install 'liverl-tui[web]'"


@pytest.mark.parametrize(
    ("options", "words"),
    [((), ["attach", "--run", "DIR", "--readonly"]), (("--allow-changes",), ["attach", "--run", "DIR"])],
)
def test_browsers_change_a_run_only_if_that_is_allowed(
    options: tuple[str, ...], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = a_run(tmp_path, "first")
    started: list[list[str]] = []

    def serve(words: list[str], *_: object) -> int:
        started.append(words)
        return 0

    monkeypatch.setattr("liverl_tui.cli.web._serve", serve)
    assert run("--run", str(run_dir), *options)[0] == 0
    assert started == [[str(run_dir) if word == "DIR" else word for word in words]]
