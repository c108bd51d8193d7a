"""File systems that are low, or fill: the rate, how far it is extrapolated, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kit.screens import snapshot

from liverl.daemon.sampler import _folders
from liverl.diagnose.catalogue.disks import FULL, NOW_S, disk_low
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Symptom
from liverl.observe.volumes import (
    AHEAD,
    LOW_DISK,
    LOW_SHM,
    RUN_DIRECTORY,
    SHARED_MEMORY,
    SOON_S,
    WINDOW,
    Volume,
    VolumeRates,
    VolumeWatch,
    largest,
)
from liverl.plan.spec import Plan, ServiceSpec

MIB, GIB = 1 << 20, 1 << 30


def found(*volumes: Volume, **beside: Any) -> list[Symptom]:
    seen = Window(snapshot(), None, RunContext(volumes=volumes, **beside))
    return [s for s in disk_low(seen) if isinstance(s, Symptom)]


def disk(free: int = 50 * GIB, **fields: Any) -> Volume:
    return Volume("/runs/first", RUN_DIRECTORY, 100 * GIB, free, **fields)


def shm(free: int, **fields: Any) -> Volume:
    return Volume("/dev/shm", SHARED_MEMORY, 8 * GIB, free, **fields)


# --- the rule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volume", "severity"),
    [
        (disk(), None),
        (disk(LOW_DISK), None),
        (disk(LOW_DISK - 1), "warning"),
        (disk(FULL), "warning"),
        (disk(FULL - 1), "critical"),
        (shm(LOW_SHM), None),
        (shm(LOW_SHM - 1), "warning"),
        (disk(seconds_left=SOON_S + 1, per_second=1.0), None),
        (disk(seconds_left=SOON_S, per_second=1.0), "warning"),
        (disk(seconds_left=NOW_S + 1, per_second=1.0), "warning"),
        (disk(seconds_left=NOW_S, per_second=1.0), "critical"),
    ],
)
def test_a_disk_that_is_low_or_will_be(volume: Volume, severity: str | None) -> None:
    assert [s.severity for s in found(volume)] == ([] if severity is None else [severity])
    assert found() == []


def test_what_is_said_of_a_disk() -> None:
    (low,) = found(disk(300 * MIB), largest=(("checkpoints", 40 * GIB), ("trials", 2 * GIB)))
    assert (low.id, low.title) == ("disk_low", "the disk of the run directory is nearly full")
    assert low.cause.startswith("300 MiB of 100.0 GiB are free; a service that cannot write")
    assert [e.text for e in low.evidence] == [
        "/runs/first: 300 MiB free",
        "checkpoints: 40.0 GiB",
        "trials: 2.0 GiB",
    ]
    assert "training.save_freq" in low.fix
    (filling,) = found(disk(12 * GIB, per_second=20.0 * MIB, seconds_left=614.0))
    assert filling.title == "the disk of the run directory is full in about 10 minutes"
    assert "and 1.2 GiB more are used each minute" in filling.cause
    (memory,) = found(shm(0, seconds_left=0.0, per_second=1.0), largest=(("checkpoints", GIB),))
    assert (memory.id, memory.title) == ("disk_low:/dev/shm", "/dev/shm is full")
    assert (
        "SIGBUS" in memory.cause
        and "give the container more shared memory" in memory.fix
        and len(memory.evidence) == 1
    )


# --- the rate ---------------------------------------------------------------------------------------------


def rate(*samples: tuple[float, float]) -> tuple[float, float] | None:
    rates = VolumeRates()
    for at, free in samples:
        rates.add(at, round(free))
    return rates.rate()


def filling(seconds: int, free: float, per_second: float, every: int = 2) -> list[tuple[float, float]]:
    return [(at, free - per_second * at) for at in range(0, seconds + 1, every)]


def test_a_steady_rate_is_extrapolated_to_twice_the_time_it_was_measured() -> None:
    assert rate(*filling(20, 128.0 * MIB, 2.0 * MIB)) is None, "44 s left, measured for 20"
    assert rate(*filling(22, 128.0 * MIB, 2.0 * MIB)) == (2.0 * MIB, 42.0)
    assert AHEAD == 2.0


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [(0.0, 100.0)],
        [(0.0, 100.0), (60.0, 10.0)],  # nothing is known of the time between
        filling(8, 100.0, 10.0),  # too short
        filling(30, 100.0, 0.0),
        filling(30, 100.0, -1.0),
        [
            *filling(10, 100.0, 5.0),
            *((at, 50.0) for at in range(12, 60, 2)),
        ],  # a checkpoint that has been written
        [(at, 100.0) for at in range(0, 60, 2)] + [(60.0, 1.0)],  # one large file
    ],
    ids=["none", "one", "two", "short", "stands", "shrinks", "has ended", "one file"],
)
def test_what_is_no_steady_rate(samples: list[tuple[float, float]]) -> None:
    assert rate(*samples) is None


def test_a_rate_that_began_a_while_ago_is_seen_behind_a_quiet_time() -> None:
    quiet = [(float(at), 128.0 * MIB) for at in range(-400, 0, 10)]
    found = rate(*quiet, *filling(40, 128.0 * MIB, 2.0 * MIB))
    assert found is not None and 1.5 * MIB < found[0] < 2.5 * MIB and 15.0 < found[1] < 35.0


def test_old_samples_are_forgotten_and_count_for_nothing() -> None:
    rates = VolumeRates()
    for at in range(0, round(3 * WINDOW), 10):
        rates.add(float(at), GIB)
    assert len(rates._times) == len(rates._free) <= 1.5 * WINDOW / 10
    rates = VolumeRates()
    for at in range(0, round(1.2 * WINDOW) + 1, 10):
        rates.add(float(at), 2 * GIB - at * 900_000)
    found = rates.rate()
    assert found is not None and found[0] == pytest.approx(900_000)
    assert found[1] == pytest.approx((2 * GIB - 1.2 * WINDOW * 900_000) / 900_000)


# --- file systems -----------------------------------------------------------------------------------------


def test_each_file_system_is_named_once_by_its_first_folder(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    watch = VolumeWatch(
        [("run directory", tmp_path), ("trials", tmp_path / "trials"), ("none", tmp_path / "absent")]
    )
    (volume,) = watch.look(0.0)
    status = os.statvfs(tmp_path)
    assert (volume.folder, volume.what) == (str(tmp_path), "run directory")
    assert volume.total == status.f_blocks * status.f_frsize and 0 < volume.free <= volume.total
    assert volume.seconds_left is None


def test_a_disk_that_fills_is_measured(tmp_path: Path) -> None:
    """simulated: the free space comes from this test."""
    free = [1000]

    def statvfs(path: str) -> Any:
        return os.statvfs_result((4096, 1 << 20, 2000, free[0], free[0], 0, 0, 0, 0, 255))

    watch = VolumeWatch([("run directory", tmp_path)], statvfs)
    for second in range(0, 24, 2):
        (volume,) = watch.look(float(second))
        free[0] -= 50
    assert (volume.total, volume.free) == (2000 << 20, (1000 - 11 * 50) << 20)
    assert volume.per_second == 25 << 20 and volume.seconds_left == 18.0


def test_a_file_system_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """simulated: the error of a stale NFS. Its free space is not taken to be enough without a word."""
    errors = [OSError(116, "Stale file handle")]

    def statvfs(path: str) -> os.statvfs_result:
        if errors:
            raise errors.pop()
        return os.statvfs(path)

    watch = VolumeWatch([("run directory", tmp_path), ("none", tmp_path / "absent")], statvfs)
    assert watch.look(0.0) == ()
    assert [(one.path, one.why) for one in watch.unreadable] == [
        (str(tmp_path), "its free space: Stale file handle")
    ]
    assert len(watch.look(1.0)) == 1 and watch.unreadable == ()


def test_what_takes_the_space(tmp_path: Path) -> None:
    (tmp_path / "a/deep").mkdir(parents=True)
    for name, count in (("a/deep/one", 3), ("a/two", 2), ("b", 4), ("c", 1), ("d", 0)):
        (tmp_path / name).write_bytes(b"x" * count * MIB)
    os.symlink("/", tmp_path / "link")
    names = [name for name, size in largest(tmp_path)]
    assert names == ["a", "b", "c"] and largest(tmp_path)[0][1] >= 5 * MIB
    assert largest(tmp_path / "absent") == ()


def test_the_disk_of_the_checkpoints_is_that_to_which_verl_saves(tmp_path: Path) -> None:
    def folder(*words: str) -> Path:
        trainer = ServiceSpec("trainer", "trainer", ("python", "-m", "verl.trainer.main_ppo", *words))
        plan = Plan("tests/run", str(tmp_path), "verl", (), (trainer,), None, 2)
        return dict(_folders(tmp_path, plan))["checkpoints"]

    own = "trainer.default_local_dir='{run_dir}/checkpoints'"
    assert folder() == folder(own) == tmp_path / "checkpoints"
    assert folder(own, "trainer.default_local_dir=/mnt/saved") == Path("/mnt/saved")
    assert folder("++trainer.default_local_dir=/mnt/saved") == Path("/mnt/saved")
    assert folder("trainer.default_local_dir=relative") == tmp_path / "checkpoints"
