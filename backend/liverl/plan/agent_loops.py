"""The files that tell verl's agent-loop workers of our agent loop, its arguments, and the user's agents."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from liverl.config.carrier import agent_loop
from liverl.config.conditions import in_workers
from liverl.config.schema import RunConfig
from liverl.config.sections.agent import ROW_KINDS
from liverl.config.sections.verl import OUR_LOOPS, PROXY_LOOP
from liverl.plan import harbor, sessions
from liverl.plan.policies import loops_host
from liverl.plan.spec import FileSpec

PATH = "trainer/agent_loop.yaml"  # in the run directory
AGENT = "trainer/agent.json"  # section ``agent``, as the workers read it


def files(config: RunConfig) -> tuple[FileSpec, ...]:
    """The file for verl's ``agent_loop_config_path`` (JSON is valid YAML), and the user's agents; none if the agent
    loop is not ours.

    The rows of a data set may name any of our loops, and any kind of agent: what carries the trials is decided by the
    run.
    """
    if agent_loop(config) not in OUR_LOOPS:
        return ()
    loop = _proxy(config) if agent_loop(config) == PROXY_LOOP else _session(config)
    names = dict.fromkeys(OUR_LOOPS, "auto") | ROW_KINDS
    entries = [{"name": name, **loop, **_trial(config), "kind": kind} for name, kind in names.items()]
    agent = config.agent
    settings = {
        "kind": agent.kind,
        "python": agent.python,
        "command": agent.command or (),
        "env": agent.env if agent.command else {},
        "verifier": (agent.verifier if agent.command else None) or (),
        "harbor": harbor.settings(config),
        "endings": agent.endings,
    }
    # Not readable by others: agent.env may hold what others should not know.
    given = FileSpec(AGENT, msgspec.json.encode(settings).decode(), mode=0o600)
    return (FileSpec(PATH, json.dumps(entries, indent=1)), given)


def _trial(config: RunConfig) -> dict[str, Any]:
    return {
        "run_dir": "{run_dir}",
        "attempt_dir": "{attempt_dir}",
        "served_model": config.model.served_model_name,
        "max_turns": config.harbor_agent.max_iterations,
        "trial_timeout": config.harbor_agent.trial_timeout,
        "max_retries": config.harbor_agent.max_retries,
        "temperature": config.algorithm.temperature,
        "max_tokens": config.training.max_response_length,
        "agent_file": f"{{run_dir}}/{AGENT}",
    }


def _proxy(config: RunConfig) -> dict[str, Any]:
    return {
        "_target_": "liverl.verl_runtime.agent_loop.ProxyAgentLoop",
        "proxy_url": f"http://{loops_host(config)}:{{port:proxy}}",
        "run_key_file": "{run_dir}/secrets/run_key",
    }


def _session(config: RunConfig) -> dict[str, Any]:
    if not in_workers(config):
        return {
            "_target_": "liverl.verl_runtime.session_loop.ServiceAgentLoop",
            "control_key_file": f"{{run_dir}}/{sessions.CONTROL_KEY}",
        }
    return {
        "_target_": "liverl.verl_runtime.session_loop.WorkerAgentLoop",
        "advertise": config.proxy.advertise,
        **sessions.of_any_host(config),
        "max_body_bytes": config.proxy.max_body_bytes,
    }
