"""Signatures of verl's rollout: replicas, prompts, replies, rewards."""

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
        source="recordings/verl_cpu/fail_zero_response_mask.stderr.log",
        fires="ValueError: response_mask must contain at least one valid token (1).",
        spares="WARNING:2026-11-21 00:03:35,469:response_mask is all False, returning default metrics",
        recorded=True,
    ),
    Signature(
        id="verl-all-failed",
        component="verl",
        role="consequence",
        pattern="Sync replay buffer selected terminal groups with no materializable trajectories",
        needle="Sync replay buffer selected terminal groups with no materializable trajectories",
        title="Every trial of the batch failed",
        fix='Read the first "Error in _run_prompt" before it: that is why trials fail.',
        of=("trial-failed",),
        source="recordings/verl_cpu/fail_server_actor_killed.stderr.log",
        fires=(
            "RuntimeError: Sync replay buffer selected terminal groups with no materializable "
            "trajectories. Enable trainer.v1.sampler.sync_refill_failed_groups to replace failed groups."
        ),
        spares="INFO Sync replay buffer selected 4 groups",
        recorded=True,
    ),
    Signature(
        id="trial-failed",
        component="liverl",
        role="cause",
        pattern=(
            r"\btrial(?: [\w.-]{1,100})? failed: "
            r"(?P<error>(?P<kind>[A-Z]\w{0,60}(?:Error|Exception|Timeout))\b[^\n]{0,400})"
        ),
        needle=" failed: ",
        title="Trials fail with {kind}",
        cause="The trial that this line names ended with {error}",
        fix="Look at what the message names; the folder of the trial, below trials/, has its turns and its result.",
        severity="warning",
        alive=True,
        request=True,
        source="liverl verl_runtime/loop_trial.py; multi-node/recordings/two2.trainer.log",
        fires=(
            "WARNING:2026-11-22 07:36:39,699:trial move-005-f40a488a failed: TrialTimeoutError: no time left after "
            "120 s; last: ClientConnectorError: Cannot connect to host 127.0.0.1:46357"
        ),
        spares="INFO trial move-005-f40a488a failed: its reward is 0.0",
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
        request=True,
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
        request=True,
        slips=19,
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
        request=True,
        slips=19,
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
        request=True,
        slips=19,
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
        id="verl-reward-raised",
        component="verl",
        role="cause",
        pattern=(
            r"\A[\s\S]{0,30000}?/trainer/ppo/reward\.py\", line \d{1,6}, in _call_with_kwargs\w{0,10}\n[^\n]{0,300}\n"
            r"(?:[ ~^]{1,300}\n)? {1,8}File \"(?P<file>[^\"\n]{1,300})\", line (?P<line>\d{1,7}), in "
            r"(?P<function>[\w<>]{1,100})\n(?: [^\n]{0,400}\n){1,200}(?P<error>[A-Za-z_][^\n]{0,300})"
        ),
        needle="/trainer/ppo/reward.py",
        title="The reward function {function} raised {error}",
        cause=(
            "{function} in {file}, line {line}, was scoring a trial, and raised. verl counts the trial as failed, and "
            "ends when no trial of a batch is left."
        ),
        fix=(
            "Correct it in {file} (reward.function): it gets data_source, solution_str, ground_truth and extra_info of "
            "the row, and must return a number for any answer of the model."
        ),
        source="tests/stack/test_verl_faults.py",
        fires=(
            "Traceback (most recent call last):\n"
            '  File "/venv/lib/python3.11/site-packages/verl/trainer/ppo/reward.py", line 38, in _call_with_kwargs\n'
            "    return raw_fn(*args, **merged_kwargs)\n"
            "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            '  File "/home/u/reward.py", line 3, in score\n'
            '    return float(extra_info["answer"])\n'
            "                 ~~~~~~~~~~^^^^^^^^^^\n"
            "KeyError: 'answer'"
        ),
        spares=(
            "Traceback (most recent call last):\n"
            '  File "/venv/lib/python3.11/site-packages/verl/trainer/ppo/reward.py", line 90, in load_reward_manager\n'
            "    return cls(config)\n"
            "KeyError: 'naive'"
        ),
        recorded=True,
    ),
    Signature(
        id="verl-reward-prime",
        component="verl",
        role="cause",
        pattern=r"\[Error\] Task failed: [^\n]{1,300}?, completion: ",
        needle="[Error] Task failed: ",
        title="The reward function failed, and verl counted a reward of 0",
        cause="verl's reward manager prime goes on after such an error, and counts the answer as wrong.",
        fix=(
            "Correct the reward function (reward.function). It runs in processes of its own: it must lie in a module "
            "that they can import, and be no function within another one."
        ),
        severity="warning",
        alive=True,
        request=True,
        slips=19,
        source="verl workers/reward_manager/prime.py, issue 3150",
        fires=(
            "[Error] Task failed: Can't pickle <function f at 0x7f>: it's not the same object as custom_module.f, "
            "completion: The answer is 4"
        ),
        spares="[Error] Task failed at step 3",
    ),
    Signature(
        id="verl-reward-missing",
        component="verl",
        role="cause",
        pattern=(
            r"Reward function is not implemented for data_source="
            r"(?:np\.str_\()?(?P<quote>['\"])(?P<source>[^\n]{1,120}?)(?P=quote)"
        ),
        needle="Reward function is not implemented for data_source=",
        title="There is no reward function for the data source {source}",
        cause="verl has no own reward for rows with data_source {source}, and the run gives none.",
        fix="Write one and set reward.function to FILE.py:name.",
        source="verl utils/reward_score/__init__.py",
        fires="NotImplementedError: Reward function is not implemented for data_source='my/tasks'",
        spares="INFO data_source='openai/gsm8k'",
    ),
    Signature(
        id="verl-validation-interrupted",
        component="verl",
        role="cause",
        pattern=r"resuming generation early \(active tasks remaining: (?P<tasks>\d{1,7})\)",
        needle="resuming generation early (active tasks remaining:",
        title="Generation went on while {tasks} trials were open: the next validation may hang",
        cause="The rollouter's event loop blocks in a validation while these trials hold its workers.",
        fix=(
            "If the log is silent from then on and no replica has work, restart the run; validate less often "
            "(training.test_freq) or not before training (training.val_before_train)."
        ),
        severity="warning",
        alive=True,
        source="verl experimental/fully_async_policy; LiveRL documentation, symptom V1",
        fires=(
            "[FullyAsyncRollouter][Processor] Drain interrupted by resume signal, resuming generation early "
            "(active tasks remaining: 14)"
        ),
        spares="[FullyAsyncRollouter][Processor] Drain complete, resuming generation (active tasks: 0)",
    ),
    Signature(
        id="verl-submission-gate",
        component="verl",
        role="cause",
        pattern=r"Submission gate barrier timed out with (?P<count>\d{1,7}) admission\(s\) in flight",
        needle="Submission gate barrier timed out with",
        title="verl began a weight update while {count} requests were being admitted",
        cause="The barrier before the weight update timed out; those requests may fail or use old weights.",
        fix="If errors of the engine follow, restart the replicas; else it is harmless.",
        severity="info",
        alive=True,
        source="verl 0.9.1 workers/rollout/vllm_rollout",
        fires="WARNING Submission gate barrier timed out with 3 admission(s) in flight",
        spares="INFO Submission gate barrier passed with 0 admission(s) in flight",
    ),
)
