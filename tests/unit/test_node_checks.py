"""What each node of a run's cluster must have before the trainer starts: the sentence for each lack, who is asked when,
and that the question travels. Ray is simulated here; ``tests/hosts`` has real nodes."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kit.waiting import until
from msgspec.structs import replace

from liverl.config import load_config
from liverl.hosts import inspection as inspecting
from liverl.hosts import node_facts
from liverl.hosts.checks import Lacks, NodeFacts, lacks, question
from liverl.hosts.inspection import TRIES, Inspection
from liverl.plan.ray import node_checks, ray_plan
from liverl.plan.spec import NodeChecks
from liverl.verl.discovery.address_client import AddressClientGone, NodeAnswer
from liverl.verl.discovery.ray_rest import RayNode
from liverl.verl_runtime import addresses

CHECKS = NodeChecks(
    paths={"model.model_path": "/models/m", "the run's directory": "/runs/p/r"},
    writable=("the run's directory",),
    reach={"the proxy": "10.0.0.1:4000"},
    gpus=8,
    shm=1 << 30,
)
ASKED = question(CHECKS, {})
SITE = "/env/site-packages"
FIRST = NodeFacts(
    "n0",
    "3.11.7",
    at=105.0,
    asked=(100.0, 106.0),
    shm_total=64 << 30,
    versions={"ray": "2.60.0", "verl": "0.9.1", "vllm": ""},
    origins={"ray": f"{SITE}/ray/__init__.py", "verl": f"{SITE}/verl/__init__.py", "vllm": ""},
)
N1 = replace(FIRST, host="n1")
GPUS = {"GPU": 8.0, "CPU": 64.0}
OTHER = "0.9.0"  # another version of verl


@pytest.mark.parametrize(
    ("checks", "facts", "resources", "fatal", "minor"),
    [
        pytest.param({}, {}, {}, (), (), id="nothing"),
        pytest.param(
            {},
            {"unseen": {"model.model_path": "No such file or directory"}},
            {},
            (
                "cannot use /models/m (model.model_path): No such file or directory; mount or copy it there, under the "
                "same path as on the other hosts",
            ),
            (),
            id="a path",
        ),
        pytest.param(
            {},
            {"unreached": {"the proxy": "Connection refused"}},
            {},
            (
                "cannot reach the proxy at 10.0.0.1:4000: Connection refused; set proxy.host to an address that leads "
                "here from every host",
            ),
            (),
            id="the proxy",
        ),
        pytest.param(
            {},
            {"versions": {"ray": "2.60.0", "verl": OTHER, "vllm": ""}},
            {},
            (f"has verl {OTHER}, and n0 has 0.9.1; install the same version on both",),
            (),
            id="another version",
        ),
        pytest.param(
            {},
            {"versions": {"ray": "2.60.0", "verl": "0.9.1", "vllm": "0.24.0"}},
            {},
            ("has vllm 0.24.0, and n0 has none; install the same version on both",),
            (),
            id="a package that the first has not",
        ),
        pytest.param(
            {},
            {"versions": {"ray": "2.60.0", "verl": "", "vllm": ""}, "origins": {"verl": ""}},
            {},
            (
                "has no verl, and n0 has 0.9.1; install the same version on both",
                "does not find the package verl; install it in the environment of Ray there",
            ),
            (),
            id="no verl",
        ),
        pytest.param(
            {"source": "/src/verl"},
            {},
            {},
            (
                f"imports verl from {SITE}/verl/__init__.py, and not from verl.source, /src/verl; put that folder "
                "there, too",
            ),
            (),
            id="not from verl.source",
        ),
        pytest.param(
            {"source": "/src/verl/"},
            {"origins": {"verl": "/src/verl/verl/__init__.py"}},
            {},
            (),
            (
                f"imports verl from /src/verl/verl/__init__.py, and n0 from {SITE}/verl/__init__.py: a checkout that "
                "one node has on its PYTHONPATH is not what the others run",
            ),
            id="from verl.source, and the first not",
        ),
        pytest.param(
            {},
            {"origins": {**FIRST.origins, "ray": "/opt/ray/__init__.py"}},
            {},
            (),
            (
                f"imports ray from /opt/ray/__init__.py, and n0 from {SITE}/ray/__init__.py: a checkout that one node "
                "has on its PYTHONPATH is not what the others run",
            ),
            id="another origin",
        ),
        pytest.param(
            {},
            {"shm_total": 64 << 20},
            {},
            (),
            (
                "has 64 MiB of /dev/shm, and 1024 MiB are needed (Ray's objects, and NCCL beside them); mount it "
                "larger there (docker run --shm-size)",
            ),
            id="shared memory",
        ),
        pytest.param(
            {},
            {"at": 146.0},
            {},
            (),
            ("has a clock that is 40 s ahead of this host's; set it (chronyc makestep)",),
            id="a clock ahead",
        ),
        pytest.param(
            {},
            {"at": 60.0},
            {},
            (),
            ("has a clock that is 40 s behind this host's; set it (chronyc makestep)",),
            id="a clock behind",
        ),
        pytest.param({}, {"at": 95.0}, {}, (), (), id="a clock that is near enough"),
    ],
)
def test_what_a_node_lacks(
    checks: dict[str, Any],
    facts: dict[str, Any],
    resources: dict[str, float],
    fatal: tuple[str, ...],
    minor: tuple[str, ...],
) -> None:
    found = lacks(replace(CHECKS, **checks), ASKED, GPUS | resources, replace(N1, **facts), FIRST)
    assert found == Lacks(fatal, minor)
    assert found.words == "; ".join(fatal or minor)


def test_gpus_are_counted_on_each_node() -> None:
    """verl counts those of all, and then waits for ever."""
    found = lacks(CHECKS, ASKED, {"GPU": 4.0}, N1, FIRST)
    assert found.fatal == ()
    assert found.words == (
        "Ray has 4 GPUs there, and the run needs 8 on each host (infrastructure.ngpus_per_node); start Ray there with "
        "--num-gpus, or lower that key"
    )


@pytest.mark.parametrize("foreign", [False, True])
def test_the_plan_says_what_is_checked(foreign: bool) -> None:
    sets = [
        "infrastructure.nnodes=2",
        "infrastructure.ngpus_per_node=4",
        "proxy.host=10.0.0.1",
        "proxy.trials_through=litellm",
    ]
    sets += ["ray.address=10.0.0.1:6379"] if foreign else ["infrastructure.node0_ip=10.0.0.1"]
    sets += ["model.model_path=/models/m", "data.train_index=/d/t.parquet", "data.val_index=/d/v.parquet"]
    config = load_config(profile="cpu-verl", env={}, sets=sets).config
    plan = ray_plan(config, Path("/runs/p/r"))
    assert plan.hosts == 2
    checks = plan.checks
    assert checks == node_checks(config) and checks is not None
    assert (
        checks.paths.items()
        >= {
            "the run's directory": "{attempt_dir}",
            "model.model_path": "/models/m",
            "data.train_index": "/d/t.parquet",
            "data.val_index": "/d/v.parquet",
        }.items()
    )
    assert ("the Python of verl's environment" in checks.paths) is not foreign
    assert os.path.isdir(checks.paths["the package liverl"])
    assert (checks.gpus, checks.shm) == (4, 512 << 20)
    assert checks.reach == {"the proxy": "10.0.0.1:{port:proxy}"}
    assert checks.env == ({"PYTHONPATH": "{run_dir}/trainer/path"} if foreign else {})


def test_a_run_on_one_host_checks_none() -> None:
    assert ray_plan(load_config(profile="cpu-verl", env={}).config, Path("/r")).checks is None


def test_facts_of_this_host(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
        other.close()
        told = node_facts.look(
            {
                "paths": {"a": str(kept), "b": str(tmp_path / "none"), "c": str(tmp_path)},
                "writable": ["c"],
                "reach": {"up": f"127.0.0.1:{server.getsockname()[1]}", "down": f"127.0.0.1:{closed}"},
                "packages": ["msgspec", "no-such-package"],
                "seconds": 5.0,
            }
        )
    assert told["unseen"] == {"b": "No such file or directory"}
    assert told["unreached"] == {"down": "Connection refused"}
    assert told["versions"]["no-such-package"] == "" and told["versions"]["msgspec"]
    assert told["shm_total"] == os.statvfs("/dev/shm").f_frsize * os.statvfs("/dev/shm").f_blocks
    assert abs(told["at"] - time.time()) < 60
    assert set(told["origins"]) == {"ray", "verl", "vllm"}


class FakeRay:
    """Ray's client, as far as the child asks nodes with it (simulated): a task runs when it is got."""

    cloudpickle: Any = None

    def __init__(self, silent: Sequence[str]) -> None:
        self.silent, self.options, self.cancelled = silent, list[dict[str, Any]](), list[Any]()

    def remote(self, **options: Any) -> Any:
        assert options == {"num_cpus": 0, "max_retries": 0}
        return lambda function: SimpleNamespace(options=lambda **more: self._task(function, more))

    def _task(self, function: Any, options: dict[str, Any]) -> Any:
        self.options.append(options)
        node = options["scheduling_strategy"].node_id
        return SimpleNamespace(remote=lambda asked: (node, function, str(asked)))

    def wait(self, refs: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        done = [ref for ref in refs if ref[0] not in self.silent][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: Any) -> Any:
        if ref[0] == "broken":
            raise RuntimeError("The node is dead.\nMore.")
        return {"host": ref[0], "function": ref[1].__name__, "asked": ref[2]}

    def cancel(self, ref: Any, force: bool) -> None:
        assert force
        self.cancelled.append(ref[0])


def test_each_node_is_asked_by_a_task_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    by_value = list[str]()
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = SimpleNamespace  # type: ignore[attr-defined]
    modules = {"ray.util.scheduling_strategies": strategies}
    monkeypatch.setattr(addresses.importlib, "import_module", modules.__getitem__)
    monkeypatch.delitem(addresses.sys.modules, "liverl_node_facts", raising=False)
    ray = FakeRay(silent=["slow"])
    ray.cloudpickle = SimpleNamespace(
        register_pickle_by_value=lambda module: by_value.append(module.__name__)
    )
    asker = addresses.NodeAsker(ray)
    facts, errors = asker.ask(["up", "broken", "slow"], {"paths": {}}, {"PYTHONPATH": "/x"}, 3.0)
    assert facts["up"]["function"] == "look" and len(facts["up"]["asked"]) == 2
    assert errors == {"broken": "RuntimeError: The node is dead.", "slow": "no answer within 3 s"}
    assert ray.cancelled == ["slow"] and by_value == ["liverl_node_facts"]
    assert [one["scheduling_strategy"].soft for one in ray.options] == [False] * 3
    assert ray.options[0]["runtime_env"] == {"env_vars": {"PYTHONPATH": "/x"}}
    asker.ask(["up"], {"paths": {}}, {}, 3.0)
    assert "runtime_env" not in ray.options[-1]
    assert by_value == ["liverl_node_facts"]


def told(facts: NodeFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in NodeFacts.__struct_fields__}


class Asked:
    """Answers that a test sets, in the place of the child."""

    def __init__(self) -> None:
        self.answers: dict[str, NodeFacts] = {}
        self.asked: list[tuple[list[str], Mapping[str, Any]]] = []
        self.fails, self.now = "", 100.0  # seconds

    def clock(self) -> float:
        return self.now

    async def ask(
        self, nodes: Sequence[str], asked: Mapping[str, Any], env: Mapping[str, str], timeout: float
    ) -> NodeAnswer:
        self.asked.append((list(nodes), asked))
        if self.fails:
            raise AddressClientGone(self.fails)
        facts = {node: told(self.answers[node]) for node in nodes if node in self.answers}
        return NodeAnswer(facts, {node: "no answer within 60 s" for node in nodes if node not in facts})


NODES = (RayNode("a", "10.0.0.1", "ALIVE", GPUS, "n0"), RayNode("b", "10.0.0.2", "ALIVE", GPUS, "n1"))


async def looked(inspection: Inspection, asked: Asked, nodes: Sequence[RayNode], now: float) -> None:
    """One look that asks, and its answer."""
    before, asked.now = len(asked.asked), now
    inspection.look(nodes, "10.0.0.1")
    await until(lambda: len(asked.asked) > before and inspection._task is None)


async def test_a_node_is_asked_until_it_has_all() -> None:
    asked, kicks = Asked(), list[int]()
    inspection = Inspection(CHECKS, asked.ask, str, lambda: kicks.append(1), asked.clock)
    assert not inspection.passed("a") and inspection.words("a") == "it is being checked"
    asked.answers = {"a": FIRST, "b": replace(N1, unseen={"model.model_path": "No such file or directory"})}
    await looked(inspection, asked, NODES, 100.0)
    assert inspection.passed("a") and not inspection.passed("b") and kicks == [1]
    assert inspection.words("b").startswith("cannot use /models/m (model.model_path): No such file")
    asked.now = 101.0
    inspection.look(NODES, "10.0.0.1")
    assert inspection._task is None, "a node that lacks something is not asked again at once"
    asked.answers["b"] = N1
    await looked(inspection, asked, NODES, 100.0 + inspecting.AGAIN_S)
    assert inspection.passed("b") and inspection.counts("b")
    assert [nodes for nodes, _ in asked.asked] == [["a", "b"], ["b"]]
    again = (NODES[0], replace(NODES[1], node_id="c"))  # it booted: another node of Ray
    asked.answers["c"] = replace(N1, versions={**N1.versions, "verl": OTHER})
    await looked(inspection, asked, again, 116.0)
    assert "b" not in inspection.lacks
    assert inspection.words("c") == f"has verl {OTHER}, and n0 has 0.9.1; install the same version on both"


async def test_a_node_that_does_not_answer_does_not_pass() -> None:
    asked = Asked()
    inspection = Inspection(CHECKS, asked.ask, str, lambda: None, asked.clock)
    asked.answers = {"a": FIRST}
    await looked(inspection, asked, NODES, 100.0)
    assert not inspection.passed("b")
    assert inspection.words("b") == (
        "a task there gave no answer: no answer within 60 s; is a network file system there not responding?"
    )


async def test_where_nothing_can_be_asked_the_run_goes_on_and_says_so() -> None:
    asked = Asked()
    asked.fails = "cannot connect to Ray"
    inspection = Inspection(CHECKS, asked.ask, str, lambda: None, asked.clock)
    for number in range(TRIES):
        assert not inspection.passed("a")
        await looked(inspection, asked, NODES, 100.0 + number * inspecting.AGAIN_S)
    assert inspection.passed("a")
    assert inspection.words("a") == "what it has could not be checked: cannot connect to Ray"


async def test_nothing_is_asked_before_the_proxy_has_its_port() -> None:
    asked = Asked()
    ports = dict[str, str]()
    inspection = Inspection(
        replace(CHECKS, reach={"the proxy": "10.0.0.1:{port:proxy}"}),
        asked.ask,
        lambda text: ports.get(text, text) if "{" not in text or ports else None,
        lambda: None,
        asked.clock,
    )
    inspection.look(NODES, "10.0.0.1")
    await asyncio.sleep(0)
    assert asked.asked == [] and inspection.words("a") == "it is checked once the proxy has its port"
    ports["10.0.0.1:{port:proxy}"] = "10.0.0.1:4711"
    asked.answers = {"a": FIRST, "b": N1}
    await looked(inspection, asked, NODES, 101.0)
    assert asked.asked[0][1]["reach"] == {"the proxy": "10.0.0.1:4711"}


async def test_what_was_answered_before_all_was_forgotten_does_not_count() -> None:
    asked, waits = Asked(), asyncio.Event()

    async def slowly(nodes: Sequence[str], *rest: Any) -> NodeAnswer:
        await waits.wait()
        return await asked.ask(nodes, *rest)

    inspection = Inspection(CHECKS, slowly, str, lambda: None, asked.clock)
    asked.answers = {"a": FIRST, "b": N1}
    inspection.look(NODES, "10.0.0.1")
    await asyncio.sleep(0)
    inspection.forget()  # the trainer has failed meanwhile
    waits.set()
    await until(lambda: inspection._task is None)
    assert inspection.lacks == {}
    await looked(inspection, asked, NODES, 100.0)
    assert inspection.passed("a") and inspection.passed("b")


async def test_an_invalid_answer_keeps_out_its_node_alone() -> None:
    asked = Asked()
    asked.answers = {"a": replace(FIRST, versions={"verl": None}), "b": N1}
    inspection = Inspection(CHECKS, asked.ask, str, lambda: None, asked.clock)
    await looked(inspection, asked, NODES, 100.0)
    assert inspection.lacks["a"].fatal == (
        "gave an invalid answer: Expected `str`, got `null` - at `$.versions[...]`",
    )
    assert not inspection.passed("a") and inspection.passed("b")


def test_a_package_whose_folder_of_metadata_is_empty_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_over-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert node_facts._version("left-over") == ""


async def test_a_node_that_is_known_to_lack_something_does_not_pass_when_nothing_can_be_asked() -> None:
    asked = Asked()
    asked.answers = {"a": replace(FIRST, unseen={"model.model_path": "No such file"}), "b": N1}
    inspection = Inspection(CHECKS, asked.ask, str, lambda: None, asked.clock)
    await looked(inspection, asked, NODES, 100.0)
    asked.fails = "cannot connect to Ray"
    for number in range(1, TRIES + 1):
        await looked(inspection, asked, NODES, 100.0 + number * inspecting.AGAIN_S)
    assert not inspection.passed("a") and inspection.words("a").startswith("cannot use /models/m")
    assert inspection.passed("b") and inspection.passed("new")


async def test_the_pause_before_a_node_is_asked_again_begins_with_its_answer() -> None:
    asked = Asked()

    async def slowly(*words: Any) -> NodeAnswer:
        asked.now += inspecting.ANSWER_S  # no node answers
        return await asked.ask(*words)

    inspection = Inspection(CHECKS, slowly, str, lambda: None, asked.clock)
    await looked(inspection, asked, NODES, 100.0)
    assert asked.now == 100.0 + inspecting.ANSWER_S
    inspection.look(NODES, "10.0.0.1")
    assert inspection._task is None
    await looked(inspection, asked, NODES, asked.now + inspecting.AGAIN_S)
