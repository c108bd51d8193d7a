"""The size of a run of topology verl: GPUs, replicas and CPUs, from the configuration alone.

As in verl, ``trainer.overrides`` override every other key.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import by_nodes, fully_async, generates_apart

BUILTIN = "builtin:"  # a policy of the embedded engine
# A small model with its data, made by liverl.verl_runtime.smoke; the prefix is followed by the directory for it.
SMOKE = "smoke:"
# verl's placement groups reserve this many CPUs beside each GPU (max_colocate_count of its resource pools).
CPUS_PER_GPU = 3
# TransferQueue's controller reserves one CPU, and so does each of its storage units (verl's default: 8).
CONTROLLER_CPUS, STORAGE_UNITS = 1, 8
# verl's fully asynchronous trainer has no TransferQueue, but actors of its own: FullyAsyncTaskRunner 1,
# FullyAsyncRollouter 10, FullyAsyncTrainer 10, MessageQueue 2 (verl/experimental/fully_async_policy, 0.9.1). The
# placement groups of replicas on GPUs of their own reserve fewer CPUs (verl/workers/rollout/replica.py).
FULLY_ASYNC_CPUS = 1 + 10 + 10 + 2
CPUS_PER_ROLLOUT_GPU = 2
# Any other actor needs one free CPU while it is created, and releases it.
CREATION_CPUS = 1
LEAST_PORTS = 7 + 64  # of ``ray.worker_ports``: those of Ray's own processes, and some workers
UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_ROLLOUT = "actor_rollout_ref.rollout"


class SizeError(Exception):
    """An override that decides the size of the run is not a whole number; ``key`` is the override's."""

    def __init__(self, key: str, value: Any) -> None:
        super().__init__(f"{key}: {value!r} is not a whole number")
        self.key = key
        self.value = value


def bare_key(key: str) -> str:
    """A Hydra key without its leading ``+``, ``++`` or ``~``."""
    return key.lstrip("+~")


def override(config: RunConfig, key: str) -> Any:
    """The value of a Hydra key in ``trainer.overrides``; None if it is not there."""
    return next((v for k, v in config.trainer.overrides.items() if bare_key(k) == key), None)


def _number(config: RunConfig, key: str, otherwise: int) -> int:
    value = override(config, key)
    if value is None:
        return otherwise
    try:
        return int(str(value))
    except ValueError:
        raise SizeError(key, value) from None


def trainer_gpus(config: RunConfig) -> int:
    """Number of GPUs that train; in verl.trainer_mode sync, the same GPUs also generate.

    Raises:
        SizeError: see there. So do all functions below that return a number of GPUs, replicas, units or CPUs.
    """
    return train_nodes(config) * _training_on_host(config)


def train_nodes(config: RunConfig) -> int:
    """Number of hosts with GPUs that train."""
    return _number(config, "trainer.nnodes", config.verl.train_nodes or config.infrastructure.nnodes)


def _training_on_host(config: RunConfig) -> int:
    """Number of GPUs that train on each host that has some."""
    infra = config.infrastructure
    return _number(config, "trainer.n_gpus_per_node", infra.ngpus_per_node - config.verl.rollout_gpus)


def rollout_nodes(config: RunConfig) -> int:
    """Number of hosts with GPUs that only generate, in a run that has such GPUs."""
    given = config.verl.rollout_nodes or config.infrastructure.nnodes
    return _number(config, f"{_pool(config)}.nnodes", given)


def _pool(config: RunConfig) -> str:
    """verl's section with the GPUs that only generate."""
    return "rollout" if fully_async(config) else _ROLLOUT


def generating_on_host(config: RunConfig) -> int:
    """Number of GPUs that only generate on each host that has some."""
    verl = config.verl
    given = config.infrastructure.ngpus_per_node if verl.rollout_nodes else verl.rollout_gpus
    return _number(config, f"{_pool(config)}.n_gpus_per_node", given)


def pool_gpus(config: RunConfig) -> int:
    """Number of GPUs that only generate: 0 in verl.trainer_mode sync."""
    return rollout_nodes(config) * generating_on_host(config) if generates_apart(config) else 0


def generating_gpus(config: RunConfig) -> int:
    """Number of GPUs that replicas run on."""
    return pool_gpus(config) if generates_apart(config) else trainer_gpus(config)


def replica_gpus(config: RunConfig) -> int:
    """Number of GPUs of one replica: tensor parallel x data parallel (verl refuses pipeline parallel > 1).

    With disaggregated prefill and decode, verl counts both sides as one replica.
    """
    tensor = _number(config, f"{_ROLLOUT}.tensor_model_parallel_size", config.vllm.gen_tp)
    split = f"{_ROLLOUT}.disaggregation"
    if str(override(config, f"{split}.enabled")).lower() == "true":
        decode = _number(config, f"{split}.decode_tensor_model_parallel_size", tensor)
        tensor *= _number(config, f"{split}.prefill_replicas", 1)
        tensor += decode * _number(config, f"{split}.decode_replicas", 1)
    return tensor * _number(config, f"{_ROLLOUT}.data_parallel_size", 1)


def expected_replicas(config: RunConfig) -> int:
    """Number of replicas that verl starts; a remainder of GPUs makes none, as in verl."""
    return generating_gpus(config) // max(1, replica_gpus(config))


def storage_units(config: RunConfig) -> int:
    """Number of TransferQueue's storage units. A run without GPUs has one, since each is a process that reserves a
    CPU."""
    return _number(config, UNITS_KEY, 1 if config.verl.device == "cpu" else STORAGE_UNITS)


def cpus_needed(config: RunConfig) -> int:
    """Number of CPUs that Ray must have; with fewer, verl waits forever without a message.

    Ray only counts them, so the number may exceed the CPUs of the machine.
    """
    return _actor_cpus(config) + _cpus_of(config, trainer_gpus(config), pool_gpus(config))


def _actor_cpus(config: RunConfig) -> int:
    """CPUs of verl's actors that need no GPU."""
    if fully_async(config):
        return FULLY_ASYNC_CPUS + CREATION_CPUS
    return CONTROLLER_CPUS + storage_units(config) + CREATION_CPUS


def _cpus_of(config: RunConfig, training: int, generating: int) -> int:
    """CPUs that verl reserves beside GPUs."""
    each = CPUS_PER_ROLLOUT_GPU if fully_async(config) else CPUS_PER_GPU
    return CPUS_PER_GPU * training + each * generating


def cpus_per_host(config: RunConfig) -> int:
    """Number of CPUs that Ray must have on each host; on one host all of ``cpus_needed``.

    verl reserves CPUs beside the GPUs of a host. What needs no GPU (verl's main process, the actors of its data plane)
    lands on any host, so each has room for all of it.
    """
    if config.infrastructure.nnodes == 1:
        return cpus_needed(config)
    training = _training_on_host(config)
    generating = generating_on_host(config) if generates_apart(config) else 0
    if by_nodes(config):  # a host has one kind
        beside = max(_cpus_of(config, training, 0), _cpus_of(config, 0, generating))
    else:
        beside = _cpus_of(config, training, generating)
    return _actor_cpus(config) + beside


def worker_ports(text: str) -> range:
    """The ports that ``ray.worker_ports`` names, such as ``20000-20999``.

    Raises:
        ValueError: it names no range, or one without room for a node's own ports and some workers.
    """
    first, _, last = text.partition("-")
    numbers = range(int(first), int(last) + 1)
    if not (numbers.start >= 1024 and numbers.stop <= 65536 and len(numbers) >= LEAST_PORTS):
        raise ValueError(text)
    return numbers


def is_smoke(config: RunConfig) -> bool:
    """Whether the run creates its own model and data."""
    return config.model.model_path.startswith(SMOKE)


def smoke_directory(config: RunConfig) -> PurePath:
    """The directory of the smoke model and its data, in a resolved configuration for which ``is_smoke`` holds."""
    return PurePath(config.model.model_path.removeprefix(SMOKE))


def model_path(config: RunConfig) -> str:
    """The policy's checkpoint: a directory or a model id."""
    return str(smoke_directory(config) / "model") if is_smoke(config) else config.model.model_path


def train_file(config: RunConfig) -> str:
    """Parquet file of the training data; "" = none is configured."""
    smoke = str(smoke_directory(config) / "train.parquet") if is_smoke(config) else ""
    return config.data.train_index or smoke


def val_file(config: RunConfig) -> str:
    """Parquet file of the validation data; else the training data, because verl requires a file even if it never
    validates. The built-in tasks are for a run whose training rows are built in, too."""
    built_in = is_smoke(config) and not config.data.train_index
    smoke = str(smoke_directory(config) / "val.parquet") if built_in else ""
    return config.data.val_index or smoke or train_file(config)
