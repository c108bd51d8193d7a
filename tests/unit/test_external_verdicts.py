"""Whose a port is and what it is, where a server goes in somebody's list, and which Ray is meant: each at its edge."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from liverl.external import config_file, litellm, model_list, port_holders, ray_cluster, restart
from liverl.external.litellm import NotLiteLLM
from liverl.external.model_list import ListingError
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.external.ray_cluster import RayCluster

PYTHON = "/env/bin/python"
SPAWN = (PYTHON, "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")
LITELLM = (PYTHON, "/env/bin/litellm", "-c", "cc.yaml")


def process(
    pid: int, ppid: int = 1, argv: tuple[str, ...] = (), tick: int | None = None, uid: int = 0
) -> HolderProcess:
    return HolderProcess(pid, 1000 + pid if tick is None else tick, ppid, uid, argv)


def held(*processes: HolderProcess, unseen: tuple[int, ...] = (), address: str = "0.0.0.0") -> PortHolders:
    pids = {p.pid for p in processes}
    return PortHolders(
        frozenset({77}), address, processes, tuple(p for p in processes if p.ppid not in pids), unseen
    )


# --- who holds a port -----------------------------------------------------------------------------------


def test_holders_stand_by_age_and_then_by_pid() -> None:
    table = {pid: process(pid, tick=tick) for pid, tick in ((5, 30), (6, 10), (9, 20), (8, 20))}
    found = port_holders.resolve([("::1", 77, 0)], {pid: {77} for pid in table}, table)
    assert found is not None
    assert [p.pid for p in found.holders] == [p.pid for p in found.roots] == [6, 8, 9, 5]
    assert found.address == "::1" and found.inodes == {77}
    assert found.holders[0].member == (6, 10)


def test_of_several_sockets_each_may_have_its_own_holder() -> None:
    sockets = [("0.0.0.0", 77, 0), ("::", 78, 1), ("::1", 79, 5), ("10.0.0.1", 80, 5), ("10.0.0.2", 81, 3)]
    table = {2: process(2), 3: process(3, 2), 4: process(4, 3)}
    found = port_holders.resolve(sockets, {2: {77}, 3: {78, 9}, 4: {10}, 99: {79}}, table)
    assert found is not None and found.address == "0.0.0.0"
    assert [p.pid for p in found.holders] == [2, 3] and [p.pid for p in found.roots] == [2]
    assert found.inodes == {77, 78, 79, 80, 81}
    assert found.unseen == (5, 3), "a process that could not be read is not seen either; each user once"


# --- what it is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "right"),
    [
        (("/x/litellm",), True),
        (("litellm-proxy",), True),
        (("/x/litellm2",), False),
        (("/x/python3", "litellm"), True),
        (("/x/python3", "-u", "litellm"), True),
        (("/x/python3", "-W", "ignore", "/x/litellm"), True),
        (("/x/python3", "-X", "/x/litellm"), False),  # that is its option's value
        (("/x/python3", "-W", "ignore"), False),
        (("/x/python3", "-u"), False),
        (("/x/python3", "-m", "litellm"), True),
        (("/x/python3", "-u", "-m", "litellm.proxy"), True),
        (("/x/python3", "-m", "litellmx"), False),
        (("/x/python3", "-m", "x", "litellm"), False),
        (("/x/python3", "-c", "litellm"), False),
        (("/x/python3", "-c", "/x/litellm"), False),
        (("/x/python3", "x.py", "litellm"), False),
        (("/x/ruby", "/x/litellm"), False),
    ],
)
def test_what_is_litellms_own_command(argv: tuple[str, ...], right: bool) -> None:
    assert litellm.is_litellm(argv) is right


@pytest.mark.parametrize(
    ("argv", "config", "options"),
    [
        (SPAWN, '{"config": "a"}', {"config": "a"}),
        (SPAWN, '{"config": "a", "port": 1}', {"config": "a", "port": 1}),
        ((PYTHON, "x"), '{"config": "a"}', None),
        (SPAWN, '{"config": ""}', None),
        (SPAWN, "{}", None),
        (SPAWN, '["config"]', None),
        (SPAWN, "{", None),
        (SPAWN, None, None),
    ],
)
def test_options_of_a_worker(
    argv: tuple[str, ...], config: str | None, options: dict[str, object] | None
) -> None:
    env = {} if config is None else {"WORKER_CONFIG": config}
    assert litellm.worker_config(argv, env) == options


def test_the_value_of_an_option() -> None:
    option = litellm.option
    assert option(["x", "--a", "1"], "--a") == "1" and option(["--a=1"], "--a") == "1"
    assert option(["--a="], "--a") == "" and option(["--a=b=c"], "--a") == "b=c"
    assert option(["--a", "1", "--b", "2"], "--a", "--b") == "2", "the last one"
    assert option(["--a", "1", "--a"], "--a") == "1" and option([], "--a") is None


def test_which_command_starts_the_whole_proxy_again() -> None:
    parent, worker = process(10, 1, LITELLM), process(11, 10, SPAWN)
    assert litellm.tell(held(parent, worker), {}, 8002) == (parent, LITELLM, "cc.yaml")
    # beside workers whose parent has gone: it stands for them
    env = {"WORKER_CONFIG": json.dumps({"config": "/c.yaml"})}
    orphan = process(12, 1, SPAWN)
    assert litellm.tell(held(orphan, parent), {12: env}, 8002)[0] == parent
    found, argv, config = litellm.tell(held(orphan, address="::1"), {12: env}, 8003)
    assert (found, config) == (orphan, "/c.yaml")
    assert argv == (
        PYTHON,
        "/env/bin/litellm",
        "--config",
        "/c.yaml",
        "--host",
        "::1",
        "--port",
        "8003",
        "--num_workers",
        "1",
    )


def test_what_cannot_be_started_again_is_named() -> None:
    with pytest.raises(NotLiteLLM, match=r"^port 8002 is held by a process that is not visible from here \("):
        litellm.tell(held(process(10, 1, LITELLM), unseen=(5,)), {}, 8002)
    vi, cat = process(999999, 1, ("vi",)), process(999998, 1)
    with pytest.raises(NotLiteLLM) as caught:
        litellm.tell(held(vi, cat, process(10, 1, LITELLM)), {}, 8002)
    assert str(caught.value) == (
        "port 8002 is held by pid 999999 (user ?, vi); pid 999998 (user ?, [no command line]), "
        "which are not LiteLLM processes"
    )
    two = held(process(999999, 1, LITELLM), process(999998, 1, ("litellm",)))
    with pytest.raises(NotLiteLLM) as caught:
        litellm.tell(two, {}, 8002)
    assert str(caught.value) == (
        f"port 8002 is held by pid 999999 (user ?, {' '.join(LITELLM)}); pid 999998 (user ?, litellm), "
        "more than one LiteLLM process"
    )


def test_a_process_in_words() -> None:
    secret = process(999999, 1, ("x", "--api-key", "sk-0123456789", "-v", *["y" * 50] * 9))
    text = litellm.words(secret)
    assert "sk-" not in text and text.startswith("pid 999999 (user ?, x --api-key *** -v yy")
    assert len(text.partition(", ")[2]) == 201 and text.endswith("y)")
    launch = litellm.LiteLLMLaunch(("x", "--api-key", "s"), "/", {}, Path("c"), None)
    assert launch.words() == "x --api-key ***"
    assert litellm.usual_files(8002) == (Path("/tmp/litellm_cc_8002.yaml"), Path("/tmp/litellm_cc_8002.pid"))


def test_another_users_process_is_not_touched() -> None:
    me = os.geteuid()
    mine, other = process(999999, 1, ("x",), uid=me), process(999998, 1, ("y",), uid=me + 1)
    assert restart.refusal(held(mine)) is None and restart.refusal(held()) is None
    assert restart.refusal(held(mine, other)) == (
        "pid 999998 (user ?, y) belongs to another user, so this run cannot stop it; restart it as that user"
    )


def test_how_long_is_waited() -> None:
    """Seconds: a service's usual time to end, and LiteLLM's start on busy cores."""
    assert restart.GRACE == 10.0 and restart.UP == 180.0


def test_the_end_of_a_log_that_has_grown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert restart._output(log, 0) == "(cannot read the log: No such file or directory)"
    log.write_text("old\n")
    assert restart._output(log, 4) == "(no new lines)" and restart._output(log, 9) == "(no new lines)"
    assert restart._output(log, 0) == "old"
    with log.open("a") as out:
        out.write("".join(f"line {n} sk-0123456789abc\n" for n in range(20)))
    assert restart._output(log, 4).splitlines() == [f"line {n} ***" for n in range(8, 20)]


# --- the list of models ---------------------------------------------------------------------------------

A, B, C = "http://10.0.0.1:4001", "http://10.0.0.1:4002", "http://10.0.0.1:4003"


def entry(name: str, base: str, model: str = "hosted_vllm/policy", key: str = "api_base") -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": model, key: base}}


def bases(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m["model_name"], model_list._base(m, {})) for m in document["model_list"]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "a: b\nmodel_list: [",
            "not valid YAML (line 2): did not find expected node content",
        ),
        ("\x07", "not valid YAML: unacceptable character #x0007: control characters are not allowed"),
        ("{}", "model_list is missing"),
        ("model_list: {a: b}", "model_list is missing"),
        ("model_list: [1]", "an entry of model_list has no litellm_params"),
        ("model_list: [{litellm_params: 1}]", "an entry of model_list has no litellm_params"),
        ("model_list: [{litellm_params: {}}, {}]", "an entry of model_list has no litellm_params"),
    ],
)
def test_what_is_no_list_of_models(text: str, why: str) -> None:
    with pytest.raises(ListingError) as caught:
        model_list.read(text)
    assert str(caught.value).startswith(why)


def test_an_empty_list_is_one() -> None:
    assert model_list.read("model_list: []") == {"model_list": []}
    with pytest.raises(ListingError, match=r"^no entry of model_list routes to a replica$"):
        model_list.add({"model_list": []}, A, [A])


def test_text_that_reads_back_as_it_was() -> None:
    document = {"model_list": [], "b": "x\x85y", "a": "word " * 200}
    text = model_list.render(document)
    assert list(model_list.read(text)) == ["model_list", "b", "a"] and model_list.read(text) == document
    assert text.count("\n") == 3, "no long line is folded"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://h:1/v1", ("h", 1)),
        ("https://h:1", ("h", 1)),
        ("h:1", ("h", 1)),
        ("H:1", ("h", 1)),
        ("http://h", ("h", 80)),
        ("https://h", ("h", 443)),
        ("h", ("h", 80)),
        ("http://localhost", ("localhost", 80)),
        ("http://[::]:2", ("localhost", 2)),
        ("10.0.0.7:2", ("localhost", 2)),
        ("10.0.0.8:2", ("10.0.0.8", 2)),
        ("/v1", None),
        ("http://h:99999", None),
    ],
)
def test_where_an_address_leads(url: str, place: tuple[str, int] | None) -> None:
    assert model_list.place(url, {"10.0.0.7"}) == place


def test_the_addresses_of_a_list() -> None:
    document = {
        "model_list": [
            entry("a", A),
            entry("a", B, key="base_url"),
            entry("b", A),
            entry("c", "os.environ/C"),
            entry("d", "os.environ/D"),
            {"model_name": "e", "litellm_params": {"model": "openai/x", "api_base": None}},
            {"model_name": "f", "litellm_params": {"api_base": A + "/f", "base_url": B + "/f"}},
        ]
    }
    assert model_list.backends(document, {"C": C}) == (A, B, C, A + "/f")
    assert model_list.backends(document) == (A, B, A + "/f")


def test_a_new_server_stands_behind_the_last_of_its_name() -> None:
    document = {"model_list": [entry("a", A), entry("b", A), entry("a", B), entry("c", "http://judge:1")]}
    added, names = model_list.add(document, C, [A])
    assert names == ("a", "b")
    assert bases(added) == [("a", A), ("b", A), ("b", C), ("a", B), ("a", C), ("c", "http://judge:1")]


def test_a_name_that_has_the_server_gets_no_second_entry() -> None:
    document = {"model_list": [entry("a", f"{B}/v1"), entry("b", A), entry("a", A)]}
    added, names = model_list.add(document, B, [A])
    assert names == ("b",)
    assert bases(added) == [("a", f"{B}/v1"), ("b", A), ("b", B), ("a", A)]
    # the server's own place is known without being named among the replicas
    assert model_list.add({"model_list": [entry("a", B)]}, B, [])[1] == ()
    here = {"model_list": [entry("a", "http://10.0.0.7:1", model="openai/x")]}
    assert model_list.add(here, "http://localhost:1", [], {"10.0.0.7"})[1] == ()
    assert model_list.add(here, "http://localhost:2", ["http://127.0.0.1:1"], {"10.0.0.7"})[1] == ("a",)


def test_names_that_mean_a_vllm_count_where_no_replica_is_listed() -> None:
    gone = entry("a", C)
    judge = entry("b", "http://judge:1", model="openai/x")
    assert model_list.add({"model_list": [judge, gone]}, B, [A])[1] == ("a",)
    known = entry("c", A, model="openai/x")
    assert model_list.add({"model_list": [known, gone]}, B, [A])[1] == ("c",), (
        "one is listed: it tells them apart"
    )
    with pytest.raises(ListingError, match=r"^the replica's address 'http://' is not valid$"):
        model_list.add({"model_list": [gone]}, "http://", [A])


def test_the_new_entry_is_like_the_first_that_fits() -> None:
    env = {"FIRST": "https://10.0.0.1:4001/api/v1?q=1"}
    first = {
        "model_name": "a",
        "litellm_params": {"model": "x", "api_base": "os.environ/FIRST", "base_url": f"{A}/b", "timeout": 5},
        "model_info": {"id": "one", "mode": "chat"},
    }
    document = {
        "model_list": [first, entry("a", f"{A}/other"), {**entry("b", "10.0.0.1:4001"), "model_info": None}]
    }
    added, names = model_list.add(document, "http://10.0.0.1:4002/ignored", [A], env=env)
    assert names == ("a", "b")
    new = added["model_list"][2]
    assert new["litellm_params"] == {
        "model": "x",
        "api_base": "https://10.0.0.1:4002/api/v1",
        "base_url": "http://10.0.0.1:4002/b",
        "timeout": 5,
    }
    assert new["model_info"] == {"mode": "chat"}
    assert bases(added)[4] == ("b", "http://10.0.0.1:4002") and added["model_list"][4]["model_info"] is None
    assert first["model_info"] == {"id": "one", "mode": "chat"}


def test_an_entry_that_stands_there_twice_counts_as_the_last() -> None:
    """YAML's aliases make one object of two entries."""
    shared = entry("a", A)
    added, _ = model_list.add({"model_list": [shared, entry("b", "http://judge:1"), shared]}, B, [A])
    assert bases(added) == [("a", A), ("b", "http://judge:1"), ("a", A), ("a", B)]


def test_a_copy_is_kept_of_every_file_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        config_file.time, "gmtime", lambda: config_file.time.struct_time((2026, 1, 2, 3, 4, 5, 0, 2, 0))
    )
    path = tmp_path / "cc.yaml"
    path.write_text("0")
    path.chmod(0o640)
    made = [config_file.replace_with_backup(path, str(n)) for n in (1, 2, 3)]
    stem = "cc.yaml.bak-20260102T030405Z"
    assert [copy.name for copy in made] == [stem, f"{stem}-2", f"{stem}-3"]
    assert [copy.read_text() for copy in made] == ["0", "1", "2"] and path.read_text() == "3"
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o640}
    for number in range(4, 100):
        (tmp_path / f"{stem}-{number}").touch()
    with pytest.raises(FileExistsError, match=rf"^{stem}: too many backups in the same second; try again$"):
        config_file.replace_with_backup(path, "4")
    assert path.read_text() == "3"
    (tmp_path / f"{stem}-99").unlink()
    assert config_file.replace_with_backup(path, "4").name == f"{stem}-99"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_file_and_its_copy_stay_their_owners(tmp_path: Path) -> None:
    path = tmp_path / "cc.yaml"
    for uid, gid in ((65534, 65534), (0, 65534), (65534, 0), (0, 0)):
        path.write_text("x")
        os.chown(path, uid, gid)
        copy = config_file.replace_with_backup(path, "y")
        for file in (path, copy):
            assert (file.stat().st_uid, file.stat().st_gid) == (uid, gid)


# --- which Ray ------------------------------------------------------------------------------------------

SCRIPT = "/env/lib/ray/dashboard/dashboard.py"


def parsed(*argv: str) -> ray_cluster.RayDashboard | None:
    return ray_cluster.parse(argv)


def test_the_command_line_of_a_dashboard() -> None:
    least = parsed("/py", SCRIPT, "--port=1", "--gcs-address=h:2")
    assert least == ray_cluster.RayDashboard("/py", "127.0.0.1", 1, 0, "h:2", True)
    more = ("--port-retries", "7", "--host", "::", "--modules-to-load=A,StateHead")
    assert parsed(
        "/py", "-u", "-x", SCRIPT, "--port=1", "--gcs-address=h:2", *more
    ) == ray_cluster.RayDashboard("/py", "::", 1, 7, "h:2", True)
    rest = ("--port=1", "--gcs-address=h:2")
    odd = parsed("/py", SCRIPT, *rest, "--port-retries=x", "--modules-to-load=UsageStatsHead")
    assert odd is not None and odd.retries == 0 and not odd.served
    for other in (
        ("/py", "-u", "-x", "-y", SCRIPT, *rest),  # too far behind: it is an argument of something else
        (SCRIPT, *rest),
        ("py", SCRIPT, *rest),
        ("/py", "/env/dashboard/dashboard.py", *rest),
        ("/py", SCRIPT, "--port=1"),
        ("/py", SCRIPT, "--gcs-address=h:2"),
        ("/py", SCRIPT, "--port=x", "--gcs-address=h:2"),
    ):
        assert ray_cluster.parse(other) is None


def test_where_a_client_reaches_a_server() -> None:
    hosts = ("0.0.0.0", "::", "localhost", "10.0.0.1", "::1")
    assert [ray_cluster.reachable(h) for h in hosts] == ["127.0.0.1", "::1", "127.0.0.1", "10.0.0.1", "::1"]


def ray(pid: int, api: str, ours: bool = False) -> RayCluster:
    return RayCluster(pid, pid + 1, api, "h:1", PYTHON, "", {}, True, ours)


def test_of_several_clusters_the_first_that_fits() -> None:
    a, b, c, d = ray(1, "h:1"), ray(2, "h:1"), ray(3, "h:2", True), ray(4, "h:1", True)
    assert ray_cluster.choose([a, b, c, d], "h:1", wanted=False) is c
    assert ray_cluster.choose([a, b, c, d], "h:1", wanted=True) is a
    assert ray_cluster.choose([b, a], "h:1", wanted=False) is b
    assert ray_cluster.choose(iter([c]), "h:1", wanted=True) is None
    assert ray_cluster.choose([], "h:1", wanted=False) is None
    assert a.identity == (1, 2, "h:1")


def test_the_file_of_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / ".ray" / "auth_token"
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "own"
    own.touch()

    def file(**env: str) -> str:
        return ray_cluster._token_file({name.upper(): text for name, text in env.items()})

    assert file(ray_auth_mode="token") == "", "there is none"
    token.parent.mkdir()
    token.touch()
    assert file(ray_auth_mode="token") == file(ray_auth_mode="TOKEN") == str(token)
    assert file() == file(ray_auth_mode="disabled") == ""
    assert file(ray_auth_mode="token", ray_auth_token_path=str(own)) == str(own)
    assert file(ray_auth_mode="token", ray_auth_token_path=str(tmp_path / "none")) == ""
    assert file(ray_auth_mode="token", ray_auth_token_path=str(tmp_path)) == "", "a directory"
    assert file(ray_auth_mode="token", ray_auth_token="abc") == "", "the token itself goes before a file"
