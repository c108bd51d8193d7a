"""RunConfig -> the overrides of verl's trainer (``main_ppo``, or ``fully_async_main``) for verl 0.9.1: one function per
section.

Keys are spelled as in verl's configuration; a key that it does not have is marked as new. Settings without a key in our
configuration keep verl's default or come from ``trainer.overrides``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from liverl.config import sizing
from liverl.config.attention import with_critic
from liverl.config.carrier import agent_loop
from liverl.config.learning_rate import learning_rate
from liverl.config.schema import RunConfig
from liverl.config.sections import verl as stack
from liverl.config.trainer_mode import by_nodes, fully_async, rollout_prompts, trainer_mode
from liverl.engines.adapter.argv import IfKnown
from liverl.engines.tool_formats import VERL_FORMATS
from liverl.engines.vllm import SCALE_OUT
from liverl.plan import agent_loops, attention
from liverl.plan.hydra import Override, command_line
from liverl.util.plural import plural

_ACTOR, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
_ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_CRITIC = "critic"
SINGLE_TURN = "single_turn_agent"
FSDP, MEGATRON = "fsdp", "megatron"
# Engine -> verl's key, of the actor, for the GPUs over which a sequence is split. Megatron splits otherwise.
PARALLEL = {FSDP: "ulysses_sequence_parallel_size", "veomni": "veomni.ulysses_parallel_size"}
REPLAY = f"{_ROLLOUT}.enable_rollout_routing_replay"
CRITIC_LEARNING_RATE = 1e-5  # verl's own (trainer/config/critic/critic.yaml), said so that it is seen
_VLLM = f"{_ROLLOUT}.engine_kwargs.vllm"
# Namespace of the named actors. verl sets none, and Ray would create a new one for each job.
NAMESPACE = "liverl"
# verl's checkpoint engines need an accelerator; this one of ours is registered by ``verl_runtime.cpu``.
CPU_WEIGHTS = "liverl_cpu"


def overrides(config: RunConfig, further: tuple[Override, ...] = ()) -> tuple[str, ...]:
    """The arguments of the trainer. Those in ``trainer.overrides`` replace ours and ``further``."""
    sections = (
        engine,
        data,
        model,
        actor,
        critic,
        reference,
        rollout,
        sampling,
        agents,
        reward,
        algorithm,
        trainer,
        ray,
        device,
    )
    ours = [override for section in sections for override in section(config)]
    return command_line((*ours, *further), config.trainer.overrides)


def _under(prefix: str, values: dict[str, Any]) -> Iterator[Override]:
    yield from (Override(f"{prefix}.{key}", value) for key, value in values.items())


def engine(c: RunConfig) -> Iterator[Override]:
    """What trains: another group of verl's configuration, with other sections of actor, reference and critic."""
    if c.training.engine != FSDP:
        yield Override("model_engine", c.training.engine)


def _engine_section(c: RunConfig) -> str:
    """The engine's section in those of actor and reference."""
    return "fsdp_config" if c.training.engine == FSDP else c.training.engine


def data(c: RunConfig) -> Iterator[Override]:
    """Data files, batch sizes (in prompts) and lengths (in tokens)."""
    training = c.training
    streamed = fully_async(c)  # prompts then go to the replicas one by one, which verl asserts
    if streamed:
        yield Override("data.gen_batch_size", 1)
    yield from _under(
        "data",
        {
            "train_files": sizing.train_file(c),
            "val_files": _val_files(c),
            "train_batch_size": 0 if streamed else training.train_batch_size,
            "val_batch_size": training.val_batch_size,
            "max_prompt_length": training.max_prompt_length,
            "max_response_length": training.max_response_length,
        },
    )


def _val_files(c: RunConfig) -> str | list[str]:
    """One file, or all training files of ``trainer.overrides`` where no other is named."""
    files = sizing.val_files(c)
    if (
        files is None or len(files) == 1
    ):  # None: ``trainer.overrides`` says it, in words that only Hydra reads
        return sizing.val_file(c) if files is None else files[0]
    return list(files) if files else ""


def model(c: RunConfig) -> Iterator[Override]:
    """The policy's checkpoint."""
    yield Override(f"{_MODEL}.path", sizing.model_path(c))


def actor(c: RunConfig) -> Iterator[Override]:
    """The update of the policy: loss, optimizer, offloading and micro batches."""
    training, algorithm, section = c.training, c.algorithm, _engine_section(c)
    yield from _under(
        _ACTOR,
        {
            "ppo_mini_batch_size": training.train_prompt_mini_batch_size,
            **({PARALLEL[training.engine]: training.sp_size} if training.engine in PARALLEL else {}),
            "use_dynamic_bsz": training.use_dynamic_bsz,
            f"{section}.param_offload": training.actor_offload,
            f"{section}.optimizer_offload": training.actor_offload,
            "optim.lr": learning_rate(c),
            "policy_loss.loss_mode": algorithm.policy_loss_mode,
            "use_kl_loss": algorithm.use_kl_loss,
            "kl_loss_coef": algorithm.kl_loss_coef,
            "kl_loss_type": algorithm.kl_loss_type,
            "clip_ratio_low": algorithm.clip_ratio_low,
            "clip_ratio_high": algorithm.clip_ratio_high,
            "entropy_coeff": algorithm.entropy_coeff,
            "loss_agg_mode": algorithm.loss_agg_mode,
            "use_torch_compile": c.verl.use_torch_compile,
            **(
                {}
                if training.engine == MEGATRON
                else {f"{section}.use_torch_compile": c.verl.use_torch_compile}
            ),
        },
    )
    if training.router_replay != "disabled":
        yield Override(f"{_ACTOR}.{section}.router_replay.mode", training.router_replay)
    if training.use_dynamic_bsz:
        yield Override(f"{_ACTOR}.ppo_max_token_len_per_gpu", tokens_per_gpu(c))
    else:
        yield Override(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", 1)


def critic(c: RunConfig) -> Iterator[Override]:
    """PPO's critic, which verl has with the estimator ``gae`` only: it begins as the policy, and is offloaded, split
    and packed like it. Without this verl would load its own default, a model of 7B."""
    if not with_critic(c):
        return
    yield Override(f"{_CRITIC}.model.path", sizing.model_path(c))
    yield from _under(
        _CRITIC,
        {
            "optim.lr": CRITIC_LEARNING_RATE,
            "fsdp.param_offload": c.training.actor_offload,
            "fsdp.optimizer_offload": c.training.actor_offload,
            "ulysses_sequence_parallel_size": c.training.sp_size,
        },
    )
    if c.training.use_dynamic_bsz:
        yield Override(f"{_CRITIC}.ppo_max_token_len_per_gpu", tokens_per_gpu(c))
    else:
        yield Override(f"{_CRITIC}.ppo_micro_batch_size_per_gpu", 1)


def tokens_per_gpu(c: RunConfig) -> int:
    """Tokens of one packed micro batch per GPU: enough for the longest sample, split over the sequence parallel
    GPUs."""
    longest = c.training.max_prompt_length + c.training.max_response_length
    return -(-longest // c.training.sp_size)


def reference(c: RunConfig) -> Iterator[Override]:
    """The reference model: offloading and micro batches."""
    section = _engine_section(c)
    yield Override(f"{_REF}.{section}.param_offload", c.training.ref_offload)
    if c.training.engine != MEGATRON:
        yield Override(f"{_REF}.{section}.use_torch_compile", c.verl.use_torch_compile)
    if not c.training.use_dynamic_bsz:
        yield Override(f"{_REF}.log_prob_micro_batch_size_per_gpu", 1)


def rollout(c: RunConfig) -> Iterator[Override]:
    """The replicas: vLLM with its settings, and where they run."""
    vllm = c.vllm
    yield from _under(
        _ROLLOUT,
        {
            "name": "vllm",
            "n": c.training.n_resp_per_prompt,
            "tensor_model_parallel_size": vllm.gen_tp,
            "max_model_len": vllm.max_model_length,
            "gpu_memory_utilization": vllm.gpu_memory_utilization,
            "max_num_seqs": vllm.max_num_seqs,
            "enforce_eager": vllm.enforce_eager,
            "dtype": vllm.dtype,
            "enable_chunked_prefill": vllm.enable_chunked_prefill,
            "disable_log_stats": False,  # otherwise /metrics does not contain the engine's numbers
            "calculate_log_probs": c.verl.calculate_log_probs,
        },
    )
    if c.training.router_replay == "R3":
        yield Override(REPLAY, True)
    if not vllm.enable_chunked_prefill:  # a prompt must then fit into one batch
        yield Override(f"{_ROLLOUT}.max_num_batched_tokens", vllm.max_model_length)
    if not c.training.use_dynamic_bsz:
        yield Override(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu", 1)
    if trainer_mode(c) == "separate_async":
        yield from _standalone(c)
    elif fully_async(c):
        yield from _fully_async(c)
    kwargs = {
        "served_model_name": c.model.served_model_name,  # otherwise the checkpoint's path is the model's name
        "tool_call_parser": c.model.tool_parser,
        "enable_auto_tool_choice": True,
    }
    if c.verl.disable_cascade_attn:
        kwargs["disable_cascade_attn"] = True
    yield from (Override(f"{_VLLM}.{key}", value, new=True) for key, value in kwargs.items())


def token_routes(c: RunConfig) -> tuple[IfKnown, ...]:
    """The override that opens the token routes of verl's vLLM, which hands ``engine_kwargs`` to vLLM's own parser of
    options. Empty where ``trainer.overrides`` has that key, or where the replicas are not vLLM."""
    override = Override(f"{_VLLM}.enable_scale_out", True, new=True)
    given = any(sizing.bare_key(key) == override.key for key in c.trainer.overrides)
    if c.verl.device != "cuda" or given:
        return ()
    return (msgspec.structs.replace(SCALE_OUT, words=command_line((override,), {})),)


def _standalone(c: RunConfig) -> Iterator[Override]:
    """Replicas on GPUs of their own: verl's trainer_mode separate_async, with no replicas on the trainer's GPUs."""
    steps, rest = divmod(c.training.train_batch_size, c.training.train_prompt_mini_batch_size)
    assert not rest, "the mini batch must divide the batch"
    yield from _pool(c, _ROLLOUT)
    yield Override("trainer.v1.trainer_mode", "separate_async")
    yield Override("trainer.v1.separate_async.parameter_sync_step", steps)


def _pool(c: RunConfig, section: str) -> Iterator[Override]:
    """The GPUs that only generate, and how the weights get there. ``section``: of verl's that has them."""
    yield Override("actor_rollout_ref.hybrid_engine", False)
    yield Override(f"{section}.nnodes", c.verl.rollout_nodes or c.infrastructure.nnodes)
    yield Override(f"{section}.n_gpus_per_node", _gpus_of_pool(c))
    yield Override(f"{_ROLLOUT}.checkpoint_engine.backend", "nccl" if c.verl.device != "cpu" else CPU_WEIGHTS)


def _gpus_of_pool(c: RunConfig) -> int:
    return c.infrastructure.ngpus_per_node if by_nodes(c) else c.verl.rollout_gpus


def _fully_async(c: RunConfig) -> Iterator[Override]:
    """``fully_async_main``: a queue between the replicas, on GPUs of their own, and the trainer.

    It copies ``rollout.nnodes`` and ``n_gpus_per_node`` over those of ``actor_rollout_ref.rollout``, but reads
    ``actor_rollout_ref.rollout.n`` and not ``rollout.n``; both are set, as they should not differ.
    """
    settings = c.verl.fully_async
    yield from _pool(c, "rollout")
    yield Override("rollout.n", c.training.n_resp_per_prompt)
    yield Override("rollout.total_rollout_steps", rollout_prompts(c))
    yield from _under(
        "async_training",
        {
            "staleness_threshold": settings.staleness_threshold,
            "trigger_parameter_sync_step": settings.trigger_parameter_sync_step,
            "require_batches": settings.require_batches,
            "partial_rollout": settings.partial_rollout,
            "concurrent_samples_per_replica": prompts_per_replica(c),
        },
    )
    # Otherwise verl gives every row to single_turn_agent, whatever is configured.
    if agent_loop(c) != SINGLE_TURN:
        yield Override(f"{_ROLLOUT}.multi_turn.enable", True)


def prompts_per_replica(c: RunConfig) -> int:
    """Prompts at a time on each replica. verl multiplies them by the replicas; LiveRL's key counts those of all."""
    most = c.verl.fully_async.max_concurrent_samples
    if most is None:
        return c.verl.fully_async.concurrent_samples_per_replica
    return max(1, most // max(1, sizing.expected_replicas(c)))


def divided(c: RunConfig) -> tuple[str, ...]:
    """What is said of ``verl.fully_async.max_concurrent_samples``, which verl has not."""
    most = c.verl.fully_async.max_concurrent_samples
    if not fully_async(c) or most is None:
        return ()
    replicas, each = sizing.expected_replicas(c), prompts_per_replica(c)
    said = (
        f"verl.fully_async.max_concurrent_samples {most}: verl 0.9.1 has no such key; divided by {replicas} "
        f"{plural(replicas, 'replica')} it is async_training.concurrent_samples_per_replica {each}"
    )
    rest = most - each * replicas
    return (f"{said} ({each * replicas} prompts at a time, not {most})" if rest else said,)


def sampling(c: RunConfig) -> Iterator[Override]:
    """Sampling parameters of rollouts and of validation."""
    algorithm = c.algorithm
    yield from _under(
        _ROLLOUT,
        {
            "temperature": algorithm.temperature,
            "top_p": algorithm.top_p,
            "top_k": algorithm.top_k,
            "val_kwargs.temperature": algorithm.val_temperature,
            "val_kwargs.top_p": algorithm.val_top_p,
            "val_kwargs.top_k": algorithm.val_top_k,
            "val_kwargs.do_sample": algorithm.val_temperature > 0,
        },
    )


def agents(c: RunConfig) -> Iterator[Override]:
    """The agent loop, its workers, and the format of tool calls."""
    verl = c.verl
    yield Override(f"{_ROLLOUT}.agent.num_workers", verl.agent_workers)
    yield Override(f"{_ROLLOUT}.agent.default_agent_loop", agent_loop(c))
    if c.model.tool_parser in VERL_FORMATS:
        yield Override(f"{_ROLLOUT}.multi_turn.format", VERL_FORMATS[c.model.tool_parser])
    yield Override(f"{_ROLLOUT}.multi_turn.max_assistant_turns", c.harbor_agent.max_iterations)
    if agent_loop(c) in stack.OUR_LOOPS:
        yield Override(f"{_ROLLOUT}.agent.agent_loop_config_path", f"{{run_dir}}/{agent_loops.PATH}")
    if c.agent.tools:
        yield Override(f"{_ROLLOUT}.multi_turn.tool_config_path", c.agent.tools)
    if c.agent.functions:
        yield Override(f"{_ROLLOUT}.multi_turn.function_tool_path", c.agent.functions)


def reward(c: RunConfig) -> Iterator[Override]:
    """The user's reward function, and the workers that compute rewards."""
    if c.reward.function:
        file, _, name = c.reward.function.rpartition(":")
        yield Override("reward.custom_reward_function.path", file)
        yield Override("reward.custom_reward_function.name", name)
        if c.reward.kwargs:
            yield Override("reward.custom_reward_function.reward_kwargs", c.reward.kwargs, new=True)
    if c.verl.device == "cpu" or (sizing.is_smoke(c) and agent_loop(c) in stack.OUR_LOOPS):
        yield Override("reward.num_workers", 1)  # few cores; the built-in tasks give their rewards themselves


def algorithm(c: RunConfig) -> Iterator[Override]:
    """The advantage estimator. The KL term, if used, is part of the loss and not of the reward."""
    yield Override("algorithm.adv_estimator", c.algorithm.adv_estimator)
    yield Override("algorithm.use_kl_in_reward", False)
    if c.training.rollout_is is not None:
        yield Override("algorithm.rollout_correction.rollout_is", c.training.rollout_is)


def trainer(c: RunConfig) -> Iterator[Override]:
    """Hosts, GPUs, steps, checkpoints, validation and loggers."""
    training = c.training
    logger = ["console", "file"] + (["wandb"] if c.credentials.wandb_mode != "disabled" else [])
    yield from _under(
        "trainer",
        {
            "logger": logger,
            "project_name": c.experiment.project_name,
            "experiment_name": c.experiment.exp_name,
            "nnodes": c.verl.train_nodes or c.infrastructure.nnodes,
            "n_gpus_per_node": c.infrastructure.ngpus_per_node - c.verl.rollout_gpus,
            "total_epochs": training.total_epochs,
            # the fully asynchronous trainer counts prompts: rollout.total_rollout_steps
            **({} if fully_async(c) else {"total_training_steps": training.total_steps}),
            "save_freq": training.save_freq,
            "max_actor_ckpt_to_keep": training.keep_checkpoints,
            "max_critic_ckpt_to_keep": training.keep_checkpoints,
            "test_freq": training.test_freq,
            "val_before_train": training.val_before_train,
            "default_local_dir": "{run_dir}/checkpoints",
            "resume_mode": "auto",  # from the newest checkpoint, if there is one
            # The fully asynchronous trainer numbers its dumps by updates, and writes no trial's name into them.
            **({} if fully_async(c) else {"rollout_data_dir": "{run_dir}/rollouts"}),
        },
    )
    if c.verl.wandb_proxy:
        yield Override("trainer.wandb_proxy", c.verl.wandb_proxy, new=True)


def ray(c: RunConfig) -> Iterator[Override]:
    """The connection to Ray, and where verl and Hydra write. ``ray_init.num_cpus`` is never set: with a running head,
    verl would reject it."""
    yield Override("ray_kwargs.ray_init.namespace", NAMESPACE, new=True)
    if c.ray.timeline:
        yield Override("ray_kwargs.timeline_json_file", "{attempt_dir}/ray_timeline.json")
    yield Override("hydra.run.dir", "{attempt_dir}/hydra")


def device(c: RunConfig) -> Iterator[Override]:
    """The device; with cpu, also the settings that verl needs to run without a GPU."""
    yield Override("trainer.device", c.verl.device)
    if c.verl.device != "cpu":
        yield from attention.overrides(c)
        return
    yield Override(f"{_ACTOR}.strategy", "fsdp2")
    yield Override(f"{_MODEL}.use_remove_padding", False)
    yield Override(f"{_MODEL}.override_config.attn_implementation", "sdpa", new=True)
    if not fully_async(c):  # which has no TransferQueue
        yield Override(sizing.UNITS_KEY, sizing.storage_units(c))
    yield Override("data.dataloader_num_workers", 0)
