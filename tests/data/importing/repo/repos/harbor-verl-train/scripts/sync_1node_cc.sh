#!/bin/bash
# In the place of LiveRL's launch script: its sizes are fixed, whatever config.yaml shows.
GEN_TP=8
python -m verl.trainer.main_ppo \
  data.train_batch_size=32 \
  actor_rollout_ref.actor.ppo_mini_batch_size=32 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=${GEN_TP} \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.actor.optim.lr=1e-06 \
  trainer.balance_batch=True
