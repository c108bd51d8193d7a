"""Checks for topology verl: each is given its facts."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liverl.config import RunConfig, load_config, resolved
from liverl.model import Check
from liverl.plan import make_plan
from liverl.plan.spec import Plan, PortSpec, RayPlan, ServiceSpec
from liverl.preflight import batches, gpus, model, ray, run_checks, verl
from liverl.preflight.host import open_files, unguarded_ports
from liverl.preflight.modeldir import Heads, read_heads
from liverl.preflight.ports import port_checks
from liverl.procs.open_files import WANTED, raise_limit, raised, service_limit
from liverl.util.cpu_limits import CpuLimits, cpu_limits, parse_quota, slurm_cpus
from liverl.util.http_limits import descriptors_for


def config_of(*sets: str, profile: str = "liverl-gen1") -> RunConfig:
    config = load_config(profile=profile, sets=["run.name=n", *sets], env={}).config
    return resolved(config, env={}, cwd=Path("/w"), now=0.0)


# --- data and model -----------------------------------------------------------------------------------


def test_parquet_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "t.parquet", tmp_path / "bad.parquet"
    good.write_bytes(b"PAR1....PAR1")
    bad.write_bytes(b'{"a": 1}')
    assert verl.parquet("data.train_index", str(good)).status == "ok"
    assert verl.parquet("data.train_index", "hdfs://h/t.parquet").status == "skipped"
    for name, words in (
        ("", "no parquet file is configured"),
        (str(bad), "is not a parquet"),
        ("/no/such", "No such file"),
    ):
        check = verl.parquet("data.train_index", name)
        assert check.status == "fail"
        assert words in check.text


def test_a_smoke_run_makes_its_data(tmp_path: Path) -> None:
    config = config_of(f"model.model_path=smoke:{tmp_path}/s", profile="cpu-verl")
    (check,) = verl.data_files(config)
    assert check.status == "skipped"
    assert "created at the start" in check.text
    (check,) = model.checks(_plan(config), config, {})
    assert (check.status, "will be created at the start" in check.text) == ("skipped", True)


def test_the_checkpoint(tmp_path: Path) -> None:
    def status(*sets: str) -> tuple[str, str]:
        config = config_of(f"model.model_path={tmp_path}", *sets)
        check = next(check for check in model.checks(_plan(config), config, {}) if check.name == "model")
        return check.status, check.text

    assert status() == ("fail", f"cannot read {tmp_path / 'config.json'}: No such file or directory")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 32, "num_key_value_heads": 4}))
    assert status()[0] == "ok"
    state, words = status("vllm.gen_tp=8")
    assert state == "fail"
    assert "illegal memory access" in words
    (tmp_path / "config.json").write_text("[]")
    assert status()[0] == "fail"


@pytest.mark.parametrize(
    ("heads", "tensor", "words"),
    [
        (Heads(32, 4), 4, ""),
        (Heads(32, 4), 2, ""),
        (Heads(14, 2), 4, "14 attention heads"),
        (Heads(12, 4), 3, "4 key-value heads are not divisible"),
        (Heads(32, 4), 8, "are fewer than 8"),
        (Heads(), 8, ""),
    ],
)
def test_heads(heads: Heads, tensor: int, words: str) -> None:
    problem = heads.problem(tensor)
    assert words in problem
    assert bool(problem) == bool(words)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16))
def test_only_what_divides_both_passes(attention: int, key_value: int, tensor: int) -> None:
    divides = attention % tensor == 0 and key_value % tensor == 0
    assert (Heads(attention, key_value).problem(tensor) == "") is divides


def test_heads_of_a_model_for_pictures(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": {"num_attention_heads": 8}, "num_attention_heads": 3}))
    assert read_heads(path) == Heads(8, 8)


# --- names and numbers that verl checks late ----------------------------------------------------------


def test_loggers() -> None:
    assert verl.loggers(config_of()).status == "ok"
    bad = verl.loggers(config_of('trainer.overrides={"trainer.logger": "[console,wandbb]"}'))
    assert (bad.status, "wandbb" in bad.text) == ("fail", True)
    assert verl.loggers(config_of('trainer.overrides={"trainer.logger": [console]}')).status == "warn"


@pytest.mark.parametrize(
    ("sets", "status"),
    [
        (("model.tool_parser=qwen3_coder",), "ok"),
        (("model.tool_parser=hermes",), "ok"),
        (("model.tool_parser=granite",), "ok"),
        (("model.tool_parser=granite", "verl.agent_loop=tool_agent"), "fail"),
        (("model.tool_parser=granite", "verl.device=cpu", "vllm.gen_tp=1"), "fail"),
    ],
)
def test_tool_parsers(sets: tuple[str, ...], status: str) -> None:
    assert verl.tool_parser(config_of(*sets)).status == status


def test_batches() -> None:
    assert batches.batches(config_of()).status == "ok"
    sets = ("training.n_resp_per_prompt=1", "training.train_prompt_mini_batch_size=1")
    assert batches.batches(config_of(*sets, "training.sp_size=1")).status == "fail"


def environment(*sets: str) -> Check:
    config = config_of(*sets, profile="cpu-verl")
    return verl.environment(_plan(config), config)


def test_what_an_environment_has() -> None:
    config = config_of(profile="cpu-verl")
    ours = verl.imports(Path(sys.executable), config)
    assert ours.status == "fail"
    assert "transfer_queue" in ours.text
    assert verl.imports(Path("/no/python"), config).status == "fail"
    theirs = verl.imports(Path(sys.prefix, "bin", "python"), config)
    assert environment(f"environments.verl.venv_path={sys.prefix}") == theirs
    assert environment("environments.verl.venv_path=self") == ours


def test_an_environment_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path))
    check = environment()
    assert (check.status, "will be built at the start" in check.text) == ("skipped", True)
    assert environment("environments.verl.venv_path=/no/such").status == "fail"


VENV = "environments.verl.venv_path=/v"


@pytest.mark.parametrize(
    ("sets", "have", "vllm", "words"),
    [
        (
            (VENV, "training.engine=veomni"),
            (),
            "0.24.0",
            "cannot import veomni: verl does not require that package",
        ),
        ((VENV, "training.engine=megatron"), (), "0.24.0", "cannot import megatron"),
        (
            ("verl.rollout_mode=standalone", "verl.rollout_gpus=4"),
            (),
            "0.24.0",
            "cannot import cupy, with which verl",
        ),
        (
            ("verl.trainer_mode=fully_async", "verl.rollout_gpus=4"),
            (),
            "0.24.0",
            "cannot import cupy, with which verl",
        ),
        (
            (VENV, "training.engine=veomni", "training.router_replay=R3"),
            ("veomni",),
            "0.21.9",
            "needs vLLM 0.22 or later, and {python} has 0.21.9",
        ),
        ((VENV, "training.engine=veomni", "training.router_replay=R3"), ("veomni",), "0.22.0", ""),
        ((VENV, "training.engine=veomni", "training.router_replay=R2"), ("veomni",), "0.21.0", ""),
        ((), (), "0.21.0", ""),
    ],
)
def test_what_only_some_trainers_need(
    tmp_path: Path, sets: tuple[str, ...], have: tuple[str, ...], vllm: str, words: str
) -> None:
    """A Python that has the modules of ``have``, and all that every trainer needs."""
    python = tmp_path / "python"
    asked = f"""#!{sys.executable}
import json, sys
modules, names = json.loads(sys.argv[-1])
have = {[*verl.MODULES, *have]!r}
versions = {{"verl": "0.9.1", "vllm": {vllm!r}}}
missing = [m for m in modules if m not in have]
print(json.dumps({{"missing": missing, "versions": {{n: versions.get(n) for n in names}}}}))
"""
    python.write_text(asked)
    python.chmod(0o755)
    check = verl.imports(python, config_of(*sets))
    assert check.status == ("fail" if words else "ok"), check.text
    assert words.format(python=python) in check.text


# --- Ray ----------------------------------------------------------------------------------------------


def _plan(config: RunConfig) -> Plan:
    loaded = load_config(profile="cpu-verl", env={})
    return make_plan(replace(loaded, config=config), Path("/runs/p/n"))


def test_in_process_needs_no_port_and_no_environment_of_litellm() -> None:
    def planned(*sets: str) -> Plan:
        return make_plan(load_config(profile="cpu-verl", sets=["run.name=n", *sets], env={}), Path("/r/p/n"))

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        beside, inside = (
            planned(f"run.topology={topology}", f"infrastructure.litellm_port={port}")
            for topology in ("verl", "in_process")
        )
        held = f"port {port} (proxy)"
        assert [check.status for check in port_checks(beside) if check.name == held] == ["fail"]
        assert not [check.name for check in port_checks(inside) if "ray" not in check.name]
    assert {entry.name for entry in beside.environments} == {"proxy", "verl"}
    assert {entry.name for entry in inside.environments} == {"verl"}
    assert open_files(inside, config_of(profile="cpu-verl")) == []


def test_cpus_and_who_limits_them() -> None:
    config = config_of(profile="cpu-verl")
    assert ray.cpus(config, CpuLimits(machine=2, affinity=2)).status == "ok"
    slurm = ray.cpus(config, CpuLimits(machine=64, affinity=64, slurm=4))
    assert slurm.status == "warn"
    assert "Slurm" in slurm.text
    assert "Unable to register worker with raylet" in slurm.text
    assert "CPU set" in ray.cpus(config, CpuLimits(machine=64, affinity=4)).text
    assert "quota" in ray.cpus(config, CpuLimits(machine=64, affinity=64, quota=2.5)).text
    assert ray.cpus(config, CpuLimits(machine=64, affinity=32)).status == "ok"
    fewer = replace(config, ray=replace(config.ray, num_cpus=8))
    assert ray.cpus(fewer, CpuLimits(machine=64, affinity=64)).status == "fail"


def test_limits_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    limits = cpu_limits({}, tmp_path, tmp_path / "none")
    assert (limits.quota, limits.slurm, limits.affinity) == (1.5, None, len(os.sched_getaffinity(0)))
    assert cpu_limits({}, tmp_path / "none", tmp_path / "none").quota is None


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/a/b", {"a/b/cpu.max": "800000 100000"}, 8.0),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "350000 100000"}, 3.5),  # of a group around it
        ("0::/a/b", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "350000 100000"}, 1.0),
        ("0::/a/b", {"a/c/cpu.max": "100000 100000"}, None),  # of others
        ("0::/", {"cpu.max": "200000 100000"}, 2.0),
        ("0::/../../x", {"cpu.max": "200000 100000"}, 2.0),  # a container's, told from outside
        ("0::/a", {"cpu.max": "max 100000", "a/cpu.max": "nonsense"}, None),
        (
            "1:cpu,cpuacct:/j\n0::/",
            {"cpu,cpuacct/j/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/j/cpu.cfs_period_us": "100000\n"},
            4.0,
        ),
        ("1:cpu:/j", {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ("1:cpu:/j", {"cpu/j/cpu.cfs_quota_us": "-1\n", "cpu/j/cpu.cfs_period_us": "100000\n"}, None),
        ("2:cpuset:/j", {"cpuset/j/cpu.max": "100000 100000"}, None),
        ("", {}, None),
        ("garbage\n0::/a", {"a/cpu.max": "100000 100000"}, 1.0),
    ],
)
def test_the_cpu_quota_of_the_control_groups(
    own: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "own").write_text(own)
    assert cpu_limits({}, tmp_path / "cgroup", tmp_path / "own").quota == quota


@given(st.text(max_size=30))
def test_any_quota_file_is_read(text: str) -> None:
    value = parse_quota(text)
    assert value is None or value >= 0


def test_quota_and_slurm() -> None:
    assert (parse_quota("max 100000"), parse_quota("200000 100000")) == (None, 2.0)
    job = {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "16"}
    assert (slurm_cpus(job), slurm_cpus({**job, "SLURM_CPUS_PER_TASK": "4"}), slurm_cpus({})) == (16, 4, None)


def test_rays_directory(tmp_path: Path) -> None:
    assert ray.temp("/tmp/lv-01234567").status == "ok"
    long = ray.temp("/tmp/" + "x" * 60)
    assert long.status == "fail"
    assert "allow at most 43" in long.text
    target = tmp_path / "t"
    target.mkdir()
    link = Path("/tmp", f"lv-test-{os.getpid()}")
    link.symlink_to(target)
    try:
        assert "does not belong to this user" in ray.temp(str(link)).text
    finally:
        link.unlink()


def test_room_for_the_object_store() -> None:
    assert ray.memory(512 << 20, 1 << 30).status == "ok"
    assert ray.memory(None, 512 << 20).status == "warn"


def test_gpus_of_this_host() -> None:
    config = config_of()
    many = replace(config, infrastructure=replace(config.infrastructure, ngpus_per_node=1000))
    (check,) = gpus.checks(_plan(many), many, {})
    assert check.status == "fail"
    assert "infrastructure.ngpus_per_node is 1000" in check.text
    cpu = config_of(profile="cpu-verl")
    assert list(gpus.checks(_plan(cpu), cpu, {})) == []


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    plan = _plan(config_of("ray.address=127.0.0.1:9", profile="cpu-verl"))
    assert isinstance(plan.ray, RayPlan)
    (check,) = ray.foreign(plan.ray)
    assert check.status == "fail"
    assert "ray.address 127.0.0.1:9" in check.text


def test_a_foreign_ray_on_the_port_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from liverl.procs import procfs

    holder = procfs.Holder(7, "u", "/x/ray/core/src/ray/gcs/gcs_server --port 6379")
    monkeypatch.setattr(procfs, "port_holder", lambda port: holder)
    spec = ServiceSpec("ray", "ray", ("x",), ports=(PortSpec("gcs", 6379),))
    plan = Plan("p/n", str(tmp_path), "verl", (), (spec,), None, 1)
    (check,) = port_checks(plan)
    assert check.status == "fail"
    assert "set ray.address to use that" in check.fix


@pytest.mark.parametrize("connected", [True, False])
def test_a_port_that_is_taken_without_a_listener_is_explained(connected: bool, tmp_path: Path) -> None:
    """By the local end of a connection, or by a socket that does not listen yet, which no list of the kernel has."""
    with socket.socket() as server, socket.socket() as taken:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        if connected:
            taken.connect(server.getsockname())
        key = "infrastructure.litellm_port"
        spec = ServiceSpec("proxy", "proxy", ("x",), ports=(PortSpec("http", number, key=key),))
        (check,) = port_checks(Plan("p/n", str(tmp_path), "verl", (), (spec,), None, 1))
    assert check.status == "fail" and "Address already in use" in check.text
    assert "\n" not in check.text and f"end the process that holds port {number}" in check.fix
    if connected:
        assert f"a connection of pid {os.getpid()} (user " in check.text
    else:
        assert "no process that is visible from here listens" in check.text and "ss -Htanp" in check.fix


REPLICAS, TORCH, RAY = "vLLM replicas require no token", "torch's processes", "Ray's own token"
DIGEST = "vLLM reports no digest of its weights"


@pytest.mark.parametrize(
    ("profile", "named"),
    [
        ("embedded", ()),
        ("vllm-managed", (TORCH, DIGEST)),
        ("cpu-verl", (TORCH, RAY)),
        ("h200-smoke", (REPLICAS, TORCH, DIGEST, RAY)),
    ],
)
def test_ports_that_cannot_be_guarded_are_named(profile: str, named: tuple[str, ...]) -> None:
    plan = _plan(config_of(profile=profile))
    check = unguarded_ports(plan)
    assert check.name == "unguarded ports"
    assert check.status == ("warn" if named else "ok")
    assert [words for words in (REPLICAS, TORCH, DIGEST, RAY) if words in check.text] == list(named)


def test_open_files_for_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    from liverl.preflight import host

    config = config_of(profile="embedded")
    plan = _plan(config)
    agents = plan.trials_per_step
    assert agents == 32
    for limit, status in ((descriptors_for(agents), "ok"), (descriptors_for(agents) - 1, "warn")):
        monkeypatch.setattr(host, "service_limit", lambda limit=limit: limit)
        (check,) = host.open_files(plan, config)
        assert check.status == status and f"{limit:,}" in check.text and "32 agents" in check.text
    assert "ulimit -Hn" in check.text and check.name in {c.name for c in run_checks(plan, config)}
    (check,) = host.open_files(plan, config_of("harbor_runtime.num_workers=5000", profile="embedded"))
    assert check.status == "warn" and "5,000 agents" in check.text
    verl_config = config_of(
        "training.val_before_train=true", "training.val_batch_size=900", profile="cpu-verl"
    )
    assert "900 agents" in host.open_files(_plan(verl_config), verl_config)[0].text
    assert host.open_files(replace(plan, services=()), config) == []


def test_the_limit_of_services() -> None:
    endless = resource.RLIM_INFINITY
    assert raised(1024, 4096) == 4096 and raised(1024, endless) == WANTED == 65536
    assert raised(1024, 1 << 20) == WANTED and raised(1 << 20, 1 << 20) == 1 << 20
    assert raised(endless, endless) == endless
    assert not raise_limit(2**22 + 1), "there is no such process"
    assert raise_limit(os.getpid()) and service_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_all_checks_of_the_cpu_profile() -> None:
    config = config_of(profile="cpu-verl")
    names = {check.name for check in run_checks(_plan(config), config)}
    assert {
        "Ray CPUs",
        "Ray directory",
        "object store",
        "environment verl",
        "data",
        "loggers",
        "batches",
    } <= names


def test_a_checkout_of_verl_that_is_imported_instead(tmp_path: Path) -> None:
    assert list(verl.source(config_of())) == []
    config = config_of(f"verl.source={tmp_path}")
    (check,) = verl.source(config)
    assert (check.status, "it has no verl/__init__.py" in check.text) == ("fail", True)
    assert 'to "" for the installed verl' in check.fix
    (absent,) = verl.source(config_of(f"verl.source={tmp_path}/absent/verl"))
    assert (absent.status, absent.text) == ("fail", f"{tmp_path}/absent/verl does not exist")
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl/__init__.py").touch()
    (check,) = verl.source(config)
    assert check.status == "ok"
