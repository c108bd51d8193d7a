"""What a backend tells of its trials' containers while the run goes on. SIMULATED: the docker program is scripted
(``kit.fake_docker``); with a real daemon: ``tests/docker/test_seen.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.fake_docker import FakeDocker, begin
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.agents.harbor.owned import identity
from liverl.model import SandboxesStatus
from liverl.plan.spec import Settings
from liverl.sandboxes.networks import DEFAULT_POOLS, routes
from liverl.sandboxes.seen import OVER_S, ROWS, SeenSandboxes, with_paths

NOW = 1_800_000_100.0
STARTED = 1_800_000_000.123456


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    found = FakeDocker(tmp_path / "docker")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


def looked(
    run: Path, seen: SeenSandboxes | None = None, now: float = NOW, seconds: float = 60.0
) -> SandboxesStatus:
    status = (seen or SeenSandboxes()).look(run, now, seconds)
    assert status is not None
    return status


def test_a_run_that_has_begun_nothing_asks_nobody(tmp_path: Path, fake: FakeDocker) -> None:
    (tmp_path / "run").mkdir()
    assert SeenSandboxes().look(tmp_path / "run", NOW, 10.0) is None
    identity(tmp_path / "run")
    assert SeenSandboxes().look(tmp_path / "run", NOW, 10.0) is None and fake.calls == []
    assert with_paths(None, {}) is None


def test_containers_in_every_state(tmp_path: Path, fake: FakeDocker) -> None:
    run = tmp_path / "run"
    ledger = begin(run, tmp_path, ["t-run", "t-new", "t-dead", "t-over"])
    begin(run, tmp_path / "kept", ["t-kept"], worker="worker-2", kept=True)
    for name in ("t-run", "t-new", "t-dead", "t-over"):
        fake.sandbox(run, name)
    fake.sandbox(run, "t-kept", kept=True)
    fake.sandbox(run, "t-unknown")  # whose ledger is lost
    fake.stranger("x")
    things = fake.things
    things["container"]["c-t-new"] |= {"state": "created", "started": "0001-01-01T00:00:00Z"}
    ended = {"state": "exited", "exit": 137, "oom": True, "ended": "2027-01-15T08:01:00Z"}
    things["container"]["c-t-dead"] |= ended
    fake.set(things=things, vanishing=["c-gone"])
    ledger.over("t-over")
    ledger.over("t-kept")
    seen = SeenSandboxes()
    status = looked(run, seen)
    assert (status.backend, status.reachable, status.why, status.since, status.server) == (
        "docker",
        True,
        "",
        None,
        "",
    )
    assert (status.running, status.starting, status.ended, status.networks) == (4, 1, 1, 6)
    assert status.oldest == pytest.approx(STARTED, abs=1)
    rows = {row.trial: row for row in status.rows}
    assert set(rows) == {"t-run", "t-new", "t-dead", "t-over", "t-kept", "t-unknown"}
    assert (rows["t-run"].state, rows["t-run"].exit) == ("running", None)
    assert rows["t-run"].since == pytest.approx(STARTED, abs=1)
    assert rows["t-run"].exec == "docker exec -it c-t-run sh" and rows["t-run"].name == "t-run__env-main-1"
    assert (rows["t-new"].state, rows["t-new"].since) == ("created", None)
    dead = rows["t-dead"]
    assert (dead.exit, dead.oom, dead.since, dead.exec) == (137, True, 1_800_000_060.0, "")
    assert rows["t-kept"].kept and not rows["t-kept"].left
    # A trial that has just ended may still be going; a container of no known trial is nobody's.
    assert [row.trial for row in status.rows if row.left] == ["t-unknown"] == [status.rows[0].trial]
    later = looked(run, seen, NOW + OVER_S + 1)
    assert {row.trial for row in later.rows if row.left} == {"t-unknown", "t-over"} and later.left == 2
    named = with_paths(status, {"t-run": "trials/step_0001/t-run"})
    assert named is not None
    assert {row.trial: row.path for row in named.rows}["t-run"] == "trials/step_0001/t-run"


def test_used_up_memory_is_told_for_ten_minutes(tmp_path: Path, fake: FakeDocker) -> None:
    run = tmp_path / "run"
    begin(run, tmp_path, ["t-1", "t-2"])
    fake.sandbox(run, "t-1")
    event = {"id": "c-t-1", "at": NOW - 20, "labels": {"liverl.trial": "t-1", "image": "x"}}
    fake.set(ooms=[event, {**event, "id": "c-gone", "at": NOW - 5, "labels": {"liverl.trial": "t-2"}}])
    seen = SeenSandboxes()
    status = looked(run, seen)
    assert [(one.trial, one.at) for one in status.ooms] == [("t-2", NOW - 5), ("t-1", NOW - 20)]
    assert [row.oom for row in status.rows] == [True]
    named = with_paths(status, {"t-2": "trials/t-2"})
    assert named is not None and [one.path for one in named.ooms] == ["trials/t-2", ""]
    fake.set(ooms=[])
    assert len(looked(run, seen, NOW + 570).ooms) == 2
    assert [one.trial for one in looked(run, seen, NOW + 590).ooms] == ["t-2"]
    asked = [words for words in fake.calls if words[0] == "events"]
    assert asked[0][1:5] == ["--since", f"{NOW - 630:.3f}", "--until", f"{NOW:.3f}"]
    assert asked[1][1:5] == ["--since", f"{NOW - 30:.3f}", "--until", f"{NOW + 570:.3f}"]
    fake.set(ooms=["x"])
    assert "docker events printed" in looked(run, seen, NOW + 600).why


def test_containers_of_a_worker_that_died_are_left(tmp_path: Path, fake: FakeDocker) -> None:
    run = tmp_path / "run"
    ledger = begin(run, tmp_path, ["t-1", "t-2"])
    for name in ("t-1", "t-2"):
        fake.sandbox(run, name)
    ledger.lost("t-1")
    status = looked(run)
    assert [(row.trial, row.left) for row in status.rows] == [("t-1", True), ("t-2", False)]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            {"away": "unix:///var/run/docker.sock"},
            "Docker: Cannot connect to the Docker daemon at unix:///var/run/docker",
        ),
        ({"hang": 30}, "Docker: docker network did not return within"),
    ],
)
def test_what_was_known_stays_while_the_daemon_is_away(
    tmp_path: Path, fake: FakeDocker, trouble: dict[str, object], said: str
) -> None:
    run = tmp_path / "run"
    ledger = begin(run, tmp_path, ["t-1"])
    fake.sandbox(run, "t-1")
    seen = SeenSandboxes()
    before = looked(run, seen)
    fake.set(**trouble)
    for now in (NOW + 5, NOW + 10):
        status = looked(run, seen, now, 1.0 if "hang" in trouble else 60.0)
        assert (status.reachable, status.since, status.running) == (False, NOW + 5, 1)
        assert status.why.startswith(said) and status.rows == before.rows
    late = seen.late(NOW + 15, 10.0)
    assert (
        late is not None
        and late.why == "the program docker did not return within 10 s"
        and late.since == NOW + 5
    )
    fake.set(away="", hang=0)
    assert looked(run, seen, NOW + 20) == before
    # Once its trials are over, a daemon may be gone as well.
    ledger.over("t-1")
    fake.set(away="unix:///x")
    assert looked(run, seen, NOW + 25).reachable


def test_the_first_look_may_fail_and_rows_are_capped(tmp_path: Path, fake: FakeDocker) -> None:
    run = tmp_path / "run"
    begin(run, tmp_path, ["t-0"])
    fake.set(away="unix:///x")
    status = looked(run)
    assert (status.reachable, status.since, status.rows) == (False, NOW, ())
    fake.set(away="")
    for number in range(ROWS + 10):
        fake.sandbox(run, f"t-{number}")
    status = looked(run)
    assert (status.running, len(status.rows), status.left) == (ROWS + 10, ROWS, ROWS + 9)


def test_no_row_for_what_is_no_container_of_docker(tmp_path: Path, fake: FakeDocker) -> None:
    run = tmp_path / "run"
    begin(run, tmp_path, ["t-1"])
    fake.sandbox(run, "t-1")
    things = fake.things
    things["container"]["c-t-1"] |= {"exit": "x"}
    fake.set(things=things)
    status = looked(run)
    assert (
        not status.reachable
        and "docker container inspect printed a line that is none of its own" in status.why
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ToyRun]:
    made = make_run(
        tmp_path / "runs", [toy("a", "sleep")], settings=Settings(scan_interval=0.3, stuck_after=5.0)
    )
    yield made
    made.end()


def test_the_state_of_a_live_run_has_them_and_ls_marks_what_is_left(
    tmp_path: Path, run: ToyRun, fake: FakeDocker
) -> None:
    run.start()
    run.until("a", "ready")
    assert run.snapshot().sandboxes is None
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    wait_until(
        lambda: (run.snapshot().sandboxes or SandboxesStatus()).running == 1, what="a sandbox in the snapshot"
    )
    told = json.loads(run_cli("status", "--json", run.run_dir).stdout)["sandboxes"]
    assert told["rows"][0]["trial"] == "t-1" and told["reachable"] is True
    root = run.run_dir.parents[1]
    listed = ("ls", "--json", "--run-root", root)
    assert json.loads(run_cli(*listed).stdout)[0]["sandboxes_left"] is None, "a live run has left nothing"
    run.kill_backend()
    assert json.loads(run_cli(*listed).stdout)[0]["sandboxes_left"] == 1
    assert "1 sandbox left: clean --sandboxes" in run_cli("ls", "--run-root", root).stdout


@pytest.mark.parametrize(
    ("pools", "free"),
    [(None, 29), ([{"Base": "172.18.0.0/15", "Size": 16}], 1), ([{"Base": "fd00::/8", "Size": 64}], None)],
)
def test_networks_that_the_daemon_has_left(
    tmp_path: Path, fake: FakeDocker, pools: object, free: int | None
) -> None:
    run = tmp_path / "run"
    ledger = begin(run, tmp_path, ["t-run"])
    fake.sandbox(run, "t-run")
    fake.stranger("x")
    things = fake.things
    for number, one in enumerate(things["network"].values()):
        one["subnet"] = f"172.{18 + 2 * number}.0.0/16"
    fake.set(things=things, pools=pools)
    assert looked(run).networks_free == (free if free is None else free - _routed(pools))
    ledger.over("t-run")
    assert looked(run).networks_free is None, (
        "no trial of this daemon is open: its networks are nobody's matter"
    )


def _routed(pools: object) -> int:
    """Networks of Docker's own ranges that this machine routes, beside the two above."""
    return (
        0
        if pools
        else sum(
            any(net.overlaps(part) for net in routes() if net.prefixlen)
            for base, size in DEFAULT_POOLS
            for part in IPv4Network(base).subnets(new_prefix=size)
            if str(part) not in ("172.18.0.0/16", "172.20.0.0/16")
        )
    )


def test_an_address_that_this_machine_has_no_more_is_told(tmp_path: Path, fake: FakeDocker) -> None:
    run, seen = tmp_path / "run", SeenSandboxes()
    begin(run, tmp_path, ["t-run"])
    for addresses, gone in (({"127.0.0.1", "0.0.0.0"}, ""), ({"127.0.0.1", "192.0.2.7"}, "192.0.2.7")):
        status = seen.look(run, NOW, 10.0, addresses)
        assert status is not None and (status.address_gone, status.reachable) == (gone, True)
    fake.set(away="unix:///none")
    status = seen.look(run, NOW, 10.0, {"192.0.2.7"})
    assert status is not None and (status.address_gone, status.reachable) == ("192.0.2.7", False)
