#!/bin/sh
# The agent: mini-swe-agent solves the last message of the row, by the OpenAI API of its trial.
set -eu
task=$(python3 -c 'import json, os; print(json.load(open(os.environ["LIVERL_TASK"]))["messages"][-1]["content"])')
exec "$MINI_SWE_AGENT" --yolo --exit-immediately --config "$MINI_SWE_AGENT_CONFIG" \
    --model "openai/$OPENAI_MODEL" --task "$task" --output "$LIVERL_TRIAL_DIR/agent/mini-swe-agent.traj.json"
