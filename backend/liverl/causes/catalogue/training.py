"""Signatures of verl and of its data."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-no-tokens",
        component="verl",
        role="cause",
        pattern="response_mask must contain at least one valid token",
        needle="response_mask must contain at least one valid token",
        title="No trial of the batch has a token of the model (response_mask is empty)",
        cause=(
            "The whole batch was generated without one usable token: model.tool_parser does not fit the "
            "model's tool calls, or all trials failed before their first turn."
        ),
        fix=(
            "Look at the trials: if the text holds <function= set model.tool_parser qwen3_coder, if it "
            "holds JSON hermes; if there is no turn at all, look at the sandboxes' errors."
        ),
        patch={"model.tool_parser": "qwen3_coder"},
        source="recordings/verl_cpu/fail_zero_response_mask.stderr.log",
        fires="ValueError: response_mask must contain at least one valid token (1).",
        spares="WARNING:2026-11-21 00:03:35,469:response_mask is all False, returning default metrics",
        recorded=True,
    ),
    Signature(
        id="verl-no-gpus",
        component="verl",
        role="cause",
        pattern=r"Total available GPUs (?P<has>[\d.]{1,8}) is less than total desired GPUs (?P<wanted>\d{1,6})",
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
        spares="resource_pool_spec: {'global_pool': [8]}",
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
        pattern=r"rollout world_size: (?P<world>\d{1,6}) is not divisible by infer_world_size: (?P<tp>\d{1,6})",
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
    Signature(
        id="verl-state-dict",
        component="torch",
        role="cause",
        pattern=(
            r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,100}):\s{1,4}(?:size mismatch for "
            r"(?P<weight>\S{1,200}): copying a param with shape (?P<saved>torch\.Size\(\[[\d, "
            r"]{0,80}\]\)) from checkpoint, the shape in current model is (?P<mine>torch\.Size\(\[[\d, "
            r"]{0,80}\]\)))"
        ),
        needle="Error(s) in loading state_dict for",
        title="The checkpoint belongs to another model than this {model}",
        cause=(
            "A weight has {saved} in the checkpoint and {mine} here: the checkpoint is of another model, "
            "or of another size of it."
        ),
        fix=(
            "Check the paths: model.model_path must be the model that the checkpoint was trained from; "
            "or begin a new run (run.name) without the checkpoint."
        ),
        source="recordings/cases/29-verl-checkpoint-size-mismatch.log",
        fires=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tsize mismatch for "
            "model.layers.0.self_attn.o_proj.weight: copying a param with shape torch.Size([896, 896]) "
            "from checkpoint, the shape in current model is torch.Size([3584, 3584])."
        ),
        spares=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tMissing key(s) in "
            'state_dict: "lm_head.weight".'
        ),
    ),
    Signature(
        id="verl-state-dict-keys",
        component="torch",
        role="cause",
        pattern=(
            r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,100}):\s{1,4}(?:Missing|Unexpected) "
            r"key\(s\) in state_dict"
        ),
        needle="Error(s) in loading state_dict for",
        title="The checkpoint's weights have other names than this {model}",
        cause="The checkpoint is of another architecture, or of another version of the code.",
        fix=(
            "Check the paths: model.model_path must be the model that the checkpoint was trained from; "
            "or begin a new run without it."
        ),
        source="torch nn/modules/module.py",
        fires=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tMissing key(s) in "
            'state_dict: "lm_head.weight".'
        ),
        spares=(
            "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tsize mismatch for w: "
            "copying a param"
        ),
    ),
    Signature(
        id="verl-world-size",
        component="verl",
        role="cause",
        pattern=(
            r"FileNotFoundError: \[Errno 2\] No such file or directory: "
            r"'(?P<path>[^'\n]{1,300}model_world_size_(?P<world>\d{1,6})_rank_(?P<rank>\d{1,6})\.pt)'"
        ),
        needle="FileNotFoundError: [Errno 2] No such file or directory: '",
        title="The checkpoint was not saved by {world} GPUs, or lies on another host",
        cause=(
            "A run with {world} GPUs looks for {path}: the checkpoint was written with another number of "
            "GPUs, or to another host's local disk."
        ),
        fix=(
            "Resume with the same infrastructure.ngpus_per_node and infrastructure.nnodes, keep "
            "checkpoints on shared storage, or merge it to Hugging Face form and start anew."
        ),
        source="verl utils/checkpoint/fsdp_checkpoint_manager.py",
        fires=(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/data/ckpt/global_step_40/actor/model_world_size_8_rank_0.pt'"
        ),
        spares="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
    ),
    Signature(
        id="verl-data-missing",
        component="verl",
        role="cause",
        pattern=r"FileNotFoundError: Unable to find '(?P<path>[^'\n]{1,300})'",
        needle="FileNotFoundError: Unable to find '",
        title="The data file {path} does not exist",
        cause="There is no {path} on this host.",
        fix=(
            "Correct data.train_index and data.val_index (or data.data_dir); the file must exist on "
            "every host."
        ),
        command="ls -l '{path}'",
        source="datasets data_files.py",
        fires="FileNotFoundError: Unable to find '/data/train.parquet'",
        spares="FileNotFoundError: [Errno 2] No such file or directory: '/data/x.json'",
    ),
    Signature(
        id="verl-all-failed",
        component="verl",
        role="consequence",
        pattern="Sync replay buffer selected terminal groups with no materializable trajectories",
        needle="Sync replay buffer selected terminal groups with no materializable trajectories",
        title="Every trial of the batch failed",
        fix='Read the first "Error in _run_prompt" before it: that is why trials fail.',
        source="recordings/verl_cpu/fail_server_actor_killed.stderr.log",
        fires=(
            "RuntimeError: Sync replay buffer selected terminal groups with no materializable "
            "trajectories. Enable trainer.v1.sampler.sync_refill_failed_groups to replace failed groups."
        ),
        spares="INFO Sync replay buffer selected 4 groups",
        recorded=True,
    ),
    Signature(
        id="verl-trial-error",
        component="verl",
        role="consequence",
        pattern=r"Error in _run_prompt for uid=(?P<uid>[\w-]{1,60})",
        needle="Error in _run_prompt for uid=",
        title="A trial failed; the traceback that follows says why",
        fix="Read the traceback that follows it.",
        severity="warning",
        alive=True,
        source="recordings/verl_cpu/fail_server_actor_killed.stderr.log",
        fires=(
            "ERROR:2026-11-21 00:02:09,577:Error in _run_prompt for uid=60359f8b-dd6b-4948-9eae-4cdfe9852c08"
        ),
        spares="INFO _run_prompt for uid=60359f8b",
        recorded=True,
    ),
    Signature(
        id="verl-tool-call-unreadable",
        component="verl",
        role="cause",
        pattern="Failed to decode tool call:",
        needle="Failed to decode tool call:",
        title="verl cannot read the model's tool calls",
        cause=(
            "The parser of the rollout reads another format than the model writes; a few such lines are "
            "slips of the model."
        ),
        fix=(
            "If most trials print it, set model.tool_parser to the model's format: qwen3_coder for XML, "
            "hermes for JSON."
        ),
        patch={"model.tool_parser": "qwen3_coder"},
        severity="warning",
        alive=True,
        source="verl experimental/agent_loop/tool_parser.py",
        fires="Failed to decode tool call: Expecting value: line 1 column 1 (char 0)",
        spares="INFO decoded tool call",
    ),
    Signature(
        id="verl-parser-unknown",
        component="verl",
        role="cause",
        pattern=r"Unknown tool parser: (?P<parser>\S{1,60})",
        needle="Unknown tool parser:",
        title="verl has no tool parser {parser}",
        cause=(
            "model.tool_parser (verl's rollout.multi_turn.format) is {parser}, which this verl does not have."
        ),
        fix="Set model.tool_parser to qwen3_coder (XML) or hermes (JSON).",
        patch={"model.tool_parser": "qwen3_coder"},
        source="verl experimental/agent_loop/tool_parser.py",
        fires="ValueError: Unknown tool parser: qwen_coder",
        spares="INFO tool parser: hermes",
    ),
    Signature(
        id="verl-agent-loop-unknown",
        component="verl",
        role="cause",
        pattern=r"Agent loop (?P<name>\S{1,100}) not registered, registered agent loops",
        needle=" not registered, registered agent loops",
        title="There is no agent loop {name}",
        cause="A row of the data (agent_name) or verl.agent_loop names {name}, which nothing registered.",
        fix=(
            "Correct verl.agent_loop or the column agent_name; for a loop of your own give verl its "
            "agent_loop_config_path in trainer.overrides."
        ),
        source="verl experimental/agent_loop/agent_loop.py",
        fires=(
            "AssertionError: Agent loop my_agent not registered, registered agent loops: "
            "dict_keys(['single_turn_agent', 'tool_agent'])"
        ),
        spares="INFO Agent loop my_agent registered",
    ),
    Signature(
        id="verl-trainer-unknown",
        component="verl",
        role="cause",
        pattern=r"Unknown trainer '(?P<name>[^'\n]{1,60})'\. Available trainers: (?P<names>[^\n]{1,120})",
        needle="Unknown trainer '",
        title="verl has no trainer '{name}'",
        cause="The trainer mode is {name}, and this verl has {names}",
        fix="Remove the override of the trainer mode from trainer.overrides, or use one of those.",
        source="verl trainer/ppo/v1/trainer_base.py",
        fires=(
            "ValueError: Unknown trainer 'async'. Available trainers: colocate_async, separate_async, sync."
        ),
        spares="INFO trainer 'sync'",
    ),
    Signature(
        id="verl-rollout-sync",
        component="verl",
        role="cause",
        pattern="Rollout mode 'sync' has been removed",
        needle="Rollout mode 'sync' has been removed",
        title="verl's rollout mode 'sync' does not exist any more",
        cause="An override sets actor_rollout_ref.rollout.mode to sync, which this verl removed.",
        fix="Remove actor_rollout_ref.rollout.mode from trainer.overrides.",
        source="verl workers/config/rollout.py",
        fires=(
            "ValueError: Rollout mode 'sync' has been removed. Please set "
            "`actor_rollout_ref.rollout.mode=async` or remove the mode setting entirely."
        ),
        spares="INFO rollout mode async",
    ),
    Signature(
        id="verl-logger-unknown",
        component="verl",
        role="cause",
        pattern=r"AssertionError: (?P<name>\w{1,40}) is not supported",
        needle=" is not supported",
        title="verl has no logger {name}",
        cause="trainer.logger names {name}, which verl's tracking does not have.",
        fix='Correct "trainer.logger" in trainer.overrides: console, file, wandb, tensorboard, mlflow.',
        source="verl utils/tracking.py",
        fires="AssertionError: wandbb is not supported",
        spares="NotImplementedError: LR scheduler type x is not supported",
    ),
    Signature(
        id="verl-context-positions",
        component="verl",
        role="cause",
        pattern=(
            r"max_model_len \((?P<wanted>\d{1,12})\) should be less than or equal to "
            r"max_position_embeddings \((?P<most>\d{1,12})\)"
        ),
        needle="should be less than or equal to max_position_embeddings (",
        title="The context of {wanted} tokens is longer than the model's {most}",
        cause="vllm.max_model_length is {wanted}, and the model was made for {most} tokens.",
        fix=(
            "Set vllm.max_model_length to {most} or less, with training.max_prompt_length and "
            "training.max_response_length within it."
        ),
        patch={"vllm.max_model_length": "{most}"},
        source="verl workers/rollout/vllm_rollout/vllm_async_server.py",
        fires=(
            "ValueError: max_model_len (128000) should be less than or equal to max_position_embeddings "
            "(32768)"
        ),
        spares="INFO max_model_len 32768",
    ),
    Signature(
        id="verl-no-room",
        component="verl",
        role="cause",
        pattern=(
            r"Prompt length \((?P<prompt>\d{1,12})\) leaves no room to generate within the model's "
            r"maximum context length \((?P<most>\d{1,12})\)"
        ),
        needle="leaves no room to generate within the model's maximum context length (",
        title="A conversation of {prompt} tokens fills the context of {most}",
        cause="The turns of a trial grew to {prompt} tokens, and nothing is left to generate.",
        fix="Raise vllm.max_model_length, or lower harbor_agent.max_iterations.",
        severity="warning",
        alive=True,
        source="verl workers/rollout/vllm_rollout/vllm_async_server.py",
        fires=(
            "ValueError: Prompt length (32768) leaves no room to generate within the model's maximum "
            "context length (32768); need at least 1 token of headroom."
        ),
        spares="WARNING Prompt of 200 tokens exceeds rollout.prompt_length=100; left-truncating.",
    ),
    Signature(
        id="verl-prompt-cut",
        component="verl",
        role="cause",
        pattern=(
            r"Prompt of (?P<has>\d{1,9}) tokens exceeds rollout\.prompt_length=(?P<most>\d{1,9}); "
            "left-truncating"
        ),
        needle="left-truncating",
        title="A prompt of {has} tokens is cut to {most}",
        cause="The beginning of a prompt is dropped because training.max_prompt_length is {most}.",
        fix="Raise training.max_prompt_length.",
        patch={"training.max_prompt_length": "{has}"},
        severity="warning",
        alive=True,
        source="verl experimental/agent_loop/agent_loop.py",
        fires=(
            "WARNING:2026-11-21 00:02:09,577:Prompt of 5120 tokens exceeds rollout.prompt_length=4096; "
            "left-truncating."
        ),
        spares="INFO Prompt of 512 tokens",
    ),
    Signature(
        id="verl-no-servers",
        component="verl",
        role="consequence",
        pattern="No available servers in load balancer",
        needle="No available servers in load balancer",
        title="verl has no replica left to generate with",
        fix="Look why the replicas ended: their log, or the first ActorDiedError.",
        source="verl workers/rollout/router.py",
        fires="RuntimeError: No available servers in load balancer",
        spares="INFO load balancer: 2 servers",
    ),
    Signature(
        id="verl-grad-not-finite",
        component="verl",
        role="cause",
        pattern=r"WARN: grad_norm is not finite: (?P<value>[^\n]{1,60})",
        needle="WARN: grad_norm is not finite:",
        title="The gradient is not a number ({value}); verl skips the update",
        cause=(
            "The loss became NaN or infinite: diverged weights, or probabilities of engine and trainer "
            "that disagree."
        ),
        fix=(
            "Go back to a checkpoint before it and lower algorithm.learning_rate; look at "
            "rollout_probs_diff_mean and actor/loss of the steps before."
        ),
        alive=True,
        source="verl workers/engine/veomni/transformer_impl.py",
        fires="WARN: grad_norm is not finite: nan",
        spares="grad_norm: 0.31",
    ),
    Signature(
        id="verl-nan-rewards",
        component="verl",
        role="cause",
        pattern=r"(?:ValueError|RuntimeError|AssertionError): NaN in the (?P<what>rewards?|loss|advantages?)\b",
        needle="NaN in the",
        title="The {what} became NaN",
        cause="The {what} of a batch are not numbers.",
        fix=(
            "Look at your reward function's result for those rows (reward.function), and lower "
            "algorithm.learning_rate if it is the loss."
        ),
        source="the failing log of diagnosis-findings, section 9",
        fires="ValueError: NaN in the rewards of group 17",
        spares="actor/loss:nan - actor/entropy:nan",
    ),
    Signature(
        id="verl-nan-probabilities",
        component="torch",
        role="cause",
        pattern="probability tensor contains either `inf`, `nan` or element < 0",
        needle="probability tensor contains either `inf`, `nan` or element < 0",
        title="The model's probabilities are NaN: its weights are broken",
        cause=(
            "Sampling failed because the model's output is not a number: training diverged, or the dtype "
            "overflows."
        ),
        fix=("Resume from an earlier checkpoint, lower algorithm.learning_rate, or use vllm.dtype bfloat16."),
        source="torch aten/src/ATen/native/cuda/TensorCompare.cu",
        fires="RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        spares="RuntimeError: prob_dist must be 1 or 2 dim",
    ),
    Signature(
        id="verl-all-aborted",
        component="verl",
        role="cause",
        pattern=r"All samples are aborted, returning default (?P<what>[\w ]{1,40}) metrics",
        needle="All samples are aborted",
        title="Every reply of the step was aborted, so it teaches nothing",
        cause="All samples came back without tokens: the engine or the proxy aborts the requests.",
        fix="Look at the replicas' and the proxy's logs for why requests fail.",
        severity="warning",
        alive=True,
        source="verl trainer/ppo/metric_utils.py",
        fires="All samples are aborted, returning default score metrics",
        spares="3 samples are aborted",
    ),
    Signature(
        id="verl-router-replay",
        component="verl",
        role="cause",
        pattern="router_replay RECORD: no router fired during this forward",
        needle="router_replay RECORD: no router fired during this forward",
        title="Router replay is on, and this model has no routers to replay",
        cause="The model is dense, or its mixture-of-experts layers are not connected to router replay.",
        fix=(
            'Switch it off: ENABLE_R3=False in LiveRL, "actor_rollout_ref.actor.router_replay.mode": '
            "disabled in trainer.overrides."
        ),
        source="verl utils/veomni/router_replay.py; LiveRL documentation, symptom B15",
        fires=(
            "RuntimeError: router_replay RECORD: no router fired during this forward. Either the model "
            "has no MoE layers or its SparseMoeBlock is not wired to "
            "`veomni.utils.moe_router_replay.maybe_replay_indices`."
        ),
        spares="INFO router_replay mode: disabled",
    ),
    Signature(
        id="verl-storage-zero",
        component="torch",
        role="cause",
        pattern=r"setStorage: [^\n]{1,300}storage of size 0",
        needle="setStorage:",
        title="The backward pass needs memory that was freed (fused kernels or offload)",
        cause="Fused kernels or activation offload do not work with veomni.",
        fix=(
            "Set use_fused_kernels and enable_activation_offload of the model to false in trainer.overrides."
        ),
        source="torch aten/src/ATen/native/Resize.h; LiveRL documentation, symptom B17",
        fires=(
            "RuntimeError: setStorage: sizes [4096, 4096], strides [4096, 1], storage offset 0, and "
            "itemsize 2 requiring a storage size of 33554432 are out of bounds for storage of size 0"
        ),
        spares="RuntimeError: shape mismatch",
    ),
    Signature(
        id="verl-tensordict",
        component="verl",
        role="cause",
        pattern="TensorDict does not support membership checks",
        needle="TensorDict does not support membership checks",
        title="The installed tensordict does not fit verl",
        cause=(
            "This version of tensordict lacks what verl uses; on arm64 there is no ready wheel of the "
            "right one."
        ),
        fix=(
            "Install the tensordict that verl names (on arm64 build 0.6.2 from source) in environments.verl."
        ),
        source="LiveRL documentation, symptom B20",
        fires="NotImplementedError: TensorDict does not support membership checks",
        spares="INFO tensordict 0.6.2",
    ),
    Signature(
        id="verl-reward-missing",
        component="verl",
        role="cause",
        pattern=r"Reward function is not implemented for data_source='(?P<source>[^'\n]{1,120})'",
        needle="Reward function is not implemented for data_source='",
        title="There is no reward function for the data source {source}",
        cause="verl has no own reward for rows with data_source {source}, and the run gives none.",
        fix="Write one and set reward.function to FILE.py:name.",
        source="verl utils/reward_score/__init__.py",
        fires="NotImplementedError: Reward function is not implemented for data_source='my/tasks'",
        spares="INFO data_source='openai/gsm8k'",
    ),
    Signature(
        id="wandb-no-key",
        component="python",
        role="cause",
        pattern=r"api_key not configured \(no-tty\)",
        needle="api_key not configured (no-tty)",
        title="wandb has no API key",
        cause="wandb wants to log in, and there is neither a key nor a terminal to ask for one.",
        fix="Set credentials.wandb_api_key (WANDB_API_KEY), or switch wandb off.",
        patch={"credentials.wandb_mode": "disabled"},
        source="wandb",
        fires=(
            "wandb.errors.errors.UsageError: api_key not configured (no-tty). call "
            "wandb.login(key=[your_api_key])"
        ),
        spares="wandb: Currently logged in as: u",
    ),
)
