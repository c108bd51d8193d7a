"""``python -m liverl.replay.record RUN_DIR --out DIR``: records a live run until it ends.

Every two seconds it asks the run's backend for the present state and looks at the sizes of the run's files. At the end,
also after Ctrl-C or SIGTERM, it copies the run's files (no secrets, checkpoints or sandboxes), so that ``DIR`` has all
that ``python -m liverl.replay.pack DIR`` needs. It changes nothing in the run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event as Flag
from typing import Any

import msgspec

from liverl.control.blocking import Connection
from liverl.control.messages import ControlError
from liverl.model import Snapshot
from liverl.replay.growth import LARGEST_FILE, GrowthWatch, files
from liverl.replay.tables import MEASURED, Row, encode_row, measured
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive, hostname
from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.modes import make_directory
from liverl.util.regular_file import open_binary, read_regular
from liverl.version import __version__

INTERVAL = 2.0  # seconds
SHORTEST_SECRET = 8  # bytes
NO_BACKEND_S = 60.0  # without a backend and without a result, after which the recording ends


class Origin(msgspec.Struct):
    """``origin.json``: where and when a recording was made. It is not packed.

    ``utc_offset``: seconds east of UTC of the recording machine's local time."""

    run_dir: str
    host: str
    started_at: float
    ended_at: float
    version: str = __version__
    utc_offset: float = 0.0


class Recorder:
    """Appends what is measured, and how files grow, to small files under ``out``."""

    def __init__(self, run_dir: Path, out: Path) -> None:
        self.run = RunDir(run_dir)
        self.out = out
        self.rows = 0
        self._watch = GrowthWatch(run_dir)
        self._last: dict[str, Any] = {}
        self._connection: Connection | None = None
        self._started_at = time.time()
        self._secrets: dict[bytes, bytes] = {}
        make_directory(out / "tables")

    def look(self, now: float) -> bool:
        """Record the present state; return whether a backend answered."""
        self._secrets = secrets_of(self.run)
        answered = self._measure()
        self._append("growth.jsonl", [msgspec.json.encode(growth) for growth in self._watch.look(now)])
        return answered

    def _measure(self) -> bool:
        try:
            if self._connection is None:
                self._connection = Connection(self.run.path)
            snapshot = self._connection.snapshot()
        except (ControlError, OSError, *BAD_JSON):
            self.close()
            return False
        self._note(snapshot)
        return True

    def _note(self, snapshot: Snapshot) -> None:
        for name, value in measured(snapshot).items():
            if name not in self._last or self._last[name] != value:
                self._last[name] = value
                self._append(f"tables/{name}.jsonl", [encode_row(Row(round(snapshot.at, 3), value))])
                self.rows += 1

    def _append(self, name: str, lines: list[bytes]) -> None:
        append_whole(self.out / name, without(self._secrets, b"".join(line + b"\n" for line in lines)))

    def ended(self) -> bool:
        """Whether the run has a result and no backend any more."""
        return self.run.read_result() is not None and not isinstance(
            backend_alive(self.run.path), LiveBackend
        )

    def close(self) -> None:
        """Close the connection; the next look opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def finish(self) -> int:
        """Copy the run's files as they are now, and note where they come from; return their bytes."""
        self.close()
        last = self.run.read_snapshot() if self.ended() else None
        if last is not None:  # the backend has exited since it was asked last
            self._note(last)
        self._append(
            "growth.jsonl", [msgspec.json.encode(growth) for growth in self._watch.look(time.time())]
        )
        copied = copy_files(self.run.path, self.out / "files", self._secrets)
        origin = Origin(os.path.realpath(self.run.path), hostname(), self._started_at, time.time())
        origin.utc_offset = float(time.localtime().tm_gmtoff)
        write_atomic(self.out / "origin.json", msgspec.json.encode(origin))
        return copied


def secrets_of(run: RunDir) -> dict[bytes, bytes]:
    """The run's secrets, each with stars of its length."""
    values = set()
    try:
        names = os.listdir(run.secrets)
    except OSError:
        return {}
    for name in names:
        try:
            values.add(read_regular(run.secrets / name).strip())
        except OSError:
            continue
    return {value: b"*" * len(value) for value in values if len(value) >= SHORTEST_SECRET}


def without(secrets: Mapping[bytes, bytes], data: bytes) -> bytes:
    """``data`` without these secrets, of the same length."""
    for value, stars in secrets.items():
        data = data.replace(value, stars)
    return data


def copy_files(run_dir: Path, out: Path, secrets: Mapping[bytes, bytes]) -> int:
    """Copy the beginning of the files that a recording keeps, without ``secrets``; return their bytes."""
    total = 0
    for path, _ in files(run_dir):
        target = out / path
        make_directory(target.parent)
        try:
            with open_binary(run_dir / path, inside=run_dir) as file:
                data = file.read(LARGEST_FILE)
        except OSError:
            continue  # removed since it was listed
        write_atomic(target, without(secrets, data), sync=False)
        total += len(data)
    return total


def record(run_dir: Path, out: Path, *, stop: Flag, interval: float = INTERVAL) -> Recorder:
    """Record until the run has ended, ``stop`` is set, or no backend was seen for ``NO_BACKEND_S`` seconds."""
    recorder = Recorder(run_dir, out)
    seen = time.monotonic()
    while not stop.is_set():
        if recorder.look(time.time()):
            seen = time.monotonic()
        elif recorder.ended() or time.monotonic() - seen > NO_BACKEND_S:
            break
        stop.wait(interval)
    recorder.finish()
    return recorder


def _on_signals(act: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: act())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m liverl.replay.record", description=__doc__)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of a live run")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new directory for the recording"
    )
    parser.add_argument("--interval", type=float, default=INTERVAL, metavar="SECONDS")
    args = parser.parse_args()
    if (args.out / "growth.jsonl").exists():
        parser.error(f"{args.out} has a recording already; name a new directory")
    stop = Flag()
    _on_signals(stop.set)
    print(f"recording {args.run_dir} to {args.out}; Ctrl-C ends the recording, not the run", flush=True)
    recorder = record(args.run_dir, args.out, stop=stop, interval=args.interval)
    missing = [name for name in MEASURED if not (args.out / "tables" / f"{name}.jsonl").exists()]
    if missing:
        print(f"no backend answered: nothing was measured of {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"recorded {recorder.rows} rows; pack them: python -m liverl.replay.pack {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
