"""What the backend reads of a run's logs: each alone, and write errors apart from read errors."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from liverl.daemon.run_files import ServiceLog, ServiceLogs
from liverl.logs import last_lines
from liverl.model import UnreadableFile
from liverl.supervise.recovery.evidence import read_run


def test_a_log_that_is_a_fifo_is_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    (tmp_path / "b.log").write_text("x\n")
    logs = ServiceLogs(tmp_path)
    logs.look([ServiceLog(name, tmp_path / f"{name}.log", "litellm") for name in ("a", "b")], 100.0)
    assert logs.unreadable == (UnreadableFile("a.log", "not a regular file but a FIFO"),)
    assert logs.stages[tmp_path / "b.log"] == ("importing", None)
    assert last_lines.time_of(tmp_path / "b.log", 0) == 100.0
    assert logs.write_errors == ()


def test_of_a_foreign_log_only_what_comes_after_the_first_look_has_a_time(tmp_path: Path) -> None:
    logs = ServiceLogs(tmp_path, of_others=True)
    (tmp_path / "a.log").write_text("copied\n")
    for now in (100.0, 102.0):
        logs.look([ServiceLog(name, tmp_path / f"{name}.log", None) for name in ("a", "b")], now)
        for name in ("a", "b"):  # the second one is begun since
            with (tmp_path / f"{name}.log").open("a") as file:
                file.write("new\n")
    logs.look([ServiceLog(name, tmp_path / f"{name}.log", None) for name in ("a", "b")], 104.0)
    told = [
        last_lines.time_of(tmp_path / name, at) for name, at in (("a.log", 0), ("a.log", 7), ("b.log", 0))
    ]
    assert told == [None, 102.0, 102.0]


def test_a_full_disk_is_a_write_error_and_no_unreadable_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text("x\n")
    logs = ServiceLogs(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(last_lines, "append_whole", full)
    logs.look([ServiceLog("a", tmp_path / "a.log", None)], 100.0)
    assert logs.write_errors == ("a.log.idx: No space left on device",)
    assert logs.unreadable == ()
    monkeypatch.undo()
    logs.look([ServiceLog("a", tmp_path / "a.log", None)], 101.0)
    assert logs.write_errors == ()


def test_logs_that_a_launch_script_writes_elsewhere_have_times_too(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "x.log"
    elsewhere.parent.mkdir()
    elsewhere.write_text("x\n")
    (tmp_path / "trainer.1.log").write_text("x\n")
    (tmp_path / "train-log.1.log").symlink_to(elsewhere)
    logs = ServiceLogs(tmp_path)
    logs.look([ServiceLog("trainer", tmp_path / "trainer.1.log", None)], 100.0)
    assert last_lines.time_of(tmp_path / "train-log.1.log", 0) == 100.0
    assert os.listdir(elsewhere.parent) == ["x.log"], "nothing is written where the script writes"


def test_a_lost_attempt_has_no_monotonic_start_of_an_earlier_one(tmp_path: Path) -> None:
    record = '{"k":"attempt","n":1,"era":"e","at":5.0,"monotonic":7.0}\n'
    (tmp_path / "journal.jsonl").write_text(record)
    for number in (1, 2):
        (tmp_path / f"attempt_{number:03d}" / "logs").mkdir(parents=True)
    assert read_run(tmp_path, "p/n").history.attempt_monotonic == 7.0
    (tmp_path / "attempt_002" / "logs" / "a.1.log").touch()
    history = read_run(tmp_path, "p/n").history
    assert (history.attempt, history.attempt_started_at, history.attempt_monotonic) == (2, None, None)


def test_logs_that_do_not_grow_are_asked_for_once_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, written = ServiceLogs(tmp_path), [tmp_path / f"{name}.1.log" for name in ("a", "b", "trainer")]
    for path in written:
        path.write_text("x\n")
    watched = [ServiceLog(path.name.split(".")[0], path, "vllm") for path in written]
    logs.look(watched, 100.0)
    asked: Counter[str] = Counter()
    for name in ("stat", "lstat"):
        real = getattr(os, name)

        def counted(path: str | Path, *more: Any, real: Any = real, **options: Any) -> os.stat_result:
            asked[os.path.basename(path)] += 1
            return real(path, *more, **options)

        monkeypatch.setattr(os, name, counted)
    logs.look(watched, 101.0)
    assert {path.name: asked[path.name] for path in written[:2]} == {"a.1.log": 1, "b.1.log": 1}
    assert last_lines.time_of(written[0], 2) is None
    written[0].write_text("x\ny\n")
    logs.look(watched, 102.0)
    assert last_lines.time_of(written[0], 2) == 102.0
