"""The plan of a launch script in the trainer's place, and of where it writes its trials and logs."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.plan.policies import stop_stages
from liverl.plan.spec import Probe, Probes, RestartPolicy, ScriptOutputs, ServiceSpec
from liverl.plan.verl_trainer import script_env, secret_env

# Where LiveRL's launch script runs, relative to the folder from which it is started.
REPOSITORY = "repos/harbor-verl-train"


def service(config: RunConfig, run_dir: Path) -> ServiceSpec:
    """The user's launch script, which starts Ray, replicas and proxy itself. It gets LiveRL's variables."""
    assert config.trainer.command is not None, "trainer.kind command requires trainer.command"
    return ServiceSpec(
        name="trainer",
        kind="trainer",
        argv=config.trainer.command,
        env=_environment(config),
        inherits="all",
        # LiveRL's name for the API key with which sandboxes call the proxy.
        secret_env={"ANTHROPIC_API_KEY": str(run_dir / "secrets" / "run_key"), **secret_env(config)},
        cwd=config.trainer.cwd or "{run_dir}",
        probes=Probes(startup=Probe(kind="process"), startup_deadline=config.supervise.startup_deadline),
        restart=RestartPolicy(mode="never"),
        stop=stop_stages(config),
        ends_run=True,
        stage_parser="trainer",
    )


def outputs(config: RunConfig, run_dir: Path) -> ScriptOutputs:
    """Where the script may write, besides the trials in the run directory and its standard output."""
    env = _environment(config)
    cwd = config.trainer.cwd or str(run_dir)
    homes = (cwd, os.path.join(cwd, REPOSITORY))
    name = env.get("EXP_NAME") or run_dir.name
    project = env.get("PROJECT_NAME") or config.experiment.project_name
    trials = os.path.join(cwd, env["HARBOR_TRIALS_DIR"].replace("{run_dir}", str(run_dir)))
    return ScriptOutputs(
        trials=(trials, *(os.path.join(home, "harbor_trials", project, name) for home in homes)),
        nodes=config.infrastructure.nnodes,
        logs=tuple(os.path.join(cwd, pattern) for pattern in config.trainer.logs),
        train_logs=tuple(os.path.join(home, "logs", f"{name}.log") for home in homes),
        vllm_logs=tuple(os.path.join(home, "logs", f"{name}_vllm.log") for home in homes),
    )


def _environment(config: RunConfig) -> dict[str, str]:
    """LiveRL's variables, with the folder of the trials also where the configuration names none; ``trainer.env``
    overrides them."""
    return {"HARBOR_TRIALS_DIR": "{run_dir}/trials", **script_env(config), **config.trainer.env}
