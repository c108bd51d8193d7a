"""Whose code raised an exception, and what is said of one that no rule explains."""

from __future__ import annotations

import pytest

from liverl.causes.finding import Explanation, LogRecords
from liverl.causes.verdict.deduced import CHECK, OWN_CODE
from liverl.causes.verdict.frames import origin_of, package_of, told_place
from liverl.causes.verdict.judge import judge
from liverl.logs.record import Record
from liverl.logs.records import RecordReader

SITE = "/opt/env/lib/python3.12/site-packages/"


def record(*frames: tuple[str, str], error: str) -> Record:
    lines = ["Traceback (most recent call last):"]
    for number, (path, source) in enumerate(frames):
        lines += [f'  File "{path}", line {number + 1}, in step', f"    {source}"]
    reader = RecordReader()
    text = "\n".join((*lines, error, "")).encode()
    (found,) = (*reader.feed(text), *reader.end())
    return found


def verdict(*frames: tuple[str, str], error: str) -> Explanation:
    found = record(*frames, error=error)
    cause = judge([LogRecords("x", (found,), found)]).cause
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    ("path", "package"),
    [
        (SITE + "vllm/v1/engine/core.py", "vllm"),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml"),
        ("/workspace/verl/verl/workers/fsdp_workers.py", "verl"),
        ("/tmp/ray/session/working_dir_files/_ray_pkg_ab/verl/trainer/main_ppo.py", "verl"),
        ("/workspace/verl/recipe/dapo/main_dapo.py", "verl"),
        ("/workspace/verl/my_reward.py", ""),
        ("/sgl-workspace/sglang/python/sglang/srt/server_args.py", "sglang"),
        ("/w/Megatron-LM/megatron/core/parallel_state.py", "megatron"),
        ("/root/slime/examples/retool/generate.py", ""),
        ("/w/agent-lightning/agentlightning/trainer.py", "agentlightning"),
        ("/opt/nemo-rl/nemo_rl/models/worker.py", "nemo_rl"),
        ("/home/me/agent/reward.py", ""),
        ("/usr/lib/python3.12/json/decoder.py", None),
        ("<frozen importlib._bootstrap>", None),
        ("python/ray/_raylet.pyx", "ray"),
        ("/opt/env/bin/torchrun", None),
    ],
)
def test_the_package_of_a_file(path: str, package: str | None) -> None:
    assert package_of(path) == package


def test_the_place_is_that_of_the_code_that_decided() -> None:
    found = record(
        ("/workspace/verl/verl/trainer/ppo/reward.py", "return raw_fn(**kwargs)"),
        ("/home/me/reward.py", "json.loads(text)"),
        ("/usr/lib/python3.12/json/decoder.py", "raise JSONDecodeError("),
        error="ValueError: no JSON",
    )
    origin = origin_of(found, 0)
    assert origin is not None and (origin.at.path, origin.package, origin.caller) == (
        "/home/me/reward.py",
        "",
        "verl",
    )
    assert told_place(origin) == (
        "It comes from /home/me/reward.py:2 in step: json.loads(text), which is no installed package, called by verl."
    )


def test_without_a_known_frame_there_is_no_place() -> None:
    assert origin_of(record(("<string>", "x"), error="ValueError: no"), 0) is None


def test_code_of_no_package_is_named_where_it_fails() -> None:
    frames = (
        (SITE + "verl/workers/reward_manager/naive.py", "score = f(x)"),
        ("/home/me/reward.py", "check(x)"),
    )
    cause = verdict(*frames, error="ValueError: the answer has two parts")
    assert cause.id == OWN_CODE
    assert cause.title == "reward.py:2 (step) raised ValueError: the answer has two parts"
    assert "/home/me/reward.py" in cause.cause and "verl called it" in cause.cause


@pytest.mark.parametrize("error", ["torch.AcceleratorError: CUDA failed", "acme.Failure: it broke"])
def test_what_code_of_no_package_only_reports_stays_unknown(error: str) -> None:
    assert verdict(("/home/me/train.py", "loss.backward()"), error=error).id == "unknown"


def test_an_error_in_a_library_that_code_of_no_package_calls_is_not_blamed_on_it() -> None:
    frames = ("/home/me/train.py", "loss.backward()"), (SITE + "torch/_tensor.py", "torch.autograd.backward(")
    assert verdict(*frames, error="RuntimeError: the engine of autograd is gone").id == "unknown"


@pytest.mark.parametrize(
    ("source", "error", "fix"),
    [
        ("raise ValueError(", "ValueError: EAGLE is not supported with LoRA.", "Turn off or change"),
        ("assert n % k == 0", "AssertionError: heads must be divisible by ranks", "Change one of the values"),
        ("assert self.n % self.k == 0, (", "AssertionError", "The condition stands in the code of acme"),
        ("raise ImportErrorLike(", "ValueError: please pip install acme", "Install what"),
        ("raise ValueError(", "ValueError: adapter a is missing", "Provide what"),
        ("raise ValueError(", "ValueError: a reward key must be given", "Set or change"),
        ("raise ValueError(", "ValueError: FP8 needs compute capability 8.9", "Use a GPU that can do"),
        ("raise ValueError(", "ValueError: a key is odd. Please set data.key", "Do what the message says"),
    ],
)
def test_a_check_of_a_library_is_told_in_its_own_words(source: str, error: str, fix: str) -> None:
    frames = (SITE + "trl/trainer/grpo_trainer.py", "LLM("), (SITE + "acme/config.py", source)
    cause = verdict(*frames, error=error)
    assert cause.id == CHECK and cause.title.startswith("A check in acme failed: ")
    assert cause.fix.startswith(fix)
    assert cause.command == "pip list | grep -iE '^(acme|trl)'"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("self.kernel(x)", "RuntimeError: the block must be larger"),  # raised by native code
        ("raise RuntimeError(", "RuntimeError: Request failed: status 404, must be 200"),
        ("raise ValueError(", "ValueError: kind None"),  # says nothing of what is wanted
        ("check(x)", "AssertionError"),
        ("numpy.concatenate(x)", "ValueError: sizes must be equal"),  # raised by a helper's native code
    ],
)
def test_a_check_that_does_not_say_what_it_wants_stays_unknown(source: str, error: str) -> None:
    cause = verdict((SITE + "acme/config.py", source), error=error)
    assert cause.id == "unknown" and "It comes from acme (config.py:1 in step" in cause.fix


def test_a_general_row_says_whose_code_it_was_and_which_versions_to_compare() -> None:
    frames = (SITE + "trl/scripts/vllm_serve.py", "llm = LLM("), (SITE + "vllm/llm.py", "args = EngineArgs(")
    cause = verdict(*frames, error="TypeError: EngineArgs.__init__() got an unexpected keyword argument 'x'")
    assert cause.id == "unexpected-argument"
    assert "It comes from vllm (llm.py:2 in step: args = EngineArgs( ...)), called by trl." in cause.cause
    assert cause.command == "pip list | grep -iE '^(vllm|trl)'"


def test_a_field_that_pydantic_refuses_is_named() -> None:
    error = (
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for AgentLoopOutput\n"
        "response_mask\n"
        "  Field required [type=missing, input_value={}, input_type=dict]\n"
        "    For further information visit https://errors.pydantic.dev/2.11/v/missing\n"
        "metrics\n"
        "  Field required [type=missing, input_value={}, input_type=dict]"
    )
    cause = verdict(("/home/me/loop.py", "return AgentLoopOutput(**values)"), error=error)
    assert cause.id == "fields-refused"
    assert cause.title == "AgentLoopOutput refuses its field response_mask (loop.py:1 in step)"


def test_an_assertion_of_a_library_is_told_even_if_it_does_not_say_what_it_wants() -> None:
    cause = verdict(
        (SITE + "sglang/srt/cache.py", "node.lock > 0"), error="AssertionError: lock_ref on node 3"
    )
    assert cause.id == CHECK and cause.fix.startswith("The condition stands in the code of sglang")


def test_a_general_error_that_another_program_printed_is_no_cause() -> None:
    reader = RecordReader()
    records = (*reader.feed(b"$ pytest -q\nE   TimeoutError\n1 failed in 3 s\n"), *reader.end())
    assert judge([LogRecords("x", records, records[-1])]).cause is None


def test_a_message_that_only_points_to_another_one_is_no_cause() -> None:
    error = "RuntimeError: trial 34 cannot complete. Please check the log message"
    assert verdict(("/home/me/engine.py", "raise RuntimeError("), error=error).id == "unknown"
