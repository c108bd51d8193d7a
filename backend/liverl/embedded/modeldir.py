"""Model directories: ``builtin:NAME`` (packaged) or a path with a config.json of ours."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.embedded.policy import Logits

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
    version: int = 0
    logits: Logits = {}


def builtin_names() -> list[str]:
    return sorted(path.name for path in BUILTIN.iterdir() if (path / "config.json").is_file())


def find(model: str) -> Path:
    """The directory of ``model``. Raises OSError, in transformers' words, if there is none."""
    path = BUILTIN / model.removeprefix(PREFIX) if model.startswith(PREFIX) else Path(model)
    if not (path / "config.json").is_file():
        packaged = ", ".join(PREFIX + name for name in builtin_names())
        raise OSError(
            f"{model} is not a local folder and is not a valid model identifier "
            f"(no config.json there; packaged models: {packaged})"
        )
    return path


def read_config(directory: Path) -> ModelConfig:
    """Raises ValueError if config.json is not one of ours."""
    try:
        return msgspec.json.decode((directory / "config.json").read_bytes(), type=ModelConfig)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"{directory / 'config.json'}: not a model of the embedded engine: {error}"
        ) from error


def read_weights(directory: Path) -> Weights:
    """The policy's start weights; a directory without policy.json starts uniform."""
    path = directory / "policy.json"
    if not path.is_file():
        return Weights()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Weights)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: not the weights of an embedded policy: {error}") from error
