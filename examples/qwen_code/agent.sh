#!/bin/sh
# The agent: qwen-code solves the last message of the row, by the OpenAI API of its trial.
set -eu
task=$(python3 -c 'import json, os; print(json.load(open(os.environ["LIVERL_TASK"]))["messages"][-1]["content"])')
export HOME="$LIVERL_TRIAL_DIR/agent/home"  # not yours: your settings and memory are no part of a trial
mkdir -p "$HOME"
exec "$QWEN_CODE" --auth-type openai --model "$OPENAI_MODEL" --yolo --max-session-turns 30 "$task"
