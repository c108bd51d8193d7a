"""Rules between configuration keys: a finding, and a list that collects rules by a decorator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from liverl.config.schema import RunConfig

# The form of names that become a directory, a file or a label: one path component.
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Finding(Struct, frozen=True):
    """A broken rule: the key to change, and the texts of its ``Problem``."""

    key: str
    message: str
    found: str = ""
    allowed: str = ""
    hint: str = ""


Rule = Callable[[RunConfig], Iterator[Finding]]


class RuleSet(list[tuple[tuple[str, ...], Rule]]):
    """A list of (keys that the rule reads, rule). A rule yields a ``Finding`` for each fault."""

    def rule(self, *keys: str) -> Callable[[Rule], Rule]:
        """A decorator that adds a rule, which reads ``keys``, to this set."""

        def register(rule: Rule) -> Rule:
            self.append((keys, rule))
            return rule

        return register
