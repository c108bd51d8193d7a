"""verl's own trainer without our agents: what ``python -m verl.trainer.main_ppo`` is given."""

from __future__ import annotations

from pathlib import Path

# Makes verl's own single-turn loop run the smoke rows: from one parquet file to another.
DATA = """
import sys, pyarrow as pa, pyarrow.parquet as pq
rows = pq.read_table(sys.argv[1]).to_pylist()
for row in rows: row["agent_name"] = "single_turn_agent"
pq.write_table(pa.Table.from_pylist(rows), sys.argv[2])
"""
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **other):
    return float(solution_str.count("<parameter=") == 2)
"""


def overrides(folder: Path, smoke: Path, steps: int) -> list[str]:
    """The overrides of a run with two replicas that trains on ``folder/train.parquet`` with ``folder/reward.py``.
    ``smoke``: where the smoke model is."""
    return f"""
        algorithm.adv_estimator=grpo data.dataloader_num_workers=0 data.train_batch_size=4
        data.train_files={folder}/train.parquet data.val_files={folder}/train.parquet
        data.max_prompt_length=256 data.max_response_length=256
        actor_rollout_ref.model.path={smoke}/model actor_rollout_ref.model.use_remove_padding=False
        +actor_rollout_ref.model.override_config.attn_implementation=sdpa
        actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.use_torch_compile=False
        actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
        actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
        actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8
        actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.max_num_seqs=32
        actor_rollout_ref.rollout.max_model_len=1024 actor_rollout_ref.rollout.disable_log_stats=False
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
        actor_rollout_ref.rollout.multi_turn.format=qwen3_coder actor_rollout_ref.rollout.agent.num_workers=1
        reward.num_workers=1 reward.custom_reward_function.path={folder}/reward.py
        transfer_queue.backend.SimpleStorage.num_data_storage_units=1
        trainer.logger=["console","file"] trainer.project_name=liverl trainer.experiment_name=smoke
        trainer.device=cpu trainer.nnodes=1 trainer.n_gpus_per_node=2 trainer.total_epochs=10
        trainer.total_training_steps={steps} trainer.save_freq=-1 trainer.test_freq=-1
        trainer.val_before_train=False trainer.resume_mode=disable trainer.default_local_dir={folder}/checkpoints
        +ray_kwargs.ray_init.namespace=liverl
    """.split()
