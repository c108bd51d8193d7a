"""Bytes that are no JSON are told by everything that reads JSON in the same way, however they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.session_host import SessionHost

from liverl.agents import settings as agent_settings
from liverl.control.messages import ProtocolMismatch, decode_incoming
from liverl.embedded.modeldir import read_config
from liverl.observe.history import read_history
from liverl.observe.trials.step_times import StepTimes
from liverl.sessions import settings as session_settings
from liverl.sessions.journal import DamagedJournal, read_journal


def script(_before: str, _turn: int) -> str:
    return "hi"


BAD = {
    "not JSON": b"}{",
    "cut": b'{"a": [1, 2',
    "another type": b'"text"',
    "not UTF-8": b'{"a": "caf\xe9", "id": "\xff", "type": "\xff", "trials_dirs": ["\xff"], "event": "\xff"}',
    "nested deeply": b"[" * 100_000,
    "nested deeply, and closed": b'{"a":' * 900 + b"1" + b"}" * 900,
    "a number of 10,000 digits": b'{"a": ' + b"1" * 10_000 + b"}" + b"x",
    "NUL": b"\0",
    "another encoding": '{"a": 1}'.encode("utf-16"),
    "nothing": b"",
}
KEY = {"Authorization": "Bearer control-key"}


@pytest.fixture(params=sorted(BAD))
def bad(request: pytest.FixtureRequest) -> bytes:
    return BAD[request.param]


def config(folder: Path, data: bytes) -> object:
    (folder / "config.json").write_bytes(data)
    return read_config(folder)


def of_agents(folder: Path, data: bytes) -> object:
    (folder / "trainer.json").write_bytes(data)
    return agent_settings.read_settings(folder / "trainer.json")


def of_sessions(folder: Path, data: bytes) -> object:
    (folder / "settings.json").write_bytes(data)
    return session_settings.read_settings(folder / "settings.json")


def journal(folder: Path, data: bytes) -> object:
    (folder / "x.jsonl").write_bytes(data + b"\n")
    return read_journal(folder / "x.jsonl")


def message(_folder: Path, data: bytes) -> object:
    return decode_incoming(data)


REFUSED: list[tuple[Callable[[Path, bytes], object], type[Exception]]] = [
    (config, ValueError),
    (of_agents, ValueError),
    (of_sessions, ValueError),
    (journal, DamagedJournal),
    (message, ProtocolMismatch),
]


@pytest.mark.parametrize(("read", "error"), REFUSED, ids=[read.__name__ for read, _ in REFUSED])
def test_a_file_that_is_needed_is_refused_by_its_own_error(
    tmp_path: Path, bad: bytes, read: Callable[[Path, bytes], object], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        read(tmp_path, bad)
    assert not isinstance(raised.value, UnicodeDecodeError)


def history(folder: Path, line: bytes) -> object:
    (folder / "history.jsonl").write_bytes(b'{"at":1.0}\n' + line + b'\n{"at":2.0}\n')
    return [sample.at for sample in read_history(folder)]


def steps(folder: Path, line: bytes) -> object:
    step = b'{"at":%d.0,"kind":"step","text":"","data":{"step":%d}}\n'
    marked = line.replace(b"{", b'{"kind":"step",', 1)  # the others are not even looked at
    (folder / "events.jsonl").write_bytes(step % (1, 1) + marked + b"\n" + step % (2, 2))
    times = StepTimes(folder)
    times.poll()
    return len(times.finished)


@pytest.mark.parametrize("read", [history, steps])
def test_a_line_of_many_is_passed_over(
    tmp_path: Path, bad: bytes, read: Callable[[Path, bytes], object]
) -> None:
    clean = tmp_path / "clean"
    clean.mkdir()
    without = read(clean, b"")
    assert without in ([1.0, 2.0], 2), "the two whole lines are read"
    assert read(tmp_path, bad) == without


@pytest.mark.parametrize("method_and_path", ["POST /sessions", "PUT /backends"])
async def test_a_wrong_body_of_the_trainer_is_400(
    host: SessionHost, bad: bytes, method_and_path: str
) -> None:
    method, path = method_and_path.split()
    url = host.control_address + path
    async with host.http.request(method, url, data=bad, headers=KEY) as answer:
        assert answer.status == 400
        assert "the body is wrong" in (await answer.json())["error"]["message"]
