"""The plan of the sessions: our own service that records trials as tokens, on a listening socket that the run owns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from liverl.config.conditions import ANY_HOST, bridged
from liverl.config.schema import RunConfig
from liverl.config.sizing import model_path
from liverl.plan.policies import listen_host, restart_policy, stop_stages
from liverl.plan.replica import TOKEN
from liverl.plan.spec import BRIDGE, FileSpec, PortSpec, Probe, Probes, ServiceSpec

NAME: Literal["sessions"] = "sessions"
CONTROL_KEY = "secrets/sessions_key"  # in the run directory; the trainer's part requires it
SANDBOXES = "sandboxes"  # the port at the gateway of Docker's bridge
_SETTINGS = "sessions/settings.json"


def service(config: RunConfig) -> ServiceSpec:
    """The service in liverl's own environment. It waits for nothing: requests wait until it knows a replica."""
    return ServiceSpec(
        name=NAME,
        kind="sessions",
        argv=("{python:self}", "-P", "-m", "liverl.sessions", "--config", f"{{run_dir}}/{_SETTINGS}"),
        inherits="embedded",
        ports=tuple(_ports(config)),
        probes=Probes(
            # Connections queue in the run's socket before the process serves, so the process says when it does.
            startup=Probe(
                "status_file", path="sessions/status.{generation}.json", pattern="serving", interval=0.3
            ),
            startup_deadline=min(config.supervise.startup_deadline, 300.0),
            ready=Probe("http", port="http", interval=2.0, timeout=10.0, failures=3),
            live=Probe("http", port="http", interval=5.0, timeout=20.0, failures=6),
        ),
        restart=restart_policy(config),
        # At the first SIGTERM it waits for replies that are being sampled, until the second one.
        # Two processes must not write the same journals, so one ends before the next one starts.
        stop=stop_stages(config),
        files=(FileSpec(_SETTINGS, json.dumps(_settings(config), indent=1)),),
    )


def _ports(config: RunConfig) -> Iterator[PortSpec]:
    """One for this machine, and one for sandboxes in Docker where ``proxy.host`` is auto."""
    number, key = config.session_proxy.port, "session_proxy.port"
    yield PortSpec("http", number, listen_host(config), held=True, key=key)
    if bridged(config):
        yield PortSpec(SANDBOXES, number, BRIDGE, held=True, key=key)


def agents_host(config: RunConfig) -> str:
    """The host in the URLs that agents get; "": the service finds it: the address of its port for sandboxes, without
    one this machine's primary address."""
    if config.proxy.advertise:
        return config.proxy.advertise
    if bridged(config):
        return ""
    host = listen_host(config)
    return config.infrastructure.node0_ip if host in ANY_HOST else host


def _settings(config: RunConfig) -> dict[str, Any]:
    """The content of the settings file, which ``liverl.sessions.settings.Settings`` reads."""
    return {
        "run_dir": "{run_dir}",
        "host": agents_host(config),
        "control_key_file": f"{{run_dir}}/{CONTROL_KEY}",
        "replica_token_file": f"{{run_dir}}/{TOKEN}",
        "max_body_bytes": config.proxy.max_body_bytes,
        **of_any_host(config),
        "tokenizer": config.session_proxy.tokenizer,
        "processes": config.session_proxy.processes,
        "model_path": model_path(config),
        "request_timeout": config.proxy.request_timeout,
        "scheduler": _scheduler(config),
        "decides": "client" if config.trainer.kind == "none" else "trainer",
    }


def of_any_host(config: RunConfig) -> dict[str, Any]:
    """The settings that sessions have wherever they are: in the service, and in verl's workers."""
    session_proxy = config.session_proxy
    return {
        "rewrite": session_proxy.rewrite,
        "asides": session_proxy.asides,
        "main_agent_prefix_match": session_proxy.main_agent_prefix_match,
        "models": session_proxy.models,
        "patience": session_proxy.patience,
        "max_replica_deaths": session_proxy.max_replica_deaths,
        "in_flight": session_proxy.in_flight,
        "rows_per_trial": session_proxy.rows_per_trial,
    }


def _scheduler(config: RunConfig) -> dict[str, Any] | None:
    scheduler = config.session_proxy.scheduler
    if not scheduler.enabled:
        return None
    rules = {
        "high_watermark": scheduler.high_watermark,
        "hit_threshold": scheduler.hit_threshold,
        "idle_grace": scheduler.idle_grace,
    }
    return {"rules": rules, "poll": scheduler.poll}
