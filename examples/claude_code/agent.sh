#!/bin/sh
# The agent: Claude Code solves the last message of the row, by the Anthropic API of its trial.
set -eu
task=$(python3 -c 'import json, os; print(json.load(open(os.environ["LIVERL_TASK"]))["messages"][-1]["content"])')
export HOME="$LIVERL_TRIAL_DIR/agent/home"  # not yours: your settings, hooks and memory are no part of a trial
mkdir -p "$HOME"
exec "$CLAUDE_CODE" -p "$task" --allowedTools Bash,Read,Edit,Write,Glob,Grep --max-turns 30 \
    --verbose --output-format stream-json
