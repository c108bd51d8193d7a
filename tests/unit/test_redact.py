"""Nothing secret is shown, and what is worth seeing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.util import redact


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS", "DB_PASSWORD", "PGPASSWD", "MY_KEYS"],
)
def test_variables_are_hidden_by_their_name(name: str) -> None:
    assert redact.environment({name: "x"}) == {name: "***"}
    assert redact.environment({name: ""}) == {name: ""}


def test_other_variables_are_shown() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "WANDB_API_KEY_FILE": "/run/key", "KEY_FILE": "secret itself"}
    assert redact.environment(env) == {**env, "KEY_FILE": "***"}


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["vllm", "--api-key", "abc", "--port", "1"], ["vllm", "--api-key", "***", "--port", "1"]),
        (["vllm", "--api-key", "abc", "def"], ["vllm", "--api-key", "***", "***"]),
        (["x", "--hf-token=abc"], ["x", "--hf-token=***"]),
        (["x", "trainer.wandb_api_key=abc"], ["x", "trainer.wandb_api_key=***"]),
        (["env", "HF_TOKEN=abc", "x"], ["env", "HF_TOKEN=***", "x"]),
        (["curl", "-H", "Authorization: Bearer abc"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["x", "https://me:pw@host/a"], ["x", "https://***@host/a"]),
        (["x", "trainer.wandb_key=a0b1c2d3", "--key=abc"], ["x", "trainer.wandb_key=***", "--key=***"]),
        (["x", "say sk-ant-0123456789"], ["x", "say ***"]),
    ],
)
def test_commands_hide_values(argv: list[str], shown: list[str]) -> None:
    assert redact.command(argv) == tuple(shown)


@pytest.mark.parametrize(
    "argv",
    [
        ["--max-num-batched-tokens", "8192", "--tokenizer", "/models/q"],
        ["--ssl-keyfile", "/etc/key.pem", "--max-tokens=5"],
        ["--api-key", "--port", "1"],
        ["data.prompt_key=prompt", "data.reward_fn_key=data_source", "cache_key=abc"],
        ["sk-dummy", "data.max_prompt_length=512", "http://127.0.0.1:8000/v1"],
    ],
)
def test_what_is_no_secret_is_shown(argv: list[str]) -> None:
    assert redact.command(argv) == tuple(argv)


@given(st.lists(st.text()))
def test_as_many_words_come_out_as_go_in(argv: list[str]) -> None:
    assert len(redact.command(argv)) == len(argv)
