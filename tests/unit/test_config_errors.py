"""What a user is told about a configuration that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.config import ConfigError, load_config


def problems(text: str | bytes, tmp_path: Path, **options: object) -> ConfigError:
    path = tmp_path / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={}, **options)  # type: ignore[arg-type]
    return caught.value


def only(text: str | bytes, tmp_path: Path, **options: object) -> list[str]:
    (problem,) = problems(text, tmp_path, **options).problems
    return [line.replace(str(tmp_path / "c.yaml"), "c.yaml") for line in problem.lines()]


def test_all_problems_at_once_with_their_places(tmp_path: Path) -> None:
    text = (
        "run:\n"
        "  replicas: none\n"
        "  topologie: verl\n"
        "infrastructure: {litellm_port: 80000}\n"
        "model: {tool_parser: hermez}\n"
        "training: {train_batch_size: 4, train_prompt_mini_batch_size: 3}\n"
    )
    error = problems(text, tmp_path, sets=["algorithm.learning_rate=fast"])
    assert [(p.where.line, p.where.column, p.key) for p in error.problems] == [
        (2, 13, "run.replicas"),
        (3, 3, "run.topologie"),
        (4, 32, "infrastructure.litellm_port"),
        (None, None, "algorithm.learning_rate"),
        (5, 22, "model.tool_parser"),
        (6, 63, "training.train_prompt_mini_batch_size"),
    ]
    words = str(error)
    assert words.startswith("6 problems in the configuration:\n")
    assert "did you mean run.topology?" in words
    assert "a whole number from 0 to 65535" in words
    assert "did you mean hermes?" in words
    assert "--set: algorithm.learning_rate: wrong value" in words
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("trainning: {}", "the section training"),
        ("rewards: {function: a.py:f}", "the section reward"),
        ("rewards: {functon: a.py:f}", "the section reward"),
        ("rewards: 1", "the section reward"),
        ("reward: {functon: a.py:f}", "reward.function"),
        ("models: {model_path: x}", "the section model"),
        ("run: {Replicas: 1}", "run.replicas"),
        ("run: {litellm_port: 1}", "infrastructure.litellm_port"),
        ("litellm-port: 1", "infrastructure.litellm_port"),
        ("harbor_agent: {max_iteration: 1}", "harbor_agent.max_iterations"),
        ("embedded: {faults: {crash_on_step: 1}}", "embedded.faults.crash_at_step"),
        ("environments: {proxy: {requirement: [x]}}", "environments.proxy.requirements"),
        ("runtime_info: {inputs: {}}", "input"),
        ("runtime_info: {input: {modell: {}}}", "the section model"),
    ],
)
def test_the_nearest_name(text: str, meant: str, tmp_path: Path) -> None:
    options = {"profile": "embedded"}
    assert f"    did you mean {meant}?" in only(text, tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\tmodel: {}\n", "c.yaml:1:1: not valid YAML"),
        ("model:\n\tx: 1\n", "c.yaml:2:1: not valid YAML"),
        ("model: a: b\n", "c.yaml:1:9: not valid YAML"),
        ("model: {\n\n", "not valid YAML"),
        ("- 1\n", "c.yaml:1:1: the file is not a liverl configuration"),
        ("word\n", "c.yaml:1:1: the file is not a liverl configuration"),
        ("run: {}\n---\nrun: {}\n", "c.yaml:2:1: the file has a second document"),
        ("run: {seed: 1, seed: 2}\n", "c.yaml:1:16: seed: given twice"),
        ("run: {seed: 1}\nruntime_info: {input: {run: {seed: 2}}}\n", "c.yaml:2:36: run.seed: given twice"),
        ("run: {[a]: 1}\n", "a key must be a word"),
        ("run: !!python/object:os.system {}\n", "is not supported"),
        ("run: &a [*a]\n", "alias *a"),
        ("run: {seed: \x07}\n", "control character"),
        (b"# gr\xfcn\nrun: {}\n", "c.yaml:1:5: the file is not UTF-8"),
        ("run: " + "[" * 5000, "nested more than"),
        ("run: [1]\n", "c.yaml:1:6: run: wrong value"),
        ("run: {seed: [1]}\n", "run.seed: wrong value"),
        ("run: {seed: null}\n", "run.seed: wrong value"),
        ("run: {seed: 0x1F}\n", "run.seed: wrong value"),
        ("run: {seed: 1:30}\n", "run.seed: wrong value"),
        ("run: {seed: 0600}\n", "run.seed: wrong value"),
        ("run: {seed: 1.0}\n", "run.seed: wrong value"),
        ("run: {seed: true}\n", "run.seed: wrong value"),
        ("run: {seed: 99999999999999999999999}\n", "run.seed: wrong value"),
        ("run: {topology: Managed}\n", "run.topology: wrong value"),
        ("ui: {mouse: 1}\n", "ui.mouse: wrong value"),
        ("session_proxy: {processes: 0}\n", "session_proxy.processes: wrong value"),
        ("session_proxy: {processes: many}\n", "session_proxy.processes: wrong value"),
        ("session_proxy: {processes: null}\n", "session_proxy.processes: wrong value"),
        ("algorithm: {temperature: .nan}\n", "algorithm.temperature: wrong value"),
        ("algorithm: {learning_rate: 1e999}\n", "algorithm.learning_rate: wrong value"),
        ("algorithm: {clip_ratio_low: 1.5}\n", "algorithm.clip_ratio_low: wrong value"),
        ("vllm: {gpu_memory_utilization: 85}\n", "vllm.gpu_memory_utilization: wrong value"),
        ("trainer: {command: bash x.sh}\n", "trainer.command: wrong value"),
        ("trainer: {command: [bash, {a: 1}]}\n", "c.yaml:1:27: trainer.command: wrong value"),
        ("experiment: {project_name: ../x}\n", "experiment.project_name: invalid directory name"),
        ("experiment: {project_name: ''}\n", "experiment.project_name: wrong value"),
        ("run: {name: .hidden}\n", "run.name: invalid directory name"),
        ('run: {name: "a\\nb"}\n', "run.name: wrong value"),
        ("trainer: {kind: verl}\n", "trainer.kind: not supported with topology managed"),
        ("run: {topology: verl}\ntrainer: {kind: verl}\n", "run.engine: in topology verl"),
        ("model: {model_path: Qwen/Qwen3-0.6B}\n", "the embedded engine can only serve its own policies"),
        ("model: {model_path: 'builtin:nix'}\n", "the embedded engine can only serve its own policies"),
        (
            "training: {total_steps: null}\n",
            "training.total_steps: the embedded trainer requires a number of steps",
        ),
        ("proxy: {request_timeout: 10}\n", "proxy.request_timeout: the proxy would end requests"),
        ("embedded: {faults: {late_replica: {index: 2, seconds: 1}}}\n", "no such replica"),
        ("embedded: {faults: {ignore_sigterm: [trainr]}}\n", "no such service"),
        ("environments: {x: {python: '3.12'}}\n", "an environment requires venv_path or requirements"),
        (
            "environments: {proxy: {venv_path: self}}\n",
            "environments.proxy.venv_path: LiteLLM cannot share an environment",
        ),
        ("harbor_agent: {host_path_mounts: '{}'}\n", "harbor_agent.host_path_mounts: wrong value"),
        ("model: {served_model_name: 'a b'}\n", "model.served_model_name: invalid name"),
    ],
)
def test_one_problem_each(text: str | bytes, expected: str, tmp_path: Path) -> None:
    assert expected in only(text, tmp_path)[0]


@pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("'auto'", "auto"), ("1", 1), ("64", 64)])
def test_a_number_may_have_a_word_in_its_place(text: str, value: object, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"session_proxy: {{processes: {text}}}\n")
    assert load_config(file, env={}).config.session_proxy.processes == value
    words = only("session_proxy: {processes: 65}\n", tmp_path)
    assert "a whole number from 1 to 64 or auto" in "\n".join(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trainer: {kind: command}", "trainer.command: trainer.kind command requires trainer.command"),
        ("vllm: {gen_tp: 3}", "vllm.gen_tp: must divide the GPUs of the run (8)"),
        ("training: {sp_size: 16}", "training.sp_size: must divide the GPUs of the trainer (8)"),
        (
            "training: {n_resp_per_prompt: 1, train_batch_size: 4, train_prompt_mini_batch_size: 4}",
            "multiple of",
        ),
        ("training: {max_response_length: 90000}", "vllm.max_model_length: training.max_prompt_length + "),
        ("infrastructure: {ray_port: 8002}", "infrastructure.litellm_port: the same port as"),
        (
            "infrastructure: {ray_dashboard_port: 0}\ntrainer: {kind: command, command: [x]}",
            "ray_dashboard_port: 0 (any free port) works only for services that the run starts",
        ),
        (
            "harbor_agent: {environment_type: kubernetes}",
            "must be null with a Kubernetes class in environment_import_path",
        ),
        ("model: {tool_parser: qwen_3}", "unknown parser for vLLM"),
        ("model: {model_path: 'builtin:hermes'}", "vLLM cannot serve a built-in policy"),
    ],
)
def test_rules_of_the_verl_topology(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in only(text, tmp_path, profile="liverl-gen1")[0]


def test_an_embedded_trainer_for_verl(tmp_path: Path) -> None:
    keys = [p.key for p in problems("trainer: {kind: embedded}", tmp_path, profile="liverl-gen1").problems]
    assert keys == ["trainer.kind", "training.total_steps"]


def test_gpus_of_managed_replicas(tmp_path: Path) -> None:
    lines = only("run: {replicas: 3}", tmp_path, profile="vllm-managed")
    assert "3 replicas of 4 GPUs (vllm.gen_tp) need 12 GPUs" in lines[0]
    assert "    allowed: at most 2 replicas" in lines


def test_the_places_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            sets=["run.sed=1", "nothing", "run=[1]", "run.seed.x=1", "trainer.command=[", "=1"],
            env={"LIVERL_RUN__SEED": "x", "NNODES": "two", "LIVERL_NO__KEY": "1"},
        )
    sources = [p.where.exact for p in caught.value.problems]
    assert sources == ["env NNODES", "env LIVERL_NO__KEY", "env LIVERL_RUN__SEED", *["--set"] * 6]
    assert "did you mean run.seed?" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    for path, words in [
        (tmp_path / "missing.yaml", "No such file"),
        (tmp_path, "did you mean"),
        (Path("/dev/zero"), "a character device"),
        (Path("a\0b"), "cannot read the file"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load_config(path, env={})
    if os.geteuid() != 0:
        locked = tmp_path / "locked.yaml"
        locked.touch(mode=0o000)
        with pytest.raises(ConfigError, match="Permission denied"):
            load_config(locked, env={})


def test_an_unknown_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(profile="hermis", env={})
    assert "did you mean hermes?" in str(caught.value)
    assert "vllm-managed" in str(caught.value)


def test_few_lines_cannot_become_gigabytes(tmp_path: Path) -> None:
    rows = ["meta_info:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases" in only("\n".join(rows), tmp_path)[0]


def test_what_a_user_wrote_cannot_drive_the_terminal(tmp_path: Path) -> None:
    text = str(problems('"\\e[31mred": 1\n', tmp_path))
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text


@pytest.mark.parametrize(
    ("key", "meant"), [("lr", "algorithm.learning_rate"), ("LR", "algorithm.learning_rate"), ("zz", None)]
)
def test_an_abbreviated_key_is_understood_and_the_sections_are_where_a_user_finds_them(
    key: str, meant: str | None
) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, sets=[f"{key}=1"], env={})
    text = str(error.value)
    assert "sections: liverl-tui config prints them" in text and "default.yaml" not in text
    assert (f"did you mean {meant}?" in text) if meant else ("did you mean" not in text)
