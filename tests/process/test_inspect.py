"""The ``inspect`` command: what a service was started with, how it is probed, and what became of each start."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.runs import TOY, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.messages import CommandError
from liverl.control.service_detail import ServiceDetail
from liverl.daemon.service_detail import filed_detail, generations
from liverl.plan.spec import Dependency, EnvironmentSpec, PortSpec, Probe, Probes
from liverl.procs import procfs


def inspect(run: ToyRun, name: str) -> ServiceDetail:
    return msgspec.convert(run.command("inspect", service=name), ServiceDetail)


def test_a_service_tells_everything_about_itself_and_keeps_its_secrets(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_INHERITED", "is not shown")
    probe = Probe("http", port="http", interval=0.05, failures=1)
    web = toy(
        "web",
        "http",
        "{port:http}",
        "--api-key",
        "sk-liverl-0123456789",
        env={"TOY_API_KEY": "very secret", "TOY_HERE": "{run_dir}", "TOY_TOKEN_FILE": "{run_dir}/token"},
        unset_env=("TOY_AWAY",),
        ports=(PortSpec("http"),),
        probes=Probes(startup=probe, ready=probe),
    )
    other = toy("other", "sleep", depends_on=(Dependency("ready", "web"),))
    environments = (
        EnvironmentSpec("py", requirements=(), venv_path=sys.prefix),
        EnvironmentSpec("ours", venv_path="self"),
    )
    run = ending(make_run(tmp_path, [web, other], environments=environments))
    run.start()
    first = run.until("web", "ready")
    port = first.ports["http"]

    detail = inspect(run, "web")
    assert detail.live and detail.kind == "task" and detail.cwd == str(run.run_dir)
    assert detail.argv == (sys.executable, "-S", str(TOY), "http", str(port), "--api-key", "***")
    assert {k: v for k, v in detail.env.items() if k.startswith("TOY")} == {
        "TOY_API_KEY": "***",
        "TOY_HERE": str(run.run_dir),
        "TOY_TOKEN_FILE": f"{run.run_dir}/token",
    }
    assert detail.env["LIVERL_RUN"] == "tests/toy/web/1" and detail.unset_env == ("TOY_AWAY",)
    assert inspect(run, "other").depends_on == ("web: ready",)
    assert [(p.name, p.what) for p in detail.probes] == [
        ("startup", f"GET /health on port {port} returns 200"),
        ("ready", f"GET /health on port {port} returns 200"),
    ]

    def probed() -> ServiceDetail | None:
        found = inspect(run, "web")
        return found if all(p.at is not None for p in found.probes) else None

    held = wait_until(probed)
    assert held is not None and [p.problem for p in held.probes] == [None, None]
    (run.run_dir / "broken").touch()
    run.until("web", "degraded")
    assert "503" in str(inspect(run, "web").probes[1].problem)
    (run.run_dir / "broken").unlink()
    run.until("web", "ready")

    # its starts
    assert [(g.attempt, g.generation, g.pid, g.exit) for g in detail.generations] == [(1, 1, first.pid, None)]
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    second = run.until("web", lambda s: s.state == "ready" and s.generation == 2)
    old, new = inspect(run, "web").generations
    assert (old.pid, new.pid) == (first.pid, second.pid)
    assert old.exit is not None and old.exit.signal == signal.SIGKILL and "SIGKILL" in old.why
    assert old.ready_at is not None and old.ended_at is not None
    assert old.started_at <= old.ready_at <= old.ended_at <= new.started_at
    assert new.exit is None and new.log == second.log

    # environments too; and what is asked for is not an event
    built = inspect(run, "env:py")
    assert built.kind == "environment" and built.interpreter and built.interpreter.startswith(sys.prefix)
    assert inspect(run, "env:ours").interpreter == sys.executable
    assert not [e for e in run.events() if e.kind == "command"]
    for wrong, meant in (("wep", "web"), ("env:pi", "env:py")):
        with pytest.raises(CommandError) as refused:
            run.command("inspect", service=wrong)
        assert (refused.value.code, refused.value.did_you_mean) == ("unknown_service", meant)
    for name, args, text, meant in (
        ("inspect", {"servce": "web"}, "inspect: unknown argument 'servce'; arguments: service", "service"),
        ("stop", {"now": "no"}, "stop: argument 'now': found \"no\", expected true or false", None),
        ("insepct", {}, "unknown command 'insepct'", "inspect"),
    ):
        with pytest.raises(CommandError) as refused:
            run.command(name, **args)
        code = "bad_args" if args else "unknown_command"
        assert (refused.value.code, refused.value.did_you_mean) == (code, meant)
        assert str(refused.value).startswith(text)

    # without a backend the files tell the same, but for what only a backend knows
    run.kill_backend()
    filed = filed_detail(run.run_dir, "web")
    assert filed is not None and not filed.live
    assert filed.argv[1:] == ("-S", str(TOY), "http", str(second.ports["http"]), "--api-key", "***")
    assert filed.env["TOY_API_KEY"] == "***" and filed.env["TOY_HERE"] == str(run.run_dir)
    assert [g.generation for g in filed.generations] == [1, 2] and filed.probes[0].at is None
    assert filed_detail(run.run_dir, "nobody") is None
    assert procfs.alive(second.pid or 0, None), "looking harms nobody"


def test_a_replica_is_known_by_its_template_without_a_backend(tmp_path: Path) -> None:
    replica = toy(
        "r{index}", "sleep", "{index}", kind="replica", env={"INDEX": "{index}"}, ports=(PortSpec("http"),)
    )
    run = make_run(tmp_path, [], replica=replica, replicas=2)
    detail = filed_detail(run.run_dir, "r1")
    assert detail is not None and detail.argv[-1] == "1" and detail.env == {"INDEX": "1"}
    assert detail.generations == () and filed_detail(run.run_dir, "rx") is None
    assert filed_detail(tmp_path / "no run", "r1") is None


def test_a_journal_of_several_attempts_with_lines_that_are_none(tmp_path: Path) -> None:
    def intent(gen: int, at: float, service: str = "a", **more: object) -> dict[str, object]:
        return {
            "at": at,
            "k": "intent",
            "svc": service,
            "gen": gen,
            "role": "current",
            "ports": {},
            "log": "l",
            **more,
        }

    machine = {"state": "stopping", "why": "restart requested", "generation": 2, "ready_at": 21.0}
    promoted = [
        {"svc": "a", "gen": 3, "role": "current", "unit": {"state": "ready", "ready_at": 31.0}},
        {"svc": "a", "gen": 2, "role": "retiring", "unit": machine},
    ]
    records = [
        {"at": 1.0, "k": "attempt", "n": 1, "era": ""},
        intent(1, 10.0),
        {"at": 11.0, "k": "spawned", "svc": "a", "gen": 1, "pid": 100, "tick": 1},
        {"at": 12.0, "k": "exit", "svc": "a", "gen": 1, "exit": {"code": 3}},
        intent(1, 12.0, "ab"),
        {"at": 13.0, "k": "attempt", "n": 2, "era": ""},
        intent(2, 20.0),
        intent(3, 30.0, role="incoming"),
        {"at": 32.0, "k": "promoted", "svc": "a", "records": promoted},
    ]
    lines = [msgspec.json.encode(r) for r in records]
    lines[2:2] = [b'{"svc":"a"}', b'{"at": 1, "svc":"a", torn']
    (tmp_path / "journal.jsonl").write_bytes(b"\n".join(lines))
    found = generations(tmp_path, "a")
    assert [(g.attempt, g.generation, g.role) for g in found] == [
        (1, 1, "current"),
        (2, 2, "retiring"),
        (2, 3, "current"),
    ]
    assert found[0].exit is not None and (found[0].exit.code, found[0].ended_at, found[0].pid) == (
        3,
        12.0,
        100,
    )
    assert found[1].why == "restart requested" and found[2].ready_at == 31.0
    assert [g.attempt for g in generations(tmp_path, "ab")] == [1] and generations(tmp_path, "b") == []


def test_a_service_called_proxy_needs_no_port(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> None:
    run = ending(make_run(tmp_path, [toy("proxy", "sleep")]))
    run.start()
    run.until("proxy", "ready")
    assert run.snapshot().proxy.address is None
    assert inspect(run, "proxy").live


def test_a_gpu_that_this_host_does_not_have_is_refused_with_the_reason(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(make_run(tmp_path, [toy("one", "sleep")]))
    run.start()
    run.until("one", "ready")
    with pytest.raises(CommandError, match=r"no GPU '99'; (no GPUs: |GPUs: 0)") as caught:
        run.command("inspect_gpu", gpu="99")
    assert caught.value.code == "unknown_gpu"
    with pytest.raises(CommandError, match="argument 'gpu' is missing"):
        run.command("inspect_gpu")
