"""Parses training metrics: records of a metrics file, and the line that verl prints after each step."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from liverl.logs.prefixes import colourless
from liverl.logs.ray_prefixes import repeated_in
from liverl.model import StepMetrics
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder, decode_loose_json

_STEP = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - ([^\r\n]*)")
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\((.*?)(?:, .*)?\)")  # np.float64(0.5), tensor(0.5, device='cuda:0')
_decode = JsonDecoder().decode


def decode_step_line(line: str) -> tuple[int, dict[str, float]] | None:
    """Return step and values of a console line ``[prefix] step:N - key:value - ...``; None if it is not one.

    Colours, Ray's prefix and its note on merged lines are ignored; NaN and infinities are kept, other non-numbers
    dropped.
    """
    if "step:" not in line:
        return None
    match = _STEP.search(colourless(line))  # a progress bar may precede or follow it
    if match is None:
        return None
    values: dict[str, float] = {}
    for item in repeated_in(match.group(2))[0].split(" - "):
        name, _, number = item.rpartition(":")
        if name := name.strip():
            try:
                values[name] = float(number)  # nearly all of them
                continue
            except ValueError:
                pass
        # Keys (data source) and values (device) may contain a colon.
        for key, colon, text in (item.rpartition(":"), item.partition(":")):
            value = _number(text.strip()) if colon else None
            if value is not None and key.strip():
                values[key.strip()] = value
                break
    return (int(match.group(1)), values) if values else None


def step_metrics(step: int, numbers: Mapping[str, float]) -> StepMetrics:
    """The metrics of a step, those that are no finite numbers by their names only."""
    values = {key: value for key, value in numbers.items() if math.isfinite(value)}
    if len(values) == len(numbers):
        return StepMetrics(step=step, values=values)
    return StepMetrics(
        step=step,
        values=values,
        not_finite={key: str(value) for key, value in numbers.items() if key not in values},
    )


def parse_step_line(line: str) -> StepMetrics | None:
    """The metrics of a console line; None if it is not one."""
    decoded = decode_step_line(line)
    return None if decoded is None else step_metrics(*decoded)


def decode_record(line: bytes) -> tuple[int, dict[str, Any]] | None:
    """Return step and data of a line ``{"step": n, "data": {...}}``; None if it is not one."""
    try:
        record: Any = _decode(line)
    except BAD_JSON:
        try:
            record = decode_loose_json(line)  # Python's json writes NaN, which is not JSON
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
    """Return the metrics of a record; None if it is not one."""
    record = decode_record(line)
    return None if record is None else step_metrics(record[0], numbers_of(record[1]))


def numbers_of(data: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a record: null counts as NaN, and what is neither is left out."""
    numbers = {}
    for key, value in data.items():
        if type(value) is float:  # nearly all of them, and a long history has millions
            numbers[key] = value
            continue
        number = number_of(value)
        if value is None or not math.isnan(number) or isinstance(value, float):
            numbers[key] = number
    return numbers


def training_step(metrics: StepMetrics) -> int | None:
    """Return the training step of these metrics; None for a validation-only line of an asynchronous run."""
    step = metrics.values.get("training/global_step")
    return int(step) if step is not None and math.isfinite(step) else None


def validation_only(keys: Any) -> bool:
    """Whether a record with these keys holds only validation scores. An empty record is a step."""
    return bool(keys) and all(key.startswith("val-") for key in keys)


def only_validates(metrics: StepMetrics) -> bool:
    """Whether these metrics are of a validation, and of no step."""
    return validation_only((*metrics.values, *metrics.not_finite))


def number_of(value: object) -> float:
    """Return a value as float; NaN for null (used by writers without NaN) and non-numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        wrapped = _WRAPPED.fullmatch(text)
    try:
        return None if wrapped is None else float(wrapped.group(1))
    except ValueError:
        return None
