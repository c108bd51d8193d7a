"""Whether Prometheus will be able to read the run's metrics. Never a failure: a run must not depend on it."""

from __future__ import annotations

from pathlib import Path

from liverl.exposition.server import HOST, Unusable, read_token
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.ports import free_now
from liverl.procs import procfs

NAME = "metrics"


def checks(plan: Plan) -> Check:
    """The port is free, and the token's file is the caller's alone."""
    settings = plan.settings
    holder = procfs.port_holder(settings.metrics_port)
    if holder is not None:
        found = f"port {settings.metrics_port} is held by {holder.words()}: no metrics are served until it is free"
        return Check(NAME, "warn", found, fix=free_now("observe.metrics_port"))
    if settings.metrics_token_file:
        try:
            read_token(Path(settings.metrics_token_file))
        except Unusable as error:
            return Check(NAME, "warn", f"no metrics are served: {error}")
    return Check(NAME, "ok", f"http://{HOST}:{settings.metrics_port}/metrics")
