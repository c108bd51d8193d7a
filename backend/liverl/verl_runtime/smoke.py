"""``python -m liverl.verl_runtime.smoke DIR``: creates a tiny model, tokenizer and data set in about a
minute.

Writes ``DIR/model`` (Qwen3, loads in transformers and in vLLM), ``DIR/train.parquet`` and
``DIR/val.parquet``: tasks of ``liverl.agents.tasks`` for the agent loop ``liverl_proxy``. The model is
overfitted on solved tasks until about half of its sampled conversations are right, so that rewards vary and
can still increase. Exits with 1 if fewer than ``--share`` of its sampled turns are parsed as tool calls, or
if less than ``--least`` of its conversations are right: in a run with such a model every reward is 0.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from liverl.agents.tasks import Task, dataset
from liverl.verl_runtime.smoke_text import build_tokenizer, demonstration, opening
from liverl.verl_runtime.smoke_train import build_model, example, sample_turns, share_of_calls, train

AGENT_LOOP = "liverl_proxy"
_VALIDATION = 8  # number of tasks, all from the training set, as an overfitted model can solve no others
_REPORT = 1.0  # seconds between two progress lines
_SAMPLES = 2  # sampled turns per task in the check at the end


def rows(tasks: Sequence[Task], split: str) -> list[dict[str, Any]]:
    """Return the data in verl's columns; ``extra_info.task_id`` names the task."""
    return [
        {
            "data_source": "liverl/smoke",
            "agent_name": AGENT_LOOP,
            "prompt": opening(task),
            "ability": "tools",
            "reward_model": {"style": "rule", "ground_truth": task.id},
            "extra_info": {"split": split, "index": index, "task_id": task.id},
        }
        for index, task in enumerate(tasks)
    ]


def _reporter(steps: int) -> Callable[[int, float, float], None]:
    last = -math.inf

    def report(step: int, loss: float, whole: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT:
            last = now
            print(f"training: step {step} of at most {steps}, loss {loss:.3f}, correct conversations {whole:.0%}",
                  flush=True)  # fmt: skip

    return report


def make(folder: Path, args: argparse.Namespace) -> tuple[float, float]:
    """Write model and data below ``folder``; return the probability of a right conversation, and the share of sampled
    turns that are tool calls."""
    torch.set_num_threads(args.threads)
    tasks = dataset()[: args.tasks]
    conversations = [demonstration(task) for task in tasks]
    tokenizer = build_tokenizer(conversations)
    model = build_model(tokenizer, args.seed)
    examples = [example(tokenizer, conversation) for conversation in conversations]
    parameters = sum(weights.numel() for weights in model.parameters())
    longest = max(len(ids) for ids, _ in examples)
    print(f"model: {parameters:,} parameters, {len(tokenizer)} tokens; {len(tasks)} tasks, "
          f"conversations of up to {longest} tokens", flush=True)  # fmt: skip
    started = time.monotonic()
    whole = train(
        model, examples, steps=args.steps, goal=args.goal, seed=args.seed, report=_reporter(args.steps)
    )
    print(f"trained for {time.monotonic() - started:.0f} s: correct conversations {whole:.0%}", flush=True)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    pq.write_table(pa.Table.from_pylist(rows(tasks, "train")), folder / "train.parquet")
    pq.write_table(pa.Table.from_pylist(rows(tasks[:_VALIDATION], "val")), folder / "val.parquet")
    logging.getLogger("liverl.agents.tool_calls").setLevel(
        logging.CRITICAL
    )  # unparsed turns are counted instead
    prompts = [opening(task) for task in tasks]
    # Check the model as written: bfloat16 rounds the weights.
    sampled = sample_turns(model.float(), tokenizer, prompts * _SAMPLES, temperature=1.0)
    greedy = sample_turns(model, tokenizer, prompts, temperature=0.0)
    share = share_of_calls(sampled)
    print(f"tool calls: {share:.0%} of {len(sampled)} sampled turns, {share_of_calls(greedy):.0%} of "
          f"{len(greedy)} greedy ones", flush=True)  # fmt: skip
    return whole, share


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="make-smoke", description="Make a tiny model and data for a test run."
    )
    parser.add_argument("folder", type=Path, help="where model/, train.parquet and val.parquet are written")
    parser.add_argument("--steps", type=int, default=600, help="maximum number of training steps")
    parser.add_argument(
        "--goal", type=float, default=0.5, help="target probability of a correct conversation"
    )
    parser.add_argument(
        "--share", type=float, default=0.7, help="minimum share of sampled turns that are tool calls"
    )
    parser.add_argument(
        "--least", type=float, default=0.2, help="minimum probability of a correct conversation"
    )
    parser.add_argument("--tasks", type=int, default=32, help="number of tasks to learn, 4 to 64")
    parser.add_argument("--threads", type=int, default=1, help="number of torch threads")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.steps < 1 or not 4 <= args.tasks <= len(dataset()) or args.threads < 1:
        parser.error("--steps must be at least 1, --tasks 4 to 64, --threads at least 1")
    args.folder.mkdir(parents=True, exist_ok=True)
    whole, share = make(args.folder, args)
    if share < args.share:
        print(f"error: only {share:.0%} of the sampled turns are tool calls; {args.share:.0%} are required: increase "
              f"--steps", file=sys.stderr)  # fmt: skip
        return 1
    if whole < args.least:
        print(f"error: a conversation of the model is right with a probability of {whole:.0%}; {args.least:.0%} is "
              f"required, else nearly every reward is 0: increase --steps", file=sys.stderr)  # fmt: skip
        return 1
    print(f"wrote {args.folder}/model, train.parquet and val.parquet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
