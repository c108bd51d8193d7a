"""``set KEY=VALUE`` of the configuration, and ``theme``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect as types

from liverl_tui.text import themes
from liverl_tui.text.theme_names import AUTO
from liverl_tui.typed.command import Act, Command, Completion, Here, TypedError, missing, one_of, starting

_FORM = "KEY=VALUE, such as training.total_steps=40"
_REPLICAS = "run.replicas"
_OWN = "ui."  # keys of the interface


def _parse_set(text: str, here: Here) -> Act:
    from liverl.config.changes import on_change
    from liverl.config.coerce import expected
    from liverl.config.layers import from_sets
    from liverl.config.schema import leaves

    key, _, value = (part.strip() for part in text.partition("="))
    if not key:
        raise missing("set", _FORM)
    # An unknown key is reported as such, also without a value.
    problems = from_sets([f"{key}={value}"]).problems
    unknown = next((problem for problem in problems if problem.message == "unknown key"), None)
    if unknown is not None:
        raise TypedError(f"set: {msgspec.structs.replace(unknown, allowed='').sentence}")
    try:
        meaning = on_change(key)
    except KeyError:  # not even in the form of a key
        raise TypedError(f"set: {problems[0].sentence}" if problems else f"set: {key!r} is no key") from None
    if meaning.kind == "never":
        raise TypedError(f"set: {key} cannot be changed in an existing run: {meaning.why}")
    if not value:  # it would mean null, or an empty text
        kind = leaves().get(key)
        allowed = expected(kind) if kind is not None else "a value"
        raise TypedError(f"set: no value found for {key}; expected {key}= and {allowed}")
    problem = problems[0].sentence if problems else here.problem_with({key: value})
    if problem is not None:
        raise TypedError(f"set: {problem}")
    if key.startswith(_OWN):
        return _own(key, value)
    if key == _REPLICAS and here.view.link != "ended":
        if here.refused is not None:
            raise TypedError(f"set: {here.refused}")
        return lambda host: host.commands.scale(to=int(value))
    if here.refused_attempt is not None:
        raise TypedError(f"set: {here.refused_attempt}")
    return lambda host: host.next_attempt.offer({key: value})


def _own(key: str, value: str) -> Act:
    """Set a key of the interface, in this one."""
    if key == "ui.theme":
        name = one_of("set ui.theme", value, "the name of a theme", _themes())
        return lambda host: host.navigation.use_theme(name)
    return lambda host: host.navigation.use_setting(key.removeprefix(_OWN), value)


def _complete_set(text: str, here: Here) -> Iterator[Completion]:
    from liverl.config.changes import HIDDEN, table
    from liverl.config.schema import leaves

    key, equals, _ = text.partition("=")
    if not equals:
        now = here.present()
        keys = [
            Completion(
                f"{name}=", f"now {now[name] or 'empty'}; {meaning.words}" if name in now else meaning.words
            )
            for name, meaning in table().items()
            if meaning.kind != "never"
        ]
        yield from starting(key.strip(), keys)
        return
    kind = leaves().get(key.strip())
    present = here.present().get(key.strip(), "")
    words = _themes() if key.strip() == "ui.theme" else _words(kind) if kind is not None else ()
    values = dict.fromkeys([present] if present and present != HIDDEN else []) | dict.fromkeys(words)
    yield from starting(
        text, [Completion(f"{key.strip()}={v}", "its present value" if v == present else "") for v in values]
    )


def _words(kind: types.Type) -> Iterable[str]:
    """The values of a type that has only a few."""
    from liverl.config.coerce import plain_type

    kind = plain_type(kind)
    if isinstance(kind, types.BoolType):
        return ("true", "false")
    if isinstance(kind, types.LiteralType):
        return tuple(str(value) for value in kind.values)
    if isinstance(kind, types.UnionType):
        return tuple(word for member in kind.types for word in _words(member))
    return ("null",) if isinstance(kind, types.NoneType) else ()


def _themes() -> list[str]:
    return [AUTO, *(name.removeprefix("liverl-") for name in themes.PALETTES)]


def _parse_theme(text: str, here: Here) -> Act:
    del here
    name = one_of("theme", text.removeprefix("liverl-"), "the name of a theme", _themes())
    return lambda host: host.navigation.use_theme(name)


def _complete_theme(text: str, here: Here) -> Iterator[Completion]:
    del here
    yield from starting(text, [Completion(name, "use this theme") for name in _themes()])


SETTINGS: tuple[Command, ...] = (
    Command(
        "set",
        "KEY=VALUE",
        "Set a key of the configuration, at once or by a resume (asks)",
        _parse_set,
        _complete_set,
    ),
    Command("theme", "NAME", "Use a theme", _parse_theme, _complete_theme),
)
