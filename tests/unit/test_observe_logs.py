"""Tails and time indexes of logs."""

from __future__ import annotations

from pathlib import Path

from liverl.logs.last_lines import TailIndex, last_lines, time_of


def test_last_lines_are_what_a_terminal_shows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n\x1b[32mtwo\x1b[0m\r\n 10%\r 20%\r100%\n\n\xff\n")
    assert last_lines(log, 3) == ["two", "100%", "�"]
    assert last_lines(log, 99, max_bytes=8) == ["�"], "no half line at the beginning"
    assert last_lines(tmp_path / "none", 3) == []


def test_index_grows_with_the_log_and_survives_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "log"
    index = TailIndex(log)
    assert not index.tick(99.0), "no log yet"
    log.write_bytes(b"a" * 10)
    assert index.tick(100.0)
    assert not index.tick(100.5), "at most one entry a second"
    assert not index.tick(102.0), "the log did not grow"
    log.write_bytes(b"a" * 30)
    again = TailIndex(log)
    assert again.tick(103.0)
    assert not again.tick(104.5)
    assert index.path.read_text() == "10 100.000\n30 103.000\n"
    assert [time_of(log, offset) for offset in (0, 9, 10, 29, 30)] == [100.0, 100.0, 103.0, 103.0, None]
    assert time_of(tmp_path / "none", 0) is None


def test_a_torn_index_entry_is_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a" * 20)
    Path(f"{log}.idx").write_text("10 100.000\n2")
    index = TailIndex(log)
    assert index.tick(105.0)
    assert time_of(log, 5) == 100.0
