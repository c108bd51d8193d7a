"""Whatever was not looked at is listed, and is never followed by good news: neither by ``doctor`` nor in a result."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.causes.quiet import told as quiet
from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.owed import Passed
from liverl.causes.quiet.told import Told, read_told
from liverl.offline.doctor import reading as doctor_reading
from liverl.offline.doctor import rules as doctor_rules
from liverl.offline.doctor.examine import Examination, examine
from liverl.offline.doctor.report import as_json, as_text
from liverl.offline.doctor.unpacked import unpacked
from liverl_tui.cli.main import run

FINE = "all is well\n"
STEP = '{"step": %d, "data": {"actor/entropy": 0.4}}\n'


def _fine(folder: Path) -> Path:
    (folder / "fine.log").write_text(FINE)
    return folder


def packed(folder: Path) -> str:
    (folder / "train.log.1.gz").write_bytes(gzip.compress(b"x"))
    return "train.log.1.gz"


def binary(folder: Path) -> str:
    (folder / "stderr.log").write_bytes(bytes(range(1, 9)) * 100)
    return "stderr.log"


def other_encoding(folder: Path) -> str:
    (folder / "worker.out").write_bytes("ValueError: no".encode("utf-16"))
    return "worker.out"


def loop(folder: Path) -> str:
    (folder / "loop.log").symlink_to("loop.log")
    return "loop.log"


def damaged_metrics(folder: Path) -> str:
    (folder / "metrics.jsonl").write_text(STEP % 1 + "{torn\n" + STEP % 2)
    return "1 line of"


def link_behind_a_link(folder: Path) -> str:
    for name in ("one", "two"):
        (folder.parent / name).mkdir()
    (folder.parent / "one" / "logs").symlink_to(folder.parent / "two")
    (folder / "linked").symlink_to(folder.parent / "one")
    return "linked/logs"


def result_of_a_run(folder: Path) -> str:
    run_dir = folder / "run"
    (run_dir / "attempt_001" / "logs").mkdir(parents=True)
    (run_dir / "attempt_001" / "logs" / "trainer.1.log").write_text(FINE)
    (run_dir / "plan.json").write_text("{}")
    (run_dir / "journal.jsonl").write_text("")
    (run_dir / "result.json").write_text('{"state": "failed", ')
    return "result.json"


MISSED: list[Callable[[Path], str]] = [
    packed,
    binary,
    other_encoding,
    loop,
    damaged_metrics,
    link_behind_a_link,
    result_of_a_run,
]


@pytest.mark.parametrize("make", MISSED, ids=lambda make: make.__name__)
def test_what_was_not_looked_at_is_listed_and_is_no_clean_bill(
    make: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    words = make(_fine(folder))
    found = examine([folder])
    _is_told(found, words)
    assert run(["doctor", str(folder)]) == 1
    assert words in capsys.readouterr().out


def _is_told(found: Examination, words: str) -> None:
    assert words in found.left_out
    assert "not-all-read" in [one.id for one in found.verdict.symptoms]
    assert "nothing wrong" not in as_text(found)
    assert words in json.loads(as_json(found))["left_out"]


@pytest.mark.parametrize("kind", ["weights.safetensors", "core", "data.parquet", "logs"])
def test_what_is_no_log_is_not_missed(kind: str, tmp_path: Path) -> None:
    if kind == "logs":
        (_fine(tmp_path) / kind).symlink_to(tmp_path)
    else:
        (_fine(tmp_path) / kind).write_bytes(bytes(1000))
    found = examine([tmp_path])
    assert found.left_out == "" and "nothing wrong" in as_text(found)


def test_a_log_behind_a_link_to_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "train.log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/w/a.py", line 1, in f\ntorch.OutOfMemoryError: CUDA out of memory. '
        "Tried to allocate 2.00 GiB.\n"
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "disk")
    cause = examine([_fine(tmp_path / "run")]).verdict.cause
    assert cause is not None and "out of memory" in cause.title


def test_the_beginning_of_a_long_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_reading, "MOST", 1 << 20)
    (tmp_path / "a.log").write_text(FINE * 200_000)
    _is_told(examine([tmp_path]), "1.3 MiB at the beginning of")


def test_more_metrics_than_are_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_rules, "_POLLS", 1)
    (_fine(tmp_path) / "metrics.jsonl").write_text("".join(STEP % n for n in range(9)))
    _is_told(examine([tmp_path]), "metrics.jsonl")


def test_metrics_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_fine(tmp_path) / "metrics.jsonl").write_text(STEP % 1)

    def fails(_: object) -> None:  # simulated: a disk that fails
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr("liverl.observe.metrics.steps.MetricsReader.poll", fails)
    _is_told(examine([tmp_path]), "metrics.jsonl (Input/output error)")


def test_the_rest_of_a_damaged_compressed_log_is_told(tmp_path: Path) -> None:
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress((FINE * 100_000).encode() + os.urandom(9000).hex().encode())[:-2000])
    with unpacked([str(log)]) as given:
        found = given.named(examine(given.paths))
    _is_told(found, "the rest cannot be unpacked")


# --- results ------------------------------------------------------------------------------------------------

LEFT = "2 GiB in the middle of trainer.1.log"


@pytest.mark.parametrize(
    ("told", "passed", "state"),
    [
        (Told(left_out=LEFT), None, "stopped"),
        (Told(left_out=LEFT, trains=True, step=7, made=7), None, "stopped"),
        (Told(left_out=LEFT, total=20, step=7, made=7), None, "stopped"),
        (Told(left_out=LEFT, total=20, step=20, made=20), None, "done"),
        (Told(left_out=LEFT), Passed(20), "stopped"),
        (Told(), None, "done"),
    ],
)
def test_an_end_is_not_done_by_a_log_that_was_not_read(told: Told, passed: Passed | None, state: str) -> None:
    end = quiet_end(told, passed, 0)
    assert end.state == state
    if state == "stopped" and told.total is None and passed is None:
        assert end.cause is not None and LEFT in end.cause.cause and end.cause.id == "end-not-judged"


def test_the_middle_of_a_long_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "MOST", 2 << 20)
    monkeypatch.setattr(quiet, "HEAD", 1 << 20)
    log = tmp_path / "t.log"
    log.write_text(FINE * 400_000)
    assert read_told(log, shown="logs/t.log").left_out == "3 MiB in the middle of logs/t.log"
    log.write_text(FINE)
    assert read_told(log).left_out == ""
