"""A smoke run of the user's own configuration: small batches and two steps, which prove that everything works together
and say nothing about learning. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from liverl.config import conditions as when
from liverl.config.schema import RunConfig, value_of
from liverl.config.sizing import bare_key

# LiveRL's documents: "smoke 8x4", TRAIN_BSZ=8 N_RESP=4, before the official batch of 64x8.
PROMPTS, RESPONSES, STEPS = 8, 4, 2
PREFIX = "smoke-"  # of the run's name
_TRIES = 64  # batches that are tried above the smallest, where GPUs divide none of these
# verl's keys that stand for the keys that are made small: a user's override of one would undo it.
_VERL = {
    "data.train_batch_size": "training.train_batch_size",
    "actor_rollout_ref.rollout.n": "training.n_resp_per_prompt",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "training.train_prompt_mini_batch_size",
    "trainer.total_training_steps": "training.total_steps",
    "trainer.save_freq": "training.save_freq",
    "trainer.test_freq": "training.test_freq",
    "trainer.val_before_train": "training.val_before_train",
}

_NO_VALIDATION = {"training.test_freq": "-1", "training.val_before_train": "false"}


class NoSmoke(Exception):
    """The configuration cannot be made small; the message says why, and what to do."""


class Shrunk(Struct, frozen=True):
    """``sets``: key -> value of a smoke run; ``words``: each change, as ``key 64 -> 8``."""

    sets: dict[str, str]
    words: tuple[str, ...]


def shrunk(config: RunConfig, fits: Callable[[dict[str, str]], bool]) -> Shrunk:
    """The values of a smoke run: at most 8 prompts with 4 responses each, the largest mini batch that divides them, two
    steps, one checkpoint after the second, no validation. ``fits``: whether the configuration loads with such values;
    where the GPUs do not divide the rows of 8 prompts, more are taken.

    Raises:
        NoSmoke: nothing trains, or something decides the sizes that is not ours.
    """
    if config.trainer.kind == "none":
        raise NoSmoke("trainer.kind is none: nothing trains, so that there are no batches to make small")
    if when.command(config):
        raise NoSmoke(
            "the launch script chooses its sizes itself; LiveRL's read TRAIN_BSZ and N_RESP: give it "
            f'trainer.env: {{TRAIN_BSZ: "{PROMPTS}", N_RESP: "{RESPONSES}"}}, and a name of its own'
        )
    given = {bare_key(key) for key in config.trainer.overrides} & _VERL.keys()
    if given:
        key = sorted(given)[0]
        raise NoSmoke(
            f"trainer.overrides has {key}, which a smoke run changes; set {_VERL[key]} in its place"
        )
    for sets in _sizes(config):
        if fits(sets):
            return Shrunk(sets, tuple(_changes(config, sets)))
    raise NoSmoke(
        "no batch between that of a smoke run and the configured one suits the GPUs; `liverl-tui check` says what is "
        "wrong with the configured one"
    )


def _sizes(config: RunConfig) -> Iterator[dict[str, str]]:
    training = config.training
    responses = min(training.n_resp_per_prompt, RESPONSES)
    least = min(training.train_batch_size, PROMPTS)
    most = min(training.train_batch_size, least + _TRIES)
    for prompts in dict.fromkeys([*range(least, most + 1), training.train_batch_size]):
        configured = min(training.train_prompt_mini_batch_size, prompts)
        for mini in range(configured, 0, -1):
            if prompts % mini == 0:
                yield {
                    "training.train_batch_size": str(prompts),
                    "training.n_resp_per_prompt": str(responses),
                    "training.train_prompt_mini_batch_size": str(mini),
                    "training.total_steps": str(STEPS),
                    "training.save_freq": str(STEPS),
                    **(_NO_VALIDATION if config.trainer.kind == "verl" else {}),
                }
                if mini < configured // 4:
                    break  # a mini batch that small says nothing about the configured one


def _changes(config: RunConfig, sets: dict[str, str]) -> Iterator[str]:
    for key, value in sets.items():
        before = value_of(config, key)
        text = "null" if before is None else str(before).lower() if isinstance(before, bool) else str(before)
        if text != value:
            yield f"{key} {text} -> {value}"
