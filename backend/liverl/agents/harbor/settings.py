"""What trials of Harbor's tasks need from the configuration. For Python 3.10 with few packages."""

from __future__ import annotations

from typing import Any

import msgspec


class HarborSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sections ``harbor_agent``, ``harbor_runtime`` and ``k8s`` of the configuration, as plain values by their keys.

    ``labels``: whether sandboxes of Docker get the run's labels and are entered in its ledger (``sandboxes.labels``).

    ``python``: the interpreter of Harbor's environment; ``tasks``: directory from which relative task paths of rows
    count; ``workers``: processes that run verl's agent loops, each of which has a runner of its own.
    """

    python: str
    tasks: str = "."
    workers: int = 1
    labels: bool = True
    agent: dict[str, Any]
    runtime: dict[str, Any]
    k8s: dict[str, Any]
