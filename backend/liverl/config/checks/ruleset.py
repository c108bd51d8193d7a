"""What a rule between keys is, and how rules are collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from liverl.config.schema import RunConfig

# What becomes a directory, a file or a label: one path component.
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Finding(Struct, frozen=True):
    """What one rule found: the key to blame, and the words."""

    key: str
    message: str
    found: str = ""
    allowed: str = ""
    hint: str = ""


Rule = Callable[[RunConfig], Iterator[Finding]]


class RuleSet(list[tuple[tuple[str, ...], Rule]]):
    """Rules with the keys that each of them reads."""

    def rule(self, *keys: str) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            self.append((keys, rule))
            return rule

        return register
