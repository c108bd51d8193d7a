"""Which of many records are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liverl.causes.read.keeping import Kept
from liverl.logs.record import Record


def record(place: int, text: str) -> Record:
    return Record(place, place + 1, text, level="error")


def kept(most: int, *texts: str) -> tuple[list[str], int]:
    chosen = Kept(most, lambda one: "needle" in one.text)
    for place, text in enumerate(texts):
        chosen.add(0, record(place, text))
    records = chosen.all()
    assert [one.offset for one in records] == sorted(one.offset for one in records)
    assert chosen.left_out == len(texts) - len(records)
    return [one.text for one in records], chosen.left_out


def test_all_are_kept_where_there_is_room() -> None:
    texts = [f"no {n}" for n in range(10)]
    assert kept(10, *texts) == (texts, 0)


def test_of_one_kind_the_first_and_the_last_are_kept() -> None:
    assert kept(4, *(f"no {n}" for n in range(30))) == (["no 0", "no 1", "no 28", "no 29"], 26)
    assert kept(3, *(f"no {n}" for n in range(30)))[0] == ["no 0", "no 1", "no 29"]


def test_a_flood_before_and_after_displaces_no_other_kind() -> None:
    texts = [
        *(f"queue {n} is long" for n in range(50)),
        "out of memory",
        *(f"request {n} failed" for n in range(70)),
    ]
    assert kept(9, *texts)[0] == [
        *("queue 0 is long", "queue 1 is long", "queue 48 is long", "queue 49 is long"),
        "out of memory",
        *("request 0 failed", "request 1 failed", "request 68 failed", "request 69 failed"),
    ]


def test_of_more_kinds_than_there_is_room_for_those_that_are_looked_for_stay() -> None:
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(100)]
    texts = [*words[:50], "a needle", "another needle", *words[50:]]
    assert kept(8, *texts)[0] == ["aa", "ab", "ac", "a needle", "another needle", *words[-3:]]
    assert kept(4, *(f"needle {word}" for word in words))[0] == [
        f"needle {w}" for w in ("aa", "ab", "du", "dv")
    ]


def test_what_was_survived_is_forgotten() -> None:
    chosen = Kept(4, lambda one: False)
    for place in range(30):
        chosen.add(place // 10, record(place, f"no {place}"))
    assert chosen.all() and chosen.left_out == 26
    assert [one.text for one in chosen.forget(2)] == ["no 0", "no 1"]
    assert [one.text for one in chosen.all()] == ["no 28", "no 29"]
    assert [one.text for one in chosen.forget(3)] == ["no 28", "no 29"] and chosen.left_out == 0


@given(st.lists(st.sampled_from(["a 1", "a 2", "b", "c", "d 7", "needle"]), max_size=60), st.integers(1, 12))
def test_at_most_so_many_stay_and_each_kind_that_fits(texts: list[str], most: int) -> None:
    found, _ = kept(most, *texts)
    assert len(found) <= most
    kinds = {text.split()[0] for text in texts}
    if len(kinds) <= most:
        assert {text.split()[0] for text in found} == kinds
    # at most one place for each kind remains empty
    assert len(found) >= min(len(texts), most - len(kinds) + 1)
