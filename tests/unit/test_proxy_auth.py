"""Who may ask what, and what a record may hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.proxy.runtime.auth import Refusal, authorize, valid_trial
from liverl.proxy.runtime.callers import Caller
from liverl.proxy.runtime.calls import Call
from liverl.proxy.runtime.recorder import FILE, REDACTED, Recorder, encode, redact, without_tokens
from liverl.proxy.runtime.records import make_record
from liverl.proxy.runtime.settings import Keys

KEYS = Keys(master="sk-liverl-master-0001", run="sk-liverl-run-0001")
CHAT = "/v1/chat/completions"


def ask(path: str = CHAT, method: str = "POST", **headers: str) -> Caller | Refusal:
    fields = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return authorize(method, path, fields, KEYS)


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer {}"}, {"x_api_key": "{}"}, {"authorization": "{}"}]
)
def test_a_key_may_come_in_either_header(headers: dict[str, str]) -> None:
    given_ = {name: text.format(KEYS.run + ".t-1") for name, text in headers.items()}
    assert ask(**given_) == Caller("run", "t-1")


@pytest.mark.parametrize(
    "path",
    [CHAT, "/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/completions"],
)
def test_the_run_key_opens_the_inference_routes(path: str) -> None:
    assert ask(path, x_api_key=KEYS.run) == Caller("run", None)


@pytest.mark.parametrize(
    "path", ["/model/info", "/key/generate", "/health", "/", "/docs", "/v1/messages/../../health"]
)
def test_the_run_key_opens_nothing_else(path: str) -> None:
    refused = ask(path, x_api_key=KEYS.run)
    assert isinstance(refused, Refusal) and refused.status == 403
    assert ask(path, x_api_key=KEYS.master) == Caller("master", None)


@pytest.mark.parametrize(
    "key", ["", "nonsense", KEYS.run[:-1], KEYS.run + "x", KEYS.run + "-t", KEYS.master + ".t", "sk-ä"]
)
def test_any_other_key_is_refused(key: str) -> None:
    refused = ask(x_api_key=key)
    assert isinstance(refused, Refusal) and refused.status == 401
    assert not key or key not in refused.message


def test_no_key_is_refused_except_for_liveness() -> None:
    assert ask() == ask("/model/info", "GET")
    assert ask("/health/liveliness", "GET") == Caller("public")
    assert isinstance(ask("/health/liveliness", "POST"), Refusal)


def test_a_second_key_counts_when_the_first_is_a_placeholder() -> None:
    assert ask(authorization="Bearer sk-dummy", x_api_key=KEYS.run + ".t") == Caller("run", "t")


def test_the_header_names_the_trial_before_the_key_does() -> None:
    assert ask(x_api_key=KEYS.run + ".by-key", x_litellm_routing_key="by-header") == Caller(
        "run", "by-header"
    )
    assert ask(x_api_key=KEYS.master, x_litellm_routing_key="by-header") == Caller("master", "by-header")


@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".hidden", "_unattributed", "step_0001", "a" * 129, "", "a\n", "ä", "a b"]
)
def test_a_name_that_is_no_trial_is_nobody(name: str) -> None:
    assert not valid_trial(name)
    caller = ask(x_api_key=KEYS.run + ".good", x_litellm_routing_key=name.replace("\n", "") or " ")
    assert isinstance(caller, Caller)


@given(st.text(max_size=140))
def test_a_valid_trial_is_a_plain_folder_name(name: str) -> None:
    if valid_trial(name):
        assert Path(name).name == name and name not in (".", "..") and len(name) <= 128


def test_secret_looking_keys_are_redacted_and_conversations_are_not() -> None:
    body: dict[str, Any] = {
        "api_key": "sk-1",
        "max_tokens": 5,
        "metadata": {"Authorization": "Bearer x", "client_secret": "y", "user_id": "u"},
        "messages": [{"role": "user", "content": "the password is swordfish", "password": "kept"}],
        "tools": [{"function": {"parameters": {"properties": {"password": {"type": "string"}}}}}],
    }
    clean = redact(body)
    assert clean["api_key"] == REDACTED
    assert clean["metadata"] == {"Authorization": REDACTED, "client_secret": REDACTED, "user_id": "u"}
    assert (clean["max_tokens"], clean["messages"], clean["tools"]) == (5, body["messages"], body["tools"])


def test_the_runs_keys_never_reach_a_record() -> None:
    line = encode({"messages": [f"echo {KEYS.run}.t {KEYS.master}"]}, (KEYS.master, KEYS.run))
    assert KEYS.run.encode() not in line and KEYS.master.encode() not in line
    assert json.loads(line) == {"messages": [f"echo {REDACTED}.t {REDACTED}"]}


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_a_record_is_one_line_of_json(value: Any) -> None:
    line = encode({"body": redact(value)}, (KEYS.run,))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    json.loads(line)


def test_token_ids_and_probabilities_are_left_to_the_trainer() -> None:
    response = {
        "prompt_token_ids": [1],
        "choices": [{"logprobs": {}, "provider_specific_fields": {"token_ids": [2], "stop": 1}, "index": 0}],
    }
    assert without_tokens(response) == {"choices": [{"provider_specific_fields": {"stop": 1}, "index": 0}]}


def recorder(run_dir: Path) -> Recorder:
    return Recorder(run_dir, (KEYS.master, KEYS.run), lambda: None)


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_goes_to_the_newest_steps_folder(tmp_path: Path) -> None:
    for step in ("step_0001", "step_0002", "step_0010"):
        (tmp_path / "trials" / step / "other").mkdir(parents=True)
    (tmp_path / "trials" / "step_0001" / "t").mkdir()
    (tmp_path / "trials" / "step_0002" / "t").mkdir()
    writer = recorder(tmp_path)
    for trial in ("t", "unknown", None):
        writer.submit(trial, lambda: {"n": 1})
    writer.close()
    found = {str(path.parent.relative_to(tmp_path / "trials")) for path in tmp_path.rglob(FILE)}
    assert found == {"step_0002/t", "unknown", "_unattributed"}
    assert writer.error is None


def test_a_folder_that_is_made_or_moved_later_is_found(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    (tmp_path / "trials" / "step_0001" / "t").mkdir(parents=True)
    writer.submit("t", lambda: {"n": 1}).result()
    (tmp_path / "trials" / "step_0001").rename(tmp_path / "trials" / "step_0007")
    writer.submit("t", lambda: {"n": 2}).result()
    writer.close()
    assert read(tmp_path / "trials" / "step_0007" / "t" / FILE) == [{"n": 1}, {"n": 2}]


def test_a_fifo_in_place_of_the_file_stops_no_other_record(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for trial, reader in (("t", False), ("r", True)):
        path = tmp_path / "trials" / trial / FILE
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if reader else None
        writer.submit(trial, lambda: {"n": 1}).result(timeout=60)
        if fd is not None:
            os.close(fd)
    assert writer.lost == 2 and writer.error is not None and "not a regular file" in writer.error
    writer.submit("u", lambda: {"n": 1}).result()
    writer.close()
    assert writer.error is None and "not a regular file" in str(writer.last_error)


def test_what_cannot_be_written_is_told_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "t").write_text("a file")
    told: list[None] = []
    writer = Recorder(tmp_path, (), lambda: told.append(None))
    for _ in range(3):
        writer.submit("t", lambda: {"n": 1}).result()
    writer.close()
    assert writer.lost == 3 and len(told) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("liverl-proxy: cannot write a trajectory record: ") and "trials/t/" in line


@pytest.mark.parametrize("where", ["request", "response"])
def test_a_record_is_made_however_deep_its_parts_are(where: str) -> None:
    deep: Any = None
    depth = 50_000  # more than json accepts in any version of Python
    for _ in range(depth):
        deep = [deep]
    call = Call(None, Caller("run", "t"), "/v1/chat/completions", True, status=200)  # type: ignore[arg-type]
    nested = "[" * depth + "]" * depth if where == "request" else "1"
    call.body = [f'{{"model": "m", "x": {nested}}}'.encode()]
    record = make_record(call, "id", {"id": "r", "x": deep} if where == "response" else {"id": "r"}, None)
    assert record["session_id"] == "t" and record["success"] is True
    assert record["request_body"]["unparsed"].startswith('{"model": "m"')
    encode(record, ())


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("untouched")
    folder = tmp_path / "trials" / "t"
    folder.mkdir(parents=True)
    (folder / FILE).symlink_to(target)
    writer = recorder(tmp_path)
    writer.submit("t", lambda: {"n": 1}).result()
    assert target.read_text() == "untouched"
    assert writer.error is not None
    writer.submit("u", lambda: {"n": 1}).result()
    assert writer.error is None
    writer.close()
