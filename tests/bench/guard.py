"""Whether anything has become slower beside its peers: ratios of new results against those that are stored.

``python tests/bench/guard.py FOLDER [--stored FOLDER] [--times 1.5]``: FOLDER holds results that were just measured
(``.ci/benchmarks guard`` measures them there). Compared is ours to each peer, from one run, with that ratio in the
stored result of the same name: machine and load act on both sides. Exit code 1 if a ratio has grown by more than
``--times``, or if a stored figure with a peer was not measured any more; 2 if there is nothing to compare. Seconds of a
clock are not judged where programs waited for a core (``busy``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored import RESULTS, Figure, Result, busy, read

# Between two runs at a load of 20 on two cores ratios of CPU and memory grew by up to a quarter, those of seconds to
# 3.3 times: so seconds are compared only where no program waited for a core.
TIMES = 1.5


class Compared(NamedTuple):
    """One ratio, ours to a peer's. ``new`` None: it was not measured."""

    bench: str
    what: str
    peer: str
    old: float
    new: float | None
    waited: bool  # a clock's seconds, while programs waited for a core: not to be judged

    def worse(self, times: float) -> bool:
        """Whether it is a regression."""
        return self.new is None or (self.new > self.old * times and not self.waited)


def compared(old: Result, new: Result | None) -> Iterator[Compared]:
    """The ratios of a stored result with those of a new one. Pure."""
    now: dict[str, Figure] = {one.what: one for one in new.figures} if new is not None else {}
    for figure in old.figures if not old.elsewhere else ():
        for peer, value in figure.beside.items() if figure.guarded else ():
            if value <= 0 or figure.value <= 0:
                continue
            other = now.get(figure.what)
            theirs = other.beside.get(peer, 0.0) if other is not None else 0.0
            ratio = other.value / theirs if other is not None and theirs > 0 else None
            waited = figure.clock and new is not None and (busy(old) or busy(new))
            yield Compared(old.bench, figure.what, peer, figure.value / value, ratio, waited)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the new results")
    parser.add_argument("--stored", type=Path, default=RESULTS)
    parser.add_argument(
        "--times", type=float, default=TIMES, help="so many times a stored ratio is no regression"
    )
    args = parser.parse_args()
    found: list[Compared] = []
    for path in sorted(args.stored.glob("*.json")):
        new = args.folder / path.name
        if new.is_file():
            found += compared(read(path), read(new))
    for one in found:
        now = "not measured" if one.new is None else f"{one.new:.3g}x"
        mark = "WORSE" if one.worse(args.times) else "busy" if one.waited else "ok"
        print(f"{mark:6} {one.bench}: {one.what}: {one.old:.3g}x of {one.peer}, now {now}")
    if not found:
        print(
            f"nothing to compare: no file in {args.folder} has the name of one in {args.stored}",
            file=sys.stderr,
        )
        return 2
    return int(any(one.worse(args.times) for one in found))


if __name__ == "__main__":
    sys.exit(main())
