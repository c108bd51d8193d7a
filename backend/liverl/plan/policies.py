"""How services are stopped and restarted: the parts that the plans of all components share."""

from __future__ import annotations

from liverl.config.conditions import ANY_HOST, AUTO_HOST
from liverl.config.schema import RunConfig
from liverl.plan.spec import RestartPolicy, StopStage

LOOPBACK = "127.0.0.1"


def stop_stages(config: RunConfig, *, leader_grace: float | None = None) -> tuple[StopStage, ...]:
    """SIGTERM to the leader (vLLM and LiteLLM then end their own workers), SIGTERM to the tree, SIGKILL to the tree.

    ``leader_grace``: seconds after the first signal; None = ``supervise.stop_grace``.
    """
    supervise = config.supervise
    grace = supervise.stop_grace if leader_grace is None else leader_grace
    return (
        StopStage("TERM", "leader", grace),
        StopStage("TERM", "tree", supervise.tree_grace),
        StopStage("KILL", "tree", supervise.kill_grace),
    )


def restart_policy(config: RunConfig) -> RestartPolicy:
    """Restart after a failure, with delays and limits from the section ``supervise``."""
    supervise = config.supervise
    return RestartPolicy(
        mode="on_failure",
        base=supervise.restart_base,
        cap=supervise.restart_cap,
        jitter=supervise.restart_jitter,
        window=supervise.storm_window,
        max_failures=supervise.storm_failures,
        stable=supervise.stable_after,
    )


def listen_host(config: RunConfig) -> str:
    """The address that LiteLLM and the sessions listen on; sessions have a further one where ``conditions.bridged``."""
    return LOOPBACK if config.proxy.host == AUTO_HOST else config.proxy.host


def loops_host(config: RunConfig) -> str:
    """The host that verl's agent loops connect to for the proxy. On several hosts, one that leads here from each: of a
    proxy that listens on all addresses, ``infrastructure.node0_ip``."""
    host, infra = listen_host(config), config.infrastructure
    if infra.nnodes > 1 and host in ANY_HOST and infra.node0_ip:
        return infra.node0_ip
    return client_host(host)


def client_host(host: str) -> str:
    """The host that a client on this machine connects to, for a service that listens on ``host``."""
    return LOOPBACK if host in (*ANY_HOST, "") else host
