"""Decodes what others have written: files, messages, logs. Whatever is wrong with it, there is one error, with words.

Libraries raise many: a RecursionError for values that are nested too deeply (libyaml's loader even ends the process), a
UnicodeDecodeError, an OverflowError, a ValueError for an integer of 5,000 digits, an IndexError for ``!!int ""``. And a
value that they accept may be too deep for the recursive functions that get it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

DEEPEST = 200  # levels; what the components of a run write has 20 at most
FIRST = 16  # values of a type of which the depth is counted before the type is asked for it
MOST_VALUES = 2_000_000  # of a YAML text, each alias as often as it is used
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))  # everything else
# Of msgspec's descriptions of types: where other types are.
_PARTS = ("types", "fields", "type", "item_type", "item_types", "key_type", "value_type")
_MOST_BITS = 4096  # of an integer in YAML
T = TypeVar("T")


class Undecodable(msgspec.DecodeError):
    """Data cannot be decoded; ``str()`` says why, and where: ``line`` (from 1) and ``problem`` are its parts, where the
    format says them. It is a ``msgspec.DecodeError``, and so a ``ValueError``."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem, self.line = problem, line


@overload
def decode_json(data: Any) -> Any: ...
@overload
def decode_json(data: Any, type: type[T]) -> T: ...


def decode_json(data: Any, type: Any = Any) -> Any:
    """JSON in bytes or text, as ``msgspec.json.decode`` reads it.

    Raises:
        msgspec.DecodeError: it is no JSON, is nested too deeply, or is not of ``type`` (``ValidationError``).
    """
    return _decoder(type).decode(data)


class JsonDecoder(Generic[T]):
    """Reads many values of a type. Use: ``decode = JsonDecoder(Event).decode``. The decoder is made for the first
    value: that takes milliseconds, and most programs read no value of most types. To find out whether the type says how
    deep its values are takes several times as long, so that is done after ``FIRST`` values; ``bounded`` says it
    beforehand."""

    @overload
    def __init__(self: JsonDecoder[Any]) -> None: ...
    @overload
    def __init__(self, type: type[T], *, bounded: bool | None = None) -> None: ...
    @overload
    def __init__(self: JsonDecoder[Any], type: Any, *, bounded: bool | None = None) -> None: ...

    def __init__(self, type: Any = Any, *, bounded: bool | None = None) -> None:
        self._type = type
        self._decode: Callable[[Any], Any] | None = None
        self._bounded = bounded
        self._seen = 0  # values, until the type is looked at

    def decode(self, data: Any, *, shallow: bool = False) -> T:
        """One value. ``shallow``: the caller knows that it is not too deep, as it has decoded what holds it.

        Raises:
            msgspec.DecodeError: as for ``decode_json``.
        """
        decode = self._decode or self._prepare()
        if not (shallow or self._bounded):
            self._check(data)
        try:
            value: T = decode(data)
        except msgspec.DecodeError:
            raise
        except (RecursionError, MemoryError, ValueError, OverflowError):
            value = _refusing(decode, data)  # it raises this again, with words
        return value

    def _check(self, data: Any) -> None:
        if self._bounded is None:
            self._seen += 1
            if self._seen <= FIRST and _is_flat(data):
                return
            # Also for one that is deep: what is refused must not depend on how many came before.
            self._bounded = not holds_anything(self._type)
            if self._bounded:
                return
        _check_depth(data)

    def _prepare(self) -> Callable[[Any], Any]:
        self._decode = msgspec.json.Decoder(self._type).decode
        return self._decode


def _is_flat(data: Any) -> bool:
    try:
        _check_depth(data)
    except Undecodable:
        return False
    return True


def decode_loose_json(
    data: str | bytes | bytearray, *, none_for_nan: bool = False, shallow: bool = False
) -> Any:
    """JSON as Python's ``json`` reads it: with ``NaN`` and ``Infinity``, which ``none_for_nan`` makes None.
    ``shallow``: the caller knows that it is not too deep, as ``json_limits.check_json`` says.

    Raises:
        Undecodable: it is no JSON, or is nested too deeply.
    """
    if not shallow:
        _check_depth(data)
    if none_for_nan:
        return _refusing(lambda text: json.loads(text, parse_constant=lambda _name: None), data)
    return _refusing(json.loads, data)


def decode_yaml(text: str | bytes) -> Any:
    """YAML of one document in plain values, as ``yaml.safe_load`` reads it.

    Raises:
        Undecodable: it is no YAML, has a value that YAML's rules make no value of (``2026-13-45``), is nested too
            deeply, or has more values than ``MOST_VALUES``.
    """
    import yaml

    check_yaml(text)
    return _refusing_yaml(lambda: yaml.load(text, Loader=_yaml_loader()), text)


def check_yaml(text: str | bytes) -> None:
    """Whether a YAML text may be composed or loaded by a library: neither too deep nor too large, without a value that
    holds itself.

    Raises:
        Undecodable: it may not, or is no YAML.
    """
    import yaml

    def walk() -> None:
        sizes: list[tuple[int, str | None]] = []  # values in each open collection, and its anchor
        anchors: dict[str, int] = {}
        count = 0
        for event in yaml.parse(text, Loader=_yaml_loader()):
            anchor: str | None = getattr(event, "anchor", None)
            if isinstance(event, yaml.AliasEvent):
                name = str(anchor)
                if any(name == open_one for _, open_one in sizes):
                    raise Undecodable(f"the alias *{name[:60]} is used inside of what it stands for")
                count += anchors.get(name, 1)
            elif isinstance(event, yaml.CollectionStartEvent):
                sizes.append((count, anchor))
                if len(sizes) > DEEPEST:
                    raise Undecodable(f"it is nested more than {DEEPEST} levels deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                before, anchor = sizes.pop()
                count += 1
                if anchor:
                    anchors[anchor] = count - before
            elif isinstance(event, yaml.ScalarEvent):
                count += 1
                if anchor:
                    anchors[anchor] = 1
            if count > MOST_VALUES:
                raise Undecodable(f"it has more than {MOST_VALUES} values (aliases count each time)")

    _refusing_yaml(walk, text)


def decode_toml(data: bytes) -> dict[str, Any]:
    """TOML in UTF-8.

    Raises:
        Undecodable: it is no TOML, or is nested too deeply.
    """
    import tomllib

    return cast(dict[str, Any], _refusing(lambda data: tomllib.loads(data.decode()), data))


def decode_msgpack(data: bytes, type: type[T]) -> T:
    """A value that this program has packed, and which somebody may have damaged since.

    Raises:
        msgspec.DecodeError: it is no MessagePack, is nested too deeply, or is not of ``type``.
    """
    return cast(T, _refusing(lambda data: msgspec.msgpack.decode(data, type=type), data))


@cache
def _decoder(type: Any) -> JsonDecoder[Any]:
    return JsonDecoder(type)


def _refusing(decode: Callable[[Any], Any], data: Any) -> Any:
    try:
        return decode(data)
    except msgspec.DecodeError:
        raise
    except RecursionError:
        raise Undecodable("it is nested too deeply") from None
    except UnicodeError as error:
        raise Undecodable(f"it is not UTF-8: {_unicode(error)}") from error
    except MemoryError:
        raise Undecodable("it needs more memory than there is") from None
    except (ValueError, OverflowError) as error:
        raise Undecodable(str(error)) from error


def _refusing_yaml(decode: Callable[[], T], text: str | bytes) -> T:
    import yaml

    try:
        return cast(T, _refusing(lambda _: decode(), None))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or error.context or "it is no YAML"
        last = max(1, len(text.splitlines()))  # an end that comes too early is on no line
        raise Undecodable(why, None if mark is None else min(mark.line + 1, last)) from error
    except yaml.YAMLError as error:
        raise Undecodable(" ".join(str(error).split())) from error
    except (
        LookupError,
        AttributeError,
        TypeError,
    ) as error:  # of the constructors, for a tag that does not fit its value
        raise Undecodable(f"it has a value that its tag does not allow: {error}") from error


def _unicode(error: UnicodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} (byte {error.start})"
    return str(error)


@cache
def _yaml_loader() -> Any:
    """libyaml's loader, which is ten times faster, or else Python's; without integers that Python would not print."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_yaml_int(self, node: Any) -> Any:
            value = super().construct_yaml_int(node)
            if value.bit_length() > _MOST_BITS:
                problem = "an integer that is too large"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
            return value

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    return Loader


def _check_depth(data: Any) -> None:
    """Refuse JSON that is nested more than ``DEEPEST`` levels deep."""
    if isinstance(data, str):
        if _removed(data, "[", "") + _removed(data, "{", "") <= DEEPEST:
            return
        raw = data.encode("utf-8", "surrogatepass")
    else:
        some = data if isinstance(data, (bytes, bytearray)) else bytes(data)
        if _removed(some, b"[", b"") + _removed(some, b"{", b"") <= DEEPEST:
            return
        raw = bytes(some)
    # What is left are the brackets outside of texts; each round removes the innermost pairs.
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Most texts hold no bracket: their two quotes are next to each other. Without both, what is outside stays outside.
    raw = raw.translate(_ONE_KIND, _NO_STRUCTURE).replace(b'""', b"")
    raw = b"".join(raw.split(b'"')[::2])
    for _ in range(DEEPEST):
        shorter = raw.replace(b"[]", b"")
        if len(shorter) == len(raw):
            if raw.count(b"[") <= DEEPEST:
                return  # nothing is left, or what the decoder refuses
            break
        raw = shorter
    if raw:
        raise Undecodable(f"it is nested more than {DEEPEST} levels deep")


def _removed(data: Any, bracket: Any, nothing: Any) -> int:
    """How many brackets of one kind there are, at most one more than ``DEEPEST``. To remove them takes a tenth of the
    time of counting them in a long text."""
    return len(data) - len(data.replace(bracket, nothing, DEEPEST + 1))


def holds_anything(type: Any) -> bool:
    """Whether a type has a place for a value of any form, whose depth the type does not say."""
    seen: set[Any] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(type)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, (msgspec.inspect.AnyType, msgspec.inspect.CustomType)):
            return True
        if isinstance(info, tuple):
            waiting.extend(info)
        elif isinstance(info, (msgspec.inspect.Type, msgspec.inspect.Field)):
            cls = getattr(info, "cls", None)
            if cls is not None and cls in seen:
                continue
            seen.add(cls)
            waiting.extend(getattr(info, name) for name in _PARTS if hasattr(info, name))
    return False
