"""Who holds a port, and what it says of how it was started; on tables that are made up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.external import litellm, port_holders, ray_cluster
from liverl.external.litellm import NotLiteLLM
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.external.ray_cluster import RayCluster

PYTHON = "/env/bin/python"
SPAWN = (PYTHON, "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork")
LITELLM = (PYTHON, "/env/bin/litellm", "--config", "cc.yaml", "--port", "8002", "--num_workers", "2")
SOCKET = ("0.0.0.0", 77, 0)


def process(pid: int, ppid: int, *argv: str) -> HolderProcess:
    return HolderProcess(pid, 1000 + pid, ppid, 0, argv)


def held(*processes: HolderProcess, unseen: tuple[int, ...] = ()) -> PortHolders:
    pids = {p.pid for p in processes}
    roots = tuple(p for p in processes if p.ppid not in pids)
    return PortHolders(frozenset({77}), "0.0.0.0", processes, roots, unseen)


def test_a_parent_with_its_spawned_workers_and_nobody_else() -> None:
    table = {p.pid: p for p in (process(10, 1, *LITELLM), process(11, 10, *SPAWN), process(12, 10, *SPAWN))}
    table[20] = process(20, 1, "litellm", "--port", "8002")  # looks like one
    table[13] = process(13, 10, PYTHON, "-c", "resource_tracker")  # its child, without the socket
    opened = {10: {77, 5}, 11: {77}, 12: {77}, 13: {5}, 20: {78}}
    found = port_holders.resolve([SOCKET], opened, table)
    assert found is not None
    assert [p.pid for p in found.holders] == [10, 11, 12] and [p.pid for p in found.roots] == [10]
    assert found.unseen == ()
    leader, argv, config = litellm.tell(found, {10: {}}, 8002)
    assert (leader.pid, argv, config) == (10, LITELLM, "cc.yaml")


def test_nobody_and_somebody_unseen() -> None:
    assert port_holders.resolve([], {1: {77}}, {}) is None
    found = port_holders.resolve([("127.0.0.1", 77, 1001)], {}, {})
    assert found is not None and found.holders == () and found.unseen == (1001,)
    with pytest.raises(NotLiteLLM, match="is not visible from here"):
        litellm.tell(found, {}, 8002)


@given(
    st.dictionaries(st.integers(2, 12), st.sets(st.integers(70, 74), max_size=3), max_size=8),
    st.dictionaries(st.integers(2, 12), st.integers(1, 12), max_size=11),
    st.sets(st.integers(70, 74), max_size=3),
)
def test_holders_are_those_with_the_socket_and_roots_have_no_holding_parent(
    opened: dict[int, set[int]], parents: dict[int, int], inodes: set[int]
) -> None:
    table = {pid: process(pid, parents.get(pid, 1)) for pid in opened}
    found = port_holders.resolve([("::", inode, 7) for inode in sorted(inodes)], opened, table)
    if not inodes:
        assert found is None
        return
    assert found is not None
    pids = {p.pid for p in found.holders}
    assert pids == {pid for pid, has in opened.items() if has & inodes}
    assert {p.pid for p in found.roots} == {pid for pid in pids if parents.get(pid, 1) not in pids}
    covered = {inode for pid in pids for inode in opened[pid]}
    assert bool(found.unseen) == (not inodes <= covered)


def test_workers_whose_parent_was_killed_say_how_they_were_started() -> None:
    two = (process(11, 1, *SPAWN), process(12, 1, *SPAWN))
    env = {"WORKER_CONFIG": json.dumps({"config": "/tmp/cc.yaml", "debug": False})}
    leader, argv, config = litellm.tell(held(*two), {11: env, 12: env}, 8002)
    assert leader.pid == 11 and config == "/tmp/cc.yaml"
    assert argv == (
        *(PYTHON, "/env/bin/litellm", "--config", "/tmp/cc.yaml"),
        *("--host", "0.0.0.0", "--port", "8002", "--num_workers", "2"),
    )
    with pytest.raises(NotLiteLLM, match="not a LiteLLM process"):
        litellm.tell(held(*two), {11: env, 12: {}}, 8002)


@pytest.mark.parametrize(
    ("argv", "right"),
    [
        (LITELLM, True),
        (("/env/bin/litellm", "--port", "1"), True),
        (("python3.12", "-u", "-X", "dev", "/x/litellm-proxy"), True),
        ((PYTHON, "-m", "litellm.proxy.proxy_cli"), True),
        ((PYTHON, "-m", "http.server", "litellm"), False),
        ((PYTHON, "/x/my_litellm_watcher.py", "/env/bin/litellm"), False),
        (("/usr/bin/vi", "litellm"), False),
        (SPAWN, False),
        ((PYTHON,), False),
        ((PYTHON, "-m"), False),
        ((), False),
    ],
)
def test_what_is_litellms_own_command(argv: tuple[str, ...], right: bool) -> None:
    assert litellm.is_litellm(argv) is right


def test_anything_else_on_the_port_is_described_and_refused() -> None:
    server = process(30, 1, PYTHON, "-m", "http.server", "8002", "--api-key", "sk-secret-of-mine")
    with pytest.raises(
        NotLiteLLM,
        match=r"port 8002 is held by pid 30 .* -m http\.server .*, which is not a LiteLLM process$",
    ) as e:
        litellm.tell(held(server), {}, 8002)
    assert "secret" not in str(e.value)
    # one that only inherited the socket is named too, and the LiteLLM beside it is not taken for the whole
    with pytest.raises(NotLiteLLM, match="pid 31"):
        litellm.tell(held(process(10, 1, *LITELLM), process(31, 1, "sleep", "9")), {}, 8002)
    with pytest.raises(NotLiteLLM, match="more than one LiteLLM process"):
        litellm.tell(held(process(10, 1, *LITELLM), process(32, 1, *LITELLM)), {}, 8002)


def test_options_in_either_spelling() -> None:
    assert litellm.option(["x", "--config=a", "-c", "b"], "--config", "-c") == "b"
    assert litellm.option(["x", "--config"], "--config") is None
    assert litellm.option(["x", "--configs", "a"], "--config") is None


def dashboard(*more: str, port: str = "8265") -> tuple[str, ...]:
    script = "/env/lib/python3.11/site-packages/ray/dashboard/dashboard.py"
    return (PYTHON, script, "--host=0.0.0.0", f"--port={port}", "--gcs-address=192.0.2.2:6379", *more)


def test_a_dashboards_command_line_tells_its_ray() -> None:
    found = ray_cluster.parse(dashboard("--port-retries=50"))
    assert found is not None
    assert (found.python, found.host, found.first, found.retries, found.gcs, found.served) == (
        *(PYTHON, "0.0.0.0", 8265, 50, "192.0.2.2:6379"),
        True,
    )
    quiet = ray_cluster.parse(dashboard("--modules-to-load=UsageStatsHead", "--disable-frontend"))
    assert quiet is not None and not quiet.served and quiet.logs == ""
    logs = "/tmp/ray/session_1/logs"
    logged = ray_cluster.parse(dashboard(f"--log-dir={logs}"))
    assert logged is not None and logged.logs == logs
    agent = (PYTHON, "-u", "/env/ray/dashboard/agent.py", "--gcs-address=a:1", "--port=1")
    for other in ((), (PYTHON,), agent, dashboard(port="x"), ("python", *dashboard()[1:])):
        assert ray_cluster.parse(other) is None


def ray(pid: int, api: str, *, ours: bool) -> RayCluster:
    return RayCluster(pid, pid, api, "h:1", PYTHON, "", {}, True, ours)


def test_the_scripts_own_ray_comes_first_unless_one_is_named() -> None:
    usual, own = ray(1, "127.0.0.1:8265", ours=False), ray(2, "127.0.0.1:9999", ours=True)
    assert ray_cluster.choose([usual, own], "127.0.0.1:8265", wanted=False) is own
    assert ray_cluster.choose([usual, own], "127.0.0.1:8265", wanted=True) is usual
    assert ray_cluster.choose([usual], "127.0.0.1:8265", wanted=False) is usual
    assert ray_cluster.choose([usual], "", wanted=False) is None
    assert ray_cluster.choose([own], "127.0.0.1:8265", wanted=True) is None
