"""One layer of configuration (a file, the environment, ``--set``) as settings: key path -> value and place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct
from msgspec import inspect as types

from liverl.config import hydra_words
from liverl.config.coerce import Bad, convert, is_text, plain_type, to_plain
from liverl.config.env_vars import SECRET_FILES, SECRET_KEYS, VARIABLES, counts, value_from
from liverl.config.errors import Problem, Where
from liverl.config.schema import Path, fields, is_open, leaves, root_type
from liverl.config.traj_filter import endings_of
from liverl.config.yaml_nodes import Node, parse, scalar
from liverl.util.nearest import did_you_mean, nearest

LayerName = Literal["default", "trainer", "profile", "file", "liverl env", "env", "set"]
PREFIX = "LIVERL_"
# Open mappings that may also be a list of words, and who reads it.
WORD_LISTS: dict[Path, Callable[[Node], Iterable[tuple[Node, Node]]]] = {
    ("trainer", "overrides"): hydra_words.pairs
}
# LiveRL's sections that configure nothing; they are saved with the run.
KEPT = ("meta_info", "status", "evolving")
_NOT_SHOWN = (*SECRET_KEYS, "notify.targets")  # keys whose value may be a secret
WRAPPER = "runtime_info"  # LiveRL's section with the configuration as ``input``


class Setting(Struct, frozen=True):
    """The value of one key, the place where it was set, and the layer of that place."""

    value: Any
    where: Where
    layer: LayerName


@dataclass(slots=True)
class Layer:
    """The content of one layer. ``bad``: the keys whose value was refused; ``kept``: LiveRL's sections that configure
    nothing; ``wrapped``: the file has LiveRL's ``runtime_info.input``."""

    name: LayerName
    settings: dict[Path, Setting] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad: set[Path] = field(default_factory=set)
    kept: dict[str, Any] = field(default_factory=dict)
    wrapped: bool = False

    def put(self, path: Path, node: Node, kind: types.Type) -> None:
        """Convert and record the value of one key; a wrong or repeated one becomes a problem."""
        if path in self.settings:
            first = self.settings[path].where
            self.refuse(Problem(node.where, ".".join(path), "given twice", hint=f"first at {first}"), path)
            return
        try:
            value = convert(node, kind)
        except Bad as bad:
            secret = ".".join(path) in _NOT_SHOWN
            found = "a value (not shown)" if secret and bad.node.kind == "scalar" else bad.found
            problem = Problem(bad.node.where, ".".join(path), "wrong value", found, bad.expected, bad.hint)
            self.refuse(problem, path)
        else:
            self.settings[path] = Setting(value, node.where, self.name)

    def refuse(self, problem: Problem, path: Path | None = None) -> None:
        """Record ``problem``; ``path`` is the key to leave out of further checks, if there is one."""
        self.problems.append(problem)
        if path is not None:
            self.bad.add(path)


def from_text(text: str, source: str, name: LayerName) -> Layer:
    """The layer of a configuration file with content ``text``; ``source`` is its path or name in messages."""
    layer = Layer(name)
    root, problems = parse(text, source)
    layer.problems.extend(problems)
    if root is None or root.is_null:
        return layer
    if root.kind != "map":
        allowed = "a mapping of sections: " + ", ".join(fields(root_type()))
        found = "a list" if root.kind == "list" else "a single value"
        layer.refuse(Problem(root.where, "", "the file is not a liverl configuration", found, allowed))
        return layer
    for key, value in root.pairs:
        if key.text in KEPT:
            layer.kept[key.text] = to_plain(value)
        elif key.text == WRAPPER:
            _unwrap(layer, value)
        else:
            _section(layer, key, value)
    return layer


def _unwrap(layer: Layer, node: Node) -> None:
    if node.is_null:
        return
    if node.kind != "map":
        layer.refuse(Problem(node.where, WRAPPER, "wrong value", allowed="a mapping with input and output"))
        return
    for key, value in node.pairs:
        if key.text == "output":
            layer.kept["output"] = to_plain(value)
        elif key.text != "input":
            hint = did_you_mean(key.text, ("input", "output"))
            layer.refuse(
                Problem(key.where, f"{WRAPPER}.{key.text}", "unknown key", allowed="input, output", hint=hint)
            )
        elif value.kind == "map":
            layer.wrapped = True
            for name, section in value.pairs:
                _section(layer, name, section)
        elif not value.is_null:
            layer.refuse(
                Problem(value.where, f"{WRAPPER}.input", "wrong value", allowed="a mapping of sections")
            )


def _section(layer: Layer, key: Node, value: Node) -> None:
    sections = fields(root_type())
    if key.text not in sections:
        layer.refuse(unknown_key((), _with_inner(key, value), key.where, sections, key.text))
        return
    walk(layer, (key.text,), value, sections[key.text])


def walk(layer: Layer, path: Path, node: Node, kind: types.Type) -> None:
    """Record every key in ``node``, which is the value of ``path`` and should have type ``kind``."""
    kind = plain_type(kind)
    if isinstance(kind, types.StructType):
        if node.is_null:
            return
        section = fields(kind)
        if node.kind != "map":
            layer.refuse(Problem(node.where, ".".join(path), "wrong value", allowed=_keys(section)))
            return
        for key, value in node.pairs:
            if key.text in section:
                walk(layer, (*path, key.text), value, section[key.text])
            else:
                layer.refuse(unknown_key(path, _with_inner(key, value), key.where, section, key.text))
    elif isinstance(kind, types.DictType):
        if node.is_null:
            return
        try:
            pairs = _pairs(path, node)
        except Bad as bad:
            problem = Problem(
                bad.node.where, ".".join(path), "wrong value", bad.found, bad.expected, bad.hint
            )
            layer.refuse(problem, path)
            return
        for key, value in pairs:
            if key.text:
                walk(layer, (*path, key.text), value, kind.value_type)
            else:
                layer.refuse(Problem(key.where, ".".join(path), "an empty key"))
    else:
        layer.put(path, node, kind)


def _pairs(path: Path, node: Node) -> list[tuple[Node, Node]]:
    """The keys and values of an open mapping.

    Raises:
        Bad: ``node`` is no mapping, or holds an item that is no pair.
    """
    if node.kind == "map":
        return node.pairs
    if node.kind == "list" and path in WORD_LISTS:
        return list(WORD_LISTS[path](node))
    also = f", or a list of {hydra_words.FORM}" if path in WORD_LISTS else ""
    raise Bad(node, f"a mapping of names to values{also}")


def _with_inner(key: Node, value: Node) -> str:
    """A key, dotted with the first key in its value: ``async_training.staleness_threshold``."""
    return f"{key.text}.{value.pairs[0][0].text}" if value.kind == "map" and value.pairs else key.text


def unknown_key(
    path: Path, name: str, where: Where, section: Mapping[str, Any], shown: str | None = None
) -> Problem:
    """The problem of an unknown key ``name`` in the section ``path``, whose keys are those of ``section``. Its hint is
    the key that was probably meant, in this section or in another. A dotted ``name`` begins with the unknown key; what
    follows it is kept in the hint where that gives a key, or is a key of another section. ``shown``: the key in the
    message, ``name`` if None."""
    key = ".".join((*path, name if shown is None else shown))
    name, _, rest = name.partition(".")
    close = nearest(name, section)
    meant = None if close is None else _completed((*path, close), rest)
    # A key with another below it is no key: only a section has keys.
    whole = meant in leaves() and (not rest or meant != ".".join((*path, str(close))))
    if not whole and (close is None or rest) and (home := _home(rest or name)) is not None:
        meant = home
    elif close is None:
        far = nearest(name, (leaf.rsplit(".", 1)[-1] for leaf in leaves()), cutoff=0.8)
        meant = next((leaf for leaf in leaves() if far and leaf.endswith(f".{far}")), None)
    meant = meant or (_abbreviated(name) if not path else None)
    if (
        close is not None
        and shown is not None
        and meant is not None
        and meant.startswith(f"{_dotted(path, close)}.")
    ):
        meant = _dotted(
            path, close
        )  # only the name of the section is wrong, the keys in it are judged with it
    of = "the section " if meant is not None and _is_section(meant) else ""
    hint = f"did you mean {of}{meant}?" if meant else ""
    return Problem(where, key, "unknown key", allowed=_keys(section), hint=hint)


def _dotted(path: Path, name: str) -> str:
    return ".".join((*path, name))


def _is_section(key: str) -> bool:
    """Whether keys stand below ``key``."""
    return any(leaf.startswith(f"{key}.") for leaf in leaves())


def _home(name: str) -> str | None:
    """The first key whose last part is that of ``name``, or nearly, which stands in a section that does not exist."""
    lasts = {leaf.rsplit(".", 1)[-1]: leaf for leaf in reversed(list(leaves()))}
    last = name.rsplit(".", 1)[-1].lower().replace("-", "_")
    close = last if last in lasts else nearest(last, lasts, cutoff=0.9)
    return None if close is None else lasts[close]


def _abbreviated(name: str) -> str | None:
    """The key whose last part has words with these initials, as ``lr`` for ``algorithm.learning_rate``; None if none
    has, or several have."""
    initials = {leaf: "".join(word[:1] for word in leaf.rsplit(".", 1)[-1].split("_")) for leaf in leaves()}
    fitting = [leaf for leaf, letters in initials.items() if len(letters) > 1 and letters == name.lower()]
    return fitting[0] if len(fitting) == 1 else None


def _completed(path: Path, rest: str) -> str:
    """The dotted key ``path``, followed by the key most like ``rest`` if it is a section that has one."""
    key = ".".join(path)
    inner = [leaf.removeprefix(f"{key}.") for leaf in leaves() if leaf.startswith(f"{key}.")]
    close = nearest(rest, inner) if rest else None
    return f"{key}.{close}" if close else key


def _keys(section: Iterable[str]) -> str:
    names = list(section)
    return ", ".join(names) if len(names) <= 24 else f"{len(names)} sections: liverl-tui config prints them"


def from_environment(env: Mapping[str, str]) -> tuple[Layer, Layer, list[str]]:
    """The layer of LiveRL's variables, that of ``LIVERL_SECTION__KEY``, and warnings. An empty variable counts as
    unset."""
    theirs, ours = Layer("liverl env"), Layer("env")
    for name, key in VARIABLES:
        if counts(name, env):
            _replace(theirs, tuple(key.split(".")), value_from(name, env[name]), f"env {name}")
    for name, key in SECRET_FILES:
        if env.get(name):
            _replace(theirs, tuple(key.split(".")), f"file:{env[name]}", f"env {name}")
    for found in endings_of(env):
        where = Where(f"env {found.variable}")
        if found.problem:
            theirs.refuse(
                Problem(where, found.key, found.problem, f"'{found.value}'", found.allowed, found.hint)
            )
        else:
            _replace(theirs, tuple(found.key.split(".")), found.value, f"env {found.variable}")
    warnings: list[str] = []
    by_spelling = {key.replace(".", "_"): key for key in leaves()}
    for name in sorted(env):
        if not name.upper().startswith(PREFIX) or not env[name]:
            continue
        rest = name[len(PREFIX) :].lower()
        if "__" in rest:
            _from_variable(ours, name, rest.split("__"), env[name])
        elif rest in by_spelling:
            proper = PREFIX + by_spelling[rest].replace(".", "__").upper()
            warnings.append(
                f"env {name} is ignored: separate section and key with two underscores ({proper})"
            )
    return theirs, ours, warnings


def _replace(layer: Layer, path: Path, text: str, source: str) -> None:
    """Set ``path`` even if an earlier variable has set it."""
    layer.settings.pop(path, None)
    _raw(layer, path, text, _type_at(path), source)


def _from_variable(layer: Layer, name: str, parts: list[str], text: str) -> None:
    source = f"env {name}"
    target = _descend(parts, exact=False)
    if isinstance(target, Problem):
        layer.refuse(
            Problem(Where(source), target.key, target.message, target.found, target.allowed, target.hint)
        )
        return
    path, kind = target
    _raw(layer, path, text, kind, source)


def from_sets(sets: Sequence[str]) -> Layer:
    """The layer of ``--set section.key=value``. Values are YAML, but text needs no quotes; for the same key the last
    one wins."""
    layer = Layer("set")
    for item in sets:
        name, equals, text = item.partition("=")
        name = name.strip()
        where = Where("--set")
        if not equals or not name:
            layer.refuse(Problem(where, name, "expected the form section.key=value"))
            continue
        target = _descend(name.split("."), exact=True)
        if isinstance(target, Problem):
            layer.refuse(target)
            continue
        path, kind = target
        for old in [p for p in layer.settings if p[: len(path)] == path]:
            del layer.settings[old]
        _raw(layer, path, text.strip(), kind, "--set")
    return layer


def _descend(parts: list[str], exact: bool) -> tuple[Path, types.Type] | Problem:
    """The path and type of a dotted name, or the problem with it. Under an open mapping of plain values the rest of the
    name is one key; without ``exact`` (a variable, whose name cannot spell it) that is a problem."""
    kind: types.Type = root_type()
    path: Path = ()
    for position, part in enumerate(parts):
        kind = plain_type(kind)
        if isinstance(kind, types.StructType):
            section = fields(kind)
            if part not in section:
                return unknown_key(path, ".".join(parts[position:]), Where("--set"), section)
            path, kind = (*path, part), section[part]
        elif is_open(kind) and part:
            inner = plain_type(kind.value_type) if isinstance(kind, types.DictType) else kind
            if not isinstance(inner, types.StructType):
                if not exact:
                    return Problem(
                        Where("--set"), ".".join(parts), "unknown key", hint="give the whole mapping"
                    )
                return (*path, ".".join(parts[position:])), inner
            path, kind = (*path, part), inner
        else:
            return Problem(
                Where("--set"), ".".join(parts), "unknown key", hint=f"{'.'.join(path)} has no nested keys"
            )
    return path, kind


def _type_at(path: Path) -> types.Type:
    target = _descend(list(path), exact=True)
    assert not isinstance(target, Problem), path
    return target[1]


def _raw(layer: Layer, path: Path, text: str, kind: types.Type, source: str) -> None:
    """Record a value from the command line or the environment. For a text key it is used unchanged unless it is
    quoted."""
    if is_text(kind) and text[:1] not in ("'", '"'):
        layer.put(path, scalar(text, Where(source)), kind)
        return
    node, problems = parse(text, source, lines=False)
    for problem in problems:
        layer.refuse(
            Problem(
                problem.where, ".".join(path), problem.message, problem.found, problem.allowed, problem.hint
            ),
            path,
        )
    if not problems:
        walk(layer, path, node or scalar("", Where(source)), kind)
