"""verl's fully asynchronous trainer (``fully_async_main``, verl 0.9.1) as a configuration of ours: what it calls
otherwise, what it does not read, and its two pools of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.importing.values import Place

if TYPE_CHECKING:
    from liverl.importing.builder import Builder

# verl's key -> ours, beside those of ``targets.KEYS``; the last one is LiveRL's, and no key of verl 0.9.1.
KEYS: dict[str, str] = {
    "async_training.staleness_threshold": "verl.fully_async.staleness_threshold",
    "async_training.trigger_parameter_sync_step": "verl.fully_async.trigger_parameter_sync_step",
    "async_training.require_batches": "verl.fully_async.require_batches",
    "async_training.partial_rollout": "verl.fully_async.partial_rollout",
    "async_training.concurrent_samples_per_replica": "verl.fully_async.concurrent_samples_per_replica",
    "rollout.total_rollout_steps": "verl.fully_async.total_rollout_steps",
    "async_training.max_concurrent_samples": "verl.fully_async.max_concurrent_samples",
}
# What it takes for a key that nobody sets (fully_async_ppo_trainer.yaml).
DEFAULTS: dict[str, str] = {
    "verl.fully_async.staleness_threshold": "0.1",
    "verl.fully_async.trigger_parameter_sync_step": "4",
    "verl.fully_async.require_batches": "1",
    "verl.fully_async.partial_rollout": "true",
    "verl.fully_async.total_rollout_steps": "100",
}
WITHOUT = ("training.train_batch_size",)  # what it does not read
# What it must be given and what it does not read: a run of ours sets the one and has no need of the other.
OURS: dict[str, str] = {
    "data.gen_batch_size": "it is always 1 in fully asynchronous training",
    "data.train_batch_size": "it is always 0 in fully asynchronous training: a step is a version of the parameters",
    "trainer.total_training_steps": "this trainer of verl's does not read it; rollout.total_rollout_steps ends it",
    "actor_rollout_ref.rollout.calculate_log_probs": "it is always on in fully asynchronous training",
}
# verl's defaults of its four numbers of hosts and GPUs.
POOLS: dict[str, int] = {
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "rollout.nnodes": 1,
    "rollout.n_gpus_per_node": 8,
}
MOST_GPUS = 8  # of one host, as verl's defaults and nearly all hosts have them


def pools(builder: Builder, place: Place) -> None:
    """The GPUs that train and those that generate: hosts that do only one of both, or each host's GPUs in two parts."""
    given = {name: builder.numbers.get(name, (default, place)) for name, default in POOLS.items()}
    train, each, rollout, per_host = (number for number, _ in given.values())
    where = next((at for name, (_, at) in given.items() if name in builder.numbers), place)
    words = f"{train} x {each} GPUs train, {rollout} x {per_host} generate"
    if train == rollout and each + per_host <= MOST_GPUS:  # as in verl's examples for one host
        placed = {"infrastructure.nnodes": train, "infrastructure.ngpus_per_node": each + per_host}
        placed |= {"verl.rollout_gpus": per_host}
        why = (
            "taken as the GPUs of the same hosts; for hosts that only train and hosts that only generate set "
        )
        builder.leave(words, where, f"{why}verl.train_nodes and verl.rollout_nodes")
    else:
        placed = {
            "infrastructure.nnodes": train + rollout,
            "infrastructure.ngpus_per_node": max(each, per_host),
        }
        placed |= {"verl.train_nodes": train, "verl.rollout_nodes": rollout}
        if each != per_host:
            why = "in a run of ours all hosts have as many GPUs: correct infrastructure.ngpus_per_node, and the numbers"
            builder.leave(words, where, f"{why} of hosts (verl.train_nodes, verl.rollout_nodes)")
    for key, number in placed.items():
        builder.take(key, str(number), where, words)
