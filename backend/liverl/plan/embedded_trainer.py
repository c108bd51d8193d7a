"""The plan of the embedded GRPO trainer. The run ends when it exits."""

from __future__ import annotations

import json
from typing import Any

from liverl.config.conditions import through_sessions
from liverl.config.learning_rate import learning_rate
from liverl.config.schema import RunConfig
from liverl.plan import proxy, sessions
from liverl.plan.policies import client_host, listen_host, restart_policy, stop_stages
from liverl.plan.replica import TOKEN
from liverl.plan.spec import Dependency, FileSpec, Probe, Probes, RestartPolicy, ServiceSpec

SETTINGS = "trainer/settings.json"
CHECKPOINT_MARK = "checkpoints/latest_checkpointed_iteration.txt"


def service(config: RunConfig) -> ServiceSpec:
    """The trainer: it starts when all replicas and the service that carries its trials are ready, and reads its
    settings from a file."""
    carrier = sessions.NAME if through_sessions(config) else proxy.NAME
    restarts = config.trainer.restart == "from_checkpoint"
    return ServiceSpec(
        name="trainer",
        kind="trainer",
        argv=("{python:self}", "-P", "-m", "liverl.embedded.trainer", "--config", f"{{run_dir}}/{SETTINGS}"),
        inherits="embedded",
        depends_on=(Dependency("ready", carrier), Dependency("all_ready", "replica", config.run.replicas)),
        probes=Probes(
            startup=Probe(
                "log_line",
                pattern=r"Total training steps: \d+",
                interval=0.5,
                waits_for="the trainer to load its model and count its steps",
            ),
            startup_deadline=config.supervise.startup_deadline,
        ),
        # By default a trainer is not restarted: its exit ends the run and decides the result.
        restart=restart_policy(config) if restarts else RestartPolicy(mode="never"),
        restart_needs=CHECKPOINT_MARK if restarts else "",
        stop=stop_stages(config),
        files=(FileSpec(SETTINGS, json.dumps(_settings(config), indent=1)),),
        ends_run=True,
        stage_parser="trainer",
    )


def _settings(config: RunConfig) -> dict[str, Any]:
    """The content of the settings file, which ``liverl.agents.settings.TrainerConfig`` reads."""
    training, algorithm, faults = config.training, config.algorithm, config.embedded.faults
    return {
        "run_dir": "{run_dir}",
        "attempt_dir": "{attempt_dir}",
        **_carrier(config),
        "replica_token_file": f"{{run_dir}}/{TOKEN}",
        "served_model": config.model.served_model_name,
        "train_batch_size": training.train_batch_size,
        "n_resp_per_prompt": training.n_resp_per_prompt,
        "mini_batch_size": training.train_prompt_mini_batch_size,
        "total_steps": training.total_steps,
        "save_freq": max(0, training.save_freq),
        "learning_rate": learning_rate(config),
        "clip_ratio_low": algorithm.clip_ratio_low,
        "clip_ratio_high": algorithm.clip_ratio_high,
        "temperature": algorithm.temperature,
        "seed": config.run.seed,
        "max_iterations": config.harbor_agent.max_iterations,
        "trial_timeout": config.harbor_agent.trial_timeout,
        "num_workers": config.harbor_runtime.num_workers,
        "checkpoint_dir": "{run_dir}/checkpoints",
        "resume": True,  # from the newest checkpoint; a new run has none
        "tool_executor": faults.tool_executor,
        "faults": {
            "crash_at_step": faults.crash_at_step or 0,
            "hang_at_step": faults.hang_at_step or 0,
            "nan_at_step": faults.nan_at_step or 0,
            "ignore_sigterm": "trainer" in faults.ignore_sigterm,
            "leak_worker": False,
            "slow_tool": faults.slow_tool,
            "slow_sandbox": faults.slow_sandbox,
            "slow_last": faults.slow_last,
            "slow_update": faults.slow_update,
        },
    }


def _carrier(config: RunConfig) -> dict[str, str]:
    """Where the trainer's trials go, and with which key."""
    if through_sessions(config):
        return {"sessions_key_file": f"{{run_dir}}/{sessions.CONTROL_KEY}"}
    return {
        "proxy_url": f"http://{client_host(listen_host(config))}:{{port:proxy}}",
        "run_key_file": "{run_dir}/secrets/run_key",
    }
