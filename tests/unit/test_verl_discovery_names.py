"""Names of verl's server actors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.verl.discovery.names import ServerName, parse_name

NAMES = st.builds(
    ServerName,
    engine=st.sampled_from(["vllm", "sglang", "trtllm"]),
    role=st.sampled_from(["policy", "reward", "teacher", "decode"]),
    rank=st.integers(0, 5000),
    node_rank=st.integers(0, 300),
    suffix=st.text(max_size=12),
)


@given(NAMES)
def test_a_name_reads_back(name: ServerName) -> None:
    if name.engine == "trtllm":  # it has no node rank
        name = ServerName(name.engine, name.role, name.rank, 0, name.suffix)
    assert parse_name(name.text) == name


@given(st.text(max_size=40))
def test_any_text_is_a_name_that_reads_back_or_none(text: str) -> None:
    name = parse_name(text)
    assert name is None or name.text == text


@pytest.mark.parametrize(
    ("text", "role", "rank", "node", "suffix", "counted"),
    [
        ("vllm_server_0_0", "policy", 0, 0, "", True),
        ("vllm_server_12_0", "policy", 12, 0, "", True),
        ("vllm_server_1_1", "policy", 1, 1, "", False),
        ("vllm_server_1_0_math", "policy", 1, 0, "math", True),
        ("vllm_server_reward_0_0", "reward", 0, 0, "", False),
        ("vllm_server_teacher_0_0_qwen_72b", "teacher", 0, 0, "qwen_72b", False),
        ("vllm_server_decode_0_3", "decode", 0, 3, "", False),
        ("sglang_server_7_0", "policy", 7, 0, "", True),
        ("trtllm_server_7", "policy", 7, 0, "", True),
        ("trtllm_server_reward_7_x", "reward", 7, 0, "x", False),
    ],
)
def test_the_names_that_verl_gives(
    text: str, role: str, rank: int, node: int, suffix: str, counted: bool
) -> None:
    name = parse_name(text)
    assert name is not None
    assert (name.role, name.rank, name.node_rank, name.suffix) == (role, rank, node, suffix)
    assert name.counted is counted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm_server",
        "vllm_server_0",
        "vllm_server_a_0",
        "vllm_server_00_0",
        "vllm_server_0_0_",
        "my_vllm_server_0_0",
        "agent_loop_worker_0_10ffd093",
        "reward_loop_worker_0",
        "FbgVwRWorkerDict_0:1",
        "TransferQueueController",
        "vllm_server_٣_0",
    ],
)
def test_what_is_no_server(text: str) -> None:
    assert parse_name(text) is None
