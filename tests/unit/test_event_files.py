"""Steps from tensorboard's event files. ``tests/data/tensorboard`` was written by torch.utils.tensorboard 2.21, with
scalars as verl's adapter writes them; ``grows`` has an entropy that grows, and a histogram, a text and two scalars as
tensors besides."""

from __future__ import annotations

import math
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.observe.metrics import event_files as module
from liverl.observe.metrics.event_files import EventSteps, event_files, is_event_file, read_event_steps
from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_text
from liverl_tui.cli.main import run

DATA = Path(__file__).parents[1] / "data" / "tensorboard"
(GROWS,) = event_files(DATA / "grows")
(FLAT,) = event_files(DATA / "flat")


def ids(path: Path) -> list[str]:
    return [one.id for one in examine([path]).verdict.symptoms]


def test_what_a_real_writer_wrote_is_read() -> None:
    found = read_event_steps([GROWS])
    assert [one.step for one in found.steps] == [*range(1, 41)] and found.missed == ()
    first, last = found.steps[0].values, found.steps[-1]
    assert math.isclose(first["actor/entropy"], 0.448, rel_tol=1e-6) and first["timing_s/step"] == 60.0
    assert first["training/global_step"] == 1.0 and len(first) == 8
    assert (
        last.not_finite == {"nan": "nan"} and "h" not in last.values and "t/text_summary" not in last.values
    )
    assert (last.values["tensor/double"], last.values["tensor/float"]) == (0.25, 0.5)


def test_a_run_that_only_logs_to_tensorboard_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DATA / "grows", tmp_path / "tensorboard_log" / "p" / "e")
    found = examine([tmp_path])
    told = {one.id: one for one in found.verdict.symptoms}
    assert "entropy_rises" in told, as_text(found)
    assert (told["entropy_rises"].evidence[0].log or "").endswith("/p/e")
    assert [one.what for one in found.files if one.read] == ["steps of a training (tensorboard), 1 file"]
    assert run(["doctor", str(tmp_path)]) == 1 and run(["doctor", str(DATA / "flat")]) == 0
    assert "nothing wrong was found" in capsys.readouterr().out
    assert "entropy_rises" in ids(GROWS), "also a file that is named"


def test_of_several_trainings_the_newest_is_judged(tmp_path: Path) -> None:
    for name, age in (("grows", 9000.0), ("flat", 10.0)):
        shutil.copytree(DATA / name, tmp_path / name)
        for file in event_files(tmp_path / name):
            at = file.stat().st_mtime - age
            os.utime(file, (at, at))
    assert ids(tmp_path) == []


def test_each_start_of_a_trainer_makes_a_file(tmp_path: Path) -> None:
    """A resumed trainer repeats steps; the file that was begun later holds."""
    shutil.copy(GROWS, tmp_path / "events.out.tfevents.100.a.1.0")
    shutil.copy(FLAT, tmp_path / "events.out.tfevents.99.a.1.0")
    shutil.copy(FLAT, tmp_path / "events.out.tfevents.101.a.1.0")
    assert [file.name.split(".")[3] for file in event_files(tmp_path)] == ["99", "100", "101"]
    assert ids(tmp_path) == []
    (tmp_path / "events.out.tfevents.101.a.1.0").unlink()
    assert "entropy_rises" in ids(tmp_path)


def test_a_last_record_that_is_cut_is_still_being_written(tmp_path: Path) -> None:
    data = FLAT.read_bytes()
    path = tmp_path / FLAT.name
    whole = read_event_steps([FLAT])
    for cut in (1, 3, 5, 20, 40):
        path.write_bytes(data[:-cut])
        found = read_event_steps([path])
        assert found.missed == () and found.steps[:-1] == whole.steps[:-1]
    path.write_bytes(b"")
    assert read_event_steps([path]) == EventSteps()


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", module._masked(head)) + data + struct.pack("<I", module._masked(data))


@pytest.mark.parametrize(
    ("damage", "steps"),
    [
        (flipped(0), 0),
        (flipped(9), 0),
        (flipped(2000), 5),
        (lambda data: b"\x00" * 100 + data, 0),
        (lambda data: record(b"\xff" * 30) + data, 0),
        (lambda data: data + record(b"\x2a\x7fx"), 12),
        (lambda data: data + struct.pack("<QI", 1 << 62, 7) + b"x" * 20, 12),
    ],
)
def test_a_damaged_file_is_told_and_what_is_before_the_damage_counts(
    damage: Callable[[bytes], bytes], steps: int, tmp_path: Path
) -> None:
    path = tmp_path / FLAT.name
    path.write_bytes(damage(FLAT.read_bytes()))
    found = read_event_steps([path])
    assert len(found.steps) == steps and len(found.missed) == 1 and "byte" in found.missed[0]
    (tmp_path / "fine.log").write_text("all is well\n")
    told = examine([tmp_path])
    assert str(path) in told.left_out and "not-all-read" in [one.id for one in told.verdict.symptoms]


def test_the_known_checksum() -> None:
    """RFC 3720, B.4: CRC-32C of 32 zeros, unmasked 8A9136AA."""
    crc = 0x8A9136AA
    assert module._masked(bytes(32)) == (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def test_of_a_long_file_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2000)
    found = read_event_steps([FLAT])
    assert [one.step for one in found.steps][-1] == 12 and 3 <= len(found.steps) <= 7
    assert "at the beginning of" in found.missed[0]


def test_a_huge_record_that_is_no_scalar_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / FLAT.name
    picture = record(b"\x2a" + b"\x80\x80\x04" + bytes(1 << 16))
    path.write_bytes(picture + FLAT.read_bytes() + picture)
    assert read_event_steps([path]) == read_event_steps([FLAT])


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("events.out.tfevents.1795814170.vm.1.0", True),
        ("events.out.tfevents.1795814170.vm.1.0.v2", True),
        ("tfevents.txt", False),
        ("train.log", False),
    ],
)
def test_the_name_of_an_event_file(name: str, is_one: bool) -> None:
    assert is_event_file(name) == is_one


def test_a_file_that_is_none_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FLAT.name)
    assert "not a regular file" in read_event_steps([tmp_path / FLAT.name]).missed[0]
