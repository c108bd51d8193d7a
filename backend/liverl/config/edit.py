"""Changes values in the text of a YAML configuration file; comments, order and everything else stay. Pure.

The text is edited at the places that YAML's parser reports, then read again: if anything but the wanted keys differs,
the edit is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from liverl.config.layers import WRAPPER, from_sets, from_text
from liverl.config.yaml_nodes import LOADER
from liverl.util.decode import Undecodable, check_yaml, decode_yaml

_QUOTES = "\"'"
_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)  # nothing that means something within quotes


class EditRefused(ValueError):
    """The text cannot be changed without a person; ``str()`` says why."""


class ChangedLine(NamedTuple):
    """One line of a file before and after a change. ``number``: from 1, of the new file, of the old one for a line that
    is removed; ``old`` None: the line is new; ``new`` None: it is removed."""

    number: int
    old: str | None
    new: str | None


def edited(text: str, values: Mapping[str, str]) -> str:
    """``text``, a configuration file, with each dotted key of ``values`` set to its value, which is written as for
    ``--set``.

    Raises:
        EditRefused: the file is not a readable configuration, or a value stands where it cannot be replaced alone (in
            an anchor that is used elsewhere, in a list, in a block of text).
    """
    before = text
    for key, value in values.items():
        text = _set(text, key.split("."), _written(value))
    _verify(before, text, values)
    return text


def changed_lines(before: str, after: str) -> list[ChangedLine]:
    """The lines that differ, in the order of the file."""
    old, new = before.splitlines(), after.splitlines()
    found: list[ChangedLine] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        pairs = min(i_end - i, j_end - j)
        found += [ChangedLine(j + k + 1, old[i + k], new[j + k]) for k in range(pairs)]
        found += [ChangedLine(i + k + 1, old[i + k], None) for k in range(pairs, i_end - i)]
        found += [ChangedLine(j + k + 1, None, new[j + k]) for k in range(pairs, j_end - j)]
    return found


def _written(value: str) -> str:
    """``value`` as a YAML scalar in one line: bare where it stays a single plain word, quoted otherwise."""
    if "\n" in value:
        raise EditRefused("the value has several lines")
    try:
        check_yaml(value)
        node = yaml.compose(value, Loader=yaml.SafeLoader)
        alone = isinstance(node, ScalarNode) and node.style is None and node.value == value
        inside = yaml.compose(f"[{value}]", Loader=yaml.SafeLoader)  # nothing that ends a flow collection
        if alone and inside is not None and len(inside.value) == 1 and " #" not in value:
            return value
        if getattr(node, "flow_style", False):
            return value  # a list or mapping in one line
    except (Undecodable, yaml.YAMLError):
        pass
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _set(text: str, path: list[str], value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _composed(text)
    if root is None or (isinstance(root, ScalarNode) and not root.value):
        return _appended(text, path, value, newline)
    if not isinstance(root, MappingNode):
        raise EditRefused("it is no mapping of sections")
    node, rest = _unwrapped(root, path), list(path)
    if node is None:
        raise EditRefused(f"its {WRAPPER}.input holds no sections")
    while True:
        found = _pair(node, rest[0])
        if found is None:
            return _inserted(text, node, rest, value, newline)
        key, child = found
        if not _inside(child, key, node):
            raise EditRefused(f"{'.'.join(path)} comes from an alias (*), which other keys may share")
        rest.pop(0)
        if not rest:
            return _replaced(text, key, child, value)
        if isinstance(child, ScalarNode) and child.value in ("", "~", "null"):
            return _below(text, key, child, rest, value, newline)
        if not isinstance(child, MappingNode):
            raise EditRefused(f"{key.value} holds no keys in it")
        node = child


def _composed(text: str) -> Any:
    try:
        check_yaml(text)
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            return yaml.compose(text, Loader=LOADER)  # it also takes a tab before a comment
    except (Undecodable, yaml.YAMLError) as error:
        problem = f"it is not valid YAML: {' '.join(str(error).split())}"
    told = from_text(text, "the file", "file").problems
    raise EditRefused(told[0].sentence if told else problem)


def _unwrapped(root: MappingNode, path: list[str]) -> MappingNode | None:
    """The mapping with the sections: the root, or in LiveRL's form its ``runtime_info.input``."""
    outer = _pair(root, WRAPPER)
    if outer is None or _pair(root, path[0]) is not None:
        return root
    inner = _pair(outer[1], "input") if isinstance(outer[1], MappingNode) else None
    return inner[1] if inner is not None and isinstance(inner[1], MappingNode) else None


def _pair(node: Any, name: str) -> tuple[ScalarNode, Node] | None:
    return next((pair for pair in node.value if pair[0].value == name), None)


def _inside(child: Node, key: ScalarNode, parent: MappingNode) -> bool:
    """Whether the value stands right behind its key, and is not an alias for a value elsewhere."""
    return key.end_mark.index <= child.start_mark.index <= parent.end_mark.index


def _replaced(text: str, key: ScalarNode, old: Node, value: str) -> str:
    begin, end = old.start_mark.index, old.end_mark.index
    one_line = old.start_mark.line == old.end_mark.line
    if not one_line or (not isinstance(old, ScalarNode) and not getattr(old, "flow_style", False)):
        raise EditRefused(f"the value of {key.value} is longer than a line")
    gap = "" if text[begin - 1 : begin].isspace() else " "
    if begin == end:  # no value at all
        return f"{text[:begin]}{gap}{value}{text[end:]}"
    if text[begin] in "&!":  # an anchor, which other keys may share, or a tag
        raise EditRefused(f"the value of {key.value} has an anchor or a tag")
    if text[begin] in _QUOTES and _PLAIN.fullmatch(value) and _is_text(value):
        value = f"{text[begin]}{value}{text[begin]}"  # as it is written there
    return text[:begin] + value + text[end:]


def _is_text(value: str) -> bool:
    try:
        return isinstance(decode_yaml(value), str)
    except Undecodable:  # as 2026-13-45, which has the form of a date
        return False


def _lines(path: list[str], value: str, indent: str, newline: str) -> str:
    """``a: {b: value}`` in block style, each line with its newline."""
    lines = [f"{indent}{'  ' * depth}{name}:" for depth, name in enumerate(path)]
    lines[-1] += f" {value}"
    return newline.join(lines) + newline


def _appended(text: str, path: list[str], value: str, newline: str) -> str:
    if text and not text.endswith("\n"):
        text += newline
    return text + _lines(path, value, "", newline)


def _inserted(text: str, node: MappingNode, path: list[str], value: str, newline: str) -> str:
    """``path`` added as the last key of the mapping ``node``."""
    if node.flow_style:
        if len(path) > 1:
            raise EditRefused(f"{path[0]} would have to be added inside braces")
        end = node.end_mark.index - 1
        comma = ", " if node.value else ""
        return f"{text[:end].rstrip()}{comma}{path[0]}: {value}{text[end:]}"
    first = node.value[0][0]
    indent = " " * first.start_mark.column
    last = _last(node)
    line_end = text.find("\n", last)
    if line_end < 0:
        text, line_end = text + newline, len(text + newline) - 1
    return text[: line_end + 1] + _lines(path, value, indent, newline) + text[line_end + 1 :]


def _last(node: Any) -> int:
    """Where the last value of a mapping ends, without the comments and empty lines behind it."""
    if isinstance(node, MappingNode) and not node.flow_style:
        key, value = node.value[-1]
        return _last(value) if value.end_mark.index > key.end_mark.index else int(key.end_mark.index)
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        return max(int(node.end_mark.index) - 1, int(node.start_mark.index))
    if not isinstance(node, ScalarNode) and not node.flow_style:
        return _last(node.value[-1])
    return int(node.end_mark.index)


def _below(text: str, key: ScalarNode, empty: Node, path: list[str], value: str, newline: str) -> str:
    """``path`` as the first key of a section that has none yet."""
    if empty.start_mark.index < empty.end_mark.index:  # ``~`` or ``null``
        text = text[: empty.start_mark.index].rstrip(" ") + text[empty.end_mark.index :]
    indent = " " * (key.start_mark.column + 2)
    line_end = text.find("\n", key.end_mark.index)
    if line_end < 0:
        return text + newline + _lines(path, value, indent, newline)
    return text[: line_end + 1] + _lines(path, value, indent, newline) + text[line_end + 1 :]


def _verify(before: str, text: str, values: Mapping[str, str]) -> None:
    """Check that the new text has the wanted values and the others that it had, and is a valid layer."""
    layer, old = (from_text(each, "the file", "file") for each in (text, before))
    wanted = from_sets([f"{key}={value}" for key, value in values.items()])
    if problems := [*wanted.problems, *layer.problems]:
        raise EditRefused(problems[0].sentence)
    for path, setting in wanted.settings.items():
        found = layer.settings.get(path)
        if found is None or found.value != setting.value:
            raise EditRefused(f"{'.'.join(path)} could not be set in it")
    others = {path: setting.value for path, setting in layer.settings.items() if path not in wanted.settings}
    had = {path: setting.value for path, setting in old.settings.items() if path not in wanted.settings}
    if others != had:
        raise EditRefused("other values in it would change, too")
