#!/bin/sh
# The reward: 1 if the file that ground_truth names holds the word behind its name, else 0.
set -eu
truth=$(python3 -c 'import json, os; print(json.load(open(os.environ["LIVERL_TASK"]))["row"]["reward_model"]["ground_truth"])')
file=${truth%% *}
reward=0
if [ -f "$file" ] && [ "$(cat "$file")" = "${truth#* }" ]; then reward=1; fi
echo "$reward" > "$LIVERL_REWARD"
