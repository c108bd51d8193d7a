"""Connecting to a control socket whose backlog is full. Real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.waiting import wait_until

from liverl.control.paths import connect_path


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """The path of a socket that accepts nothing more, and its listener."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX)]
        waiting[-1].setblocking(False)
        while waiting[-1].connect_ex(str(path)) == 0:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
        yield path, listener
        for sock in waiting:
            sock.close()


def test_it_waits_until_there_is_room(full: tuple[Path, socket.socket]) -> None:
    path, listener = full
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(connect_path, path, 60.0)
        assert not connecting.done()
        wait_until(connecting.running, what="the attempt")
        listener.accept()[0].close()
        with connecting.result(60) as sock:
            assert sock.gettimeout() == 60.0


def test_it_gives_up_after_the_time_limit(full: tuple[Path, socket.socket]) -> None:
    path, _ = full
    began = time.monotonic()
    with pytest.raises(BlockingIOError):
        connect_path(path, 0.3)
    assert time.monotonic() - began >= 0.3
