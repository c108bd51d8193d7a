"""Secrets come in by several ways and go out by none."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from liverl.config import ConfigError, dump_yaml, liverl_environment, load_config, redacted
from liverl.plan import make_plan

SECRET = "0123456789abcdef-hidden"


def test_a_secret_in_the_file_works_is_warned_about_and_never_saved(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"infrastructure:\n  anthropic_api_key: {SECRET}\n")
    loaded = load_config(path, env={})
    assert loaded.secrets.anthropic_api_key == SECRET
    assert loaded.config.infrastructure.anthropic_api_key == ""
    assert loaded.origins["infrastructure.anthropic_api_key"] == f"{path}:2"
    (warning,) = loaded.warnings
    assert warning.startswith(f"{path}:2: infrastructure.anthropic_api_key contains a secret")
    shown = [
        dump_yaml(loaded.config),
        repr(redacted(loaded.config)),
        repr(loaded),
        str(loaded.secrets),
        warning,
    ]
    assert not any(SECRET in text for text in shown)
    assert repr(loaded.secrets) == "Secrets(anthropic_api_key=set, wandb_api_key=not set)"


@pytest.mark.parametrize("way", ["file", "set", "env"])
def test_a_wandb_key_that_no_process_gets_is_reported(way: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"credentials:\n  wandb_api_key: {SECRET}\n" if way == "file" else "")
    sets = [f"credentials.wandb_api_key={SECRET}"] if way == "set" else []
    env = {"LIVERL_CREDENTIALS__WANDB_API_KEY": SECRET} if way == "env" else {}
    loaded = load_config(path, profile="liverl-gen1", sets=sets, env=env)
    where = {"file": f"{path}:2", "set": "--set", "env": "env LIVERL_CREDENTIALS__WANDB_API_KEY"}[way]
    assert loaded.warnings[-1] == (
        f"{where}: credentials.wandb_api_key has no effect, because no process receives a key set here; "
        "set WANDB_API_KEY or WANDB_API_KEY_FILE"
    )
    plan = make_plan(loaded, Path("/runs/p/n"))
    assert not any("WANDB_API_KEY" in {**s.env, **s.secret_env} for s in plan.services)


def test_secrets_are_not_serialised() -> None:
    secrets = load_config(env={"WANDB_API_KEY": SECRET}).secrets
    assert secrets.wandb_api_key == SECRET
    with pytest.raises(TypeError):
        pickle.dumps(secrets)
    with pytest.raises(TypeError):
        msgspec.json.encode(secrets)


def test_the_placeholder_is_not_a_secret() -> None:
    loaded = load_config(sets=["infrastructure.anthropic_api_key=sk-dummy"], env={})
    assert loaded.config.infrastructure.anthropic_api_key == "sk-dummy"
    assert loaded.secrets.anthropic_api_key == ""
    assert loaded.warnings == ()


def test_from_the_environment_without_a_warning() -> None:
    loaded = load_config(env={"WANDB_API_KEY": SECRET, "ANTHROPIC_API_KEY": "a-personal-key"})
    assert loaded.secrets.wandb_api_key == SECRET
    assert loaded.secrets.anthropic_api_key == ""
    assert loaded.warnings == ()
    assert SECRET not in repr(liverl_environment(loaded.config))


def test_on_the_command_line_everybody_can_read_it() -> None:
    loaded = load_config(sets=[f"infrastructure.anthropic_api_key={SECRET}"], env={})
    (warning,) = loaded.warnings
    assert "process list" in warning
    assert SECRET not in warning


def test_from_a_file_of_mode_0600(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    key.chmod(0o600)
    loaded = load_config(sets=[f"infrastructure.anthropic_api_key=file:{key}"], env={})
    assert loaded.secrets.anthropic_api_key == SECRET
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump_yaml(loaded.config))
    assert SECRET not in saved.read_text()
    assert load_config(saved, env={}).secrets.anthropic_api_key == SECRET
    by_name = load_config(env={"ANTHROPIC_API_KEY_FILE": "~/key", "HOME": str(tmp_path)})
    assert by_name.secrets.anthropic_api_key == SECRET
    key.unlink()
    assert load_config(saved, env={}, read_secrets=False).secrets.anthropic_api_key == ""


def test_files_that_are_refused(tmp_path: Path) -> None:
    def refused(name: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(env={"ANTHROPIC_API_KEY_FILE": name})
        assert SECRET not in str(caught.value)
        return str(caught.value)

    key = tmp_path / "key"
    key.write_text(SECRET)
    key.chmod(0o640)
    assert f"run: chmod 600 {key}" in refused(str(key))
    key.chmod(0o600)
    key.write_text(f"{SECRET} and words")
    assert "invalid key" in refused(str(key))
    key.write_bytes(b"\xff\xfe")
    assert "does not contain a key" in refused(str(key))
    assert "No such file" in refused(str(tmp_path / "missing"))
    assert "is not a file" in refused(str(tmp_path))
    assert "absolute path" in refused("key")


@pytest.mark.parametrize(
    "value", [f"[{SECRET}]", f"{{a: {SECRET}}}", f"'{SECRET} '", f'"{SECRET}\\n"', f"'{SECRET}"]
)
def test_a_message_never_repeats_a_secret(value: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"infrastructure: {{anthropic_api_key: {value}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    assert SECRET not in str(caught.value)


def test_overrides_that_look_like_secrets_are_not_saved() -> None:
    sets = ["trainer.overrides.trainer.wandb_api_key=abc", "trainer.overrides.data.pad_token=x"]
    loaded = load_config(profile="liverl-gen1", sets=sets, env={})
    assert [w for w in loaded.warnings if "looks like a secret" in w] != []
    assert redacted(loaded.config)["trainer"]["overrides"] == {"data.pad_token": "x"}


def test_a_config_that_was_given_a_secret_later_is_still_redacted() -> None:
    config = load_config(env={}).config
    section = msgspec.structs.replace(config.credentials, wandb_api_key=SECRET)
    assert SECRET not in dump_yaml(msgspec.structs.replace(config, credentials=section))


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_the_key_that_everybody_knows_is_warned_about_where_others_reach_it(host: str, warned: bool) -> None:
    sets = ["infrastructure.anthropic_api_key=sk-dummy", f"proxy.host={host}"]
    loaded = load_config(None, sets=sets, env={})
    assert any("sk-dummy" in warning and host in warning for warning in loaded.warnings) is warned
