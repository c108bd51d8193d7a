"""The smoke model: a tiny Qwen3, overfitted on solved tasks until it mostly writes the right tool calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from liverl.agents.tool_calls import parse_qwen3_coder
from liverl.agents.tools import TOOL_NAMES, TOOLS
from liverl.verl_runtime.smoke_text import MAX_LENGTH

# Small batches: overfitting needs steps more than tokens. 250 to 300 steps are enough, about 20 CPU
# seconds on one core. Training ends by steps, not by time: on a busy machine a minute is worth few of them.
_BATCH = 4  # conversations per step
_RATE, _WARMUP = 4e-3, 20  # AdamW's learning rate and its number of warm-up steps
_CLIP = 1.0
_IGNORED = -100  # label of a token that the model did not generate
_LONGEST_TURN = 96  # tokens; the longest solved turn has about 50

Example = tuple[list[int], list[int]]  # ids, labels


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Return a model with random weights. Heads have width 64, the minimum of vLLM's attention kernels."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            attn_implementation="sdpa",
        )
    )


def _ids(tokenizer: PreTrainedTokenizerFast, messages: Sequence[dict[str, Any]], *, turn: bool) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        list(messages), tools=list(TOOLS), add_generation_prompt=turn, return_dict=False
    )
    return ids


def example(tokenizer: PreTrainedTokenizerFast, messages: Sequence[dict[str, Any]]) -> Example:
    """Return the ids of a conversation and their labels: only assistant turns are learned."""
    whole = _ids(tokenizer, messages, turn=False)
    labels = [_IGNORED] * len(whole)
    for position, message in enumerate(messages):
        if message["role"] == "assistant":
            start = len(_ids(tokenizer, messages[:position], turn=True))
            end = whole.index(tokenizer.eos_token_id, start) + 1
            labels[start:end] = whole[start:end]
    return whole, labels


def _padded(batch: Sequence[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in batch])
    labels = torch.tensor([labels + [_IGNORED] * (width - len(labels)) for _, labels in batch])
    return ids, labels


def train(
    model: Qwen3ForCausalLM,
    examples: Sequence[Example],
    *,
    steps: int,
    goal: float,
    seed: int,
    report: Callable[[int, float, float], None],
) -> float:
    """Train until a whole solved conversation has probability ``goal``, or for ``steps`` steps.

    ``report`` is called with (step, loss per token, that probability) after every step.
    Returns the probability reached: the running mean over the last round of conversations.
    """
    pad = model.config.pad_token_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    order, rng = list(examples), random.Random(seed)
    rounds = max(1, len(order) // _BATCH)
    recent: list[float] = []
    step = 0
    model.train()
    while True:
        rng.shuffle(order)
        for start in range(0, rounds * _BATCH, _BATCH):
            if step >= steps:
                return sum(recent) / max(1, len(recent))
            step += 1
            rate = _RATE * min(1.0, step / _WARMUP, 0.1 + 1.8 * (1 - step / steps))  # decays towards the end
            for group in optimizer.param_groups:
                group["lr"] = rate
            ids, labels = _padded(order[start : start + _BATCH], pad)
            # Padding is on the right: a causal model does not attend to it from other positions.
            logits = model(input_ids=ids[:, :-1]).logits
            losses = cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
            counted = int((labels[:, 1:] != _IGNORED).sum())
            loss = losses.sum() / counted
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
            optimizer.step()
            recent.append(float((-losses.detach().sum(1)).exp().mean()))
            del recent[:-rounds]
            whole = sum(recent) / len(recent)
            report(step, float(loss.detach()), whole)
            if whole >= goal and len(recent) == rounds:
                return whole


@torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
def sample_turns(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Sequence[dict[str, Any]]],
    *,
    temperature: float,
) -> list[str]:
    """Sample one turn for each of ``prompts``, as an engine would; temperature 0 is greedy."""
    model.eval()
    ids = [_ids(tokenizer, prompt, turn=True) for prompt in prompts]
    width = max(map(len, ids))
    rows = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    how: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0}
    out = model.generate(input_ids=rows, attention_mask=mask, max_new_tokens=_LONGEST_TURN, **how)
    return [tokenizer.decode(row[width:], skip_special_tokens=True) for row in out]


def share_of_calls(turns: Sequence[str]) -> float:
    """Return the share of ``turns`` that the Qwen3-Coder parser reads as one call of a known tool, 0..1."""
    parsed = [parse_qwen3_coder(turn, TOOLS).calls for turn in turns]
    return sum(len(calls) == 1 and calls[0].name in TOOL_NAMES for calls in parsed) / max(1, len(turns))
