"""Training metrics as lines: records of a metrics file, and the line that verl prints after each step."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from liverl.logs.prefixes import colourless
from liverl.model import StepMetrics

_STEP = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - ([^\r\n]*)")
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\((.*?)(?:, .*)?\)")  # np.float64(0.5), tensor(0.5, device='cuda:0')
_decode = msgspec.json.Decoder().decode


def decode_step_line(line: str) -> tuple[int, dict[str, float]] | None:
    """Step and values of one console line ``[prefix] step:N - key:value - ...``, or None where it is not one.

    Colours and Ray's prefix are ignored; NaN and infinities stay, what is no number is dropped.
    """
    if "step:" not in line:
        return None
    match = _STEP.search(colourless(line))  # a bar may stand before or after it
    if match is None:
        return None
    values: dict[str, float] = {}
    for item in match.group(2).split(" - "):
        # A key may hold a colon (a data source), and so may a value (a device).
        for key, colon, text in (item.rpartition(":"), item.partition(":")):
            value = _number(text.strip()) if colon else None
            if value is not None and key.strip():
                values[key.strip()] = value
                break
    return (int(match.group(1)), values) if values else None


def parse_step_line(line: str) -> StepMetrics | None:
    """The same without what is not finite; None too where nothing is left."""
    found = decode_step_line(line)
    if found is None:
        return None
    values = {key: value for key, value in found[1].items() if math.isfinite(value)}
    return StepMetrics(step=found[0], values=values) if values else None


def decode_record(line: bytes) -> tuple[int, dict[str, Any]] | None:
    """Step and data of one line ``{"step": n, "data": {...}}``, or None where it is not one."""
    try:
        record: Any = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            record = json.loads(line)  # Python's json writes NaN, which is not JSON
        except (ValueError, RecursionError):
            return None
    if not isinstance(record, dict):
        return None
    step, data = record.get("step"), record.get("data")
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if not isinstance(step, int) or isinstance(step, bool) or not isinstance(data, dict):
        return None
    return step, data


def parse_metrics_record(line: bytes) -> StepMetrics | None:
    """Metrics of one record, or None where it is not one. Values that are not finite numbers are dropped."""
    record = decode_record(line)
    if record is None:
        return None
    step, data = record
    values = {key: number for key, value in data.items() if math.isfinite(number := number_of(value))}
    return StepMetrics(step=step, values=values)


def training_step(metrics: StepMetrics) -> int | None:
    """The training step these metrics belong to; None for a validation-only line of an asynchronous run."""
    step = metrics.values.get("training/global_step")
    return None if step is None else int(step)


def validation_only(keys: Any) -> bool:
    """Whether a record with these keys says nothing of a training step: a validation before the first one, or
    beside the steps. An empty record is a step."""
    return bool(keys) and all(key.startswith("val-") for key in keys)


def number_of(value: object) -> float:
    """A value of a record: NaN where it is null, which writers without NaN use, and where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _number(text: str) -> float | None:
    wrapped = _WRAPPED.fullmatch(text)
    try:
        return float(wrapped.group(1) if wrapped else text)
    except ValueError:
        return None
