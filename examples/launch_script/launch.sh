#!/usr/bin/env bash
# A launch script for `trainer.kind: command`: Ray, then LiteLLM, then verl, as LiveRL's own scripts do it.
#
# liverl-tui passes the keys that its user has set as environment variables (`liverl-tui plan` lists them); for the others
# the defaults of this script hold. The directory of the run is LIVERL_RUN_DIR. The working directory is that of the configuration file. liverl-tui recognizes the
# proxy by its port, LITELLM_PORT, and by LiteLLM's command line, and Ray by the processes that this script starts.
# The end of this script is the end of the run, and its exit code is the trainer's. What it has started ends with it.
set -euo pipefail
: "${RAY_PORT:=6379}" "${RAY_DASHBOARD_PORT:=8265}" "${NNODES:=1}" "${NGPUS_PER_NODE:=8}"
bin="$VENV_PATH/bin"
proxy_config="$LIVERL_RUN_DIR/litellm.yaml"

"$bin/ray" start --head --port "$RAY_PORT" --dashboard-port "$RAY_DASHBOARD_PORT"

# The replicas do not exist yet. LiveRL's script waits for them and lists each one here; a file that lists too few
# can be completed later with the key `a` of the interface.
cat >"$proxy_config" <<END
model_list:
  - model_name: $SERVED_MODEL_NAME
    litellm_params:
      model: hosted_vllm/$SERVED_MODEL_NAME
      api_base: http://127.0.0.1:8100/v1
      api_key: none
END
"$bin/litellm" --config "$proxy_config" --port "$LITELLM_PORT" &

"$bin/python" -m verl.trainer.main_ppo \
  "trainer.nnodes=$NNODES" \
  "trainer.n_gpus_per_node=$NGPUS_PER_NODE" \
  "actor_rollout_ref.model.path=$MODEL_PATH"
