"""Files that are replaced as a whole: by several threads at once, and after a crash in the middle."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from liverl.util.atomic_file import write_atomic

WRITERS, TIMES = 4, 60


def test_threads_may_replace_one_file_at_the_same_time(tmp_path: Path) -> None:
    """As services do that begin together and have a file in common."""
    path, together = tmp_path / "common", threading.Barrier(WRITERS)
    contents = [bytes([65 + number]) * 10_000 for number in range(WRITERS)]

    def write(content: bytes) -> None:
        together.wait(60)
        for _ in range(TIMES):
            write_atomic(path, content, sync=False)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(write, contents))
    assert os.listdir(tmp_path) == ["common"]


def test_what_a_crash_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / f".file.{threading.get_native_id()}.tmp"
    left.write_text("half")
    write_atomic(tmp_path / "file", b"whole", 0o600)
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
