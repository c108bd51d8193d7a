"""Run by test_agent_loop.py in verl's Python: verl's own worker makes, runs and stores the agent loop.

Only the data plane is replaced: what would go into TransferQueue is kept here. The last line of stdout says what
was found.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from omegaconf import OmegaConf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop import agent_loop as verl_loop
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.dataset.rl_dataset import RLHFDataset

stored: list[dict[str, Any]] = []


async def keep(**put: Any) -> None:
    stored.append(put)


def worker() -> Any:
    """verl's worker without its actor, its models and its queue."""
    cls = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    made = object.__new__(cls)
    rollout = {"prompt_length": 8000, "response_length": 8000, "calculate_log_probs": True, "n": 4}
    rollout["multi_turn"] = {"max_tool_response_length": 256, "tool_response_truncate_side": "middle"}
    made.config = OmegaConf.create(
        {"actor_rollout_ref": {"rollout": rollout}, "data": {"train_batch_size": 1}}
    )
    made.rollout_config = made.config.actor_rollout_ref.rollout
    tokens = Tokenizer(WordLevel({"[UNK]": 0, "</s>": 1}, unk_token="[UNK]"))
    made.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="[UNK]", eos_token="</s>")
    made.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    made.llm_client = made.processor = made.reward_loop_worker_handles = made.hf_model_type = None
    made.dataset_cls, made.tools, made.distillation_enabled = RLHFDataset, [], False
    made.mm_processor_kwargs = {}
    return made


async def session(made: Any, row: dict[str, Any], number: int, validate: bool = False) -> None:
    trajectory = {"step": row["global_steps"], "sample_index": 0, "rollout_n": number, "validate": validate}
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    await made._run_agent_loop(
        sampling,
        trajectory,
        trace=False,
        session_id=number,
        uid="u",
        index=0,
        agent_name="liverl_proxy",
        **row,
    )


async def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    agent_loop_tq.tq.async_kv_batch_put = keep
    made, row, registry = worker(), job["row"], verl_loop._agent_loop_registry
    registry["liverl_proxy"] = OmegaConf.create(job["loop"])
    await asyncio.gather(*(session(made, row, number) for number in range(4)))
    good = [*stored]
    told: dict[str, Any] = {
        "stored": len(good),
        "fields": sorted({str(key) for put in good for key in put["fields"].sorted_keys}),
    }
    for put in good:
        (tag,), fields = put["tags"], put["fields"][0]
        mask, logprobs = fields["response_mask"], fields["rollout_log_probs"]
        assert mask[0] == mask[-1] == 1 and len(mask) == len(logprobs) == len(fields["responses"])
        assert bool((logprobs[mask == 0] == 0).all()), "an observation has log-probabilities"
        assert fields["rm_scores"].sum() == fields["rm_scores"][-1]
        assert len(fields["input_ids"]) == len(fields["position_ids"]) == tag["seq_len"]
        assert (tag["min_global_steps"], tag["max_global_steps"]) == (3, 3), tag
    told["rewards"] = [float(put["fields"][0]["rm_scores"].sum()) for put in good]
    told["turns"] = [int(put["fields"][0]["num_turns"]) for put in good]

    registry["liverl_proxy"].update(proxy_url="http://127.0.0.1:9", trial_timeout=0.5)
    stored.clear()
    await session(made, row, 5)
    told["stored_of_failed"] = len(stored)
    await session(made, {**row, "extra_info": {**row["extra_info"], "split": "val"}}, 6, validate=True)
    (put,) = stored
    told["failed_validation"] = [put["fields"][0][key].tolist() for key in ("response_mask", "rm_scores")]
    print(json.dumps(told))


asyncio.run(main())
