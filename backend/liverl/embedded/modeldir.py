"""Model directories: ``builtin:NAME`` (packaged) or a path with an embedded engine's config.json."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.embedded.policy import Logits
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

BUILTIN = Path(__file__).parent / "models"
PREFIX = "builtin:"


class ModelConfig(msgspec.Struct, frozen=True):
    """The keys of config.json that the engine reads; sizes in tokens, heads as in a transformer's config."""

    architectures: list[str]
    tool_format: str
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    model_type: str = "liverl_embedded"


class Weights(msgspec.Struct, frozen=True):
    """Content of policy.json: policy version and logits (state -> action -> logit)."""

    version: int = 0
    logits: Logits = {}


def builtin_names() -> list[str]:
    """Return the names of the packaged models."""
    return sorted(path.name for path in BUILTIN.iterdir() if (path / "config.json").is_file())


def find(model: str) -> Path:
    """Return the directory of ``model``.

    Raises:
        OSError: there is none; worded as in transformers.
    """
    path = BUILTIN / model.removeprefix(PREFIX) if model.startswith(PREFIX) else Path(model)
    if not (path / "config.json").is_file():
        packaged = ", ".join(PREFIX + name for name in builtin_names())
        raise OSError(
            f"{model} is not a local folder and is not a valid model identifier "
            f"(no config.json there; packaged models: {packaged})"
        )
    return path


def read_config(directory: Path) -> ModelConfig:
    """Read config.json.

    Raises:
        ValueError: it is not one of an embedded model.
    """
    try:
        return decode_json(read_regular(directory / "config.json"), type=ModelConfig)
    except BAD_JSON as error:
        raise ValueError(
            f"{directory / 'config.json'}: not a model of the embedded engine: {error}"
        ) from error


def read_weights(directory: Path) -> Weights:
    """Return the initial weights of the policy; without policy.json they are uniform."""
    path = directory / "policy.json"
    if not path.is_file():
        return Weights()
    try:
        return decode_json(read_regular(path), type=Weights)
    except BAD_JSON as error:
        raise ValueError(f"{path}: not the weights of an embedded policy: {error}") from error
