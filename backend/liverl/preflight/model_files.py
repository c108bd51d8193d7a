"""What the files of a model say beside heads and weights: its tokenizer, and how long a context it has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.engines import ENGINES
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.model import folder_of, will_be_made
from liverl.preflight.modelshape import read_shape, scaled

_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "spiece.model",
    "tokenizer.tiktoken",
)
CONTEXT, TOKENIZER = "context", "tokenizer"


def of_files(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Whether the model has a tokenizer, and a context as long as the configuration asks for."""
    managed = when.managed(config)
    if managed and not ENGINES[config.run.engine].gpus:
        return
    if will_be_made(config):
        return
    folder = folder_of(plan, config, env)
    if folder is None or not os.path.isfile(folder / "config.json"):
        return  # the check of the model says it
    yield _tokenizer(folder)
    try:
        limit = context_of(folder / "config.json")
    except (OSError, ValueError):
        return  # likewise
    asked = config.vllm.max_model_length
    key = "vllm.max_model_length"
    if limit is None:
        words = f"{folder / 'config.json'} does not say how long a context the model has; {key} is {asked:,}"
        yield Check(CONTEXT, "skipped", words, "model-context")
    elif asked > limit:
        wanted = config.training.max_prompt_length + config.training.max_response_length
        fits = managed or wanted <= limit
        fix = f"set {key} to {limit}"
        if not fits:
            fix += f", and training.max_prompt_length + training.max_response_length ({wanted:,}) to no more"
        text = f"{key} is {asked:,}, but the model has a context of {limit:,} tokens: vLLM refuses it"
        patch = {key: str(limit)}
        room = limit - config.training.max_prompt_length
        if not fits and room > 0:
            patch["training.max_response_length"] = str(room)
        elif not fits:
            patch = {}
        yield Check(
            CONTEXT, "fail", text, "model-context", fix=fix, patch=patch, guess=not fits and bool(patch)
        )
    else:
        yield Check(CONTEXT, "ok", f"{key} {asked:,} of {limit:,} tokens", "model-context")


def context_of(config: Path) -> int | None:
    """The longest context that vLLM takes without rope scaling of the user's; None if the config.json does not say, or
    scales positions by itself.

    Raises:
        OSError, ValueError: it cannot be read, or says no sizes.
    """
    return None if scaled(config) else read_shape(config).context


def _tokenizer(folder: Path) -> Check:
    names = {*os.listdir(folder)}
    found = [name for name in _TOKENIZERS if name in names]
    if found:
        return Check(TOKENIZER, "ok", ", ".join(found), "model-tokenizer")
    text = f"{folder} has no tokenizer ({', '.join(_TOKENIZERS)})"
    return Check(
        TOKENIZER, "fail", text, "model-tokenizer", fix="copy it from the model from which this one was made"
    )
