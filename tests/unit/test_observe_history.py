"""The history of what was used: written line by line, bounded, read from its end, whatever was cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import GpuStatus, HostStats, TreeStats
from liverl.observe import history
from liverl.observe.history import HistoryWriter, Sample, read_history, sample_of
from liverl.util import backward_lines
from liverl.util.backward_lines import lines_backwards


def sample(at: float, **services: int) -> Sample:
    trees = {name: TreeStats(1, 50.0, rss) for name, rss in services.items()}
    return sample_of(at, HostStats(cpu_percent=12.34, memory_used=5), (), trees)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    gpu = GpuStatus(0, "GPU-1", "H200", 0.973, 1 << 30, 2 << 30, 611.7, 700.0, 60.0, "a", sm_clock_mhz=1755.0)
    trees = {"a": TreeStats(2, 101.26, 7), "gone": TreeStats()}
    writer = HistoryWriter(tmp_path)
    writer.append(sample_of(1000.04, HostStats(12.34, 4, 5, 6), (gpu,), trees))
    writer.append(sample(1010.0))
    first, second = read_history(tmp_path)
    assert (first.at, first.host) == (1000.0, (12.3, 5))
    assert first.gpus == {"GPU-1": (0.97, 1 << 30, 612.0, 1755.0)}
    assert first.services == {"a": (101.3, 7)}
    assert second.at == 1010.0
    assert read_history(tmp_path, since=1000.0) == (second,)
    assert (tmp_path / "history.jsonl").stat().st_size < 300


def test_lines_of_a_version_without_clocks_are_read(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"at":5.0,"host":[1.0,2],"gpus":{"GPU-1":[0.5,3,200.0]}}\n')
    assert read_history(tmp_path)[0].gpus == {"GPU-1": (0.5, 3, 200.0, None)}


def test_nothing_there(tmp_path: Path) -> None:
    assert read_history(tmp_path) == () == read_history(tmp_path / "no")


def test_cut_and_foreign_lines_are_passed_over_and_do_not_spoil_the_next(tmp_path: Path) -> None:
    HistoryWriter(tmp_path).append(sample(1.0))
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes() + b'{"at": 2.0, "ho')
    assert [s.at for s in read_history(tmp_path)] == [1.0]
    HistoryWriter(tmp_path).append(sample(3.0))
    path.write_bytes(path.read_bytes() + b'[]\n\xff\n{"at": "x"}\n')
    HistoryWriter(tmp_path).append(sample(4.0))
    assert [s.at for s in read_history(tmp_path)] == [1.0, 3.0, 4.0]


def test_its_size_is_bounded_and_the_older_half_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LIMIT", 2000)
    writer = HistoryWriter(tmp_path)
    for at in range(200):
        writer.append(sample(float(at), a=at))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) <= 2 and sum(sizes) < 2 * 2100
    found = [s.at for s in read_history(tmp_path)]
    assert found == [float(at) for at in range(200 - len(found), 200)] and len(found) > 2000 / 100
    assert [s.at for s in read_history(tmp_path, since=197.0)] == [198.0, 199.0]


def test_a_full_disk_costs_its_lines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, real = HistoryWriter(tmp_path), os.write
    writer.append(sample(1.0))

    def half(fd: int, data: bytes) -> int:
        return real(fd, data[: len(data) // 2])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for failing in (half, full):
        monkeypatch.setattr(os, "write", failing)
        with pytest.raises(OSError, match="No space"):
            writer.append(sample(2.0))
        monkeypatch.setattr(os, "write", real)
    writer.append(sample(3.0))
    assert [s.at for s in read_history(tmp_path)] == [1.0, 3.0]


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=20), st.integers(1, 30))
def test_lines_come_backwards_whatever_the_block(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block: int
) -> None:
    path = tmp_path_factory.mktemp("h") / "file"
    path.write_bytes(b"\n".join(lines))
    before, backward_lines._BLOCK = backward_lines._BLOCK, block
    try:
        found = list(lines_backwards(path))
    finally:
        backward_lines._BLOCK = before
    whole = lines[:-1]  # the last one has no end
    assert [line for line in found if line] == [line for line in reversed(whole) if line]
