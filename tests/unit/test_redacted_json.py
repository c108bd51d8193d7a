"""A snapshot is encoded without secrets as if all of its JSON were looked at; no text is looked at twice."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crowd import Crowd
from kit.screens import NOW

from liverl import snapshot_json
from liverl.model import Snapshot
from liverl.snapshot_json import encode_for_views, encode_snapshot
from liverl.util import redact, redacted_json
from liverl.util.redacted_json import CleanTexts

from .test_secrets_leave_no_outlet import HARMLESS, PIECES, SECRET, SHAPES

Place = tuple[str, ...]


def filled(kind: Any, text: str) -> Iterator[tuple[Place, Any]]:
    """Each place in a value of this type that a text can have, and the least value with ``text`` there."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str or kind is Any:
        yield (), text
    elif origin is Annotated:
        yield from filled(parts[0], text)
    elif origin in (Union, types.UnionType):
        yield from (found for part in parts for found in filled(part, text))
    elif origin is tuple:
        inner = [part for part in parts if part is not ...]
        for at, part in enumerate(inner):
            for place, value in filled(part, text):
                rest = [least(other) for other in inner]
                rest[at] = value
                yield (str(at), *place), tuple(rest)
    elif origin is dict:
        yield ("a key",), {text: least(parts[1])}
        yield from (((f"[{place}]", *place), {"x": value}) for place, value in filled(parts[1], text))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        given_ = {f.name: least(f.type) for f in msgspec.structs.fields(kind) if f.required}
        for field in msgspec.structs.fields(kind):
            for place, value in filled(field.type, text):
                yield (field.name, *place), kind(**{**given_, field.name: value})


def least(kind: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return least(parts[0])
    if origin is Literal:
        return parts[0]
    if origin in (Union, types.UnionType):
        return None if types.NoneType in parts else least(parts[0])
    if origin is tuple:
        return () if parts[-1] is ... else tuple(map(least, parts))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{f.name: least(f.type) for f in msgspec.structs.fields(kind) if f.required})
    return {str: "", Any: "", int: 0, float: 0.0, bool: False}[kind] if origin is None else origin()


PLACES = [place for place, _ in filled(Snapshot, "")]


def whole(snapshot: Snapshot) -> Any:
    """What is left where all of the JSON is looked at, as it is done nowhere any more."""
    plain = msgspec.json.encode(snapshot_json._flat(snapshot, snapshot_json._FlatReplica))
    return json.loads(redact.data(plain))


def test_all_places_of_texts_are_tried() -> None:
    assert len(PLACES) == len(set(PLACES)) > 150
    for place in (("phase",), ("gpus", "0", "owner"), ("trials", "newest", "0", "rewards", "a key")):
        assert place in PLACES
    assert ("result", "cause", "evidence", "0", "text") in PLACES


@pytest.mark.parametrize("shape", SHAPES)
def test_no_form_of_a_secret_passes_at_any_place(shape: str) -> None:
    text = SHAPES[shape].replace("§", SECRET)
    if shape == "private key":
        text = text.replace("\n", " ")  # most fields have one line
    for place, shown in filled(Snapshot, text):
        out = encode_for_views(shown)
        assert SECRET.encode() not in out, place
        json.loads(out)


def test_what_is_left_is_what_was_left_of_the_whole() -> None:
    """Of each form at some places, and of harmless texts at others."""
    texts = [*(text.replace("§", SECRET) for text in SHAPES.values()), *HARMLESS]
    for number, text in enumerate(texts):
        for place, shown in islice(filled(Snapshot, text), number % 25, None, 25):
            assert json.loads(encode_snapshot(shown)) == whole(shown), place


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that ``redact.data`` is asked for, from a time on when nothing is known."""
    texts: list[bytes] = []
    monkeypatch.setattr(snapshot_json, "_clean", CleanTexts())

    def data(text: bytes, look: Any = redact.data) -> bytes:
        texts.append(text)
        return look(text)

    monkeypatch.setattr(redact, "data", data)
    return texts


def test_what_was_looked_at_is_not_looked_at_again(seen: list[bytes]) -> None:
    crowd = Crowd(hosts=4, gpus=32, replicas=8, arrivals=0)
    crowd._ticks = 10_000  # trials that change no more
    encode_for_views(crowd.snapshot(NOW))
    assert seen
    seen.clear()
    shown = crowd.snapshot(NOW)
    still = shown.trials.newest
    metrics = shown.metrics
    encode_for_views(shown)
    seen.clear()
    for _ in range(3):
        moved = crowd.snapshot(NOW)
        trials = msgspec.structs.replace(moved.trials, newest=still)
        encode_for_views(msgspec.structs.replace(moved, trials=trials, metrics=metrics))
    assert seen == [], "only numbers have changed"
    gpus = (msgspec.structs.replace(moved.gpus[0], owner="foreign pid 12 (me)"), *moved.gpus[1:])
    trials = msgspec.structs.replace(moved.trials, newest=still)
    encode_for_views(msgspec.structs.replace(moved, gpus=gpus, trials=trials, metrics=metrics))
    assert len(seen) == 1 and b"foreign pid 12" in seen[0] and len(seen[0]) < 200, seen


def test_a_secret_is_found_each_time_and_only_its_part_is_looked_at(seen: list[bytes]) -> None:
    shown = Crowd(hosts=4, gpus=32, replicas=8).snapshot(NOW)
    heads = shown.trials.newest
    heads = (*heads[:7], msgspec.structs.replace(heads[7], preview=f"HF_TOKEN={SECRET}"), *heads[8:])
    shown = msgspec.structs.replace(shown, trials=msgspec.structs.replace(shown.trials, newest=heads))
    first = encode_for_views(shown)
    for _ in range(2):
        seen.clear()
        assert encode_for_views(shown) == first
        assert SECRET.encode() not in first and b"HF_TOKEN=***" in first
        assert sum(map(len, seen)) < 2000
    assert not any(SECRET.encode() in text for text in snapshot_json._clean._newest)


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Each struct that a value of this type may be or hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs(field.type)
    for part in get_args(kind):
        yield from structs(part)


SMALL = (snapshot_json._FlatReplica, snapshot_json._small_replica(), snapshot_json._small_head())


@pytest.mark.parametrize("kind", sorted({*structs(Snapshot), *SMALL}, key=lambda kind: kind.__name__))
def test_no_field_of_a_snapshot_names_a_secret_in_another(kind: type[msgspec.Struct]) -> None:
    """Each text field is filled with the name of a secret, and each later one with a secret: what the whole hides, the
    parts hide."""
    redacted_json._plan(kind)
    texts = [f.name for f in msgspec.structs.fields(kind) if f.type in (str, str | None)]
    given_ = {f.name: least(f.type) for f in msgspec.structs.fields(kind) if f.required}
    for number, name in enumerate(texts):
        for later in texts[number + 1 :]:
            one = kind(**{**given_, name: "HF_TOKEN", later: "s3cr3tvalue9x"})
            whole_ = redact.data(msgspec.json.encode(one))
            assert json.loads(redacted_json.encode(one, CleanTexts())) == json.loads(whole_), (name, later)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": str, "value": str},
        {"Name": str | None, "value": tuple[str, ...]},
        {"other": str, "name": str, "between": str, "at": float, "value": Any},
    ],
)
def test_a_pair_of_a_name_and_its_value_is_refused(fields: dict[str, Any]) -> None:
    """Each is harmless alone, and together they are a secret: ``redact`` on the whole would hide it."""
    made = msgspec.defstruct("Pair", list(fields.items()))
    (first, second) = (name for name in fields if name.lower() in ("name", "value"))
    with pytest.raises(TypeError, match=f"Pair: {first} may name a secret in {second}"):
        redacted_json._plan(made)
    holder = msgspec.defstruct("Holder", [("items", tuple[made, ...])])
    one = made(
        *(0.0 if kind is float else ("HF_TOKEN" if kind is str else "s3cr3t") for kind in fields.values())
    )
    with pytest.raises(TypeError, match="Pair"):
        redacted_json.encode(holder((one,)), CleanTexts())


@pytest.mark.parametrize(
    "fields", [{"value": str, "name": str}, {"name": str, "value": float}, {"name": str}]
)
def test_other_fields_are_not(fields: dict[str, Any]) -> None:
    redacted_json._plan(msgspec.defstruct("Pair", list(fields.items())))


class Plain(msgspec.Struct):
    name: str


class More(Plain):
    note: str = ""


class Held(msgspec.Struct):
    run: str
    api_key: str


class Holder(msgspec.Struct):
    items: tuple[Plain, ...] = ()
    held: tuple[Held, ...] = ()
    one: Held | None = None


def test_items_of_several_types_are_looked_at_each() -> None:
    for items in ((Plain("a"), More("b", f"HF_TOKEN={SECRET}")), (More("b", f"HF_TOKEN={SECRET}"),)):
        assert b"HF_TOKEN=***" in redacted_json.encode(Holder(items), CleanTexts())


def test_a_field_whose_name_says_that_it_is_a_secret() -> None:
    held = Held("a", SECRET)
    out = json.loads(redacted_json.encode(Holder(held=(held, held), one=held), CleanTexts()))
    hidden = {"run": "a", "api_key": redact.HIDDEN}
    assert (out["held"], out["one"]) == ([hidden, hidden], hidden)


def test_as_many_bytes_are_remembered_as_were_asked_for_lately() -> None:
    clean = CleanTexts(limit=100)
    for number in range(100):
        assert not clean.changed([b"%010d" % number, b"always"])
        assert sum(map(len, clean._newest | clean._older)) <= 240
    assert b"always" in clean._newest | clean._older


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map(lambda parts: json.dumps("".join(parts))), max_size=5))
def test_texts_are_judged_as_each_alone(texts: list[str]) -> None:
    lines = [text.encode() for text in texts]
    assert CleanTexts().changed(lines) == {line for line in lines if redact.data(line) != line}
