"""The plan of a launch script in the trainer's place, and of where it writes its trials and logs."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import by_nodes
from liverl.plan.policies import stop_stages
from liverl.plan.spec import BATCH_END, Probe, Probes, RestartPolicy, ScriptOutputs, ServiceSpec
from liverl.plan.verl_trainer import CAPACITY_END, network_env, script_env, secret_env

# Where LiveRL's launch script runs, relative to the folder from which it is started.
REPOSITORY = "repos/harbor-verl-train"
TRIALS = "HARBOR_TRIALS_DIR"  # set by us where the user names no folder, so that the trials belong to the run
# Keys that decide the number of replicas -> verl's keys, which may stand in ``trainer.overrides`` instead.
SIZE_KEYS = {
    "infrastructure.nnodes": "trainer.nnodes",
    "infrastructure.ngpus_per_node": "trainer.n_gpus_per_node",
    "vllm.gen_tp": "actor_rollout_ref.rollout.tensor_model_parallel_size",
}


def service(config: RunConfig, run_dir: Path, given: Mapping[str, str] | None = None) -> ServiceSpec:
    """The user's launch script, which starts Ray, replicas and proxy itself. It gets LiveRL's variables for the keys
    that are ``given`` (see ``LoadedConfig.given``)."""
    assert config.trainer.command is not None, "trainer.kind command requires trainer.command"
    return ServiceSpec(
        name="trainer",
        kind="trainer",
        argv=config.trainer.command,
        env=_environment(config, given),
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


def outputs(config: RunConfig, run_dir: Path, given: Mapping[str, str] | None = None) -> ScriptOutputs:
    """Where the script may write, besides the trials in the run directory and its standard output; and the keys that
    are ``given``."""
    env = _environment(config, given)
    cwd = config.trainer.cwd or str(run_dir)
    homes = (cwd, os.path.join(cwd, REPOSITORY))
    name = env.get("EXP_NAME") or run_dir.name
    project = env.get("PROJECT_NAME", "")
    trials = os.path.join(cwd, env[TRIALS].replace("{run_dir}", str(run_dir)))
    roots = [os.path.join(home, "harbor_trials") for home in homes]
    return ScriptOutputs(
        trials=(trials, *(os.path.join(root, project, name) for root in roots if project)),
        trial_globs=tuple(
            os.path.join(glob.escape(root), "*", glob.escape(name)) for root in roots if not project
        ),
        nodes=config.infrastructure.nnodes,
        logs=tuple(os.path.join(cwd, pattern) for pattern in config.trainer.logs),
        train_logs=tuple(os.path.join(home, "logs", f"{name}.log") for home in homes),
        vllm_logs=tuple(os.path.join(home, "logs", f"{name}_vllm.log") for home in homes),
        given=None if given is None else dict(given),
    )


def expected_replicas(config: RunConfig, given: Mapping[str, str] | None = None) -> int:
    """Number of replicas that the script is expected to start; 0 = not known, because its user has not given the keys
    that decide it.

    Raises:
        SizeError: an override that decides the size of the run is not a whole number.
    """
    keys = {
        key: theirs for key, theirs in SIZE_KEYS.items() if not (by_nodes(config) and key.endswith(".nnodes"))
    }
    known = given is None or all(
        key in given or sizing.override(config, theirs) is not None for key, theirs in keys.items()
    )
    return sizing.expected_replicas(config) if known else 0


def _environment(config: RunConfig, given: Mapping[str, str] | None) -> dict[str, str]:
    """LiveRL's variables for the keys that are ``given``, with the folder of the trials also where none is given, and
    the end of the batch job; ``trainer.env`` overrides them."""
    ours = {TRIALS: "{run_dir}/trials", CAPACITY_END: BATCH_END}
    return {**ours, **script_env(config, given), **network_env(config), **config.trainer.env}
