"""``python -m liverl.replay.pack DIR --out FILE``: makes one archive of what ``liverl.replay.record`` wrote to ``DIR``.

Paths, host name and addresses of the recording machine are replaced, and what looks like a key is hidden. Files that
say the same as another, and rows from before the replay begins, are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from liverl.replay.archive import About, RecordingError, read, write
from liverl.replay.growth import Growth, files
from liverl.replay.player import PREROLL_S
from liverl.replay.record import Origin
from liverl.replay.scrub import Scrub
from liverl.replay.tables import MEASURED, Row, Table, encode_row
from liverl.rundir.layout import valid_name
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_TRAJECTORY = "/litellm-trajectory.jsonl"
_COPIES = ("/agent/trajectory.json",)  # of a trial: the proxy's records say the same


@dataclass(frozen=True)
class Wanted:
    """What part of a recording is packed. ``begin`` and ``end``: Unix seconds of the replay. ``from_step``: trials of
    earlier steps are left out."""

    name: str
    begin: float
    end: float
    from_step: int = 0

    def keeps(self, path: str) -> bool:
        """Whether the step of a file is wanted, a trial's or verl's dump of it; files of no step are."""
        folder, _, rest = path.partition("/")
        step = rest.partition("/")[0].removeprefix("step_").removesuffix(".jsonl")
        return folder not in ("trials", "rollouts") or not step.isdigit() or int(step) >= self.from_step


def pack(source: Path, out: Path, wanted: Wanted, utc_offset: float = 0.0) -> int:
    """Write the archive of a recording; return its bytes.

    Raises:
        OSError, msgspec.DecodeError: the recording cannot be read.
    """
    origin = decode_json(read_regular(source / "origin.json"), type=Origin)
    scrub = Scrub(wanted.name, origin.run_dir, origin.host)
    contents = {
        path: read_regular(source / "files" / path, inside=source) for path, _ in files(source / "files")
    }
    lines = read_regular(source / "growth.jsonl").splitlines()
    growth = [decode_json(line, type=Growth) for line in lines]
    growth = [
        g for g in growth if g.at <= wanted.end and wanted.keeps(g.path) and not _copied(g.path, contents)
    ]
    kept = {g.path: contents[g.path] for g in growth if g.text is None and g.path in contents}
    rows, packed = _scrubbed(_thinned(growth, wanted.begin - PREROLL_S, kept.keys()), kept, scrub)
    tables = {name: _table(source / "tables" / f"{name}.jsonl", wanted, scrub) for name in MEASURED}
    about = About(wanted.name, wanted.begin, wanted.end, scrub.run, utc_offset=utc_offset)
    data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    size = write(out, about, tables, data, dict(sorted(packed.items(), key=_alike)))
    read(out)  # so that what is packed can be played
    return size


def _alike(item: tuple[str, bytes]) -> tuple[str, str]:
    """Sorts files of the same kind together: they compress better."""
    return item[0].rpartition("/")[2], item[0]


def _copied(path: str, contents: Iterable[str]) -> bool:
    copy = next((c for c in _COPIES if path.startswith("trials/") and path.endswith(c)), None)
    return copy is not None and path.removesuffix(copy) + _TRAJECTORY in contents


def _thinned(growth: list[Growth], begin: float, grown: Iterable[str]) -> list[Growth]:
    """``growth`` with one row per file before ``begin``; logs keep all, for the times of their lines."""
    present = set(grown)
    last = {row.path: row for row in growth if row.at <= begin}
    return [
        row
        for row in growth
        if (row.text is not None or row.path in present)
        and (row.at > begin or row.path.endswith(".log") or last[row.path] is row)
    ]


def _scrubbed(
    growth: list[Growth], contents: dict[str, bytes], scrub: Scrub
) -> tuple[list[Growth], dict[str, bytes]]:
    """The rows and files without what names the machine; the sizes in the rows are of the new content, in whole
    lines where a file has lines."""
    packed: dict[str, bytearray] = {path: bytearray() for path in contents}
    done = dict.fromkeys(contents, 0)
    rows = []
    for row in growth:
        if row.text is not None:
            rows.append(msgspec.structs.replace(row, text=scrub(row.text)))
            continue
        content, begin = contents[row.path], done[row.path]
        size = min(row.size or 0, len(content))
        end = content.rfind(b"\n", begin, size) + 1 if row.path.endswith((".log", ".jsonl")) else size
        if end > begin:
            packed[row.path] += scrub.data(content[begin:end])
            done[row.path] = end
        rows.append(msgspec.structs.replace(row, size=len(packed[row.path])))
    return rows, {path: bytes(data) for path, data in packed.items()}


def _table(path: Path, wanted: Wanted, scrub: Scrub) -> bytes:
    """The rows of a table that the replay needs."""
    begin = wanted.begin - PREROLL_S
    try:
        rows = Table.read(read_regular(path)).rows
    except FileNotFoundError:
        return b""
    first = max((place for place, row in enumerate(rows) if row.at <= begin), default=0)
    kept = [row for row in rows[first:] if row.at <= wanted.end]
    text = b"".join(encode_row(Row(row.at, row.value)) + b"\n" for row in kept)
    return scrub.data(text)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m liverl.replay.pack", description=__doc__)
    parser.add_argument("source", type=Path, metavar="DIR", help="what liverl.replay.record has written")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.tar.xz")
    parser.add_argument("--name", default="wrong-parser", help="name of the replayed run")
    parser.add_argument(
        "--begin", type=float, metavar="S", help="the replay begins S seconds into the recording"
    )
    parser.add_argument("--end", type=float, metavar="S", help="it ends there; default: with the recording")
    parser.add_argument(
        "--from-step", type=int, default=0, metavar="N", help="leave out trials of earlier steps"
    )
    args = parser.parse_args()
    if not valid_name(args.name):
        parser.error(f"--name {args.name!r}: letters, digits, '.', '_' and '-'")
    origin = decode_json(read_regular(args.source / "origin.json"), type=Origin)
    begin = origin.started_at + (PREROLL_S if args.begin is None else args.begin)
    end = origin.ended_at if args.end is None else origin.started_at + args.end
    wanted = Wanted(args.name, begin, end, args.from_step)
    try:
        size = pack(args.source, args.out, wanted, origin.utc_offset)
    except (OSError, RecordingError, *BAD_JSON) as error:
        print(f"cannot pack {args.source}: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: {size / 1000:.0f} kB, {wanted.end - wanted.begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
