"""Signatures of verl's data, rewards, agent loops and resumption."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="verl-equal-chunk",
        component="verl",
        role="cause",
        pattern=(
            r"only support equal chunk\. Got size of DataProto (?P<size>\d{1,9}) and chunk (?P<chunks>\d{1,9})"
        ),
        needle="only support equal chunk. Got size of DataProto ",
        title="A batch of {size} samples cannot be split over {chunks} workers",
        cause=(
            "verl gives each of {chunks} workers the same number of samples, and {size} is no multiple of "
            "it: the last batch of the data, filtered samples, or an unfitting batch size."
        ),
        fix=(
            "Choose training.train_batch_size and training.val_batch_size so that batch times "
            "n_resp_per_prompt is a multiple of {chunks}, drop the last batch, or use another number of GPUs."
        ),
        source="verl protocol.py",
        fires="AssertionError: only support equal chunk. Got size of DataProto 512 and chunk 6.",
        spares="INFO support equal chunk: size of DataProto 512, chunk 8",
    ),
    Signature(
        id="verl-prompt-too-long",
        component="verl",
        role="cause",
        pattern=r"Prompt length (?P<has>\d{1,9}) is longer than (?P<most>\d{1,9})",
        needle="Prompt length ",
        title="A prompt of the data has {has} tokens, and {most} are allowed",
        cause=(
            "truncation is error in verl's data section, so a prompt longer than max_prompt_length ends the "
            "run."
        ),
        fix=(
            "Raise training.max_prompt_length to at least {has}, or drop or cut long prompts "
            "(filter_overlong_prompts=True or truncation=left of verl's data section, in trainer.overrides)."
        ),
        patch={"training.max_prompt_length": "{has}"},
        source="verl utils/dataset/rl_dataset.py",
        fires="RuntimeError: Prompt length 2731 is longer than 1024.",
        spares="Prompt length (4096) leaves no room to generate",
    ),
    Signature(
        id="verl-sample-too-long",
        component="verl",
        role="cause",
        pattern=(r"sequence_length=(?P<has>\d{1,9}) is larger than (?:self\.)?max_length=(?P<most>\d{1,9})"),
        needle="sequence_length=",
        title="A sample of the data has {has} tokens, and {most} are allowed",
        cause=(
            "truncation is error in verl's data section, so a sample longer than max_length ends the run."
        ),
        fix="Raise max_length in verl's data section, or set its truncation to left or right.",
        source="verl utils/dataset/sft_dataset.py",
        fires="NotImplementedError: sequence_length=2731 is larger than self.max_length=1024",
        spares="INFO sequence_length=2731 max_length=4096",
    ),
    Signature(
        id="verl-no-batches",
        component="verl",
        role="cause",
        pattern="(?P<which>Train|Validation) dataloader is empty",
        needle=" dataloader is empty",
        title="The data gives no single batch ({which})",
        cause=("There are fewer rows than one batch, or the filter for long prompts removed them all."),
        fix=(
            "Lower training.train_batch_size (or val_batch_size), raise training.max_prompt_length, or use "
            "more data (data.train_index, data.val_index)."
        ),
        source="verl trainer/ppo/ray_trainer.py",
        fires="AssertionError: Train dataloader is empty!",
        spares="INFO Train dataloader: 12 batches, not empty",
    ),
    Signature(
        id="verl-agent-no-tokens",
        component="verl",
        role="cause",
        pattern="Last message must have prompt_ids in response_metadata",
        needle="Last message must have prompt_ids in response_metadata",
        title="An agent's conversation does not end with an answer of the model",
        cause=(
            "The agent loop (LangGraph) takes the tokens from the last message, and that is no message of "
            "the model: a tool message, an error, or a graph that stopped at its limit."
        ),
        fix=("Let the graph end after a message of the model, and handle errors and the turn limit in it."),
        source="verl recipe/langgraph_agent",
        fires="AssertionError: Last message must have prompt_ids in response_metadata",
        spares="INFO Last message has prompt_ids in response_metadata",
    ),
    Signature(
        id="verl-module-file",
        component="verl",
        role="cause",
        pattern=(
            r"(?:Reward function file|Custom module file|Dataset file|Agent loop file)[^\n]{0,320}? not found"
        ),
        needle=" not found",
        title="A Python file that verl should load does not exist",
        cause=(
            "The path of a custom reward function, dataset or agent is wrong, or does not exist on the node "
            "that loads it."
        ),
        fix=(
            "Correct it (reward.function, or the path keys in trainer.overrides); use an absolute path that "
            "all nodes have."
        ),
        source="verl utils/import_utils.py; trainer/ppo/reward.py",
        fires="FileNotFoundError: Reward function file '/home/u/my_reward.py' not found.",
        spares="INFO Reward function file '/home/u/my_reward.py' found",
    ),
    Signature(
        id="verl-module-name",
        component="verl",
        role="cause",
        pattern=r"(?:Reward function '\w{1,80}'|Object) not found in ",
        needle="not found in",
        title="The function that verl should load is not in its file",
        cause="The file was loaded, and it does not define a function or class of that name.",
        fix=(
            "Correct the name (custom_reward_function.name in trainer.overrides, or reward.function), or "
            "define it at the top level of the file."
        ),
        source="verl utils/import_utils.py",
        fires=("AttributeError: Reward function 'compute_score' not found in '/home/u/my_reward.py'."),
        spares="INFO Reward function 'compute_score' found in the file",
    ),
    Signature(
        id="verl-module-broken",
        component="verl",
        role="consequence",
        pattern=r"Error loading module from (?:module_path=)?'(?P<path>[^'\n]{1,300})'",
        needle="Error loading module from ",
        title="verl cannot load {path}: it fails while it is imported",
        fix="Import it by hand in verl's environment and correct what fails.",
        command="python3 '{path}'",
        source="verl utils/import_utils.py",
        fires="RuntimeError: Error loading module from module_path='/home/u/my_reward.py'",
        spares="INFO loading module from module_path='/home/u/my_reward.py'",
    ),
    Signature(
        id="verl-mini-batch-zero",
        component="verl",
        role="cause",
        pattern=(
            r"ppo_mini_batch_size (?P<value>\d{1,9}) should be (?P<what>larger than 0|divisible by "
            r"[^\n]{1,100})"
        ),
        needle="ppo_mini_batch_size ",
        title="The mini batch of one worker ({value}) does not fit",
        cause=(
            "verl divides the mini batch by the number of GPUs (and sequence-parallel groups); what is left "
            "per worker, {value}, should be {what}."
        ),
        fix=(
            "Raise training.train_prompt_mini_batch_size, or lower the number of GPUs or the micro batch per "
            "GPU."
        ),
        source="verl workers/fsdp_workers.py",
        fires="AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization",
        spares="INFO ppo_mini_batch_size 64 is larger than 0",
    ),
    Signature(
        id="verl-not-divisible",
        component="verl",
        role="cause",
        pattern=r"AssertionError: (?P<value>\d{1,9}) ?% ?(?P<by>\d{1,9}) ?!= ?0",
        needle="AssertionError: ",
        title="{value} samples cannot be split into parts of {by}",
        cause=(
            "A batch is split evenly, and {value} is no multiple of {by}; the frame says which batch and "
            "which part."
        ),
        fix=(
            "Make batch and mini batch sizes (training.train_batch_size, "
            "training.train_prompt_mini_batch_size, times n_resp_per_prompt) multiples of the micro batch "
            "and of the number of workers."
        ),
        source="verl protocol.py",
        fires="AssertionError: 30 % 8 != 0",
        spares="AssertionError: 30 is wrong",
    ),
    Signature(
        id="verl-too-few-samples",
        component="verl",
        role="cause",
        pattern=r"number of items:\[(?P<has>\d{1,9})\] < k_partitions:\[(?P<parts>\d{1,9})\]",
        needle="] < k_partitions:[",
        title="A batch of {has} samples is too small for {parts} workers",
        cause="Each of {parts} workers needs at least one sample, and the batch has {has}.",
        fix=(
            "Raise training.train_batch_size or n_resp_per_prompt, or use fewer GPUs; if samples were "
            "filtered, look why."
        ),
        source="verl utils/seqlen_balancing.py",
        fires="AssertionError: number of items:[6] < k_partitions:[8]",
        spares="INFO number of items:[16] k_partitions:[8]",
    ),
    Signature(
        id="verl-column-length",
        component="verl",
        role="cause",
        pattern=(
            r"key (?P<name>\S{1,100}) length (?P<has>\d{1,9}) is not equal to (?:bsz|batch size) "
            r"(?P<batch>\d{1,9})"
        ),
        needle=" is not equal to ",
        title="{name} has {has} entries for a batch of {batch} samples",
        cause=(
            "A column of the batch is longer or shorter than the batch: a reward or agent loop returned a "
            "value for some samples only."
        ),
        fix="Return the same keys of reward_extra_info (and agent outputs) for every sample.",
        source="verl protocol.py",
        fires="AssertionError: key acc length 510 is not equal to batch size 512",
        spares="INFO key acc length 512 is equal to batch size 512",
    ),
    Signature(
        id="verl-validation-keys",
        component="verl",
        role="cause",
        pattern=r"(?P<name>\S{1,100}): len\(lst\)=(?P<has>\d{1,9}), len\(sample_scores\)=(?P<rows>\d{1,9})",
        needle=": len(lst)=",
        title="The reward function returned {name} for {has} of {rows} rows",
        cause=(
            "verl keeps each value that a reward function returns beside the score, and a validation needs it of "
            "every row."
        ),
        fix=(
            "Let the reward function (reward.function) return the same keys for every row, also where it cannot judge "
            "the answer."
        ),
        source="verl trainer/ppo/ray_trainer.py, issue 2320",
        fires="AssertionError: score: len(lst)=1, len(sample_scores)=100",
        spares="INFO score: len(lst)=100; sample_scores=100",
    ),
    Signature(
        id="verl-union-conflict",
        component="verl",
        role="cause",
        pattern=(
            r"(?P<name>\S{1,100}) in (?:tensor_dict1 and tensor_dict2|meta_dict1 and meta_dict2) are not the "
            "same object"
        ),
        needle=" are not the same object",
        title="Two parts of a batch disagree about {name}",
        cause=(
            "verl joins two batches that both have {name}, with different values: the rows were reordered or "
            "padded in one of them, or a custom step overwrote it."
        ),
        fix=(
            "Remove {name} from one of them before they are joined, and keep the order of the rows in custom "
            "steps."
        ),
        source="verl protocol.py",
        fires="AssertionError: input_ids in tensor_dict1 and tensor_dict2 are not the same object",
        spares="INFO input_ids in tensor_dict1 and tensor_dict2 are the same object",
    ),
    Signature(
        id="verl-unknown-estimator",
        component="verl",
        role="cause",
        pattern=r"Unknown advantage estimator(?: simply)?: (?P<name>\S{1,60})",
        needle="Unknown advantage estimator",
        title="verl has no advantage estimator {name}",
        cause="algorithm.adv_estimator names one that this verl does not have.",
        fix=("Use one of its estimators: gae, grpo, rloo, reinforce_plus_plus, remax, grpo_passk, opo."),
        source="verl trainer/ppo/core_algos.py",
        fires="ValueError: Unknown advantage estimator simply: grop",
        spares="INFO advantage estimator: grpo",
    ),
    Signature(
        id="verl-loss-mode",
        component="verl",
        role="cause",
        pattern=r"Invalid loss_agg_mode: (?P<name>\S{1,60})",
        needle="Invalid loss_agg_mode: ",
        title="verl has no loss_agg_mode {name}",
        cause="algorithm.loss_agg_mode names one that this verl does not have.",
        fix="Use token-mean, seq-mean-token-sum or seq-mean-token-mean.",
        source="verl trainer/ppo/core_algos.py",
        fires="ValueError: Invalid loss_agg_mode: tokenmean",
        spares="INFO loss_agg_mode: token-mean",
    ),
    Signature(
        id="verl-resume-path",
        component="verl",
        role="cause",
        pattern="resume ckpt must (?P<what>specify the global_steps|be str type)",
        needle="resume ckpt must ",
        title="verl cannot resume: the path names no global_step folder",
        cause="verl's resume_from_path must be a text that ends in a folder global_step_N.",
        fix=(
            "Give the path of one checkpoint (.../global_step_120) in trainer.overrides, or resume_mode=auto."
        ),
        source="verl trainer/ppo/ray_trainer.py",
        fires="AssertionError: resume ckpt must specify the global_steps",
        spares="INFO resume from global_step_20",
    ),
    Signature(
        id="verl-checkpoint-missing",
        component="verl",
        role="cause",
        pattern=r"Checkpoint path (?P<path>\S{1,300}) does not exist",
        needle="Checkpoint path ",
        title="There is no checkpoint at {path}",
        cause="The run should resume from {path}, which does not exist on this node.",
        fix=(
            "Give the path of a whole checkpoint that all nodes see, or delete "
            "latest_checkpointed_iteration.txt to begin anew."
        ),
        command="ls -l {path}",
        source="verl utils/checkpoint/megatron_checkpoint_manager.py",
        fires="AssertionError: Checkpoint path /ckpt/global_step_40/actor does not exist.",
        spares="INFO Checkpoint path /ckpt/global_step_40/actor exists",
    ),
    Signature(
        id="verl-ulysses-heads",
        component="verl",
        role="cause",
        pattern=(
            r"(?P<what>num_attention_heads|num_key_value_heads) (?P<heads>\d{1,6}) must be divisible by "
            r"ulysses_sp_size (?P<by>\d{1,6})"
        ),
        needle=" must be divisible by ulysses_sp_size ",
        title="{heads} heads cannot be split over a sequence parallelism of {by}",
        cause=(
            "{what} of this model is {heads}, which is no multiple of the Ulysses sequence-parallel size "
            "{by}."
        ),
        fix="Set training.sp_size to a number that divides {heads}.",
        patch={"training.sp_size": "1"},
        source="verl models/transformers/monkey_patch.py",
        fires="AssertionError: num_attention_heads 14 must be divisible by ulysses_sp_size 4",
        spares="INFO num_attention_heads 16, ulysses_sp_size 4",
    ),
    Signature(
        id="verl-reward-manager",
        component="verl",
        role="cause",
        pattern=r"Unknown reward manager: (?P<name>\S{1,80})",
        needle="Unknown reward manager: ",
        title="verl has no reward manager {name}",
        cause="reward_manager names one that this verl does not have.",
        fix=(
            "Use one that it has (naive, dapo, prime, batch), or register your own in a module that is "
            "imported."
        ),
        source="verl workers/reward_manager/registry.py",
        fires="ValueError: Unknown reward manager: naives",
        spares="INFO reward manager: naive",
    ),
    Signature(
        id="verl-tool-url",
        component="verl",
        role="cause",
        pattern="(?P<key>sandbox_fusion_url|retrieval_service_url) is not set",
        needle=" is not set",
        title="A tool of the agent has no address ({key})",
        cause="The tool's configuration does not give {key}.",
        fix="Set {key} in the tool's configuration file to the address of the running service.",
        source="verl tools",
        fires="ValueError: sandbox_fusion_url is not set",
        spares="INFO sandbox_fusion_url is set",
    ),
    Signature(
        id="verl-mcp",
        component="verl",
        role="cause",
        pattern="Failed to initialize MCP tools after maximum retries",
        needle="Failed to initialize MCP tools",
        title="The MCP server of a tool does not answer",
        cause="verl asked it several times for its tools when the run started.",
        fix="Start that server first, and check its address and key in the tool's configuration.",
        source="verl tools/utils/tool_registry.py",
        fires="RuntimeError: Failed to initialize MCP tools after maximum retries",
        spares="INFO MCP tools initialized",
    ),
    Signature(
        id="verl-data-format",
        component="verl",
        role="cause",
        pattern=r"Unsupported file format: (?P<path>\S{1,300})",
        needle="Unsupported file format: ",
        title="verl cannot read data of this kind: {path}",
        cause=("Training data must be Parquet or JSON files, and {path} is named as something else."),
        fix="Convert it, and correct data.train_index and data.val_index.",
        source="verl utils/dataset/rl_dataset.py",
        fires="ValueError: Unsupported file format: /data/train.csv",
        spares="INFO supported file format: parquet",
    ),
    Signature(
        id="verl-no-rollout-probs",
        component="verl",
        role="cause",
        pattern='KeyError: \'key "rollout_log_probs" not found in TensorDict',
        needle='key "rollout_log_probs" not found in TensorDict',
        title="The replicas' own probabilities are needed and were not recorded",
        cause=(
            "The correction of the mismatch between engine and trainer reads rollout_log_probs, which the "
            "rollout writes only if it is told to."
        ),
        fix="Let it write them.",
        patch={"verl.calculate_log_probs": "true"},
        source="verl trainer/ppo/ray_trainer.py",
        fires=(
            "KeyError: 'key \"rollout_log_probs\" not found in TensorDict with keys [\\'attention_mask\\', "
            "\\'input_ids\\']'"
        ),
        spares='INFO key "rollout_log_probs" found in TensorDict',
    ),
)
