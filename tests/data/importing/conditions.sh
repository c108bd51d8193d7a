#!/usr/bin/env bash
# One GPU or several; sizes by arithmetic, a parser by condition, more options from a file.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gpus=${1:-2}; steps=${2:-4}
run=${RUN:-/scratch/run}
[ -f "$run/model/config.json" ] || python "$here/mk_model.py" "$run/model"
source "$here/site.sh"
prompt=1024
answer=$((prompt * 3))
export NCCL_DEBUG=INFO
args=(
  algorithm.adv_estimator=grpo  # no critic
  data.train_files="['$run/train.parquet']"
  data.val_files=$run/val.parquet
  data.train_batch_size=16 data.max_prompt_length=$prompt
  data.max_response_length=$answer
  actor_rollout_ref.model.path="$run/model"
  actor_rollout_ref.model.use_remove_padding=False
  +actor_rollout_ref.model.override_config.attn_implementation=sdpa
  actor_rollout_ref.actor.ppo_mini_batch_size=16
  actor_rollout_ref.actor.fsdp_config.param_offload=True
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=False
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$(((prompt + answer) / 1))
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=4
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  +actor_rollout_ref.rollout.engine_kwargs.vllm.tool-call-parser=hermes
  reward.custom_reward_function.path=/scratch/reward.py
  reward.custom_reward_function.name=score
  trainer.logger='["console","wandb","tensorboard"]'
  trainer.project_name=${PROJECT:?name the project}
  trainer.experiment_name="try-$(date +%s)"
  trainer.n_gpus_per_node="$gpus"
  trainer.total_training_steps="$steps"
  trainer.default_local_dir="$run/ckpt"
  ~trainer.rollout_data_dir
)
if [ -n "${LONG:-}" ]; then
  args+=(data.max_response_length=8192)
fi
cat > "$run/note.txt" <<NOTE
python -m verl.trainer.main_ppo data.train_batch_size=1
NOTE
VLLM_USE_V1=1 python3 -m verl.trainer.main_ppo \
  "${args[@]}" \
  trainer.save_freq=2 "$@" 2>&1 | tee "$run/log.txt"
