"""The embedded trainer's pure parts: GRPO, checkpoints, metrics files, settings."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents.loop import TrialFailed, read_reply
from liverl.agents.settings import TrainerConfig, chat_url, read_settings
from liverl.agents.tool_calls import render_qwen3_coder
from liverl.agents.tools import TOOL_NAMES
from liverl.embedded.policy import Policy
from liverl.embedded.startup_log import bar_text
from liverl.embedded.tokenizer import encode
from liverl.embedded.trainer import checkpoint
from liverl.embedded.trainer.checkpoint import DataState
from liverl.embedded.trainer.grpo import (
    AdamState,
    TrialSample,
    TurnSample,
    agreement,
    require_valid_tokens,
    set_advantages,
    update,
)
from liverl.embedded.trainer.history import MetricsFiles, step_line


def trial(policy: Policy, rng: random.Random, group: int = 0, good: str = "submit") -> TrialSample:
    name = rng.choices(TOOL_NAMES, policy.probabilities("s", TOOL_NAMES, 1.0))[0]
    tokens = encode(render_qwen3_coder(name, {}))
    turn = TurnSample("s", tokens, policy.token_logprobs("s", tokens, 1.0), [1] * len(tokens))
    return TrialSample(group=group, reward=float(name == good), turns=[turn])


def train(
    steps: int, learning_rate: float, policy: Policy | None = None
) -> tuple[Policy, list[dict[str, float]]]:
    policy, adam, rng, metrics = policy or Policy(), AdamState(), random.Random(1), []
    for _ in range(steps):
        batch = [trial(policy, rng, group) for group in range(4) for _ in range(8)]
        set_advantages(batch)
        metrics.append(
            update(
                policy,
                adam,
                batch,
                trials_per_mini_batch=16,
                learning_rate=learning_rate,
                clip_low=0.2,
                clip_high=0.28,
                temperature=1.0,
                rng=rng,
            )
        )
    return policy, metrics


def test_grpo_learns_what_is_rewarded() -> None:
    policy, metrics = train(30, 0.3)
    assert policy.probabilities("s", TOOL_NAMES, 1.0)[TOOL_NAMES.index("submit")] > 0.9
    assert metrics[-1]["actor/entropy"] < metrics[0]["actor/entropy"] / 3
    assert metrics[0]["actor/grad_norm"] > 0


def test_no_learning_rate_no_change() -> None:
    policy, metrics = train(5, 0.0)
    assert policy.probabilities("s", TOOL_NAMES, 1.0) == [pytest.approx(1 / 6)] * 6
    assert all(m["actor/ppo_kl"] == 0 and m["actor/pg_clipfrac"] == 0 for m in metrics)


def test_the_ratio_is_clipped() -> None:
    _, metrics = train(3, 5.0)
    assert max(m["actor/pg_clipfrac"] for m in metrics) > 0
    assert any(m["actor/ppo_kl"] != 0 for m in metrics)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=8), min_size=1, max_size=5))
def test_advantages_are_relative_to_the_group(groups: list[list[float]]) -> None:
    trials = [TrialSample(g, reward, []) for g, rewards in enumerate(groups) for reward in rewards]
    set_advantages(trials)
    for g, rewards in enumerate(groups):
        advantages = [t.advantage for t in trials if t.group == g]
        assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)
        if len(set(rewards)) == 1:
            assert set(advantages) == {0.0}
        else:
            order = sorted(range(len(rewards)), key=lambda i: rewards[i])
            assert advantages[order[-1]] > 0 > advantages[order[0]]


def test_a_batch_without_trained_tokens_is_refused_in_verls_words() -> None:
    batch = [trial(Policy(), random.Random(0)) for _ in range(4)]
    require_valid_tokens(batch)
    for sample in batch:
        sample.turns[0].mask = [0] * len(sample.turns[0].tokens)
    with pytest.raises(ValueError, match=r"^response_mask must contain at least one valid token \(1\)\.$"):
        require_valid_tokens(batch)


def test_agreement_sees_stale_weights() -> None:
    policy, rng = Policy(), random.Random(0)
    batch = [trial(policy, rng) for _ in range(16)]
    same = agreement(policy, batch, 1.0)
    assert same["training/rollout_probs_diff_max"] == 0
    assert same["training/rollout_actor_probs_pearson_corr"] == pytest.approx(1)
    stale = agreement(Policy({"s": {"submit": 3.0}}), batch, 1.0)
    assert stale["training/rollout_probs_diff_mean"] > 0.001
    assert stale["training/rollout_actor_probs_pearson_corr"] < 1


def test_checkpoints_count_once_they_are_whole(tmp_path: Path) -> None:
    policy, _ = train(2, 0.3)
    policy.version = 5
    rng = random.Random(3)
    data = DataState(global_step=5, epoch=1, position=7, seed=0, rng_state=rng.getstate())
    assert checkpoint.newest(tmp_path / "absent") == (None, [])
    prepared = checkpoint.prepare(tmp_path, policy, AdamState(steps=4), data)
    assert checkpoint.newest(tmp_path) == (None, [])
    path = checkpoint.commit(prepared)
    assert path == tmp_path / "global_step_5"
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "5"
    found, problems = checkpoint.newest(tmp_path)
    assert found is not None and not problems
    assert (found.policy.logits, found.policy.version) == (policy.logits, 5)
    assert (found.adam.steps, found.data.position) == (4, 7)
    restored = random.Random()
    restored.setstate(found.data.rng_state)  # type: ignore[arg-type]
    assert restored.random() == rng.random()

    (tmp_path / "global_step_10" / "actor").mkdir(parents=True)
    (tmp_path / "global_step_10" / "actor" / "policy.json").write_text('{"version":10,"logi')
    found, problems = checkpoint.newest(tmp_path)
    assert found is not None and found.data.global_step == 5
    assert "global_step_10 is not complete" in problems[0]

    data.global_step = 10
    checkpoint.commit(checkpoint.prepare(tmp_path, policy, AdamState(), data))
    found, problems = checkpoint.newest(tmp_path)
    assert found is not None and found.data.global_step == 10 and not problems


def test_history_is_continuous_over_attempts(tmp_path: Path) -> None:
    first, second = tmp_path / "attempt_001", tmp_path / "attempt_002"
    first.mkdir()
    second.mkdir()
    metrics = MetricsFiles(tmp_path, first)
    assert metrics.join_at(0) == 0
    for step in range(1, 8):
        metrics.append(step, {"critic/score/mean": step / 10, "corr": math.nan})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step":8,"da')
    resumed = MetricsFiles(tmp_path, second)
    assert resumed.join_at(5) == 3
    for step in range(6, 11):
        resumed.append(step, {"critic/score/mean": 1.0})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert lines[4]["data"] == {"critic/score/mean": 0.5, "corr": None}
    assert lines[5]["data"]["critic/score/mean"] == 1.0
    assert len((first / "metrics.jsonl").read_text().splitlines()) == 7
    assert len((second / "metrics.jsonl").read_text().splitlines()) == 5
    assert list(tmp_path.glob(".*")) == []


def test_step_line_is_verls() -> None:
    data = {
        "actor/lr": 1e-06,
        "corr": math.nan,
        "num_turns/mean": 2.0,
        "num_turns/min": 2,
        "training/epoch": 0,
    }
    assert step_line(3, data) == (
        "step:3 - actor/lr:1e-06 - corr:nan - num_turns/mean:np.float64(2.0) - num_turns/min:np.int32(2)"
        " - training/epoch:0"
    )


def test_bar_is_tqdms() -> None:
    assert bar_text(0, 6, 0.0) == "  0%|          | 0/6 [00:00<?, ?it/s]"
    assert bar_text(3, 6, 19.08) == " 50%|█████     | 3/6 [00:19<00:19,  6.36s/it]"
    assert bar_text(6, 6, 1.0) == "100%|██████████| 6/6 [00:01<00:00,  6.00it/s]"


def settings(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "trainer.json"
    known = {"run_dir": "/r", "attempt_dir": "/r/a", "proxy_url": "http://h:1/v1", "served_model": "policy"}
    path.write_text(json.dumps({**known, **changes}))
    return path


def test_settings_are_read_and_checked(tmp_path: Path) -> None:
    config = read_settings(settings(tmp_path, total_steps=3, faults={"hang_at_step": 2}))
    assert (config.total_steps, config.faults.hang_at_step) == (3, 2)
    assert config.proxy_url is not None and chat_url(config.proxy_url) == "http://h:1/v1/chat/completions"
    assert config.checkpoints == Path("/r/checkpoints")
    for wrong in (
        {"total_steps": 0},
        {"proxy_url": None},
        {"sessions_key_file": "/k"},  # and proxy_url
        {"temperature": 0},
        {"learning_rate": -1},
        {"nonsense": 1},
        {"seed": "x"},
    ):
        with pytest.raises(ValueError, match=r"trainer\.json: .*" + next(iter(wrong))):
            read_settings(settings(tmp_path, **wrong))
    with pytest.raises(ValueError, match="max_iterations must be at least 1, not 0"):
        TrainerConfig(run_dir="", attempt_dir="", proxy_url="", served_model="", max_iterations=0)


def reply(**choice: object) -> bytes:
    message = {"role": "assistant", "content": "hi", "tool_calls": None}
    base = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [{**base, **choice}], "usage": {"prompt_tokens": 9}}).encode()


def test_token_ids_are_found_wherever_the_proxy_puts_them() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": 0}]}
    for place in ({"token_ids": [1, 2]}, {"provider_specific_fields": {"token_ids": [1, 2]}}):
        answer = read_reply(reply(logprobs=logprobs, **place))
        assert (answer.token_ids, answer.logprobs, answer.prompt_tokens) == ([1, 2], [-0.5, 0.0], 9)
        assert answer.message == {"role": "assistant", "content": "hi"}
    with pytest.raises(TrialFailed, match="0 token ids and 2 logprobs"):
        read_reply(reply(logprobs=logprobs))
    for broken in (b"", b"{}", b'{"choices": []}', b"<html>"):
        with pytest.raises(ValueError, match="not a chat completion"):
            read_reply(broken)
