"""The two pools of GPUs of verl's fully asynchronous trainer as hosts of a configuration of ours."""

from __future__ import annotations

from liverl.importing.asynchronous import POOLS
from liverl.importing.builder import Builder
from liverl.importing.values import Place

MOST_GPUS = 8  # of one host, as verl's defaults and nearly all hosts have them


def pools(builder: Builder, place: Place) -> None:
    """The GPUs that train and those that generate: hosts that do only one of both, or each host's GPUs in two parts."""
    given = {name: builder.numbers.get(name, (default, place)) for name, default in POOLS.items()}
    train, each, rollout, per_host = (number for number, _ in given.values())
    where = next((at for name, (_, at) in given.items() if name in builder.numbers), place)
    texts = [
        str(number) if name in builder.numbers else f"{number} (verl's default)"
        for name, (number, _) in given.items()
    ]
    words = "{} x {} GPUs train, {} x {} generate".format(*texts)
    if train == rollout and each + per_host <= MOST_GPUS:  # as in verl's examples for one host
        placed = {"infrastructure.nnodes": train, "infrastructure.ngpus_per_node": each + per_host}
        placed |= {"verl.rollout_gpus": per_host}
        why = (
            "taken as the GPUs of the same hosts; for hosts that only train and hosts that only generate set "
        )
        builder.notice(words, where, f"{why}verl.train_nodes and verl.rollout_nodes")
    else:
        placed = {
            "infrastructure.nnodes": train + rollout,
            "infrastructure.ngpus_per_node": max(each, per_host),
        }
        placed |= {"verl.train_nodes": train, "verl.rollout_nodes": rollout}
        if each != per_host:
            why = "all hosts of a run must have the same number of GPUs: set infrastructure.ngpus_per_node to it, and "
            builder.notice(words, where, f"{why}adapt verl.train_nodes and verl.rollout_nodes")
    for key, number in placed.items():
        builder.take(key, str(number), where, words, default=not builder.numbers)
