"""Training metrics: verl's file logger (``metrics.jsonl``) and its console lines."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

import msgspec

from liverl.model import StepMetrics
from liverl.observe.follow import LineFollower
from liverl.observe.lines import colourless

_STEP = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - ([^\r\n]*)")
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\((.*?)(?:, .*)?\)")  # np.float64(0.5), tensor(0.5, device='cuda:0')
_decode = msgspec.json.Decoder().decode


def parse_step_line(line: str) -> StepMetrics | None:
    """Metrics of one console line ``[prefix] step:N - key:value - ...``, or None where it is not one.

    Colours and Ray's prefix are ignored; values that are not finite numbers are dropped.
    """
    if "step:" not in line:
        return None
    match = _STEP.search(colourless(line))  # a bar may stand before or after it
    if match is None:
        return None
    values: dict[str, float] = {}
    for item in match.group(2).split(" - "):
        key, colon, text = item.partition(":")
        value = _number(text.strip()) if colon else None
        if value is not None and key.strip():
            values[key.strip()] = value
    return StepMetrics(step=int(match.group(1)), values=values) if values else None


def decode_record(line: bytes) -> tuple[int, dict[str, Any]] | None:
    """Step and data of one line ``{"step": n, "data": {...}}``, or None where it is not one."""
    try:
        record: Any = _decode(line)
    except msgspec.DecodeError:
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
    """Metrics of one line of the file; values that are not finite numbers are dropped."""
    record = decode_record(line)
    if record is None:
        return None
    step, data = record
    values = {key: number for key, value in data.items() if (number := _finite(value)) is not None}
    return StepMetrics(step=step, values=values)


def training_step(metrics: StepMetrics) -> int | None:
    """The training step these metrics belong to; None for a validation-only line of an asynchronous run."""
    step = metrics.values.get("training/global_step")
    return None if step is None else int(step)


class MetricsReader:
    """New records of a ``metrics.jsonl``. ``bad_lines`` counts what was no record; when ``resets`` grows, the
    file was replaced or truncated and is read from its start again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(path)
        self.bad_lines = 0

    @property
    def resets(self) -> int:
        return self._lines.resets

    def poll(self) -> list[StepMetrics]:
        """Records completed since the last call, at most 4 MiB of them. Raises OSError but "not there"."""
        found: list[StepMetrics] = []
        for line in self._lines.poll():
            metrics = parse_metrics_record(line)
            if metrics is not None:
                found.append(metrics)
            elif line.strip():
                self.bad_lines += 1
        return found


class ConsoleReader:
    """Step lines of a trainer's log, for a trainer that writes no metrics file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(path)

    @property
    def resets(self) -> int:
        return self._lines.resets

    def poll(self) -> list[StepMetrics]:
        """Steps completed since the last call. Raises OSError but "not there"."""
        found: list[StepMetrics] = []
        for line in self._lines.poll():
            if b"step:" in line:
                metrics = parse_step_line(line.decode("utf-8", "replace"))
                if metrics is not None:
                    found.append(metrics)
        return found


def _number(text: str) -> float | None:
    wrapped = _WRAPPED.fullmatch(text)
    try:
        value = float(wrapped.group(1) if wrapped else text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
