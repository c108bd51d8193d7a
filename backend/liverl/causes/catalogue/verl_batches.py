"""Signatures of verl's sizes of batches and groups of GPUs."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-no-gpus",
        component="verl",
        role="cause",
        pattern=(
            r"Total available GPUs (?P<has>[\d.]{1,8}) is less than total desired GPUs (?P<wanted>\d{1,6})"
        ),
        needle="Total available GPUs",
        title="verl wants {wanted} GPUs, and Ray has {has}",
        cause=(
            "infrastructure.ngpus_per_node x infrastructure.nnodes is {wanted}, and the Ray cluster "
            "offers {has}."
        ),
        fix=(
            "Lower infrastructure.ngpus_per_node, make more GPUs visible (CUDA_VISIBLE_DEVICES), stop "
            "what holds them; without GPUs use verl.device cpu."
        ),
        command="ray status; nvidia-smi",
        source="recordings/verl_cpu/fail_no_gpu.stderr.log",
        fires="ValueError: Total available GPUs 0 is less than total desired GPUs 1",
        spares="INFO Total available GPUs 8.0, total desired GPUs 8",
        recorded=True,
    ),
    Signature(
        id="verl-batch-gpus",
        component="verl",
        role="cause",
        pattern=(
            r"real_train_batch_size \((?P<batch>\d{1,9})\) must be divisible by minimal possible batch "
            r"size \((?P<gpus>\d{1,9})\)"
        ),
        needle="real_train_batch_size (",
        title="{batch} trials per step cannot be split evenly over {gpus} GPUs",
        cause=(
            "train_batch_size x rollout.n is {batch}, which is no multiple of {gpus}, the GPUs of the "
            "training."
        ),
        fix=(
            "Choose training.train_batch_size and training.n_resp_per_prompt so that their product is a "
            "multiple of {gpus}."
        ),
        source="recordings/cases/27-verl-train-batch-divisible.log",
        fires=(
            "AssertionError: real_train_batch_size (36) must be divisible by minimal possible batch size (8)"
        ),
        spares="real_train_batch_size: 32",
    ),
    Signature(
        id="verl-mini-batch",
        component="verl",
        role="cause",
        pattern=(
            r"train_batch_size \((?P<batch>\d{1,9})\) must be >= actor\.ppo_mini_batch_size "
            r"\((?P<mini>\d{1,9})\)"
        ),
        needle="must be >= actor.ppo_mini_batch_size (",
        title="The mini batch ({mini}) is larger than the batch ({batch})",
        cause="training.train_prompt_mini_batch_size is {mini}, and training.train_batch_size is {batch}.",
        fix="Set training.train_prompt_mini_batch_size to a divisor of {batch}.",
        patch={"training.train_prompt_mini_batch_size": "{batch}"},
        source="verl workers/config/actor.py",
        fires="ValueError: train_batch_size (4) must be >= actor.ppo_mini_batch_size (8)",
        spares="AssertionError: train_batch_size (4) must be divisible by parameter_sync_step (3)",
    ),
    Signature(
        id="verl-divisible",
        component="verl",
        role="cause",
        pattern=(
            "(?<!real_)(?P<what>ppo_mini_batch_size|train_batch_size|Batch "
            r"size|num_heads|n_gpus|world_size) \(?(?P<value>\d{1,9})\)? must be divisible by "
            r"(?P<by>[^\n]{1,80})"
        ),
        needle=" must be divisible by",
        title="{what} ({value}) must be divisible by {by}",
        cause="verl splits {what} evenly, and {value} is not divisible by {by}.",
        fix=(
            "Change it: training.train_batch_size, training.train_prompt_mini_batch_size, "
            "training.sp_size and the number of GPUs must divide one another."
        ),
        source=(
            "verl workers/config/actor.py, utils/seqlen_balancing.py, utils/ulysses.py, "
            "trainer/ppo/v1/trainer_base.py"
        ),
        fires="AssertionError: train_batch_size (4) must be divisible by parameter_sync_step (3)",
        spares="AssertionError: data size must be divisible by force_group_size * micro_batch_size_per_gpu",
    ),
    Signature(
        id="verl-micro-batch-data",
        component="verl",
        role="cause",
        pattern=r"data size must be divisible by force_group_size \* micro_batch_size_per_gpu",
        needle="data size must be divisible by force_group_size * micro_batch_size_per_gpu",
        title="The trials of a GPU cannot be split into its micro batches",
        cause="The number of sequences on a GPU is no multiple of the micro batch size.",
        fix="Pack micro batches by tokens, or choose a micro batch size that divides.",
        patch={"training.use_dynamic_bsz": "true"},
        source="verl workers/engine/utils.py",
        fires="AssertionError: data size must be divisible by force_group_size * micro_batch_size_per_gpu",
        spares="AssertionError: train_batch_size (4) must be divisible by parameter_sync_step (3)",
    ),
    Signature(
        id="verl-rollout-tp",
        component="verl",
        role="cause",
        pattern=(
            r"rollout world_size: (?P<world>\d{1,6}) is not divisible by infer_world_size: (?P<tp>\d{1,6})"
        ),
        needle="rollout world_size:",
        title="{world} GPUs cannot be split into replicas of {tp} GPUs",
        cause=(
            "A replica takes vllm.gen_tp = {tp} GPUs, and the {world} GPUs of the rollout are no "
            "multiple of it."
        ),
        fix="Set vllm.gen_tp to a divisor of {world}.",
        patch={"vllm.gen_tp": "1"},
        source="verl workers/engine_workers.py",
        fires="AssertionError: rollout world_size: 4 is not divisible by infer_world_size: 3",
        spares="INFO rollout world_size: 4",
    ),
    Signature(
        id="verl-micro-batch-missing",
        component="verl",
        role="cause",
        pattern=r"Please set at least one of '(?P<key>[\w.]{1,120})'",
        needle="Please set at least one of '",
        title="No micro batch size is set ({key})",
        cause="Micro batches are not packed by tokens, and {key} has no value.",
        fix="Switch on training.use_dynamic_bsz, or set {key}_per_gpu in trainer.overrides.",
        patch={"training.use_dynamic_bsz": "true"},
        source="verl utils/config.py",
        fires=(
            "ValueError: [actor_rollout_ref.rollout] Please set at least one of "
            "'actor_rollout_ref.rollout.log_prob_micro_batch_size' or "
            "'actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu'."
        ),
        spares="Please set the environment variable HYDRA_FULL_ERROR=1",
    ),
    Signature(
        id="verl-token-budget",
        component="verl",
        role="cause",
        pattern=(
            r"max_token_len must be greater than the sequence length\. Got "
            r"(?:self\.)?max_token_len=(?P<most>\d{1,9}) and max_seq_len=(?:tensor\()?(?P<has>\d{1,9})"
        ),
        needle="max_token_len must be greater than the sequence length. Got",
        title="A sequence of {has} tokens exceeds the micro batch of {most} tokens",
        cause="One rank fails with this assertion, and the others wait until NCCL's timeout.",
        fix=(
            "Raise ppo_max_token_len_per_gpu in trainer.overrides or training.sp_size, or lower "
            "training.max_response_length."
        ),
        source="verl utils/seqlen_balancing.py",
        fires=(
            "AssertionError: max_token_len must be greater than the sequence length. Got "
            "max_token_len=16384 and max_seq_len=20110"
        ),
        spares="INFO max_token_len=16384",
    ),
)
