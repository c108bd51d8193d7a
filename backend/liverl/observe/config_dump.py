"""The configuration that verl prints at its start, ``pprint`` of one mapping, among the other lines of its log."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from liverl.logs.prefixes import colourless, without_prefix
from liverl.observe.trials.script_sampling import COMPARED, ScriptSampling

_FIRST = "{'actor_rollout_ref': {"
_LONGEST = 5000  # lines; verl 0.9 prints some 1000


def read_dump(lines: Iterable[str]) -> dict[str, Any] | None:
    """The last complete configuration among ``lines``; None without one. Lines of other processes between its own are
    passed over, as their prefixes differ."""
    found: dict[str, Any] | None = None
    part: list[str] = []
    whose = ""
    for line in lines:
        prefix, text = without_prefix(colourless(line))
        begins = text.lstrip().startswith(_FIRST)
        if begins:
            part, whose = [], prefix
        if not (begins or part) or prefix != whose or len(part) > _LONGEST:
            continue
        if part and not text.startswith((" ", "{")):
            continue  # of another process, without a prefix
        part.append(text)
        if text.rstrip().endswith("}"):
            read = _mapping("\n".join(part))
            found, part = (found, part) if read is None else (read, [])
    return found


def _mapping(text: str) -> dict[str, Any] | None:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None  # not complete yet, or no configuration
    return value if isinstance(value, dict) else None


def sampling_of(config: dict[str, Any]) -> ScriptSampling | None:
    """With which parameters a trainer of this configuration takes its trials to be sampled; None if it has none."""
    rollout = _at(config, "actor_rollout_ref", "rollout")
    training, validation = _numbers(rollout), _numbers(_at(rollout, "val_kwargs"))
    return ScriptSampling(training, validation) if training else None


def _at(config: Any, *names: str) -> dict[str, Any]:
    for name in names:
        config = config.get(name) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name in COMPARED
        if isinstance(value := values.get(name), int | float) and not isinstance(value, bool)
    }
