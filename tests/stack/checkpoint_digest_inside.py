"""Runs in verl's Python: the digest that a CPU replica must have of the weights in a checkpoint of one FSDP rank.

Argument: the checkpoint's directory ``actor``. Prints the digest in its last line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from liverl.verl_runtime.cpuengine.engine import digest_of

actor = Path(sys.argv[1])
shards = torch.load(actor / "model_world_size_1_rank_0.pt", weights_only=False)
model = AutoModelForCausalLM.from_config(
    AutoConfig.from_pretrained(actor / "huggingface"), dtype=torch.float32
)
model.load_state_dict(
    {name: shard.to_local() if hasattr(shard, "to_local") else shard for name, shard in shards.items()}
)
print(digest_of(model.state_dict()))
