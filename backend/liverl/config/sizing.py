"""The size of a run of topology verl: GPUs, replicas and CPUs, from the configuration alone.

As in verl, ``trainer.overrides`` override every other key.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from liverl.config.schema import RunConfig

BUILTIN = "builtin:"  # a policy of the embedded engine
# A small model with its data, made by liverl.verl_runtime.smoke; the prefix is followed by the directory for it.
SMOKE = "smoke:"
# verl's placement groups reserve this many CPUs beside each GPU (max_colocate_count of its resource pools).
CPUS_PER_GPU = 3
# TransferQueue's controller reserves one CPU, and so does each of its storage units (verl's default: 8).
CONTROLLER_CPUS, STORAGE_UNITS = 1, 8
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
    """Number of GPUs that train; with rollout_mode hybrid, the same GPUs also generate.

    Raises:
        SizeError: see there. So do all functions below that return a number of GPUs, replicas, units or CPUs.
    """
    infra = config.infrastructure
    each = _number(config, "trainer.n_gpus_per_node", infra.ngpus_per_node - config.verl.rollout_gpus)
    return _number(config, "trainer.nnodes", infra.nnodes) * each


def pool_gpus(config: RunConfig) -> int:
    """Number of GPUs that only generate: 0 unless rollout_mode is standalone."""
    if config.verl.rollout_mode == "hybrid":
        return 0
    each = _number(config, f"{_ROLLOUT}.n_gpus_per_node", config.verl.rollout_gpus)
    return _number(config, f"{_ROLLOUT}.nnodes", config.infrastructure.nnodes) * each


def generating_gpus(config: RunConfig) -> int:
    """Number of GPUs that replicas run on."""
    return trainer_gpus(config) if config.verl.rollout_mode == "hybrid" else pool_gpus(config)


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
    gpus = trainer_gpus(config) + pool_gpus(config)
    return CONTROLLER_CPUS + storage_units(config) + CPUS_PER_GPU * gpus + CREATION_CPUS


def cpus_per_host(config: RunConfig) -> int:
    """Number of CPUs that Ray must have on each host; on one host all of ``cpus_needed``.

    verl reserves CPUs beside the GPUs of a host. What needs no GPU (TransferQueue's actors, verl's main process) lands
    on any host, so each has room for all of it.
    """
    infra, verl = config.infrastructure, config.verl
    if infra.nnodes == 1:
        return cpus_needed(config)
    gpus = _number(config, "trainer.n_gpus_per_node", infra.ngpus_per_node - verl.rollout_gpus)
    if verl.rollout_mode != "hybrid":
        gpus += _number(config, f"{_ROLLOUT}.n_gpus_per_node", verl.rollout_gpus)
    return CONTROLLER_CPUS + storage_units(config) + CPUS_PER_GPU * gpus + CREATION_CPUS


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
    validates."""
    smoke = str(smoke_directory(config) / "val.parquet") if is_smoke(config) else ""
    return config.data.val_index or smoke or train_file(config)
