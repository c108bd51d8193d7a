"""The interface in a pseudo terminal, against the numbers it promises.

``python tests/bench/terminal.py [--quick] [--only ROW,ROW] [--strict] [--json FILE]``. Everything runs in one go,
beside a lower bound or ``lnav`` measured in the same minutes, as wall times alone say little on a busy machine.
With ``--strict`` the exit code is 1 when a target is missed in a row during which the machine was quiet.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

from stored import Figure, Recorder, add_option  # noqa: E402
from terminal_rows import ROWS  # noqa: E402
from terminal_tools import Load, Plan, Row, lnav  # noqa: E402

NEEDED_GB = 2.5  # of disk, while it runs


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cells(row: Row) -> tuple[str, ...]:
    if row.value is None:
        return (row.row, row.what, "nothing was seen", "", "", "", row.verdict, row.load)
    beside = ", ".join(f"{name} {number(v)} ({ratio(row.value, v)})" for name, v in row.beside.items())
    spread = f" ({number(min(row.values))}-{number(max(row.values))})" if len(row.values) > 1 else ""
    target = f"<= {row.limit:g} {row.unit}" if row.limit is not None else ""
    mine = f"{number(row.value)} {row.unit}{spread}"
    return (row.row, row.what, mine, beside, row.note, target, row.verdict, row.load)


def ratio(mine: float, other: float) -> str:
    return f"{mine / other:.2g}x" if other else "-"


def table(rows: list[Row]) -> str:
    head = ("row", "what", "liverl-tui (min-max)", "beside, and ours to it", "", "target", "", "load")
    body = [head, *map(cells, rows)]
    widths = [max(len(line[i]) for line in body) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in body)


def figure(row: Row) -> Figure:
    """A row as it is stored. What only the characters that changed would take is a bound, and no peer."""
    assert row.value is not None
    note = ", ".join(part for part in (row.note, row.load) if part)
    return Figure(
        row.what,
        row.value,
        row.unit,
        row.beside,
        row.limit,
        note,
        guarded=row.unit not in ("KB/s", "kB"),
        clock=row.unit in ("ms", "s"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a tenth of the big log")
    parser.add_argument("--only", default=",".join(ROWS), metavar="ROWS", help=", ".join(ROWS))
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 on a miss while the machine is quiet"
    )
    add_option(parser)
    parser.add_argument(
        "--folder", type=Path, help="where the files go for the time (default: a temporary place)"
    )
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := [row for row in wanted if row not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    folder = Path(tempfile.mkdtemp(prefix="terminal-", dir=args.folder))
    found: list[Row] = []
    slow = wanted == ["slow"]
    recorder = Recorder(f"The interface {'through a line of 2 kB/s' if slow else 'in a terminal of 200x50'}")
    try:
        if shutil.disk_usage(folder).free < NEEDED_GB * 1e9:
            parser.error(f"{folder} has less than {NEEDED_GB} GB free; --folder names another place")
        if lnav() is None:
            print("lnav is not installed: its columns stay empty", file=sys.stderr)
        for name in wanted:
            load = Load()
            measured = list(ROWS[name](Plan(folder, args.quick)))
            told, quiet = load.told()
            for row in measured:
                row.load, row.quiet = told, quiet
                print(" | ".join(c for c in cells(row) if c), file=sys.stderr, flush=True)
            found += measured
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))
    print(f"load average {' '.join(f'{x:.1f}' for x in os.getloadavg())} on {os.cpu_count()} cores")
    if args.json:
        recorder.write(args.json, [figure(row) for row in found if row.value is not None])
    missed = [row for row in found if row.verdict in ("MISS", "none") and row.quiet]
    sys.exit(1 if args.strict and missed else 0)


if __name__ == "__main__":
    main()
