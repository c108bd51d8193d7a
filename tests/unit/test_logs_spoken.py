"""The order of merged logs: by the moment that a line speaks of, the same forwards and backwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.logs.document import Chain, Merged, Place
from liverl.logs.last_lines import TailIndex, time_of
from liverl.logs.segment import Segment
from liverl.logs.spoken import SpokenTimes

T = 1_795_923_300.0  # Unix time, whole


def clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(T + seconds))


def log(path: Path, pieces: list[tuple[float, list[str]]]) -> Segment:
    """A log of pieces, each (seconds after T at which it had been written, its lines), with its index."""
    data, entries = "", []
    for at, lines in pieces:
        data += "".join(f"{line}\n" for line in lines)
        entries.append(f"{len(data.encode())} {T + at:.3f}\n")
    path.write_text(data)
    Path(f"{path}.idx").write_text("".join(entries))
    segment = Segment(path, path.name)
    segment.look(T + 1000)
    return segment


def words(places: list[Place]) -> list[str]:
    return [place.segment.line(place.offset)[0].decode().strip() for place in places]


def test_stamped_and_unstamped_lines_of_two_services(tmp_path: Path) -> None:
    trainer = log(tmp_path / "trainer", [
        (10.0, [f"INFO 11-29 {clock(8)} a", "more of a", f"INFO 11-29 {clock(10)} b"]), (12.0, [f"{clock(11)} c"]),
    ])  # fmt: skip
    replica = log(tmp_path / "replica", [(9.5, ["no stamp x"]), (11.5, [f"{clock(9)} y", f"{clock(11)} z"])])
    merged = Merged([trainer, replica])
    forward = words(merged.forward(None, 99).places)
    assert [line.split()[-1] for line in forward] == ["a", "a", "x", "y", "b", "c", "z"]
    assert words(merged.back(None, 99).places) == forward
    times = [merged.time_of(place) for place in merged.forward(None, 99).places]
    assert times == sorted(times)
    place = merged.forward(None, 4).places[3]
    assert words(merged.forward(place, 2).places) == forward[3:5]
    assert words(merged.back(place, 2).places) == forward[1:3]
    assert merged.at_time(T + 9.9) == merged.forward(None, 5).places[4]


def test_no_earlier_time_is_shown_beside_a_line_than_the_line_above_says(tmp_path: Path) -> None:
    """Stamps have whole seconds, and one may be a second later than the index: `41:17 proxy` stood above a line of the
    same log with `41:16`, which the index said."""
    proxy = log(
        tmp_path / "proxy", [(8.0, ["first"]), (10.2, [f"{clock(11)} a", "more of a", f"{clock(9)} b", "c"])]
    )
    merged = Merged([proxy])
    places = merged.forward(None, 9).places
    assert [merged.shown_time_of(place) - T for place in places] == [
        8.0,
        11.0,
        11.0,
        *[pytest.approx(10.2)] * 2,
    ]
    assert [merged.time_of(place) - T for place in places] == [8.0, *[pytest.approx(10.2)] * 4], (
        "as they are sorted"
    )


def test_a_stamp_that_cannot_be_says_nothing(tmp_path: Path) -> None:
    for name, line in (("zone", clock(-7200 + 9)), ("ahead", clock(60)), ("none", "xx")):
        spoken = SpokenTimes(log(tmp_path / name, [(8.0, ["first"]), (10.0, [f"{line} said", "second"])]))
        assert spoken.at(6) == spoken.at(20) == T + 10.0, name


def test_a_stamp_before_its_piece_does_not_go_back(tmp_path: Path) -> None:
    spoken = SpokenTimes(
        log(tmp_path / "late", [(8.0, [f"{clock(8)} a"]), (10.0, [f"{clock(7)} b", f"{clock(9)} c"])])
    )
    assert [spoken.at(offset) for offset in (0, 11, 22)] == [T + 8.0, T + 8.0, T + 9.0]


LINE = st.tuples(st.sampled_from(["", "stamp"]), st.integers(-2, 2))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.lists(LINE, min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_forwards_and_backwards_agree(
    tmp_path_factory: object, logs: list[list[list[tuple[str, int]]]]
) -> None:
    folder = tmp_path_factory.mktemp("logs")  # type: ignore[attr-defined]
    segments = []
    for number, pieces in enumerate(logs):
        written = [
            (2.0 * n + 2, [f"{clock(2 * n + 1 + off)} {number}.{n}.{i}" if kind else f"{number}.{n}.{i}"
                           for i, (kind, off) in enumerate(lines)])
            for n, lines in enumerate(pieces)
        ]  # fmt: skip
        segments.append(log(folder / f"s{number}", written))
    merged = Merged(segments)
    forward = merged.forward(None, 999).places
    assert merged.back(None, 999).places == forward
    assert len(forward) == sum(len(lines) for pieces in logs for lines in pieces)
    keys = [merged.key(place) for place in forward]
    assert keys == sorted(keys)
    for at, place in enumerate(forward):
        assert merged.forward(place, 3).places == forward[at : at + 3]
        assert merged.back(place, 3).places == forward[max(0, at - 3) : at]


@pytest.mark.parametrize("kind", [Merged, Chain])
def test_no_time_is_shown_beside_what_stood_in_a_log_before_anybody_looked(
    tmp_path: Path, kind: type[Merged] | type[Chain]
) -> None:
    """Its file may have been copied a moment ago: only a stamp of its own, or of a line above, tells."""
    copied = tmp_path / "train.log"
    copied.write_text("first\n")
    index = TailIndex(copied, since_unknown=True)
    assert index.tick(T + 8.0)
    with copied.open("a") as file:
        file.write("second\n")
    assert index.tick(T + 12.0)
    segment = Segment(copied, copied.name)
    segment.look(T + 1000)
    document = kind([segment])
    first, second = document.forward(None, 2).places
    assert (document.shown_time_of(first), document.shown_time_of(second)) == (None, T + 12.0)
    assert (time_of(copied, 0), time_of(copied, 7)) == (None, T + 12.0)
    assert segment.times.began is None
    assert TailIndex(copied, since_unknown=True).path.read_text().count("0 0.000\n") == 1


def test_a_stamp_tells_of_the_lines_below_it_whenever_the_log_was_begun(tmp_path: Path) -> None:
    copied = tmp_path / "train.log"
    copied.write_text(f"first\nINFO 11-29 {clock(8)} a\nmore of a\n")
    TailIndex(copied, since_unknown=True).tick(T + 8.0)
    segment = Segment(copied, copied.name)
    segment.look(T + 1000)
    merged = Merged([segment])
    shown = [merged.shown_time_of(place) for place in merged.forward(None, 3).places]
    assert shown == [None, T + 8.0, T + 8.0]
