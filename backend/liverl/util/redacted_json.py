"""Structs as JSON without secrets, for structs that are encoded again and again with few new texts in them.

``redact.data`` on the whole JSON is right and slow: most of it is numbers and names of our own fields, and most texts
were looked at the last time. Here only what can hold a text is looked at, and once: each struct has a *mirror* without
numbers and without names of fields, which msgspec fills and encodes many times as fast as Python reads it. A part whose
mirror ``redact`` would leave as it is holds no secret, and is encoded as it is. Any other goes through ``redact.data``
with its names, as the whole did. Fields are looked at one by one, so a struct in which the text of one field says that
another holds a secret (``name``, ``value``) is refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from liverl.util import redact

_NUMBERS = (int, float, bool, types.NoneType)
_SAMPLE = "0123456789abcdefQx"  # is hidden below any name that names a secret
_NAME = "HF_TOKEN"  # names a secret
_encode = msgspec.json.Encoder().encode


class CleanTexts:
    """Texts that ``redact`` leaves as they are. At most ``limit`` bytes of those that were asked for last, and as many
    of those before them, are remembered."""

    def __init__(self, limit: int = 2 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._newest: set[bytes] = set()
        self._older: set[bytes] = set()

    def changed(self, texts: Iterable[bytes]) -> set[bytes]:
        """Those of ``texts``, which hold no newline, that are not left as they are."""
        unknown = set(texts) - self._newest
        if not unknown:
            return unknown
        fresh = unknown - self._older
        changed: set[bytes] = set()
        if fresh and _is_changed(b"\n".join(fresh)):
            changed = set(filter(_is_changed, fresh))
        self._remember(unknown - changed)
        return changed

    def _remember(self, texts: set[bytes]) -> None:
        self._newest |= texts
        self._size += sum(map(len, texts))
        if self._size > self._limit:
            self._older, self._newest, self._size = self._newest, set(), 0


def _is_changed(text: bytes) -> bool:
    return redact.data(text) != text


class _Plan(NamedTuple):
    """How a struct is looked at. ``leaves``: its fields with texts in them, and their ``mirror``; ``items``: fields
    that are tuples of structs; ``below``: fields that are structs or None, and the structs."""

    leaves: tuple[str, ...]
    mirror: Any
    items: tuple[tuple[str, type[msgspec.Struct]], ...]
    below: tuple[tuple[str, type[msgspec.Struct]], ...]


def encode(record: msgspec.Struct, clean: CleanTexts) -> bytes:
    """``record`` as JSON text in UTF-8, without secrets. ``clean``: of the calls before."""
    return _encode(_hidden(record, clean))


def _hidden(record: Any, clean: CleanTexts) -> Any:
    """``record``, or one in which the JSON without secrets stands in place of each part with one."""
    kind: type[msgspec.Struct] = type(record)
    plan = _plan(kind)
    shown: dict[str, Any] = {}
    if plan.leaves and clean.changed([_encode(_mirrored(record, plan.mirror))]):
        found = ((name, _leaf(name, getattr(record, name))) for name in plan.leaves)
        shown |= {name: leaf for name, leaf in found if leaf is not None}
    parts = [(name, _items(getattr(record, name), clean)) for name, _ in plan.items]
    parts += [(name, _below(getattr(record, name), clean)) for name, _ in plan.below]
    shown |= {name: part for name, part in parts if part is not getattr(record, name)}
    return msgspec.structs.replace(record, **shown) if shown else record


def _items(parts: tuple[Any, ...], clean: CleanTexts) -> tuple[Any, ...]:
    """What stands in place of these structs, which need not be of the type that is declared."""
    kinds = set(map(type, parts))
    if len(kinds) > 1:
        return tuple(_hidden(part, clean) for part in parts)
    if not kinds:
        return parts
    texts = list(map(_encode, _mirrored(parts, _mirrors(kinds.pop()))))
    changed = clean.changed(texts)
    if not changed:
        return parts
    return tuple(
        _hidden(part, clean) if text in changed else part for part, text in zip(parts, texts, strict=True)
    )


def _below(part: Any, clean: CleanTexts) -> Any:
    return None if part is None else _hidden(part, clean)


def _leaf(name: str, value: Any) -> msgspec.Raw | None:
    """A field's value as JSON without secrets; None: it holds none. It is looked at behind its name, which may say that
    it is one."""
    before = b"{" + _encode(name) + b":"
    text = before + _encode(value) + b"}"
    hidden = redact.data(text)
    return None if hidden == text else msgspec.Raw(hidden[len(before) : -1])


def _mirrored(value: Any, mirror: Any) -> Any:
    return msgspec.convert(value, mirror, from_attributes=True)


@cache
def _plan(struct: type[msgspec.Struct]) -> _Plan:
    """How ``struct`` is looked at.

    Raises:
        TypeError: two of its fields are a secret only together.
    """
    leaves: list[str] = []
    items: list[tuple[str, type[msgspec.Struct]]] = []
    below: list[tuple[str, type[msgspec.Struct]]] = []
    for field in msgspec.structs.fields(struct):
        inner, several = _inner(field.type)
        if inner is not None:
            (items if several else below).append((field.name, inner))
        elif _holds_text(field.type):
            leaves.append(field.name)
    pair = _secret_pair(leaves)
    if pair is not None:
        raise TypeError(
            f"{struct.__name__}: {pair[0]} may name a secret in {pair[1]}; rename one of these fields"
        )
    return _Plan(tuple(leaves), _struct(struct, [(name, Any) for name in leaves]), tuple(items), tuple(below))


def _secret_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """A field of these whose text may name the secret in a later one, and that one; None if there are none. What is
    between them may be left out of the JSON."""
    alone = [name for name in names if not _hides({name: _NAME}) and not _hides({name: _SAMPLE})]
    pairs = list(combinations(alone, 2))
    if not _hides([{one: _NAME, other: _SAMPLE} for one, other in pairs]):
        return None
    return next((pair for pair in pairs if _hides(dict(zip(pair, (_NAME, _SAMPLE), strict=True)))), None)


def _hides(plain: Any) -> bool:
    return _is_changed(_encode(plain))


@cache
def _mirror(struct: type[msgspec.Struct]) -> Any:
    """A struct with the texts of ``struct`` and of all below it."""
    plan = _plan(struct)
    fields: list[tuple[str, Any]] = [(name, Any) for name in plan.leaves]
    fields += [(name, _mirrors(inner)) for name, inner in plan.items]
    fields += [(name, _mirror(inner) | None) for name, inner in plan.below]
    return _struct(struct, fields)


def _mirrors(struct: type[msgspec.Struct]) -> Any:
    return tuple[_mirror(struct), ...]  # type: ignore[misc]  # made at run time


def _struct(of: type[msgspec.Struct], fields: Sequence[tuple[str, Any]]) -> Any:
    """Without the names of its fields in JSON, unless one of them says that a secret stands behind it."""
    named = _encode({name: _SAMPLE for name, _ in fields})
    harmless = redact.data(named) == named
    return msgspec.defstruct(f"_{of.__name__}Texts", fields, array_like=harmless, frozen=True, gc=False)


def _inner(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct that a field of this type is, or that its items are, and whether it has items; None: neither."""
    if get_origin(kind) is Annotated:
        return _inner(get_args(kind)[0])
    if _is_struct(kind):
        return kind, False
    parts = get_args(kind)
    if get_origin(kind) is tuple and len(parts) == 2 and parts[1] is ... and _is_struct(parts[0]):
        return parts[0], True
    if get_origin(kind) in (Union, types.UnionType):
        structs = [part for part in parts if part is not types.NoneType]
        if len(structs) == 1 and _is_struct(structs[0]):
            return structs[0], False
    return None, False


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _holds_text(kind: Any) -> bool:
    """Whether a value of this type may be or hold a text; of a type that is not known here it may."""
    if kind in _NUMBERS or kind is ...:
        return False
    if get_origin(kind) is Annotated:
        return _holds_text(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return not all(isinstance(value, _NUMBERS) for value in get_args(kind))
    parts = get_args(kind)
    return not parts or any(map(_holds_text, parts))
