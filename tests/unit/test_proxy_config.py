"""The generated LiteLLM configuration, and the keys of a run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from liverl.proxy.config import aliases, config_sha, normalise_backend, render_litellm_config
from liverl.proxy.keys import InvalidKey, ensure_keys, ensure_replica_token
from liverl.proxy.runtime.settings import SettingsError, read_model_config

A, B = "http://127.0.0.1:4001", "http://127.0.0.1:4002"
ports = st.integers(min_value=1, max_value=65535)


def render(*backends: str, **options: object) -> str:
    values = {"request_timeout": 2400.0, "cooldown": 30.0, "prefix": "hosted_vllm/", **options}
    return render_litellm_config(backends, "policy", **values)  # type: ignore[arg-type]


def test_every_alias_is_listed_once_per_backend() -> None:
    models = yaml.safe_load(render(A, B, A))["model_list"]
    pairs = [(model["model_name"], model["litellm_params"]["api_base"]) for model in models]
    names = ("claude-*", "hosted_vllm/policy", "policy")
    assert sorted(pairs) == sorted((name, f"{root}/v1") for root in (A, B) for name in names)
    assert {model["litellm_params"]["model"] for model in models} == {"hosted_vllm/policy"}
    assert len({model["model_info"]["id"] for model in models}) == len(models)


def test_no_failed_turn_is_sampled_again_and_no_replica_is_probed() -> None:
    document = yaml.safe_load(render(A))
    assert document["router_settings"]["num_retries"] == 0
    assert document["litellm_settings"]["num_retries"] == 0
    assert document["general_settings"]["background_health_checks"] is False


def test_no_secret_is_written() -> None:
    assert yaml.safe_load(render(A))["general_settings"]["master_key"] == "os.environ/LITELLM_MASTER_KEY"


def test_the_token_of_the_replicas_is_the_api_key_of_each_deployment_and_part_of_its_id() -> None:
    without, with_token = (
        yaml.safe_load(render(A, B, token=token))["model_list"] for token in ("", "sk-right")
    )
    assert not any("api_key" in model["litellm_params"] for model in without)
    assert {model["litellm_params"]["api_key"] for model in with_token} == {"sk-right"}
    ids = [{model["model_info"]["id"] for model in models} for models in (without, with_token)]
    assert not ids[0] & ids[1], "a reload compares ids only"
    assert "sk-right" not in str(ids)


def test_zero_backends_is_a_configuration() -> None:
    assert yaml.safe_load(render())["model_list"] == []


def test_a_draining_backend_is_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(render(A, draining=[B]))
    models = read_model_config(path, yaml.safe_load)
    assert (models.backends, models.draining) == ((A,), (B,))
    path.write_text(render(A, B, draining=[B]))  # listed wins
    assert read_model_config(path, yaml.safe_load).draining == ()


def test_a_deployment_keeps_its_id_when_it_starts_to_drain() -> None:
    def ids(text: str) -> set[str]:
        return {model["model_info"]["id"] for model in yaml.safe_load(text)["model_list"]}

    assert ids(render(A, B)) == ids(render(A, draining=[B]))


@pytest.mark.parametrize(
    ("given_", "wanted"), [(A + "/v1/", A), (f" {A}/ ", A), ("https://host/v1", "https://host"), (A, A)]
)
def test_a_backend_is_known_by_its_root(given_: str, wanted: str) -> None:
    assert normalise_backend(given_) == wanted


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "127.0.0.1:4001",
        "ftp://host",
        "http://",
        "http://user:secret@host:1",
        "http://host:0",
        "http://h:x",
    ],
)
def test_a_bad_backend_is_refused(bad: str) -> None:
    with pytest.raises(ValueError) as caught:
        render(bad)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"request_timeout": 0.0}, {"cooldown": -1.0}])
def test_bad_numbers_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        render(A, **options)


@pytest.mark.parametrize("name", ["", "a*", "a\nb", "os.environ/LITELLM_MASTER_KEY"])
def test_bad_model_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        render_litellm_config([A], name, 1.0, 1.0, prefix="hosted_vllm/")


def test_an_alias_is_not_listed_twice() -> None:
    assert aliases("claude-*", "hosted_vllm/") == ("claude-*", "hosted_vllm/claude-*")


@given(st.lists(ports, max_size=6), st.lists(ports, max_size=3))
def test_what_is_rendered_is_read_back(listed: list[int], leaving: list[int]) -> None:
    text = render(*(f"http://h:{p}" for p in listed), draining=[f"http://h:{p}" for p in leaving])
    backends = [model["model_info"]["liverl_backend"] for model in yaml.safe_load(text)["model_list"]]
    assert list(dict.fromkeys(backends)) == list(dict.fromkeys(f"http://h:{p}" for p in [*listed, *leaving]))
    assert config_sha(text) == config_sha(text)


@pytest.mark.parametrize(
    "text",
    [
        "model_list: [",
        "[]",
        "model_list: 3",
        "model_list: [1]",
        "model_list: [{model_name: a, litellm_params: {}, model_info: {id: x, liverl_backend: 'http://a'}}]",
        "model_list: [{model_name: a, litellm_params: {model: m}, model_info: {id: x}}]",
        "model_list: [{model_name: a, litellm_params: {model: m}, model_info: {id: x, liverl_backend: a}}]",
        "{model_list: [], router_settings: {cooldown_time: soon}}",
    ],
)
def test_a_bad_file_is_refused_by_the_runner_with_a_reason(tmp_path: Path, text: str) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"litellm\.yaml"):
        read_model_config(path, yaml.safe_load)


def test_a_repeated_id_is_refused_by_the_runner(tmp_path: Path) -> None:
    document = yaml.safe_load(render(A))
    document["model_list"] *= 2
    path = tmp_path / "litellm.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(SettingsError, match="repeats the id"):
        read_model_config(path, yaml.safe_load)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_made_once_and_are_ours_alone(tmp_path: Path) -> None:
    first = ensure_keys(tmp_path)
    assert ensure_keys(tmp_path) == first
    assert first.master != first.run
    assert first.master.startswith("sk-liverl-") and len(first.run) >= 32
    assert mode(tmp_path / "secrets") == 0o700
    assert {mode(path) for path in (tmp_path / "secrets").iterdir()} == {0o600}
    assert first.master not in repr(first)


def test_a_configured_run_key_is_honoured_and_replaced(tmp_path: Path) -> None:
    master = ensure_keys(tmp_path).master
    keys = ensure_keys(tmp_path, "sk-my-own-key")
    assert (keys.run, keys.master) == ("sk-my-own-key", master)
    assert ensure_keys(tmp_path).run == "sk-my-own-key"
    assert mode(tmp_path / "secrets" / "run_key") == 0o600


def test_permissions_that_were_opened_are_closed_again(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    (tmp_path / "secrets").chmod(0o755)
    (tmp_path / "secrets" / "master_key").chmod(0o644)
    ensure_keys(tmp_path)
    assert (mode(tmp_path / "secrets"), mode(tmp_path / "secrets" / "master_key")) == (0o700, 0o600)


def test_an_emptied_key_file_gets_a_new_key(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    (tmp_path / "secrets" / "run_key").write_text("")
    assert ensure_keys(tmp_path).run


@pytest.mark.parametrize("key", ["", "short", "with space in it", 'quote"inside-it', "new\nline-in-it"])
def test_a_configured_key_that_cannot_travel_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidKey) as caught:
        ensure_keys(tmp_path, key)
    assert not key or key not in str(caught.value)


def test_the_token_of_the_replicas_is_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    path = ensure_replica_token(tmp_path)
    assert path == tmp_path / "secrets" / "replica_token"
    token = path.read_text()
    assert len(token.strip()) > 30
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    assert ensure_replica_token(tmp_path).read_text() == token
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)


def test_the_master_key_cannot_be_the_run_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidKey):
        ensure_keys(tmp_path, ensure_keys(tmp_path).master)
