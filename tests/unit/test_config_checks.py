"""What must hold between keys: each rule at its limit, and what it says: where, the key, found, allowed, a hint."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from kit import config_problems

from liverl.config import load_config
from liverl.config.carrier import agent_loop, carrier
from liverl.engines.vllm.tool_parsers import TOOL_PARSERS as VLLM_PARSERS

VERL, MANAGED, EMBEDDED = "liverl-gen1", "vllm-managed", "embedded"
COMMAND = ("trainer.kind=command", "trainer.command=[bash, train.sh]")


def told(profile: str, *sets: str, file: Path | None = None) -> list[list[str]]:
    """The lines of every problem, none if there is none."""
    return config_problems.told(profile, sets, file)


def keys(profile: str, *sets: str) -> set[str]:
    return {lines[0].split(": ")[1] for lines in told(profile, *sets)}


def refused(
    key: str, words: str, found: str = "", allowed: str = "", hint: str = "", where: str = "--set"
) -> list[str]:
    parts = [f"{where}: {key}: {words}"]
    parts += [f"    found:   {found}"] if found else []
    parts += [f"    allowed: {allowed}"] if allowed else []
    return parts + ([f"    {hint}"] if hint else [])


# --- what goes together ---------------------------------------------------------------------------------

TOGETHER = {
    ("managed", "embedded", "embedded"),
    ("managed", "embedded", "none"),
    ("managed", "vllm", "none"),
    ("verl", "vllm", "verl"),
    ("verl", "vllm", "command"),
    ("in_process", "vllm", "verl"),
    ("in_process", "vllm", "command"),
}


@pytest.mark.parametrize(
    ("topology", "engine", "kind"),
    list(
        itertools.product(
            ("managed", "verl", "in_process"), ("embedded", "vllm"), ("embedded", "verl", "command", "none")
        )
    ),
)
def test_topology_engine_and_trainer(topology: str, engine: str, kind: str) -> None:
    model = "builtin:hermes" if engine == "embedded" else "org/model"
    found = keys(
        EMBEDDED,
        f"run.topology={topology}",
        f"run.engine={engine}",
        f"trainer.kind={kind}",
        "trainer.command=[bash]",
        f"model.model_path={model}",
    ) & {"run.engine", "trainer.kind"}
    if engine == "embedded" and topology != "managed":
        assert found == {"run.engine"}
    else:
        assert found == (set() if (topology, engine, kind) in TOGETHER else {"trainer.kind"})


@pytest.mark.parametrize(
    ("profile", "sets", "expected"),
    [
        (
            VERL,
            ("run.engine=embedded", "model.model_path=builtin:hermes"),
            refused(
                "run.engine",
                "in topology verl, verl starts the replicas, and it supports only vLLM",
                "embedded",
                "vllm",
            ),
        ),
        (
            EMBEDDED,
            ("trainer.kind=verl",),
            refused(
                "trainer.kind",
                "not supported with topology managed and engine embedded",
                "verl",
                "embedded, none",
                "set run.topology: verl and run.engine: vllm to use this trainer",
            ),
        ),
        (
            MANAGED,
            COMMAND,
            refused(
                "trainer.kind",
                "not supported with topology managed and engine vllm",
                "command",
                "none",
                "set run.topology: verl and run.engine: vllm to use this trainer",
            ),
        ),
        (
            MANAGED,
            ("trainer.kind=embedded",),
            refused(
                "trainer.kind", "not supported with topology managed and engine vllm", "embedded", "none"
            ),
        ),
        (
            VERL,
            ("trainer.kind=none",),
            refused(
                "trainer.kind", "not supported with topology verl and engine vllm", "none", "verl, command"
            ),
        ),
        (
            VERL,
            ("trainer.kind=command",),
            refused(
                "trainer.command",
                "trainer.kind command requires trainer.command",
                "nothing",
                "a list: [bash, train.sh]",
            ),
        ),
        (
            EMBEDDED,
            ("model.model_path=org/model",),
            refused(
                "model.model_path",
                "the embedded engine can only serve its own policies",
                "'org/model'",
                "builtin:qwen3_coder, builtin:hermes, or the path of a model directory written by the embedded engine",
                "to serve a checkpoint, set run.engine: vllm (--profile vllm-managed or liverl-gen1)",
            ),
        ),
        (
            EMBEDDED,
            ("model.model_path=builtin:hermis",),
            refused(
                "model.model_path",
                "the embedded engine can only serve its own policies",
                "'builtin:hermis'",
                "builtin:qwen3_coder, builtin:hermes, or the path of a model directory written by the embedded engine",
                "did you mean hermes?",
            ),
        ),
        (
            EMBEDDED,
            ("model.model_path=hermes",),  # without its prefix it is none of them
            refused(
                "model.model_path",
                "the embedded engine can only serve its own policies",
                "'hermes'",
                "builtin:qwen3_coder, builtin:hermes, or the path of a model directory written by the embedded engine",
                "did you mean hermes?",
            ),
        ),
        (
            MANAGED,
            ("model.model_path=smoke:/d",),
            refused(
                "model.model_path",
                "only topology verl can create the smoke model, because it requires verl's environment",
                "'smoke:/d'",
                "the directory created by `liverl-tui make-smoke DIR`: DIR/model",
            ),
        ),
        (
            VERL,
            ("model.model_path=builtin:hermes",),
            refused(
                "model.model_path",
                "vLLM cannot serve a built-in policy",
                "'builtin:hermes'",
                "a checkpoint directory or a model id",
            ),
        ),
        (
            EMBEDDED,
            ("model.tool_parser=hermez",),
            refused(
                "model.tool_parser",
                "unknown parser for the embedded engine",
                "'hermez'",
                "qwen3_coder, hermes, auto",
                "did you mean hermes?",
            ),
        ),
        (
            VERL,
            ("model.tool_parser=zzz",),
            refused(
                "model.tool_parser", "unknown parser for vLLM", "'zzz'", ", ".join((*VLLM_PARSERS, "auto"))
            ),
        ),
        (
            EMBEDDED,
            ("model.served_model_name=a b",),
            refused(
                "model.served_model_name",
                "invalid name",
                "'a b'",
                "letters, digits and . _ - / : (the name is used in URLs, labels and aliases)",
            ),
        ),
        (
            EMBEDDED,
            ("training.train_batch_size=12", "training.train_prompt_mini_batch_size=5"),
            refused(
                "training.train_prompt_mini_batch_size",
                "must divide training.train_batch_size (12)",
                "5",
                "for example 4",
            ),
        ),
        (
            EMBEDDED,
            ("training.train_batch_size=4", "training.train_prompt_mini_batch_size=9"),
            refused(
                "training.train_prompt_mini_batch_size",
                "must divide training.train_batch_size (4)",
                "9",
                "for example 4",
            ),
        ),
        (
            EMBEDDED,
            ("training.train_batch_size=100000", "training.train_prompt_mini_batch_size=3"),
            refused(
                "training.train_prompt_mini_batch_size",
                "must divide training.train_batch_size (100000)",
                "3",
                "for example 2",
            ),
        ),
        (
            EMBEDDED,
            ("training.train_batch_size=100001", "training.train_prompt_mini_batch_size=12"),  # 11 * 9091
            refused(
                "training.train_prompt_mini_batch_size",
                "must divide training.train_batch_size (100001)",
                "12",
                "for example 1",
            ),
        ),
        (
            MANAGED,
            ("infrastructure.nnodes=2",),
            refused(
                "infrastructure.nnodes",
                "run.topology managed starts all replicas on this host and cannot use other hosts",
                "2",
                "1",
                "start one run on each host with proxy.host 0.0.0.0, and one HTTP proxy of your own in front of them; "
                "or set run.topology to verl or in_process, so that verl places the replicas",
            ),
        ),
        (
            MANAGED,
            ("run.replicas=3",),
            refused(
                "run.replicas",
                "3 replicas of 4 GPUs (vllm.gen_tp) need 12 GPUs",
                "infrastructure.ngpus_per_node: 8",
                "at most 2 replicas",
            ),
        ),
        (
            MANAGED,
            ("run.replicas=1", "vllm.gen_tp=9"),
            refused(
                "run.replicas",
                "1 replica of 9 GPUs (vllm.gen_tp) needs 9 GPUs",
                "infrastructure.ngpus_per_node: 8",
                "vllm.gen_tp of at most 8",
            ),
        ),
        (
            VERL,
            ("vllm.max_model_length=107999",),
            refused(
                "vllm.max_model_length",
                "training.max_prompt_length + training.max_response_length is 108000 tokens",
                "107999",
                "at least 108000",
            ),
        ),
        (
            EMBEDDED,
            ("training.total_steps=null",),
            refused(
                "training.total_steps",
                "the embedded trainer requires a number of steps",
                "null",
                "a whole number >= 1",
            ),
        ),
        (
            EMBEDDED,
            ("algorithm.clip_ratio_low=1",),
            refused("algorithm.clip_ratio_low", "wrong value", "1", "a number < 1"),
        ),
        (
            EMBEDDED,
            ("algorithm.temperature=0",),
            refused(
                "algorithm.temperature",
                "with temperature 0 all answers to a prompt are identical, so there is no learning signal",
                "0",
                "a number > 0",
            ),
        ),
        (
            EMBEDDED,
            (
                "proxy.request_timeout=99.5",
                "harbor_agent.override_timeout_sec=100",
                "harbor_agent.max_timeout_sec=300",
            ),
            refused(
                "proxy.request_timeout",
                "the proxy would end requests of trials that may still run",
                "99.5 s",
                "at least the time of a trial (harbor_agent), 100 s",
            ),
        ),
        (
            VERL,
            ("harbor_agent.environment_type=kubernetes",),
            refused(
                "harbor_agent.environment_type",
                "must be null with a Kubernetes class in environment_import_path; Harbor rejects every trial otherwise",
                "'kubernetes'",
                "null",
            ),
        ),
        (
            EMBEDDED,
            ("harbor_agent.host_path_mounts={}",),
            refused(
                "harbor_agent.host_path_mounts",
                "wrong value",
                "{}",
                "null, a list, or a string that contains a JSON list",
            ),
        ),
        (
            EMBEDDED,
            ("embedded.faults.late_replica={index: 2, seconds: 1}",),
            refused("embedded.faults.late_replica.index", "no such replica", "2", "0 to 1"),
        ),
        (
            EMBEDDED,
            ("embedded.faults.ignore_sigterm=[trainr]",),
            refused(
                "embedded.faults.ignore_sigterm",
                "no such service",
                "'trainr'",
                "trainer, replica-0, replica-1",
                "did you mean trainer?",
            ),
        ),
    ],
)
def test_what_is_refused_and_what_is_said_of_it(
    profile: str, sets: tuple[str, ...], expected: list[str]
) -> None:
    assert expected in told(profile, *sets)


@pytest.mark.parametrize(
    ("profile", "sets"),
    [
        (VERL, COMMAND),
        (EMBEDDED, ("model.model_path=/m",)),
        (EMBEDDED, ("model.model_path=./m",)),
        (EMBEDDED, ("model.model_path=../m",)),
        (EMBEDDED, ("model.model_path=~/m",)),
        (EMBEDDED, ("model.tool_parser=hermes",)),
        (MANAGED, ("model.tool_parser=xlam",)),
        (MANAGED, ("model.tool_parser=apertus",)),
        (EMBEDDED, ("training.train_batch_size=4", "training.train_prompt_mini_batch_size=4")),
        (MANAGED, ("run.replicas=2", "vllm.gen_tp=4", "infrastructure.ngpus_per_node=8")),
        (EMBEDDED, ("run.replicas=99",)),  # they need no GPUs
        (EMBEDDED, ("infrastructure.nnodes=2",)),  # nothing uses it, which is said
        (VERL, ("run.replicas=99",)),  # verl decides
        (VERL, ("vllm.max_model_length=108000",)),
        (EMBEDDED, ("vllm.max_model_length=1",)),
        (MANAGED, ("vllm.max_model_length=1",)),
        (EMBEDDED, ("training.total_steps=1",)),
        (VERL, ("training.total_steps=null",)),
        (EMBEDDED, ("algorithm.clip_ratio_low=0.999",)),
        (EMBEDDED, ("algorithm.temperature=0.01",)),
        (EMBEDDED, ("trainer.kind=none", "algorithm.temperature=0")),
        (VERL, (*COMMAND, "algorithm.temperature=0")),
        (
            EMBEDDED,
            (
                "proxy.request_timeout=100",
                "harbor_agent.override_timeout_sec=100",
                "harbor_agent.max_timeout_sec=300",
            ),
        ),
        (EMBEDDED, ("proxy.request_timeout=1", "trainer.kind=none")),
        (VERL, ("harbor_agent.environment_type=null",)),
        (VERL, ("harbor_agent.environment_type=docker", "harbor_agent.environment_import_path=null")),
        (VERL, ("harbor_agent.environment_type=docker", "harbor_agent.environment_import_path=a:B")),
        (
            EMBEDDED,
            ("harbor_agent.environment_type=docker", "harbor_agent.environment_import_path=kubernetes:K"),
        ),
        (EMBEDDED, ("harbor_agent.host_path_mounts=null",)),
        (EMBEDDED, ("harbor_agent.host_path_mounts=''",)),
        (EMBEDDED, ("harbor_agent.host_path_mounts=[{a: b}]",)),
        (EMBEDDED, ("harbor_agent.host_path_mounts='[1]'",)),
        (EMBEDDED, ("embedded.faults.late_replica={index: 1, seconds: 1}",)),
        (EMBEDDED, ("embedded.faults.late_replica={index: 9, seconds: 0}",)),  # it is off
        (EMBEDDED, ("embedded.faults.ignore_sigterm=[trainer, replica-0, replica-1]",)),
        (EMBEDDED, ("run.name=" + "a" * 128,)),
        (EMBEDDED, ("run.name=A_1.b-c", "experiment.exp_name=9")),
        (EMBEDDED, ("model.served_model_name=9a._/:-",)),
        (EMBEDDED, ("model.served_model_name=" + "a" * 128,)),
    ],
)
def test_what_is_just_within_its_limit(profile: str, sets: tuple[str, ...]) -> None:
    assert told(profile, *sets) == []


@pytest.mark.parametrize(
    ("profile", "sets", "key"),
    [
        (EMBEDDED, ("model.model_path=m/x",), "model.model_path"),
        (EMBEDDED, ("model.model_path=.m",), "model.model_path"),
        (EMBEDDED, ("model.model_path='smoke:'",), "model.model_path"),
        (MANAGED, ("model.tool_parser=qwen3",), "model.tool_parser"),
        (EMBEDDED, ("model.tool_parser=xlam",), "model.tool_parser"),
        (EMBEDDED, ("model.served_model_name=" + "a" * 129,), "model.served_model_name"),
        (EMBEDDED, ("model.served_model_name=-a",), "model.served_model_name"),
        (EMBEDDED, ("model.served_model_name=os.environ/LITELLM_MASTER_KEY",), "model.served_model_name"),
        (MANAGED, ("model.model_path=--trust-remote-code",), "model.model_path"),
        (MANAGED, ("vllm.dtype=-x",), "vllm.dtype"),
        (VERL, ("model.model_path=--trust-remote-code",), "model.model_path"),
        (EMBEDDED, ("algorithm.clip_ratio_low=1.001",), "algorithm.clip_ratio_low"),
        (VERL, ("algorithm.temperature=0",), "algorithm.temperature"),
        (VERL, ("proxy.request_timeout=2399",), "proxy.request_timeout"),
        (VERL, (*COMMAND, "proxy.request_timeout=2399"), "proxy.request_timeout"),
        # the shorter one of the two limits of a trial counts
        (
            EMBEDDED,
            (
                "proxy.request_timeout=99",
                "harbor_agent.override_timeout_sec=300",
                "harbor_agent.max_timeout_sec=100",
            ),
            "proxy.request_timeout",
        ),
        (EMBEDDED, ("harbor_agent.host_path_mounts='{'",), "harbor_agent.host_path_mounts"),
        (EMBEDDED, ("harbor_agent.host_path_mounts=1",), "harbor_agent.host_path_mounts"),
        (EMBEDDED, ("harbor_agent.host_path_mounts='" + "[" * 5000 + "'",), "harbor_agent.host_path_mounts"),
        (EMBEDDED, ("harbor_agent.host_path_mounts=false",), "harbor_agent.host_path_mounts"),
        (EMBEDDED, ("embedded.faults.ignore_sigterm=[replica-2]",), "embedded.faults.ignore_sigterm"),
        (
            EMBEDDED,
            ("run.replicas=2000", "embedded.faults.ignore_sigterm=[replica-1000]"),
            "embedded.faults.ignore_sigterm",
        ),
        (EMBEDDED, ("run.name=" + "a" * 129,), "run.name"),
        (EMBEDDED, ("run.name=_a",), "run.name"),
        (EMBEDDED, ("experiment.exp_name=a/b",), "experiment.exp_name"),
        (EMBEDDED, ("experiment.project_name=.",), "experiment.project_name"),
        (VERL, ("run.topology=in_process", "vllm.max_model_length=107999"), "vllm.max_model_length"),
        (
            VERL,
            ("run.topology=in_process", "harbor_agent.environment_type=docker"),
            "harbor_agent.environment_type",
        ),
    ],
)
def test_what_is_just_beyond_its_limit(profile: str, sets: tuple[str, ...], key: str) -> None:
    assert keys(profile, *sets) == {key}


def test_names_that_become_directories() -> None:
    allowed = "one path component: letters, digits and . _ -, at most 128, the first a letter or a digit"
    sets = ("run.name=a b", "experiment.exp_name=.", "experiment.project_name=../x")
    assert told(EMBEDDED, *sets) == [
        refused("experiment.project_name", "invalid directory name", "'../x'", allowed),
        refused("experiment.exp_name", "invalid directory name", "'.'", allowed),
        refused("run.name", "invalid directory name", "'a b'", allowed),
    ]


def test_a_long_value_is_shown_in_part() -> None:
    (lines,) = told(EMBEDDED, "harbor_agent.host_path_mounts='" + "x" * 500 + "'")
    assert lines[1] == "    found:   '" + "x" * 79


def test_services_are_listed_up_to_nine() -> None:
    (lines,) = told(EMBEDDED, "run.replicas=20", "embedded.faults.ignore_sigterm=[zzz]")
    names = ", ".join(["trainer", *(f"replica-{n}" for n in range(8))])
    assert lines[1:] == ["    found:   'zzz'", f"    allowed: {names}"]


def test_the_parsers_of_vllm() -> None:
    """Those that vLLM 0.24 and later list; a mistyped one would refuse a working configuration."""
    assert len(VLLM_PARSERS) == len(set(VLLM_PARSERS)) == 54
    assert {"hermes", "qwen3_coder", "qwen3_xml", "openai", "mistral", "llama3_json", "glm47"} < set(
        VLLM_PARSERS
    )


# --- which line is to blame -----------------------------------------------------------------------------


def blamed(tmp_path: Path, text: str, *sets: str, profile: str = EMBEDDED) -> list[str]:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return [lines[0].replace(str(file), "c.yaml") for lines in told(profile, *sets, file=file)]


DIVIDE = "training.train_prompt_mini_batch_size: must divide training.train_batch_size"


def test_the_key_itself_is_to_blame_where_somebody_set_it(tmp_path: Path) -> None:
    both = "training:\n  train_batch_size: 9\n  train_prompt_mini_batch_size: 4\n"
    assert blamed(tmp_path, both) == [f"c.yaml:3:33: {DIVIDE} (9)"]


def test_a_default_is_not_to_blame_where_another_key_was_set(tmp_path: Path) -> None:
    assert blamed(tmp_path, "training:\n  train_batch_size: 9\n") == [f"c.yaml:2:21: {DIVIDE} (9)"]
    # of several, the first that the rule reads
    text = "training:\n  max_response_length: 90000\n  max_prompt_length: 90000\n"
    (line,) = blamed(tmp_path, text, profile=VERL)
    assert line.startswith("c.yaml:3:22: vllm.max_model_length: ")


def test_a_rule_whose_key_has_a_bad_value_is_left_out(tmp_path: Path) -> None:
    text = "training:\n  train_batch_size: x\n  train_prompt_mini_batch_size: 3\nrun: {name: a b}\n"
    first, second = blamed(tmp_path, text)
    assert first == "c.yaml:2:21: training.train_batch_size: wrong value"
    assert second.startswith("c.yaml:4:13: run.name: invalid directory name")


def test_the_override_that_is_wrong_is_to_blame_and_no_other(tmp_path: Path) -> None:
    text = "trainer:\n  overrides:\n    a.b: 1\n    +trainer.nnodes: two\n    c: 3\n"
    words = "trainer.overrides.trainer.nnodes: this override determines the size of the run"
    assert blamed(tmp_path, text, profile=VERL) == [f"c.yaml:4:22: {words}"]


def test_the_environment_that_is_wrong_is_to_blame_and_no_other(tmp_path: Path) -> None:
    text = (
        "environments:\n  first: {venv_path: /a}\n  v1.2: {python: '3.12'}\n  third: {venv_path: /c}\n"
        "  fourth: {venv_path: /c, index_url: 'http://u:p@h/'}\n"
    )
    first, second = blamed(tmp_path, text)
    words = "environments.v1.2.requirements: an environment requires venv_path or requirements"
    assert first == f"c.yaml:3:18: {words}"
    assert second.startswith("c.yaml:5:38: environments.fourth.index_url: a URL that contains a password")


# --- overrides that look like secrets -------------------------------------------------------------------


def test_an_override_that_looks_like_a_secret_is_warned_about() -> None:
    def warned(name: str, value: str = "abc") -> list[str]:
        loaded = load_config(profile=VERL, sets=[f"trainer.overrides.{name}={value}"], env={})
        return [text for text in loaded.warnings if "secret" in text]

    expected = (
        "--set: trainer.overrides.a.api_key looks like a secret and is not saved; set it in an "
        "environment variable"
    )
    assert warned("a.api_key") == [expected]
    assert warned("a.b") == [] and warned("a.api_key", "null") == [] and warned("data.max_tokens") == []


def test_sessions_carry_trials_wherever_the_run_starts_what_carries_them() -> None:
    through = "proxy.trials_through=sessions"
    words = "your launch script starts what carries the trials"
    assert told(VERL, *COMMAND, through) == [refused("proxy.trials_through", words, "sessions", "auto")]
    for profile in (MANAGED, EMBEDDED, VERL):
        assert told(profile, through) == told(profile, "proxy.trials_through=litellm") == []
    inside = (VERL, "run.topology=in_process")
    assert told(*inside, through) == told(*inside) == []
    assert keys(*inside, "proxy.trials_through=litellm") == {"proxy.trials_through"}


def test_an_agent_loop_against_what_carries_the_trials_is_refused_with_both() -> None:
    loop, through = "verl.agent_loop", "proxy.trials_through"
    words = "this agent loop needs proxy.trials_through {}, but proxy.trials_through is {}"
    assert told(VERL, f"{loop}=liverl_proxy", f"{through}=sessions") == [
        refused(loop, words.format("litellm", "sessions"), "liverl_proxy", "auto or liverl_session")
    ]
    assert told(VERL, f"{loop}=liverl_session", f"{through}=litellm") == [
        refused(loop, words.format("sessions", "litellm"), "liverl_session", "auto or liverl_proxy")
    ]
    inside = "this agent loop needs proxy.trials_through litellm, but run.topology is in_process"
    assert told(VERL, "run.topology=in_process", f"{loop}=liverl_proxy") == [
        refused(loop, inside, "liverl_proxy", "auto or liverl_session")
    ]
    for fits in ("liverl_proxy", "liverl_session", "auto", "tool_agent", "mine"):
        assert told(VERL, f"{loop}={fits}") == []
    assert told(VERL, f"{loop}=tool_agent", f"{through}=sessions") == []


@pytest.mark.parametrize(
    ("profile", "sets", "through", "loop"),
    [
        (EMBEDDED, (), "litellm", None),
        (EMBEDDED, ("proxy.trials_through=sessions",), "sessions", None),
        (VERL, (), "sessions", "liverl_session"),
        (VERL, ("proxy.trials_through=litellm",), "litellm", "liverl_proxy"),
        (VERL, ("verl.agent_loop=liverl_proxy",), "litellm", "liverl_proxy"),
        (VERL, ("verl.agent_loop=tool_agent",), "litellm", "tool_agent"),
        (VERL, ("verl.rollout_mode=standalone", "verl.rollout_gpus=4"), "sessions", "liverl_session"),
        (
            VERL,
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=4", "proxy.trials_through=litellm"),
            "litellm",
            "liverl_proxy",
        ),
        (VERL, ("run.topology=in_process", "verl.rollout_mode=standalone", "verl.rollout_gpus=4"), "sessions",
         "liverl_session"),
        (VERL, COMMAND, "litellm", None),
    ],
)  # fmt: skip
def test_what_carries_the_trials(profile: str, sets: tuple[str, ...], through: str, loop: str | None) -> None:
    config = load_config(profile=profile, sets=sets, env={}).config
    assert carrier(config) == through
    if loop is not None:
        assert agent_loop(config) == loop


def test_sessions_and_litellm_have_ports_of_their_own() -> None:
    same = ("session_proxy.port=8002", "infrastructure.litellm_port=8002")
    assert keys(EMBEDDED, *same, "proxy.trials_through=sessions") == {"session_proxy.port"}
    assert keys(EMBEDDED, *same) == set(), "there are none"
    anyone = ("session_proxy.port=0", "infrastructure.litellm_port=0", "proxy.trials_through=sessions")
    assert keys(EMBEDDED, *anyone) == set()


LISTENING = (
    ("managed", "infrastructure.litellm_port", "observe.metrics_port", True),
    ("managed", "infrastructure.ray_port", "observe.metrics_port", False),  # it starts no Ray
    ("verl", "infrastructure.ray_port", "infrastructure.ray_dashboard_port", True),
    ("verl", "infrastructure.ray_port", "observe.metrics_port", True),
    ("verl", "infrastructure.ray_dashboard_port", "observe.metrics_port", True),
    ("verl", "infrastructure.ray_port", "session_proxy.port", True),
)


@pytest.mark.parametrize(("topology", "first", "second", "collide"), LISTENING)
def test_what_the_run_itself_starts_listens_on_ports_of_its_own(
    topology: str, first: str, second: str, collide: bool
) -> None:
    """Two of them with one number passed every check, and the second one could not start."""
    base = EMBEDDED if topology == "managed" else VERL
    through = "proxy.trials_through=auto"
    before = keys(base, through)
    assert before == keys(base, through, f"{first}=7011", f"{second}=7012")
    added = keys(base, through, f"{first}=7011", f"{second}=7011") - before
    assert added == ({second} if collide else set())
    if second != "observe.metrics_port":  # there 0 is none
        assert keys(base, through, f"{first}=0", f"{second}=0") == before


@pytest.mark.parametrize(
    "setting",
    [
        "session_proxy.rewrite=zero",
        "session_proxy.scheduler.poll=4.9",
        "session_proxy.scheduler.high_watermark=0",
        "session_proxy.scheduler.hit_threshold=1.1",
        "session_proxy.scheduler.idle_grace=-1",
    ],
)
def test_values_that_sessions_do_not_know_are_refused(setting: str) -> None:
    assert keys(EMBEDDED, setting, "proxy.trials_through=sessions") == {setting.partition("=")[0]}


@pytest.mark.parametrize(
    ("profile", "sets", "found"),
    [
        (VERL, ("algorithm.temperature=0.7",), {"session_proxy.rewrite"}),
        (VERL, ("algorithm.temperature=0.7", "run.topology=in_process"), {"session_proxy.rewrite"}),
        (VERL, ("algorithm.temperature=1",), set()),
        (VERL, ("algorithm.temperature=1", "run.topology=in_process"), set()),
        (VERL, ("algorithm.temperature=0.7", "proxy.trials_through=litellm"), set()),
        (EMBEDDED, ("algorithm.temperature=0.7",), set()),
        (EMBEDDED, ("algorithm.temperature=0.7", "proxy.trials_through=sessions"), {"session_proxy.rewrite"}),
    ],
)
def test_log_probabilities_of_a_prompt_are_those_of_temperature_1(profile, sets, found) -> None:
    assert keys(profile, *sets, "session_proxy.rewrite=recompute") == found
    assert keys(profile, *sets, "session_proxy.rewrite=mask") == set()


def test_recompute_at_another_temperature_says_both_keys() -> None:
    (lines,) = told(VERL, "session_proxy.rewrite=recompute", "algorithm.temperature=0.7")
    text = "\n".join(lines)
    assert "session_proxy.rewrite" in text and "algorithm.temperature, which is 0.7" in text
    assert "split or mask" in text and "recompute: algorithm.temperature 1" in text


@pytest.mark.parametrize("host", ["", "node-1.cluster", "10.0.0.5", "fd00::5", "n"])
def test_hosts_that_agents_may_be_told(host: str) -> None:
    assert keys(EMBEDDED, f"proxy.advertise='{host}'", "proxy.trials_through=sessions") == set()


@pytest.mark.parametrize("host", ["http://h", "h:80", "0.0.0.0", "::", "a b", "h/", "-h", "[fd00::5]"])
def test_hosts_that_agents_cannot_reach(host: str) -> None:
    assert keys(EMBEDDED, f"proxy.advertise='{host}'") == {"proxy.advertise"}


@pytest.mark.parametrize(
    ("profile", "sets", "place", "beside", "patch"),
    [
        ("cpu-verl", ("training.train_batch_size=3",), "profile cpu-verl:", "training.train_batch_size",
         {"training.train_prompt_mini_batch_size": "3"}),
        ("cpu-verl", ("vllm.gen_tp=3",), "--set:", "", {"vllm.gen_tp": "1"}),
        (EMBEDDED, ("training.train_batch_size=3",), "--set:", "training.train_batch_size",
         {"training.train_prompt_mini_batch_size": "1"}),
        (MANAGED, ("run.replicas=3",), "--set:", "", {"run.replicas": "2"}),
        (VERL, ("vllm.max_model_length=107999",), "--set:", "", {"vllm.max_model_length": "108000"}),
        (EMBEDDED, ("trainer.kind=verl",), "--set:", "", {}),
        (EMBEDDED, ("training.total_steps=null",), "--set:", "", {}),
    ],
)  # fmt: skip
def test_a_number_that_mends_it_is_named_and_each_value_is_blamed_where_it_stands(
    profile: str, sets: tuple[str, ...], place: str, beside: str, patch: dict[str, str]
) -> None:
    errors = config_problems.problems(profile, sets)
    assert errors is not None
    (problem,) = errors.problems
    lines = problem.lines()
    assert lines[0].startswith(place) and problem.patch == patch
    fixes = [line.split(maxsplit=1)[1] for line in lines if line.startswith("    fix: ")]
    assert fixes == ([" ".join(f"--set {key}={value}" for key, value in patch.items())] if patch else [])
    assert (f"    you set: {beside} (--set)" in lines) == bool(beside)
    assert len(config_problems.told(profile, sets)) == 1, "its fix was tried"
