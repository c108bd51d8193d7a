"""Pods listed and watched through faults. SIMULATED: the cluster is ``kit.fake_apiserver``, over TLS with a token; no
real apiserver was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.pods import RUN, TOKEN, Served, pod
from kit.waiting import PATIENCE_S

from liverl.agents.harbor.owned import Ledger
from liverl.agents.pods import POD_RUN_ID, is_pod_of, label_value, selector_of
from liverl.sandboxes.kubernetes.client import Cluster
from liverl.sandboxes.kubernetes.kubeconfig import KubeconfigError, credentials, load
from liverl.sandboxes.kubernetes.pod import Pod
from liverl.sandboxes.kubernetes.seen import SeenPods
from liverl.sandboxes.kubernetes.watch import PodWatch


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    one.close()


@asynccontextmanager
async def watching(served: Served, **more: Any) -> AsyncIterator[PodWatch]:
    cluster = Cluster(load(served.path), "", f"{POD_RUN_ID}={label_value(RUN)}", plugin_s=2.0)
    watch = PodWatch(cluster, time.time, pause=0.05, **more)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


def phases(watch: PodWatch) -> dict[str, str]:
    return {one.name: one.phase for one in watch.pods.values()}


def there(served: Served) -> dict[str, str]:
    wanted = label_value(RUN)
    pods = [p for p in served.fake.pods.values() if p["metadata"]["labels"][POD_RUN_ID] == wanted]
    return {p["metadata"]["name"]: p["status"]["phase"] for p in pods}


async def through_faults(served: Served, number: int, rounds: int) -> PodWatch:
    """Changes and faults in turn; after each round the watch knows exactly the pods that there are."""
    for one in range(number):
        served.fake.put("", pod(one))
    served.fake.put("", pod(9999, run="b" * 32))
    told: list[tuple[str, bool]] = []
    async with watching(served, told=lambda pod, gone: told.append((pod.name, gone))) as watch:
        await until(lambda: phases(watch) == there(served), "the list")
        assert watch.lists == 1 and len(watch.pods) == number
        for turn in range(rounds):
            served.fault("bookmark")
            served.fake.put("", pod(turn % number, phase="Failed", reason="Evicted", message="low on memory"))
            fault = ("drop", "gone", "fail", "refuse")[turn % 4]
            if fault == "fail":
                served.fault("fail", code=503, n=3)
            elif fault == "refuse":
                served.fault("fail", code=401, n=1)
            else:
                served.fault(fault)
            served.fake.put("", pod(number + turn, phase="Pending"))
            served.fake.put("DELETED", served.fake.pods["rl", f"t-{(turn + 1) % number}"])
            served.fake.put("", pod((turn + 1) % number))
            await until(lambda: phases(watch) == there(served) and not watch.why, f"round {turn} ({fault})")
        assert watch.lists > 1 and watch.watches > 1
        assert "t-9999" not in {name for name, _ in told} and any(gone for _, gone in told)
    return watch


async def test_fifty_pods_through_faults(served: Served) -> None:
    await through_faults(served, 50, 12)


@pytest.mark.slow
async def test_a_thousand_pods_through_faults(served: Served) -> None:
    until_s = time.monotonic() + float(os.environ.get("LIVERL_TEST_PODS_S", "0"))  # 600 for ten minutes
    await through_faults(served, 1000, 40)
    while time.monotonic() < until_s:
        served.fake.pods.clear()
        await through_faults(served, 1000, 40)


async def test_an_api_that_is_away_is_named_and_what_was_known_stays(served: Served) -> None:
    served.fake.put("", pod(1))
    async with watching(served) as watch:
        await until(lambda: watch.pods, "the list")
        served.fault("fail", code=403, n=100_000)
        await until(lambda: watch.why, "the refusal")
        assert "this user may not list and watch pods there (HTTP 403" in watch.why and len(watch.pods) == 1
        since = watch.since
        served.fault("fail", code=500, n=100_000)
        await until(lambda: "HTTP 500" in watch.why, "another fault")
        assert watch.since == since and TOKEN not in watch.why
        served.fault("fail", code=500, n=0)
        await until(lambda: not watch.why, "its return")


def ended(reason: str, code: int) -> list[dict[str, Any]]:
    return [
        {"name": "main", "restartCount": 1, "state": {"terminated": {"reason": reason, "exitCode": code}}}
    ]


def waits(reason: str, message: str = "") -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


DISRUPTED = [
    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint"}
]
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]


@pytest.mark.parametrize(
    ("status", "trouble", "reason"),
    [
        ({"containerStatuses": waits("ImagePullBackOff", "x")}, "image_pull", "ImagePullBackOff"),
        ({"containerStatuses": waits("CreateContainerConfigError")}, "config", "CreateContainerConfigError"),
        ({"phase": "Failed", "containerStatuses": ended("OOMKilled", 137)}, "oom", "OOMKilled"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "deadline", "DeadlineExceeded"),
        ({"phase": "Failed", "reason": "Evicted"}, "evicted", "Evicted"),
        ({"phase": "Failed", "conditions": DISRUPTED}, "node_gone", "DeletionByTaintManager"),
        ({"phase": "Pending", "conditions": UNSCHEDULED}, "unschedulable", "Unschedulable"),
        ({"phase": "Pending", "containerStatuses": waits("ContainerCreating")}, None, "ContainerCreating"),
        ({}, None, ""),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_a_pod(
    served: Served, status: Any, trouble: str | None, reason: str
) -> None:
    served.fake.put("", pod(1, **status))
    async with watching(served) as watch:
        await until(lambda: watch.pods, "the pod")
        (one,) = watch.pods.values()
    assert isinstance(one, Pod)
    assert (one.trouble, one.reason, one.node, one.trial) == (trouble, reason, "node-1", "t-1")
    assert one.oom == (trouble == "oom") and one.exit == (137 if one.oom else None)


async def test_kubectl_and_we_agree(served: Served) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no program kubectl")
    for number in range(7):
        served.fake.put("", pod(number, phase=("Pending", "Running", "Failed")[number % 3]))
    served.fake.put("", pod(8, run="b" * 32))
    words = [kubectl, "--kubeconfig", served.path, "--cache-dir", served.path.parent / "cache", "get", "pods",
             "-l", f"{POD_RUN_ID}={label_value(RUN)}", "-o", "json"]  # fmt: skip
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=60, check=True)
    theirs = {
        one["metadata"]["name"]: (one["status"]["phase"], one["spec"]["nodeName"], one["metadata"]["uid"])
        for one in json.loads(done.stdout)["items"]
    }
    async with watching(served) as watch:
        await until(lambda: watch.listed, "the list")
        assert {one.name: (one.phase, one.node, one.uid) for one in watch.pods.values()} == theirs
    assert len(theirs) == 7


def test_a_plug_in_gives_a_token_and_one_that_hangs_is_ended_by_name(served: Served, tmp_path: Path) -> None:
    program = tmp_path / "get-token"
    told = {
        "kind": "ExecCredential",
        "status": {"token": TOKEN, "expirationTimestamp": "2027-01-15T08:00:00Z"},
    }
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(told)!r})\n")
    program.chmod(0o755)
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./get-token",
        "args": ["--secret=x"],
    }
    found = credentials(load(served.write({"exec": exec_})), os.environ)
    assert found.token == TOKEN and found.fresh(1_799_999_000.0) and not found.fresh(1_799_999_990.0)
    child = tmp_path / "child"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {child}\nwait\n")
    with pytest.raises(
        KubeconfigError, match=r"get-token did not answer within 0\.5 s and was ended"
    ) as error:
        credentials(load(served.path), os.environ, 0.5)
    assert str(served.path) in str(error.value) and "--secret" not in str(error.value)
    program.write_text("#!/bin/sh\necho no login >&2\nexit 3\n")
    with pytest.raises(KubeconfigError, match=r"get-token failed \(exit 3\): no login"):
        credentials(load(served.path), os.environ)


def test_bad_kubeconfigs_are_named(served: Served, tmp_path: Path) -> None:
    user = {"token": TOKEN}
    with pytest.raises(
        KubeconfigError, match=r"current-context: found trainin, which is not in contexts.*training"
    ) as error:
        load(served.write(user, **{"current-context": "trainin"}))
    assert "did you mean" in str(error.value)
    assert load(served.write(user, mode=0o644)).readable and not load(served.write(user)).readable
    (tmp_path / "ca.pem").write_text("nonsense")
    assert load(served.path).ca == "nonsense"
    with pytest.raises(KubeconfigError, match="cannot be read as a kubeconfig"):
        load(tmp_path / "none")
    with pytest.raises(KubeconfigError, match="needed together"):
        credentials(load(served.write({"client-certificate": "ca.pem"})), {})


def test_labels_and_selectors() -> None:
    assert len(label_value("x" * 200)) == 16 and label_value("x") != label_value("y")
    assert selector_of({"environment_type": "ack"}, RUN) == f"liverl.run-id={label_value(RUN)}"
    assert selector_of({"environment_type": None, "pod_name_prefix": "p"}, RUN) == "harbor-run=p"
    with pytest.raises(ValueError, match=r"pod_name_prefix: found 200 characters, expected at most 63"):
        selector_of({"pod_name_prefix": "a" * 200}, RUN)
    assert is_pod_of(("swe-fix-bug-1a2b3c4d--env",), "Fix_Bug-1a2b3c4d") and not is_pod_of(
        ("fix-bug-1a2b3c4d5",), "fix-bug-1a2b3c4d"
    )


async def test_the_status_names_the_pods_of_the_run(served: Served, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ledger = Ledger(run, "worker-1", "attempt_001", {})
    cluster = {
        "kubeconfig": str(served.path),
        "namespace": "",
        "selector": selector_of({"environment_type": "ack"}, RUN),
    }
    for trial in ("t-1", "t-2", "t-3"):
        ledger.begin_pod(trial, cluster, kept=False)
    served.fake.put("", pod(1))
    served.fake.put("", pod(2, phase="Pending", containerStatuses=waits("ImagePullBackOff", "no such image")))
    served.fake.put("", pod(3, phase="Failed", reason="Evicted"))
    served.fake.put("", pod(7))  # of no trial that is known
    tasks: list[asyncio.Task[None]] = []
    seen = SeenPods(lambda work: tasks.append(asyncio.ensure_future(work)) or tasks[-1])
    first = await seen.look(run, 1000.0)
    assert first is not None and not first.reachable and "not been listed yet" in first.why
    assert seen._watch is not None
    await until(lambda: seen._watch[1].listed, "the list")
    status = await seen.look(run, 1001.0)
    assert status is not None and status.reachable and status.backend == "kubernetes"
    assert (status.running, status.starting, status.ended, status.left) == (2, 1, 1, 1)
    rows = {row.trial: row for row in status.rows}
    assert rows[""].name == "t-7" and rows[""].left and status.rows[0].name == "t-7"
    assert (rows["t-2"].reason, rows["t-2"].node, rows["t-2"].phase) == (
        "ImagePullBackOff",
        "node-2",
        "Pending",
    )
    assert rows["t-1"].exec == f"kubectl --kubeconfig {served.path} -n rl exec -it t-1 -- sh"
    assert rows["t-3"].exec == "" and rows["t-3"].logs.endswith("logs --all-containers t-3")
    assert {(one.kind, one.trial) for one in status.troubles} == {("image_pull", "t-2"), ("evicted", "t-3")}
    assert TOKEN not in repr(status)
    served.fake.put("DELETED", served.fake.pods["rl", "t-2"])
    served.fake.put("DELETED", served.fake.pods["rl", "t-3"])
    await until(lambda: len(seen._watch[1].pods) == 2, "the deletions")
    status = await seen.look(run, 1002.0)
    assert status is not None and [one.kind for one in status.troubles] == ["evicted"], (
        "told although it is gone"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_run_without_pods_asks_nobody_and_a_wrong_prefix_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    seen = SeenPods(asyncio.ensure_future)  # type: ignore[arg-type]
    assert await seen.look(run, 1000.0) is None
    ledger = Ledger(run, "worker-1", "attempt_001", {})
    ledger.begin_pod(
        "t-1", {"kubeconfig": "/k", "namespace": "", "fault": "the prefix is too long"}, kept=False
    )
    status = await seen.look(run, 1000.0)
    assert status is not None and (status.reachable, status.why) == (False, "the prefix is too long")
