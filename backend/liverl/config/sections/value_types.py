"""The types of configuration values. A range is part of the type, so that every layer is checked in the same way."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from liverl.engines import engine_names

# Words for booleans, beside YAML's own spelling in any case.
TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Frequency = Annotated[int, Meta(ge=-1)]  # in steps; -1 and 0 = never
TopK = Annotated[int, Meta(ge=-1)]  # -1 = no limit
PortOrAny = Annotated[int, Meta(ge=0, le=65535)]  # 0 = any free port
PortOrOff = Annotated[int, Meta(ge=0, le=65535)]  # 0 = no port
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
SecondsOrZero = Annotated[float, Meta(ge=0, le=1e9)]
NotifySeconds = Annotated[float, Meta(gt=0, le=60)]  # the end of a run waits for it
PollSeconds = Annotated[float, Meta(ge=5, le=1e9)]  # /metrics of a busy engine costs it milliseconds
SessionProcesses = Annotated[int, Meta(ge=1, le=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
BodyBytes = Annotated[int, Meta(ge=64 << 10, le=1 << 30)]  # a conversation must fit
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]

Topology = Literal["managed", "verl", "in_process"]
Engine = Annotated[str, Meta(extra={"choices": engine_names})]  # a function, because engines can be added
Installer = Literal["uv", "pip"]
TrainerKind = Literal["embedded", "verl", "command", "none"]
