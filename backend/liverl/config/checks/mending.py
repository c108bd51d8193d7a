"""Values that mend a broken rule, each tried before it is named. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from liverl.config.checks.ruleset import Finding
from liverl.config.schema import RunConfig, leaves, value_of

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


def with_values(config: RunConfig, values: Mapping[str, str]) -> RunConfig:
    """``config`` with other values of keys of the schema that are no open mappings.

    Raises:
        msgspec.ValidationError: a value is none of its key's.
    """
    data: dict[str, Any] = msgspec.to_builtins(config)
    for key, text in values.items():
        *sections, name = key.split(".")
        branch = data
        for section in sections:
            branch = branch[section]
        branch[name] = text
    return msgspec.convert(data, RunConfig, strict=False)


def patch_of(
    config: RunConfig, finding: Finding, findings: Callable[[RunConfig], Iterator[Finding]]
) -> dict[str, str]:
    """The nearest of the numbers that ``finding.allowed`` names with which ``findings`` has no fault that the
    configuration did not have, and not this one; empty without one. Only of numbers: which word, path or list is meant
    cannot be told."""
    value = value_of(config, finding.key) if finding.key in leaves() else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {}
    before = {(found.key, found.message) for found in findings(config)}
    numbers = dict.fromkeys(_NUMBER.findall(finding.allowed))
    for number in sorted(numbers, key=lambda text: abs(float(text) - value)):
        values = {finding.key: number}
        try:
            tried = with_values(config, values)
        except msgspec.ValidationError:
            continue
        after = {(found.key, found.message) for found in findings(tried)}
        if after < before and (finding.key, finding.message) not in after:
            return values
    return {}
