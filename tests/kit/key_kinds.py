"""In which kinds of runs a key of the configuration has an effect, as ``consumers`` says for each kind."""

from __future__ import annotations

import functools
from typing import NamedTuple

from liverl.config import RunConfig, load_config
from liverl.config.consumers import consumers, why_inert


class Kind(NamedTuple):
    """A kind of run. ``words``: for people; ``profile`` and ``sets``: its configuration."""

    words: str
    profile: str | None
    sets: tuple[str, ...] = ()


KINDS = {
    "embedded": Kind("the default: replicas and trainer of our own", None),
    "serving": Kind(
        "`vllm serve` replicas and the proxy, no trainer (`--profile vllm-managed`)", "vllm-managed"
    ),
    "verl": Kind(
        "verl trains, the trials run by the agent loop of liverl (`run.topology: verl`)", "liverl-gen1"
    ),
    "in process": Kind(
        "as verl, with the sessions in verl's workers (`run.topology: in_process`)",
        "liverl-gen1",
        ("run.topology=in_process",),
    ),
    "command": Kind(
        "your own launch script (`trainer.kind: command`)",
        "liverl-gen1",
        ("trainer.kind=command", "trainer.command=[sh, start.sh]"),
    ),
}
# Where verl uses a key in none of the above, these are asked: a key of several hosts, or of Harbor's agents.
FURTHER = {
    "Harbor": Kind(
        "verl with rows that Harbor's agents run (`agent.kind: harbor`); what is used in *verl* or *in process* is "
        "used there, too",
        "liverl-gen1",
        ("agent.kind=harbor",),
    ),
    "several hosts": Kind(
        "verl on more than one host, which share a Ray of the run's own (`infrastructure.nnodes` > 1); what is used "
        "in *verl* or *in process* is used there, too",
        "liverl-gen1",
        ("infrastructure.nnodes=2", "run.topology=in_process"),
    ),
}
_TELLING = ("verl", "in process", "embedded", "serving", "command")  # whose reason says most comes first


@functools.cache
def _configs() -> dict[str, RunConfig]:
    return {
        name: load_config(profile=kind.profile, sets=[*kind.sets], env={}).config
        for name, kind in (KINDS | FURTHER).items()
    }


@functools.cache
def _used() -> dict[str, frozenset[str]]:
    return {name: frozenset(consumers(config)) for name, config in _configs().items()}


def used_in(key: str) -> str:
    """``all runs``, the kinds in which the key has an effect, or why it has none unless another key is set."""
    kinds = [name for name in KINDS if key in _used()[name]]
    if len(kinds) == len(KINDS):
        return "all runs"
    if not {"verl", "in process"} & set(kinds):
        kinds += [name for name in FURTHER if key in _used()[name]]
    if kinds:
        return ", ".join(kinds)
    reasons = dict.fromkeys(
        why_inert(config, key) or "" for config in (_configs()[name] for name in _TELLING)
    )
    return f"none of these by default ({next(filter(None, reasons))})"
