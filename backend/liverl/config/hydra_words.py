"""Overrides as launch scripts hold them, a list of Hydra's words (``++key=value``, ``~key``), as keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from liverl.config.coerce import Bad
from liverl.config.yaml_nodes import Node

FORM = "key=value, +key=value, ++key=value or ~key"
_WORD = re.compile(r"(?P<key>(?:\+\+|\+|~)?[A-Za-z_][A-Za-z0-9_$./@:-]*)(?:=(?P<value>.*))?", re.DOTALL)
_SECOND = re.compile(r"\s(?:\+\+|\+|~)?[A-Za-z_][\w./@-]*=")
# What a shell would have replaced: $NAME, but neither OmegaConf's ${a.b} nor a $ within a name.
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*")
_NO_SHELL = "verl is started without a shell, so {found} is not expanded: write the value itself"


def pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """(key, value) of each word in the list ``node``. Values are text in Hydra's grammar; that of ``~key`` is null. A
    backslash that continued the line in a script is left out.

    Raises:
        Bad: an item is no such word.
    """
    for item in node.items:
        yield _pair(item)


def _pair(item: Node) -> tuple[Node, Node]:
    if item.kind == "map" and len(item.pairs) == 1:
        return item.pairs[0]  # "- key: value"
    if item.kind != "scalar":
        raise Bad(item, FORM)
    text = re.sub(r"\s+\\$", "", item.text.strip())
    match = _WORD.fullmatch(text)
    if match is None or (match["value"] is None and not text.startswith("~")):
        raise Bad(item, FORM, "to add an empty text, write key=''" if text.endswith("=") else "")
    value = match["value"]
    if value is None or text.startswith("~"):
        return _scalar(item, match["key"]), Node("scalar", item.where, text="null", plain=True)
    bare = value[:1] not in ("'", '"', "[", "{")
    if bare and _SECOND.search(value):
        raise Bad(item, FORM, "this holds several overrides: write each as an item of its own")
    if variable := _VARIABLE.search(value):
        raise Bad(item, FORM, _NO_SHELL.format(found=variable[0]))
    if not value:
        raise Bad(item, FORM, "to set an empty text, write key=''")
    return _scalar(item, match["key"]), _scalar(item, value)


def _scalar(item: Node, text: str) -> Node:
    """A text where ``item`` stands, which is not read as YAML again."""
    return replace(item, text=text, plain=False, tag="str")
