"""The size of a run of topology verl, counted by hand, and the rules that hang on it, each at its limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit import config_problems

from liverl.config import ConfigError, RunConfig, load_config, sizing
from liverl.config.checks.verl import holds_secret
from liverl.config.sizing import SizeError
from liverl.plan import make_plan

VERL = "liverl-gen1"  # one host with 8 GPUs, replicas of 4
COMMAND = ("trainer.kind=command", "trainer.command=[bash, train.sh]")
ROLLOUT = "actor_rollout_ref.rollout"
SPLIT = f"{ROLLOUT}.disaggregation"


def overrides(**values: Any) -> str:
    return "trainer.overrides=" + json.dumps(values)


def told(*sets: str, profile: str = VERL) -> list[list[str]]:
    """The lines of every problem, none if there is none."""
    return config_problems.told(profile, sets)


def keys(*sets: str, profile: str = VERL) -> list[str]:
    return [lines[0].split(": ")[1] for lines in told(*sets, profile=profile)]


def refused(key: str, words: str, found: str, allowed: str = "", hint: str = "") -> list[str]:
    parts = [f"--set: {key}: {words}", f"    found:   {found}"]
    parts += [f"    allowed: {allowed}"] if allowed else []
    return parts + ([f"    {hint}"] if hint else [])


def config(*sets: str, profile: str = VERL, **over: Any) -> RunConfig:
    """A configuration with these overrides, whether it makes sense or not."""
    loaded = load_config(profile=profile, sets=sets, env={}).config
    from msgspec.structs import replace

    return replace(loaded, trainer=replace(loaded.trainer, overrides=over))


# --- how large a run is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "trainer", "pool", "replica", "count"),
    [
        ({}, 8, 0, 4, 2),
        ({"trainer.nnodes": 3}, 24, 0, 4, 6),
        ({"trainer.nnodes": "3"}, 24, 0, 4, 6),
        ({"++trainer.n_gpus_per_node": 6}, 6, 0, 4, 1),
        ({"~trainer.n_gpus_per_node": 6}, 6, 0, 4, 1),
        ({f"{ROLLOUT}.nnodes": 2, f"{ROLLOUT}.n_gpus_per_node": 3}, 8, 0, 4, 2),  # hybrid has no pool
        ({f"{ROLLOUT}.tensor_model_parallel_size": 2}, 8, 0, 2, 4),
        ({f"{ROLLOUT}.tensor_model_parallel_size": 2, f"{ROLLOUT}.data_parallel_size": 3}, 8, 0, 6, 1),
        ({f"{SPLIT}.enabled": True}, 8, 0, 8, 1),  # one side of each kind, of 4 GPUs each
        ({f"{SPLIT}.enabled": "TRUE"}, 8, 0, 8, 1),
        ({f"{SPLIT}.enabled": False, f"{SPLIT}.decode_replicas": 3}, 8, 0, 4, 2),
        ({f"{SPLIT}.decode_replicas": 3}, 8, 0, 4, 2),
        # 2 x 4 to prefill and 3 x 1 to decode, that twice
        (
            {
                f"{SPLIT}.enabled": True,
                f"{SPLIT}.prefill_replicas": 2,
                f"{SPLIT}.decode_replicas": 3,
                f"{SPLIT}.decode_tensor_model_parallel_size": 1,
                f"{ROLLOUT}.data_parallel_size": 2,
            },
            8,
            0,
            22,
            0,
        ),
        ({f"{ROLLOUT}.tensor_model_parallel_size": 3}, 8, 0, 3, 2),  # whole ones
        ({f"{ROLLOUT}.data_parallel_size": 0}, 8, 0, 0, 8),  # nonsense is not divided by
    ],
)
def test_gpus_and_replicas(over: dict[str, Any], trainer: int, pool: int, replica: int, count: int) -> None:
    c = config(**over)
    assert (sizing.trainer_gpus(c), sizing.pool_gpus(c), sizing.replica_gpus(c)) == (trainer, pool, replica)
    assert sizing.expected_replicas(c) == count
    assert sizing.generating_gpus(c) == trainer


def test_a_pool_of_its_own() -> None:
    sets = (
        "verl.rollout_mode=standalone",
        "verl.rollout_gpus=2",
        "infrastructure.nnodes=3",
        "run.topology=in_process",
        "ray.address=h:1",
    )
    c = config(
        *sets,
        "vllm.gen_tp=2",
        "training.sp_size=2",
        "training.train_batch_size=18",
        "training.train_prompt_mini_batch_size=18",
    )
    assert (sizing.trainer_gpus(c), sizing.pool_gpus(c), sizing.generating_gpus(c)) == (3 * 6, 3 * 2, 6)
    assert sizing.expected_replicas(c) == 3
    assert sizing.cpus_needed(c) == 1 + 8 + 1 + 3 * (18 + 6)
    from msgspec.structs import replace

    over = {f"{ROLLOUT}.nnodes": 1, f"{ROLLOUT}.n_gpus_per_node": 4, "trainer.n_gpus_per_node": 5}
    other = replace(c, trainer=replace(c.trainer, overrides=over))
    assert (sizing.trainer_gpus(other), sizing.pool_gpus(other)) == (15, 4)


def test_cpus_that_ray_must_have() -> None:
    assert sizing.storage_units(config()) == 8
    assert sizing.cpus_needed(config()) == 1 + 8 + 1 + 3 * 8
    assert sizing.storage_units(config(profile="cpu-verl")) == 1
    assert sizing.storage_units(config(profile="cpu-verl", **{sizing.UNITS_KEY: 5})) == 5
    assert sizing.cpus_needed(config(**{sizing.UNITS_KEY: 2, "trainer.n_gpus_per_node": 1})) == 1 + 2 + 1 + 3


def test_an_override_that_is_no_number() -> None:
    with pytest.raises(SizeError, match=r"^trainer.nnodes: 'two' is not a whole number$") as caught:
        sizing.trainer_gpus(config(**{"+trainer.nnodes": "two"}))
    assert (caught.value.key, caught.value.value) == ("trainer.nnodes", "two")
    with pytest.raises(SizeError):
        sizing.trainer_gpus(config(**{"trainer.nnodes": 1.5}))
    assert sizing.trainer_gpus(config(**{"trainer.nnodes": None})) == 8


def test_names_of_overrides() -> None:
    assert [sizing.bare_key(k) for k in ("a.b", "+a.b", "++a.b", "~a.b")] == ["a.b"] * 4
    c = config(**{"+a.b": 1, "c": 0})
    assert (sizing.override(c, "a.b"), sizing.override(c, "c"), sizing.override(c, "b")) == (1, 0, None)


def test_files_of_the_smoke_run_and_of_others() -> None:
    smoke = config(profile="cpu-verl")
    assert sizing.is_smoke(smoke) and not sizing.is_smoke(config())
    assert (sizing.train_file(config()), sizing.val_file(config())) == ("", "")
    assert sizing.model_path(config()) == "Qwen/Qwen3-30B-A3B-Instruct-2507"
    given = config("data.train_index=/t")
    assert (sizing.train_file(given), sizing.val_file(given)) == ("/t", "/t"), "verl wants a file to validate"
    both = config("data.train_index=/t", "data.val_index=/v")
    assert (sizing.train_file(both), sizing.val_file(both)) == ("/t", "/v")
    own = config("model.model_path=smoke:/d", "data.train_index=/t", profile="cpu-verl")
    assert (sizing.model_path(own), sizing.train_file(own), sizing.val_file(own)) == (
        "/d/model",
        "/t",
        "/t",  # own rows are not validated on those of the smoke run
    )


# --- the rules ------------------------------------------------------------------------------------------

FREE_CPUS = (
    "leave it null to use the number that verl needs; Ray only counts CPUs and does not check that they exist"
)
HYBRID = "in verl.rollout_mode hybrid, all GPUs alternate between generating and training"
STANDALONE = (
    "in verl.rollout_mode standalone, the {} GPUs of each host are split between rollouts and trainer"
)
PASSWORD = "a URL that contains a password, which would be saved with the run"
VARIABLE = "${NAME} in place of the password (an environment variable, read when the environment is built)"
NETRC = "or remove the password: uv and pip read ~/.netrc"


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (
            (overrides(**{"trainer.nnodes": "two"}),),
            refused(
                "trainer.overrides.trainer.nnodes",
                "this override determines the size of the run",
                "'two'",
                "a whole number",
            ),
        ),
        (("verl.rollout_gpus=1",), refused("verl.rollout_gpus", HYBRID, "1", "0")),
        (
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=0"),
            refused("verl.rollout_gpus", STANDALONE.format(8), "0", "1 to 7"),
        ),
        (
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=8"),
            refused("verl.rollout_gpus", STANDALONE.format(8), "8", "1 to 7"),
        ),
        (
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=1", "infrastructure.ngpus_per_node=1"),
            refused(
                "verl.rollout_gpus",
                STANDALONE.format(1),
                "1",
                "at least 2 GPUs (infrastructure.ngpus_per_node)",
            ),
        ),
        (
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=2", "infrastructure.ngpus_per_node=2"),
            refused("verl.rollout_gpus", STANDALONE.format(2), "2", "1"),
        ),
        (
            ("vllm.gen_tp=3",),
            refused("vllm.gen_tp", "must divide the GPUs of the run (8)", "3", "1, 2, 4 or 8"),
        ),
        (
            ("vllm.gen_tp=2", overrides(**{f"{ROLLOUT}.tensor_model_parallel_size": 3})),
            refused(
                "vllm.gen_tp",
                "must divide the GPUs of the run (8); trainer.overrides gives each replica 3 GPUs",
                "2",
            ),
        ),
        (
            ("vllm.gen_tp=2", overrides(**{f"{ROLLOUT}.data_parallel_size": 0})),
            refused(
                "vllm.gen_tp",
                "must divide the GPUs of the run (8); trainer.overrides gives each replica 0 GPUs",
                "2",
            ),
        ),
        (
            ("training.sp_size=3",),
            refused("training.sp_size", "must divide the GPUs of the trainer (8)", "3", "1, 2, 4 or 8"),
        ),
        (
            (
                "training.train_batch_size=3",
                "training.train_prompt_mini_batch_size=3",
                "training.n_resp_per_prompt=4",
            ),
            refused(
                "training.train_batch_size",
                "trials per step (12) must be a multiple of the trainer's GPUs (8)",
                "3",
                "2 or 4",
            ),
        ),
        (
            ("ray.num_cpus=33",),
            refused(
                "ray.num_cpus",
                "too few: verl would wait forever without a message",
                "33",
                "at least 34",
                FREE_CPUS,
            ),
        ),
        (
            ("verl.device=cpu", "vllm.gen_tp=2"),
            refused("vllm.gen_tp", "with verl.device cpu each replica is one process", "2", "1"),
        ),
        (
            ("infrastructure.nnodes=2",),
            refused(
                "proxy.trials_through",
                "the service that opens the sessions listens on a socket of this host, which the agent loops of the "
                "other host cannot reach",
                "auto",
                "litellm",
                "or run.topology in_process: the sessions are then in the agent loops, on every host",
            ),
        ),
        (
            ("infrastructure.nnodes=4", "proxy.trials_through=litellm"),
            refused(
                "proxy.host",
                "auto listens on 127.0.0.1, and the agent loops of the other 3 hosts would look for the proxy on "
                "themselves",
                "auto",
                "0.0.0.0, or an address of this host that they reach",
            ),
        ),
        (
            (
                "infrastructure.nnodes=2",
                "ray.address=h:1",
                "proxy.trials_through=litellm",
                "proxy.host=localhost",
            ),
            refused(
                "proxy.host",
                "the agent loops of the other host would look for the proxy on themselves",
                "localhost",
                "0.0.0.0, or an address of this host that they reach",
            ),
        ),
        (
            ("infrastructure.nnodes=2", "run.topology=in_process", "proxy.advertise=127.0.0.1"),
            refused(
                "proxy.advertise",
                "each of the 2 hosts has sessions of its own, and one address leads to one",
                "'127.0.0.1'",
                '""',
                "each host then gives its own address in Ray's cluster",
            ),
        ),
        *(
            (
                ("infrastructure.nnodes=2", "run.topology=in_process", f"infrastructure.node0_ip={address}"),
                refused(
                    "infrastructure.node0_ip",
                    "the Ray head listens there, and the other hosts connect to it",
                    f"'{address}'",
                    'an IP address of this host, or "" for the one on its default route',
                ),
            )
            for address in ("127.0.0.1", "0.0.0.0", "node-0")
        ),
        (
            ("ray.address=http://h:1",),
            refused("ray.address", "invalid address", "'http://h:1'", "host:port, without http://"),
        ),
        (
            ("ray.dashboard_address=h",),
            refused("ray.dashboard_address", "invalid address", "'h'", "host:port, without http://"),
        ),
        (
            ("verl.faults.late_replica={index: 2, seconds: 1}",),
            refused("verl.faults.late_replica.index", "no such replica", "2", "0 to 1"),
        ),
        *(
            (
                (f"verl.faults.{name}=2",),
                refused(f"verl.faults.{name}", "no such replica", "2", "0 to 1"),
            )
            for name in ("pending_replica", "mute_replica", "dead_replica")
        ),
        (
            ("verl.wandb_proxy=http://me:pw@h:80",),
            refused(
                "verl.wandb_proxy",
                "verl receives the proxy URL on its command line, which other users can read",
                "a URL that contains a user name",
                "http://host:port",
                "set a proxy with a password in the environment variable HTTPS_PROXY",
            ),
        ),
        *(
            (
                (*COMMAND, f"infrastructure.{name}=0"),
                refused(
                    f"infrastructure.{name}",
                    "0 (any free port) works only for services that the run starts, not for those of a launch script",
                    "0",
                    "the port that the launch script uses",
                ),
            )
            for name in ("ray_port", "ray_dashboard_port", "litellm_port")
        ),
        (
            ("infrastructure.ray_dashboard_port=6379",),
            refused("infrastructure.ray_dashboard_port", "the same port as infrastructure.ray_port", "6379"),
        ),
        (
            ("infrastructure.litellm_port=8265",),
            refused(
                "infrastructure.litellm_port", "the same port as infrastructure.ray_dashboard_port", "8265"
            ),
        ),
        (
            ("infrastructure.litellm_port=6379",),
            refused("infrastructure.litellm_port", "the same port as infrastructure.ray_port", "6379"),
        ),
        (
            ("environments.a b={venv_path: /v}",),
            refused("environments.a b.python", "invalid environment name", "'a b'"),
        ),
        (
            ("environments.x={python: '3.12'}",),
            refused(
                "environments.x.requirements",
                "an environment requires venv_path or requirements",
                "neither",
            ),
        ),
        *(
            (
                (f"environments.x={{venv_path: /v, {entry}}}",),
                refused(f"environments.x.{key}", PASSWORD, "a value (not shown)", VARIABLE, NETRC),
            )
            for key, entry in (
                ("index_url", "index_url: 'http://u:p@h'"),
                ("find_links", "find_links: [/a, 'http://u:p@h']"),
                ("first.index_url", "first: {index_url: 'http://u:p@h'}"),
            )
        ),
        *(
            (
                (f"environments.x={{venv_path: /v, local_copy: {value}}}",),
                refused(
                    "environments.x.local_copy",
                    "neither a yes or no nor a folder",
                    f"'{value}'",
                    "true, false, or a folder on a disk of this host: /DIR, ~/DIR or ./DIR",
                    hint,
                ),
            )
            for value, hint in (("ture", "did you mean true?"), ("local", ""))
        ),
        (
            ("environments.x={venv_path: self, local_copy: /d}",),
            refused(
                "environments.x.local_copy",
                "our own environment is not copied",
                "/d",
                "false",
            ),
        ),
    ],
)
def test_what_is_refused_and_what_is_said_of_it(sets: tuple[str, ...], expected: list[str]) -> None:
    assert told(*sets) == [expected]


SIXTEEN = ("training.train_batch_size=16", "training.train_prompt_mini_batch_size=16")


@pytest.mark.parametrize(
    "sets",
    [
        ("verl.rollout_mode=standalone", "verl.rollout_gpus=4"),
        (
            "verl.rollout_mode=standalone",
            "verl.rollout_gpus=7",
            "vllm.gen_tp=7",
            "training.sp_size=1",
        ),
        (
            "verl.rollout_mode=standalone",
            "verl.rollout_gpus=1",
            "vllm.gen_tp=1",
            "training.sp_size=7",
            "training.train_batch_size=7",
            "training.train_prompt_mini_batch_size=7",
        ),
        ("vllm.gen_tp=8",),
        ("training.sp_size=8",),
        ("training.train_batch_size=1", "training.train_prompt_mini_batch_size=1"),  # times 8 answers
        ("ray.num_cpus=34",),
        ("ray.num_cpus=1", "ray.address=h:1"),
        (*COMMAND, "ray.num_cpus=1"),
        ("verl.device=cpu", "vllm.gen_tp=1"),
        (*COMMAND, "verl.device=cpu", "vllm.gen_tp=2"),
        (*COMMAND, "infrastructure.nnodes=2"),
        ("infrastructure.nnodes=2", "ray.address=h:1", "run.topology=in_process"),
        ("infrastructure.nnodes=2", "run.topology=in_process"),
        ("infrastructure.nnodes=2", "proxy.trials_through=litellm", "proxy.host=0.0.0.0"),
        ("infrastructure.nnodes=2", "verl.agent_loop=single_turn_agent"),  # calls the replicas itself
        ("infrastructure.nnodes=2", "run.topology=in_process", "ray.num_cpus=34"),  # on each host
        ("ray.address=h:65535", "ray.dashboard_address=[::1]:1"),
        ("ray.address=10.0.0.1:6379",),
        ("ray.address=my_host-1:6379",),
        (*COMMAND, "ray.address=x"),  # a launch script says itself where its Ray is
        ("verl.faults.late_replica={index: 1, seconds: 1}",),
        ("verl.faults.late_replica={index: 9, seconds: 0}",),  # it is off
        ("verl.faults.pending_replica=1", "verl.faults.mute_replica=0", "verl.faults.dead_replica=1"),
        ("verl.wandb_proxy=http://h:80",),
        ("infrastructure.ray_port=0", "infrastructure.ray_dashboard_port=0", "infrastructure.litellm_port=0"),
        ("infrastructure.ray_dashboard_port=6379", "ray.address=h:1"),
        ("environments.x={venv_path: /v}",),
        ("environments.x={requirements: [a]}",),
        ("environments.x={venv_path: /v, local_copy: true}",),
        ("environments.x={venv_path: self, local_copy: 'No'}",),
        ("environments.x={venv_path: /v, find_links: [/a], index_url: 'https://h/s'}",),
        (
            *COMMAND,
            *SIXTEEN,
            "training.n_resp_per_prompt=1",
            "infrastructure.ngpus_per_node=3",
            "vllm.gen_tp=3",
            "training.sp_size=3",
        ),  # verl's own rule, and somebody else starts it
        (
            "training.train_batch_size=1",
            "training.train_prompt_mini_batch_size=1",
            "training.n_resp_per_prompt=1",
            overrides(**{"trainer.n_gpus_per_node": 0}),
        ),
    ],
)
def test_what_is_just_within_its_limit(sets: tuple[str, ...]) -> None:
    assert told(*sets) == []


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        (("ray.address=h:0",), "ray.address"),
        (("ray.address=h:65536",), "ray.address"),
        (("ray.address=h:123456",), "ray.address"),
        (("ray.address=:1",), "ray.address"),
        (("ray.address=h:1/",), "ray.address"),
        (("ray.dashboard_address=[x]:1",), "ray.dashboard_address"),
        (("ray.dashboard_address=h:65536", "ray.address=h:1"), "ray.dashboard_address"),
        (("vllm.gen_tp=16",), "vllm.gen_tp"),
        (("training.sp_size=16",), "training.sp_size"),
        (("verl.device=cpu", "vllm.gen_tp=3"), "vllm.gen_tp"),  # told once
        (("verl.device=cpu", overrides(**{f"{ROLLOUT}.data_parallel_size": 0})), "vllm.gen_tp"),
        (("run.topology=in_process", "verl.rollout_gpus=1"), "verl.rollout_gpus"),
        (("run.topology=in_process", "vllm.gen_tp=3"), "vllm.gen_tp"),
        (("run.topology=in_process", "training.sp_size=3"), "training.sp_size"),
        (("run.topology=in_process", "verl.faults.dead_replica=2"), "verl.faults.dead_replica"),
        (("run.topology=in_process", "infrastructure.litellm_port=6379"), "infrastructure.litellm_port"),
    ],
)
def test_what_is_just_beyond_its_limit(sets: tuple[str, ...], key: str) -> None:
    assert keys(*sets) == [key]


def test_a_run_that_is_not_verls_is_not_counted() -> None:
    """Managed replicas and an embedded trainer: verl's keys have no effect there."""
    sets = (
        "verl.rollout_gpus=3",
        "training.sp_size=7",
        "infrastructure.litellm_port=6379",
        "infrastructure.ray_port=6379",
        "verl.faults.dead_replica=9",
        "ray.address=x",
        "infrastructure.nnodes=2",
        "ray.num_cpus=1",
        "vllm.gen_tp=3",
        "verl.rollout_mode=standalone",
    )
    assert told(*sets, profile="embedded") == []
    # a launch script starts Ray
    observed = ("run.topology=in_process", "trainer.kind=command", "trainer.command=[x]", "ray.num_cpus=1")
    assert told(*observed, "ray.address=''", "ray.dashboard_address=x") == []


def test_each_of_several_wrong_sizes_is_told_once() -> None:
    """A size that cannot be told is one problem, and no rule is judged on it."""
    bad = overrides(**{"trainer.n_gpus_per_node": "x"})
    sets = (bad, "vllm.gen_tp=3", "training.sp_size=3", "verl.faults.dead_replica=9", "ray.num_cpus=1")
    assert keys(*sets) == ["trainer.overrides.trainer.n_gpus_per_node"]


def test_a_wrong_split_of_the_gpus_is_one_problem() -> None:
    """Not also that the rest of them does not divide: with 1 of 8 GPUs taken, 7 would."""
    assert keys("verl.rollout_gpus=1") == ["verl.rollout_gpus"]
    assert keys("verl.rollout_gpus=1", "ray.num_cpus=1", "verl.faults.dead_replica=9") == [
        "verl.rollout_gpus"
    ]


def test_a_long_override_is_shown_in_part() -> None:
    (lines,) = told(overrides(**{"trainer.nnodes": "x" * 200}))
    assert lines[1] == "    found:   '" + "x" * 79


@pytest.mark.parametrize("proxy", ["me:pw@h:80", "http://me:p/w@h:80", "http://h:80/a@b", "HTTP://me@h"])
def test_a_proxy_with_an_account_is_refused_however_it_is_written(proxy: str) -> None:
    assert keys(f"verl.wandb_proxy={proxy}") == ["verl.wandb_proxy"]


@pytest.mark.parametrize("key", ["requirements", "first.requirements"])
@pytest.mark.parametrize(
    ("requirement", "refused"),
    [
        ("a @ https://u:p@h/a.whl", True),
        ("git+https://t0ken@github.com/o/r", True),
        ("git+https://git:p@github.com/o/r", True),
        ("git+ssh://git@github.com/o/r", False),
        ("a @ https://h/a.whl#sha256=1", False),
        ("a==1", False),
    ],
)
def test_a_requirement_holds_no_password(key: str, requirement: str, refused: bool) -> None:
    first = "requirements: [a]" if key.startswith("first") else ""
    inner = f"requirements: ['{requirement}']"
    entry = f"{first}, first: {{{inner}}}" if first else inner
    assert keys(f"environments.x={{{entry}}}") == ([f"environments.x.{key}"] if refused else [])


def test_an_environment_is_told_its_own_problems() -> None:
    sets = ("environments.x={index_url: 'http://u:p@h', find_links: ['http://t@h']}",)
    assert keys(*sets) == [
        "environments.x.requirements",
        "environments.x.index_url",
        "environments.x.find_links",
    ]


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("http://h/a@b", False),  # an @ behind the host is none of a user
        ("http://@h/", False),
        ("http://:@h/", False),
        ("http://u@h/", True),
        ("http://:p@h/", True),
        ("http://${A}@h/", False),
        ("http://${A}:${B}@h/?x=1", True),
        ("http://${1A}@h/", True),  # not the name of a variable
        ("/wheels?x", False),
        ("u:p@h", False),  # no address
    ],
)
def test_what_an_address_may_hold(address: str, secret: bool) -> None:
    assert holds_secret(address) is secret


MIRRORS = (
    "training.sp_size=7",
    "training.sp_size=0",
    "vllm.max_num_seqs=many",
    "training.val_before_train=perhaps",
)


@pytest.mark.parametrize("setting", MIRRORS)
def test_a_wrong_value_that_only_repeats_the_scripts_keeps_no_script_from_starting(setting: str) -> None:
    script = ("trainer.kind=command", "trainer.command=[sh, x]")
    with pytest.raises(ConfigError):
        load_config(profile="liverl-gen1", sets=[setting], env={})
    loaded = load_config(profile="liverl-gen1", sets=[*script, setting], env={})
    key = setting.partition("=")[0]
    (warning,) = [text for text in loaded.warnings if key in text]
    assert warning.startswith(f"--set: {key}") and "your launch script sets it" in warning
    make_plan(loaded, Path("/runs/p/r"))


def test_values_that_a_script_gets_are_checked() -> None:
    script = ("trainer.kind=command", "trainer.command=[sh, x]")
    for setting in ("vllm.gen_tp=3", "harbor_agent.max_retries=many", "infrastructure.nnodes=0"):
        with pytest.raises(ConfigError):
            load_config(profile="liverl-gen1", sets=[*script, setting], env={})
