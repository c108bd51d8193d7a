"""What was set, for a report: the keys that differ from the defaults, and no secret."""

from __future__ import annotations

from liverl.config import load_config
from liverl.offline.config_set import SetKey, set_keys


def test_only_what_differs_is_told_and_no_secret() -> None:
    assert set_keys(load_config(env={}).config) == ()
    sets = [
        "training.total_steps=60",
        "run.name=mine",
        "infrastructure.anthropic_api_key=sk-ant-abcdefghijkl",
    ]
    rows = set_keys(load_config(sets=sets, env={}).config)
    assert SetKey("training.total_steps", "60", "20") in rows
    assert "sk-ant" not in str(rows) and "run.name" not in str(rows)
