"""The size of a run of topology verl: GPUs, replicas and CPUs, from the configuration alone.

As in verl, ``trainer.overrides`` override every other key.
"""

from __future__ import annotations

import re
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
# verl's keys of the data files: in ``trainer.overrides`` they replace ``data.train_index`` and ``data.val_index``.
TRAIN_FILES, VAL_FILES = "data.train_files", "data.val_files"
TRAIN_INDEX, VAL_INDEX = "data.train_index", "data.val_index"
# A path as Hydra writes it, in quotes or not; what has other signs of its grammar is not taken apart.
_FILE = re.compile(r"""(?:'[^'\\]*'|"[^"\\]*"|[^\s'",\[\]{}\\](?:[^'",\[\]{}\\]*[^\s'",\[\]{}\\])?)""")
_FILES = re.compile(rf"\s*{_FILE.pattern}\s*(?:,\s*{_FILE.pattern}\s*)*")


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


def override_is_true(config: RunConfig, key: str) -> bool | None:
    """Whether ``trainer.overrides`` sets a Hydra key to true; None if it is not there."""
    value = override(config, key)
    return None if value is None else str(value).lower() == "true"


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
    if override_is_true(config, f"{split}.enabled"):
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
    """Parquet file of the training data, as our own keys say; "" = none is configured. ``train_files`` are those that
    verl gets."""
    smoke = str(smoke_directory(config) / "train.parquet") if is_smoke(config) else ""
    return config.data.train_index or smoke


def val_file(config: RunConfig) -> str:
    """Parquet file of the validation data, as our own keys say; else the training data, because verl requires a file
    even if it never validates. The built-in tasks are for a run whose training rows are built in, too."""
    built_in = is_smoke(config) and not names_train_files(config)
    smoke = str(smoke_directory(config) / "val.parquet") if built_in else ""
    return config.data.val_index or smoke or train_file(config)


def train_files(config: RunConfig) -> tuple[str, ...] | None:
    """Parquet files of the training data, as verl gets them: ``trainer.overrides`` may name several. Empty: none is
    configured; None: only Hydra can tell them."""
    given = override(config, TRAIN_FILES)
    name = train_file(config)
    if given is None:
        return (name,) if name else ()
    return files_of(given)


def val_files(config: RunConfig) -> tuple[str, ...] | None:
    """Parquet files of the validation data, as verl gets them; without any, those of the training."""
    given = override(config, VAL_FILES)
    if given is not None:
        return files_of(given)
    name = val_file(config)
    return (name,) if name and (config.data.val_index or name != train_file(config)) else train_files(config)


def names_train_files(config: RunConfig) -> bool:
    """Whether the configuration names training data."""
    return bool(config.data.train_index) or override(config, TRAIN_FILES) is not None


def names_val_files(config: RunConfig) -> bool:
    """Whether the configuration names validation data."""
    return bool(config.data.val_index) or override(config, VAL_FILES) is not None


def data_paths(config: RunConfig) -> dict[str, str]:
    """Each data file that verl gets, by the key that names it: ``data.train_index``, or verl's own from
    ``trainer.overrides``, with a number where they are several (``data.train_files[0]``). "" = none is configured. Left
    out are files that only Hydra can tell, and several training files that stand in for those of the validation."""
    paths = _by_key(config, TRAIN_FILES, TRAIN_INDEX, train_files(config))
    validated = val_files(config)
    if names_val_files(config) or validated is None or len(validated) < 2:
        paths |= _by_key(config, VAL_FILES, VAL_INDEX, validated)
    return paths


def _by_key(config: RunConfig, theirs: str, ours: str, files: tuple[str, ...] | None) -> dict[str, str]:
    key = ours if override(config, theirs) is None else theirs
    if files is None:
        return {}
    if len(files) < 2:
        return {key: "".join(files)}
    return {f"{key}[{number}]": name for number, name in enumerate(files)}


def files_of(value: Any) -> tuple[str, ...] | None:
    """The files that an override names: a path or a list of paths, also as Hydra writes them. None if only Hydra can
    tell them."""
    if isinstance(value, list | tuple):
        names = tuple(value)
    else:
        text = str(value).strip()
        inner = text[1:-1].strip().removesuffix(",") if text.startswith("[") and text.endswith("]") else text
        if not (_FILE if inner is text else _FILES).fullmatch(inner):
            return None
        names = tuple(_unquoted(found[0]) for found in _FILE.finditer(inner))
    plain = all(isinstance(name, str) and name and "${" not in name for name in names)
    return names if plain else None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
