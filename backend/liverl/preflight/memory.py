"""Whether a model fits: what of a GPU's memory vLLM has left for its KV cache, and what verl's trainer takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.attention import with_critic, without_flash_attention
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import generates_apart
from liverl.engines import ENGINES
from liverl.engines.vllm.memory import GIB, KvMemory, Settings, Shape, batched_tokens, kv_memory
from liverl.model import Check, Evidence
from liverl.observe.gpu.ledger import allowed_gpus
from liverl.observe.gpu.sampler import GpuSampler
from liverl.plan.spec import Plan
from liverl.plan.verl_overrides import tokens_per_gpu
from liverl.preflight.model import folder_of, named, tensor_parallel, will_be_made
from liverl.preflight.modelshape import Tensor, of_shape, parameters, read_shape, tensors, weight_bytes
from liverl.util.plural import quantity

NAME, TRAINING = "memory", "memory of training"
_TRAIN_ID = "memory-training"
# What CUDA reports of the memory that the driver reports (NVML): 79.18 of 79.65 GiB on H100, 139.81 of 140.4 on H200.
_OF_CUDA = 0.995
_UNSURE = 0.1  # of the estimate of the KV cache: what vLLM measures may differ by this share
# GPUs of a compute capability below 8.0, by NVML's names: vLLM has no bfloat16 for them (vllm/platforms/cuda.py
# check_if_supports_dtype).
_NO_BFLOAT16 = re.compile(r"\b(?:V100\w*|T4G?|P100|P40|P4|TITAN|Quadro RTX|RTX 20\d\d|GTX)\b")
_VERL_TOKENS = 8192  # max_num_batched_tokens of verl 0.9 (trainer/config/rollout/rollout.yaml)
_ROLLOUT = "actor_rollout_ref.rollout"
# verl 0.9 loads the actor in float32 (trainer/config/engine/fsdp.yaml model_dtype), with gradients and AdamW's two
# moments in it as well; the reference model in bfloat16 (workers/engine/fsdp). All are split over the trainer's GPUs.
_PARAMETER, _GRADIENT, _OPTIMIZER, _REFERENCE = 4, 4, 8, 2
# CUDA's context and NCCL in the trainer, and what a sleeping vLLM keeps in the same GPU.
_BESIDE = int(2.5 * GIB)
# A logit in bfloat16 and in float32, and its gradient.
_LOGIT = 2 + 4 + 4
# Numbers of 2 bytes that one layer keeps for its backward pass, per token and hidden size, when it is computed again
# (gradient checkpointing): Korthikanti et al. 2022, table 2, without the attention's scores.
_LAYER = 34


class TrainMemory(msgspec.Struct, frozen=True):
    """Where the memory of one of verl's GPUs goes in an update. ``resident``: what of it stays during rollouts."""

    parameters: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    beside: int
    resident: int

    @property
    def static(self) -> int:
        """What does not depend on lengths."""
        return self.parameters + self.gradients + self.optimizer + self.reference

    @property
    def peak(self) -> int:
        """All of it."""
        return self.static + self.activations + self.beside


class Gpu(NamedTuple):
    """A GPU of the run: bytes as CUDA reports them, and what it is, for people."""

    total: int
    words: str
    name: str = ""


def checks(
    plan: Plan,
    config: RunConfig,
    env: Mapping[str, str],
    gpu_memory: float | None,
    elsewhere: bool,
    nvml: Any = None,
) -> Iterator[Check]:
    """The memory of a run whose replicas are vLLM's. ``gpu_memory``: GiB of a GPU of the host on which it starts, None
    = of those of this host; ``elsewhere``: it starts on another one."""
    managed = when.managed(config)
    if when.command(config) or not (
        ENGINES[config.run.engine].gpus if managed else config.verl.device == "cuda"
    ):
        return
    if will_be_made(config):
        return  # a toy
    folder = folder_of(plan, config, env)
    if folder is None:
        yield Check(NAME, "skipped", f"not estimated: {named(config).name} is not on this host")
        return
    try:
        shape = read_shape(folder / "config.json")
        parts = tensors(folder) or of_shape(shape)
    except (OSError, ValueError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else error
        yield Check(NAME, "skipped", f"not estimated: {folder / 'config.json'}: {why}")
        return
    gpu = None if elsewhere and gpu_memory is None else gpu_of(gpu_memory, env, nvml)
    if gpu is None:
        fix = "give the memory of one GPU in GiB as --gpu-memory GIB"
        why = "the run starts on another host" if elsewhere else "no GPU is visible on this host"
        yield Check(NAME, "skipped", f"not estimated: {why}", fix=fix)
        return
    settings = settings_of(config, gpu)
    if _NO_BFLOAT16.search(gpu.name) and config.vllm.dtype == "bfloat16":
        text = f"vllm.dtype is bfloat16, with which {gpu.name} cannot compute: vLLM refuses it"
        patch = {"vllm.dtype": "float16"}
        yield Check("dtype", "fail", text, "gpu-dtype", fix="set vllm.dtype to float16", patch=patch)
    found = kv_memory(shape, weight_bytes(parts, shape, settings.tensor, settings.width), settings)
    yield of_replica(plan, config, gpu, found, settings)
    if not managed and when.verl_trainer(config):
        yield of_trainer(config, gpu, train_memory(config, shape, parts), found)


def gpu_of(given: float | None, env: Mapping[str, str], nvml: Any = None) -> Gpu | None:
    """The smallest GPU that the run may take; None if none is visible. ``given``: its memory in GiB."""
    if given is not None:
        return Gpu(int(given * GIB), f"--gpu-memory {given:g} GiB")
    sampler = GpuSampler(nvml)
    try:
        gpus, _ = sampler.sample()
    finally:
        sampler.close()
    allowed, _ = allowed_gpus(gpus, env)
    sizes = [(gpu.memory_total, gpu.name) for gpu in gpus if gpu.uuid in allowed and gpu.memory_total]
    if not sizes:
        return None
    total, name = min((size or 0, name) for size, name in sizes)
    return Gpu(int(total * _OF_CUDA), f"{name}, {total * _OF_CUDA / GIB:.1f} GiB", name)


def settings_of(config: RunConfig, gpu: Gpu) -> Settings:
    """How vLLM is started for the run."""
    vllm, managed = config.vllm, not when.verl_trainer(config)

    def value(key: str, otherwise: Any) -> Any:
        given = None if managed else sizing.override(config, f"{_ROLLOUT}.{key}")
        return otherwise if given is None else given

    tokens = None if managed else int(str(value("max_num_batched_tokens", _VERL_TOKENS)))
    chunked = str(value("enable_chunked_prefill", vllm.enable_chunked_prefill)).lower() == "true"
    context = int(str(value("max_model_len", vllm.max_model_length)))
    return Settings(
        total=gpu.total,
        utilization=float(str(value("gpu_memory_utilization", vllm.gpu_memory_utilization))),
        tensor=tensor_parallel(config)[1],
        sequences=int(str(value("max_num_seqs", vllm.max_num_seqs))),
        context=context,
        width=4 if str(value("dtype", vllm.dtype)) in ("float", "float32") else 2,
        eager=str(value("enforce_eager", vllm.enforce_eager)).lower() == "true",
        chunked=chunked,
        batched_tokens=tokens if chunked or tokens is None else max(tokens, context),
        a100="a100" in gpu.name.lower(),
    )


def gib(size: float) -> float:
    """Bytes in GiB, as vLLM's log has them."""
    return round(size / GIB, 2)


def of_replica(plan: Plan, config: RunConfig, gpu: Gpu, found: KvMemory, settings: Settings) -> Check:
    """Whether vLLM starts with it, and how many sequences it serves at once."""
    wanted = wanted_sequences(plan, config, settings)
    values = {
        "gpu_gib": gib(found.total),
        "requested_gib": gib(found.requested),
        "weights_gib": gib(found.weights),
        "activations_gib": gib(found.activations),
        "beside_gib": gib(found.beside),
        "graphs_gib": gib(found.graphs),
        "kv_cache_gib": gib(found.kv_cache),
        "kv_token_bytes": float(found.token),
        "kv_tokens": float(found.tokens),
        "kv_wanted_sequences": float(wanted),
        "kv_wanted_gib": gib(wanted * found.token * found.context),
    }
    graphs = "of it" if found.graphs_counted else "on top of it"
    parts = (
        f"{gpu.words}: {gib(found.requested)} GiB for vLLM (vllm.gpu_memory_utilization {settings.utilization:g}), of "
        f"these {gib(found.weights)} weights, {gib(found.activations)} activations of "
        f"{batched_tokens(settings):,} tokens, {gib(found.beside)} beside torch, "
        f"{gib(found.kv_cache)} KV cache; CUDA graphs {gib(found.graphs)} {graphs}"
    )
    rows = (Evidence(parts),)
    if found.kv_cache <= 0:
        text = f"no memory is left for the KV cache: {gib(found.kv_cache)} GiB"
        sure = found.kv_cache < -_UNSURE * found.weights
        fix = "split the model over more GPUs (vllm.gen_tp), or raise vllm.gpu_memory_utilization"
        return Check(NAME, "fail" if sure else "warn", text, NAME, rows, fix, values=values)
    size = f"{gib(found.kv_cache)} GiB are left for the KV cache, which is {found.tokens:,} tokens"
    if found.whole < 1:
        fits = found.tokens // 1024 * 1024
        long = not when.managed(config) and (
            config.training.max_prompt_length + config.training.max_response_length > fits
        )
        patch = {} if long or not fits else {"vllm.max_model_length": str(fits)}
        fix = "split the model over more GPUs (vllm.gen_tp), or raise vllm.gpu_memory_utilization"
        fix += "" if long else f", or set vllm.max_model_length to at most {found.tokens:,}"
        text = f"{size}, but one sequence may have {found.context:,} (vllm.max_model_length): vLLM does not start"
        sure = found.whole < 1 - _UNSURE
        return Check(NAME, "fail" if sure else "warn", text, NAME, rows, fix, patch, bool(patch), values)
    text = f"{size}: {found.whole:.1f} sequences of full length ({found.context:,}); the run wants {wanted} at once"
    return Check(NAME, "ok", text, NAME, rows, values=values)


def wanted_sequences(plan: Plan, config: RunConfig, settings: Settings) -> int:
    """Sequences that a replica serves at once, at most: its share of the trials that run, within vllm.max_num_seqs."""
    trials = plan.trials_per_step
    if trials is None:
        return settings.sequences
    if when.harbor(config):
        trials = min(trials, config.harbor_runtime.num_workers)
    return min(settings.sequences, math.ceil(trials / max(1, plan.expected_replicas)))


def train_memory(config: RunConfig, shape: Shape, parts: Sequence[Tensor]) -> TrainMemory:
    """What an update of verl's takes in each GPU of the trainer."""
    gpus = max(1, sizing.trainer_gpus(config))
    # PPO's critic
    numbers = parameters(parts, shape) / gpus * (2 if with_critic(config) else 1)
    tokens = tokens_per_gpu(config)
    inputs = tokens * shape.layers * shape.hidden * 2
    layer = tokens * _LAYER * shape.hidden * 2 // 2
    logits = tokens * shape.vocabulary * _LOGIT
    whole = parameters(parts, shape) / max(1, shape.layers) * 2 * 2  # of two layers, gathered in bfloat16
    kept = 0 if config.training.actor_offload else int(numbers * (_PARAMETER + _OPTIMIZER))
    reference = int(parameters(parts, shape) / gpus * _REFERENCE) if config.algorithm.use_kl_loss else 0
    return TrainMemory(
        parameters=int(numbers * _PARAMETER),
        gradients=int(numbers * _GRADIENT),
        optimizer=int(numbers * _OPTIMIZER),
        reference=0 if config.training.ref_offload else reference,
        activations=int(inputs + max(layer, logits) + whole),
        beside=_BESIDE,
        resident=kept + (0 if config.training.ref_offload else reference),
    )


def of_trainer(config: RunConfig, gpu: Gpu, found: TrainMemory, kv: KvMemory) -> Check:
    """Whether an update fits, and whether vLLM starts beside what the trainer keeps."""
    values = {f"{name}_gib": gib(getattr(found, name)) for name in found.__struct_fields__}
    values |= {"peak_gib": gib(found.peak)}
    offload = "with" if config.training.actor_offload else "without"
    rows = (
        Evidence(
            f"{gpu.words}, {quantity(sizing.trainer_gpus(config), 'GPU')}, {offload} offload: "
            f"{gib(found.parameters)} GiB parameters, {gib(found.gradients)} gradients, "
            f"{gib(found.optimizer)} optimizer, {gib(found.reference)} reference, "
            f"{gib(found.activations)} activations of {tokens_per_gpu(config):,} tokens, {gib(found.beside)} others; "
            f"{gib(found.resident)} stay during rollouts"
        ),
    )
    more = "train on more GPUs (infrastructure.ngpus_per_node), or a smaller model"
    if found.static > kv.total:
        text = (
            f"parameters, gradients and optimizer take {gib(found.static)} GiB of {gib(kv.total)} in each GPU"
        )
        return Check(TRAINING, "fail", text, _TRAIN_ID, rows, more, values=values)
    if not generates_apart(config) and found.resident + kv.requested > kv.total:
        text = (
            f"during rollouts the trainer keeps {gib(found.resident)} GiB in each GPU, and vLLM asks for "
            f"{gib(kv.requested)} of {gib(kv.total)}"
        )
        patch = {} if config.training.actor_offload else {"training.actor_offload": "true"}
        fix = "set training.actor_offload to true" if patch else "lower vllm.gpu_memory_utilization"
        return Check(TRAINING, "fail", text, _TRAIN_ID, rows, fix, patch, values=values)
    if found.peak > kv.total:
        text = f"an update of the longest sample takes about {gib(found.peak)} GiB of {gib(kv.total)} in each GPU"
        split = "" if without_flash_attention(config) else ", raise training.sp_size"
        fix = f"{more}{split}, or lower training.max_response_length"
        return Check(TRAINING, "warn", text, _TRAIN_ID, rows, fix, values=values)
    text = f"an update takes about {gib(found.peak)} GiB of {gib(kv.total)} in each GPU"
    return Check(TRAINING, "ok", text, _TRAIN_ID, rows, values=values)
