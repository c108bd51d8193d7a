"""verl's fully asynchronous trainer (``fully_async_main``, verl 0.9.1) as a configuration of ours: what it calls
otherwise, what it does not read, and the numbers of its two pools of GPUs."""

from __future__ import annotations

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
