"""LiteLLM's list of models: reading it, and adding one more server."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from liverl.external import config_file, model_list
from liverl.external.model_list import ListingError

A, B, C = "http://10.0.0.1:4001", "http://10.0.0.1:4002", "http://10.0.0.1:4003"


def entry(name: str, base: str, **more: Any) -> dict[str, Any]:
    params = {"model": "hosted_vllm/policy", "api_base": base, "api_key": "none"}
    return {"model_name": name, "litellm_params": params, **more}


def pairs(document: dict[str, Any]) -> Counter[tuple[str, str]]:
    return Counter((m["model_name"], m["litellm_params"]["api_base"]) for m in document["model_list"])


def test_each_name_gets_the_missing_server_once() -> None:
    text = f"""
# written at launch
model_list:
- model_name: claude-*
  litellm_params: {{model: hosted_vllm/policy, api_base: "{A}/v1", timeout: 600}}
- model_name: policy
  litellm_params: {{model: hosted_vllm/policy, api_base: "{A}/v1"}}
- model_name: judge
  litellm_params: {{model: openai/judge, api_base: "https://api.example.com/v1"}}
litellm_settings: {{drop_params: true, callbacks: [trajectory_logger.handler]}}
unknown: {{z: 1, a: [yes, null, 1.5]}}
"""
    document = model_list.read(text)
    added, names = model_list.add(document, B, [A, B])
    assert names == ("claude-*", "policy")
    assert [(m["model_name"], m["litellm_params"]["api_base"]) for m in added["model_list"]] == [
        ("claude-*", f"{A}/v1"),
        ("claude-*", f"{B}/v1"),
        ("policy", f"{A}/v1"),
        ("policy", f"{B}/v1"),
        ("judge", "https://api.example.com/v1"),
    ]
    assert added["model_list"][1]["litellm_params"]["timeout"] == 600
    again = model_list.read(model_list.render(added))
    assert list(again) == ["model_list", "litellm_settings", "unknown"]
    assert {k: v for k, v in again.items() if k != "model_list"} == {
        k: v for k, v in document.items() if k != "model_list"
    }
    assert model_list.backends(again) == (f"{A}/v1", f"{B}/v1", "https://api.example.com/v1")


def test_names_that_lead_elsewhere_are_told_by_the_replicas_or_by_what_they_mean() -> None:
    stale = {"model_list": [entry("policy", f"{C}/v1"), entry("judge", "https://api.example.com/v1")]}
    stale["model_list"][1]["litellm_params"]["model"] = "openai/judge"
    assert model_list.add(stale, B, [A, B])[1] == ("policy",)
    only_judge = {"model_list": [stale["model_list"][1]]}
    with pytest.raises(ListingError, match="no entry of model_list routes to a replica"):
        model_list.add(only_judge, B, [A, B])


def test_the_form_of_the_address_is_kept_and_ids_are_not_doubled() -> None:
    one = entry("policy", "placeholder", model_info={"id": "abc", "mode": "chat"})
    one["litellm_params"]["base_url"] = one["litellm_params"].pop("api_base")
    one["litellm_params"]["base_url"] = "os.environ/FIRST"
    env = {"FIRST": "localhost:4001/v1"}
    added, names = model_list.add({"model_list": [one]}, "http://127.0.0.1:4002", [], env=env)
    assert names == ("policy",)
    new = added["model_list"][1]
    assert new["litellm_params"]["base_url"].endswith("127.0.0.1:4002/v1")
    assert new["model_info"] == {"mode": "chat"}
    assert one["model_info"]["id"] == "abc"


def test_two_spellings_of_one_place() -> None:
    own = {"192.0.2.2", "fe80::1"}
    here = {
        model_list.place(url, own)
        for url in (
            "http://localhost:4001/v1",
            "http://127.0.0.1:4001",
            "192.0.2.2:4001",
            "http://[::1]:4001/v1/",
            "http://[fe80::1]:4001",
            "http://0.0.0.0:4001",
        )
    }
    assert here == {("localhost", 4001)}
    assert model_list.place("https://api.example.com") == ("api.example.com", 443)
    assert model_list.place("http://192.0.2.2:4001") == ("192.0.2.2", 4001)
    for nowhere in ("", "http://", "http://host:port", "http://[::1"):
        assert model_list.place(nowhere) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model_list: [", r"not valid YAML \(line"),
        ("model_list: !include other.yaml", "not valid YAML"),
        ("- a", "model_list is missing"),
        ("", "model_list is missing"),
        ("include: [models.yaml]", "model_list is missing"),
        ("model_list: [{model_name: a}]", "no litellm_params"),
    ],
)
def test_what_is_no_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(ListingError, match=why):
        model_list.read(text)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
aliases = st.lists(
    st.sampled_from(["claude-*", "policy", "hosted_vllm/policy", "ünï"]), min_size=1, max_size=4
)
bases = st.lists(st.sampled_from([f"{A}/v1", f"{B}/v1", A]), min_size=1, max_size=3)


@given(aliases, bases, st.dictionaries(st.text(min_size=1, max_size=6), plain, max_size=3))
def test_once_per_name_and_idempotent_and_the_rest_as_it_was(
    names: list[str], listed: list[str], more: dict[str, Any]
) -> None:
    document = {**more, "model_list": [entry(name, base, extra=1) for name in names for base in listed]}
    before = copy.deepcopy(document)
    added, under = model_list.add(document, C, [A, B, C])
    assert document == before  # it is not changed in place
    assert sorted(under) == sorted(set(names))
    assert all(pairs(added)[name, C] + pairs(added)[name, f"{C}/v1"] == 1 for name in names)
    rest = [
        m
        for m in added["model_list"]
        if model_list.place(m["litellm_params"]["api_base"]) != ("10.0.0.1", 4003)
    ]
    assert rest == document["model_list"]
    assert {**added, "model_list": None} == {**document, "model_list": None}
    text = model_list.render(added)
    assert model_list.read(text) == added and list(yaml.safe_load(text)) == list(document)
    assert model_list.add(added, C, [A, B, C]) == (added, ())


def test_the_old_file_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link.yaml"
    link.symlink_to(real)
    first, second = (config_file.replace_with_backup(link, text) for text in ("new", "newer"))
    assert (first.read_text(), second.read_text(), real.read_text()) == ("old", "new", "newer")
    assert first != second and link.is_symlink()
    assert {path.stat().st_mode & 0o777 for path in (real, first, second)} == {0o600}
    assert first.name.startswith("real.yaml.bak-2") and len(list(tmp_path.iterdir())) == 4
