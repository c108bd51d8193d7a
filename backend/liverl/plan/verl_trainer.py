"""The plan of verl's trainer, and of the task that creates the smoke model."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from liverl.config import conditions, sizing
from liverl.config.env_vars import liverl_environment, was_given
from liverl.config.schema import RunConfig
from liverl.config.secrets import FILE_SCHEME
from liverl.config.trainer_mode import fully_async, trainer_mode
from liverl.plan import agent_loops, harbor, ray, sessions
from liverl.plan.embedded_trainer import CHECKPOINT_MARK
from liverl.plan.guest_path import PATH, python_path, stub
from liverl.plan.hydra import Override
from liverl.plan.policies import restart_policy, stop_stages
from liverl.plan.replica import TOKEN
from liverl.plan.spec import BATCH_END, Dependency, FileSpec, Probe, Probes, RestartPolicy, ServiceSpec
from liverl.plan.verl_overrides import overrides, token_routes
from liverl.util.before_end import FILE, VARIABLE

ENVIRONMENT = ray.ENVIRONMENT
METRICS = "{attempt_dir}/metrics.verl.{generation}.jsonl"  # one per start, because verl truncates it
# Where the agent-loop workers count how trials ended, for verl's metrics: one folder per start, as a restarted
# trainer counts its steps anew.
ENDINGS = "{attempt_dir}/endings/{generation}"
# The end of the batch job for verl's trainers other than v1, which save before it (``should_save_ckpt_esi``).
CAPACITY_END = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
# verl prints this line when all workers and replicas have started and the first step begins.
READY = "all initialize finished, ready to fit"
READY_ASYNC = "All components initialized successfully"
MAIN = "verl.trainer.main_ppo"
MAIN_ASYNC = "verl.experimental.fully_async_policy.fully_async_main"
SMOKE_DEADLINE = 900.0  # seconds to make the smoke model; about 60 on two idle cores
# $0 is the interpreter, $1 the directory. The model is created next to that directory and then renamed: two runs may
# start at the same time, and a run that is stopped must not leave an incomplete model.
_MAKE_ONCE = """\
if [ -e "$1/val.parquet" ]; then echo "the smoke model is already in $1"; exit 0; fi
mkdir -p "$(dirname "$1")" || exit 1
draft="$1.$$"
echo "making the smoke model in $1"
if "$0" -m liverl.verl_runtime.smoke "$draft"; then
  mv -T "$draft" "$1" 2>/dev/null && exit 0
  [ -e "$1/val.parquet" ] && { rm -rf "$draft"; exit 0; }
  echo "$1 already exists and is not a smoke model" >&2
fi
rm -rf "$draft"
exit 1
"""


def service(config: RunConfig) -> ServiceSpec:
    """``python -m verl.trainer.main_ppo`` or ``fully_async_main``, which connects to the running Ray cluster."""
    verl, restarts = config.verl, config.trainer.restart == "from_checkpoint"
    discovery = verl.actor_deadline + verl.address_deadline + verl.health_deadline
    needs = [Dependency("environment_ready", ENVIRONMENT), *harbor.dependencies(config)]
    if conditions.our_proxy(config):
        needs.append(Dependency("listening", "proxy.http"))
    if conditions.session_service(config):
        needs.append(Dependency("listening", f"{sessions.NAME}.http"))
    if not config.ray.address:
        needs.append(Dependency("ready", ray.NAME))
    if conditions.several_hosts(config):
        needs.append(Dependency("joined", ray.NAME, config.infrastructure.nnodes))
    if sizing.is_smoke(config):
        needs.append(Dependency("exited_0", "smoke"))
    return ServiceSpec(
        name="trainer",
        kind="trainer",
        argv=(
            "{python:verl}",
            "-m",
            MAIN_ASYNC if fully_async(config) else MAIN,
            *overrides(config, _job_environment(config)),
        ),
        optional_arguments=token_routes(config) if conditions.session_service(config) else (),
        env={
            **worker_env(config),
            **_chosen_ports(config),
            **ray.cluster_env(config),
            "HYDRA_FULL_ERROR": "1",
            "RAY_DEDUP_LOGS": "0",
        },
        inherits="trainer",
        unset_env=(*ray.FOREIGN_VARIABLES[1:], *_other_token(config)),
        secret_env=secret_env(config),
        environment=ENVIRONMENT,
        depends_on=tuple(needs),
        probes=Probes(
            startup=Probe(
                "log_line",
                pattern=READY_ASYNC if fully_async(config) else READY,
                interval=0.5,
                waits_for="verl to build its workers and engines; usually 1 to 5 minutes",
            ),
            startup_deadline=max(config.supervise.startup_deadline, discovery),
        ),
        # By default a trainer is not restarted: its exit ends the run and decides the result.
        restart=restart_policy(config) if restarts else RestartPolicy(mode="never"),
        restart_needs=CHECKPOINT_MARK if restarts else "",
        stop=stop_stages(config),
        files=(*path_files(config), *agent_loops.files(config)),
        ends_run=True,
        stage_parser="trainer",
    )


def _other_token(config: RunConfig) -> tuple[str, ...]:
    """The variable with a token of the caller's, unless it is that of the cluster."""
    by_file = not config.ray.address or bool(config.ray.auth_token_file)
    return (ray.TOKEN_VARIABLE,) if by_file else ()


def smoke(config: RunConfig) -> ServiceSpec:
    """The task that creates the smoke model and its data. It exits at once if both exist."""
    return ServiceSpec(
        name="smoke",
        kind="task",
        argv=("/bin/sh", "-c", _MAKE_ONCE, "{python:verl}", str(sizing.smoke_directory(config))),
        env={"PYTHONPATH": f"{{run_dir}}/{PATH}"},
        inherits="engine",
        unset_env=ray.FOREIGN_VARIABLES,
        environment=ENVIRONMENT,
        depends_on=(Dependency("environment_ready", ENVIRONMENT),),
        probes=Probes(startup=Probe(kind="process"), startup_deadline=SMOKE_DEADLINE),
        restart=RestartPolicy(mode="never"),
        stop=stop_stages(config),
        files=(stub(PATH),),
        stage_parser="smoke",
    )


def path_files(config: RunConfig) -> tuple[FileSpec, ...]:
    """The files on the PYTHONPATH of all of verl's processes: our package and, if needed, plug-ins for verl."""
    standalone = _plugin("standalone") if trainer_mode(config) == "separate_async" else ()
    endings = _plugin("endings") if conditions.our_loop(config) else ()
    return (stub(PATH), *standalone, *endings, *_plugin("before_end"))


def _plugin(module: str) -> tuple[FileSpec, ...]:
    """Files that make verl import a module of ours: the metadata of a distribution with an entry point in verl's group.
    The variable ``VERL_USE_EXTERNAL_MODULES`` would also do so, but is left to the user."""
    info = f"{PATH}/liverl_{module}-1.dist-info"
    return (
        FileSpec(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: liverl-{module}\nVersion: 1\n"),
        FileSpec(f"{info}/entry_points.txt", f"[verl.plugins]\n{module} = liverl.verl_runtime.{module}\n"),
    )


def script_env(config: RunConfig, given: Collection[str] | None = None) -> dict[str, str]:
    """LiveRL's variables for launch scripts and agents. Ports of 0 are left out; paths of the smoke model are filled
    in. ``given``: the keys to export; None = all."""
    env = liverl_environment(config, given)
    for name in ("LITELLM_PORT", "RAY_PORT", "RAY_DASHBOARD_PORT"):
        if env.get(name) == "0":  # any free port; only the trainer gets the number, once it is chosen
            del env[name]
    if sizing.is_smoke(config) and was_given("model.model_path", given):
        paths = {
            "MODEL_PATH": sizing.model_path(config),
            "TRAIN_INDEX": sizing.train_file(config),
            "VAL_INDEX": sizing.val_file(config),
        }
        env |= paths
    return env


def _chosen_ports(config: RunConfig) -> dict[str, str]:
    """Variables for ports that are chosen when their services start. Ray starts before they are chosen, the trainer
    starts after; so the trainer's job passes them to Ray's workers."""
    infra, head = config.infrastructure, ray.NAME
    chosen = {}
    if conditions.our_proxy(config) and not infra.litellm_port:
        chosen["LITELLM_PORT"] = "{port:proxy}"
    if not config.ray.address:
        chosen |= {} if infra.ray_port else {"RAY_PORT": f"{{port:{head}.gcs}}"}
        chosen |= {} if infra.ray_dashboard_port else {"RAY_DASHBOARD_PORT": f"{{port:{head}.dashboard}}"}
    return chosen


def network_env(config: RunConfig) -> dict[str, str]:
    """Variables with which NCCL, gloo and TensorPipe use ``network.interface``; none without it."""
    return dict.fromkeys(INTERFACE_VARIABLES, config.network.interface) if config.network.interface else {}


def worker_env(config: RunConfig) -> dict[str, str]:
    """Variables for every process of verl: the driver and all workers of the cluster."""
    env = (
        script_env(config)
        | network_env(config)
        | {
            "PYTHONPATH": python_path(config),
            "PYTHONUNBUFFERED": "1",
            "VERL_LOGGING_LEVEL": "INFO",
            # Without it verl sets WARN, and vLLM does not log its boot stages.
            "VLLM_LOGGING_LEVEL": config.infrastructure.vllm_logging_level,
        }
    )
    if config.ray.debug:
        env["RAY_DEBUG"] = "legacy"  # 1, Ray's default, is for an editor, and needs debugpy
    if config.verl.device == "cpu":
        env |= {
            "VERL_USE_EXTERNAL_MODULES": "liverl.verl_runtime.cpu",
            "VERL_ENGINE_DEVICE": "cuda",  # the engines are registered under this name
            "TORCH_COMPILE_DISABLE": "1",
            "OMP_NUM_THREADS": "1",  # otherwise each of a dozen processes would use all cores
            "LIVERL_CPU_FAULTS": json.dumps(_faults(config)),
            "LIVERL_REPLICA_TOKEN_FILE": f"{{run_dir}}/{TOKEN}",
        }
    return env


def secret_env(config: RunConfig) -> dict[str, str]:
    """Variable -> file of each secret that is configured as ``file:``. A secret in a variable is inherited instead."""
    name = config.credentials.wandb_api_key
    if not conditions.logs_to_wandb(config) or not name.startswith(FILE_SCHEME):
        return {}
    return {"WANDB_API_KEY": name.removeprefix(FILE_SCHEME)}


def _job_environment(config: RunConfig) -> tuple[Override, ...]:
    """Variables that the trainer's job sets for its workers: those that differ between starts of the trainer, because
    the cluster outlives it. Workers of an existing cluster inherit nothing from us, so there the job sets all
    variables."""
    prefix = "ray_kwargs.ray_init.runtime_env.env_vars"
    worker_variables = worker_env(config) if config.ray.address else {}
    ours = {"LIVERL_ENDINGS": ENDINGS} if conditions.our_loop(config) else {}
    ours |= {VARIABLE: f"{{attempt_dir}}/{FILE}"}
    if fully_async(config) or str(sizing.override(config, "trainer.use_v1")).lower() == "false":
        ours |= {CAPACITY_END: BATCH_END}
    values = {"VERL_FILE_LOGGER_PATH": METRICS, **ours, **worker_variables, **_chosen_ports(config)}
    return tuple(Override(f"{prefix}.{name}", value, new=True) for name, value in values.items())


def _faults(config: RunConfig) -> dict[str, Any]:
    faults = config.verl.faults
    return {
        "late_replica": {"index": faults.late_replica.index, "seconds": faults.late_replica.seconds},
        "pending_replica": faults.pending_replica,
        "mute_replica": faults.mute_replica,
        "dead_replica": faults.dead_replica,
        "crash_at_step": faults.crash_at_step,
    }
