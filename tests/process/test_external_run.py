"""A run beside a launch that was started elsewhere: what is foreign is shown, and touched on command only. The proxy is
a toy under LiteLLM's name (simulated); there is no Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from kit.ports import free_port
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.control.messages import CommandError
from liverl.external import port_holders
from liverl.plan.spec import Plan, RayPlan
from liverl.procs import procfs

TOY = Path(__file__).with_name("uvicorn_toy.py")
LISTS = "model_list: [{model_name: policy, litellm_params: {model: hosted_vllm/policy, api_base: 'http://h:1/v1'}}]\n"


class Elsewhere:
    """A proxy that somebody else has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "cc.yaml"
        self.port = free_port()
        self.config.write_text(LISTS)
        (folder / "cc.pid").write_text("1\n")
        self.script = folder / "litellm"
        self.script.symlink_to(TOY)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        command = argv or (sys.executable, str(self.script), "--config", "cc.yaml", "--port", str(self.port))
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "MARK": "somebody's", **env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        count = 1 if argv else 3  # of the proxy: the parent and two workers

        def listens() -> bool:
            held = port_holders.look(self.port)
            return held is not None and len(held.holders) == count

        wait_until(listens, what="the listener")
        return process


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    folder = tmp_path / "launch"
    folder.mkdir()
    made = Elsewhere(folder)
    yield made
    for _ in range(3):
        for process in getattr(port_holders.look(made.port), "holders", ()):
            os.kill(process.pid, 9)
        time.sleep(0.05)


@pytest.fixture
def run(tmp_path: Path, elsewhere: Elsewhere, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """Its trainer does nothing."""
    made = make_run(tmp_path, [toy("trainer", "sleep", kind="trainer", ends_run=True)])
    path = made.run_dir / "plan.json"
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    nowhere = f"127.0.0.1:{free_port()}"
    ray = RayPlan("foreign", "", nowhere, "", "", "", 2, 600.0, 600.0, 600.0)
    plan = replace(plan, topology="verl", ray=ray, adopted_port=elsewhere.port, expected_replicas=2)
    path.write_bytes(msgspec.json.encode(plan))
    return ending(made)


def test_a_proxy_from_elsewhere_is_shown_and_restarted_on_command(run: ToyRun, elsewhere: Elsewhere) -> None:
    process = elsewhere.start()
    run.start()
    proxy = run.until("proxy", "ready")
    assert (proxy.owner, proxy.pid, proxy.log) == ("foreign", process.pid, str(elsewhere.folder / "log"))
    assert run.service("ray").state == "waiting"
    said = [event.text for event in run.events() if event.kind == "adopted"]
    assert len(said) == 2 and "started before the launch script" in said[1]
    shown = run.snapshot()
    assert shown.proxy.backends == ("http://h:1/v1",) and shown.proxy.config == str(elsewhere.config)
    assert [(r.name, r.state, r.listed) for r in shown.replicas.items] == [
        ("vllm_server_0_0", "waiting", False),
        ("vllm_server_1_0", "waiting", False),
    ]
    with pytest.raises(
        CommandError, match="all 0 replicas that are up are listed; not up yet: vllm_server_0_0"
    ):
        run.command("scale", delta=1)
    with pytest.raises(CommandError, match="this run cannot remove them"):
        run.command("scale", delta=-1)
    for service in ("proxy", "ray"):
        with pytest.raises(CommandError, match="managed by the launch script"):
            run.command("stop_service", service=service)
    assert run.command("inspect", service="proxy")["cwd"] == str(elsewhere.folder)

    before = port_holders.look(elsewhere.port)
    elsewhere.config.write_text("model_list: [")
    with pytest.raises(
        CommandError, match=r"the proxy was not restarted, because it could not read .*: not valid YAML"
    ):
        run.command("restart", service="proxy")
    assert port_holders.look(elsewhere.port) == before and process.poll() is None

    elsewhere.config.write_text(LISTS)
    told = run.command("restart", service="proxy")
    assert process.wait(60) == 0
    after = port_holders.look(elsewhere.port)
    assert before is not None and after is not None and [p.pid for p in after.roots] == [told["pid"]]
    assert after.roots[0].argv == before.roots[0].argv
    assert (procfs.whole_environment(told["pid"]) or {})["MARK"] == "somebody's"
    assert (elsewhere.folder / "cc.pid").read_text() == f"{told['pid']}\n"
    assert run.until("proxy", lambda s: s.state == "ready" and s.pid == told["pid"]).owner == "adopted"

    # one that does not come back: its log says why, and it can be started once that is mended
    elsewhere.config.write_text(f"{LISTS}broken: true\n")
    with pytest.raises(
        CommandError, match=r"(?s)has exited; last lines of .*\nValueError: the configuration is broken"
    ):
        run.command("restart", service="proxy")
    run.until("proxy", "failed")
    elsewhere.config.write_text(LISTS)
    told = run.command("restart", service="proxy")
    run.until("proxy", "ready")

    # a backend that comes later knows it again, and the whole ends with the run
    generation = run.service("proxy").generation
    run.kill_backend()
    run.start()
    again = run.until("proxy", "ready")
    assert (again.pid, again.owner, again.generation) == (told["pid"], "adopted", generation)
    run.command("stop")
    run.result()
    # The kernel closes what the dead have left a moment later.
    wait_until(lambda: port_holders.look(elsewhere.port) is None, what="a free port")


def test_what_may_not_be_ended_is_refused_by_its_description(run: ToyRun, elsewhere: Elsewhere) -> None:
    server = elsewhere.start(sys.executable, "-m", "http.server", str(elsewhere.port), "--bind", "127.0.0.1")
    run.start()
    proxy = run.until("proxy", "degraded")
    assert "http.server" in proxy.why and proxy.owner == "foreign"
    with pytest.raises(
        CommandError,
        match=rf"the proxy was not restarted: .*pid {server.pid} .*http\.server.*, which is not a "
        rf"LiteLLM process",
    ):
        run.command("restart", service="proxy")
    with pytest.raises(CommandError, match="no proxy is running to add a replica to"):
        run.command("scale", delta=1)
    assert server.poll() is None
    server.kill()
    server.wait()
    run.until("proxy", "failed")
    with pytest.raises(CommandError, match="nothing listens on port"):
        run.command("restart", service="proxy")

    other = elsewhere.start(LIVERL_RUN="other/run/proxy/1", LIVERL_RUN_DIR="/runs/other/run")
    run.until("proxy", "ready")
    with pytest.raises(
        CommandError, match=r"^pid \d+ .* belongs to run other/run/proxy in /runs/other/run; "
    ):
        run.command("restart", service="proxy")
    assert other.poll() is None
