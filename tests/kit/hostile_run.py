"""A run in which every text of others, in files and in facts, holds what a terminal would obey or hide."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from kit.hostile import infect
from kit.screens import NOW, event, gpu, replica, service, snapshot, trial
from liverl.control.service_detail import Generation, GpuUse, ProbeFacts, ServiceDetail
from liverl.model import Evidence, Exit, ReplicaSet, Snapshot, Symptom, UnreadableFile
from liverl.plan.spec import RestartPolicy, StopStage
from liverl_tui.data.view import View

KEPT = ("run_dir", "path", "log")  # places in the file system
TRIAL = trial(1)


def state(run_dir: Path, pid: int) -> Snapshot:
    """Every field that can hold text holds some, and every branch that shows a note shows it."""
    base = snapshot(
        run_dir=str(run_dir),
        gpus=(gpu(0, owner="r0"), gpu(1, owner="foreign pid 1 (ada)", utilization=0.9)),
        gpu_note="no NVML",
        symptoms=(
            Symptom(
                "a",
                "critical",
                "a title",
                "a cause",
                "a fix",
                (Evidence("evidence"),),
                since=NOW - 3,
                action="x",
            ),
            Symptom("b", "info", "a title", "a cause", "a fix", (Evidence("evidence"),), action="x"),
        ),
        unreadable=(UnreadableFile("trials/x", "a FIFO"),),
    )
    return msgspec.structs.replace(
        base,
        services=(
            *base.services,
            service("s1", "custom", "backing_off", why="exit 1: it said", exit=Exit(1), deadline=NOW + 9),
            service("s2", "custom", "starting", stage="loading", progress=0.4, pid=pid, members=(pid,)),
        ),
        replicas=ReplicaSet(
            4, 3, 3, (*base.replicas.items, replica(2, "failed", why="no memory", stage="loading"))
        ),
        proxy=msgspec.structs.replace(
            base.proxy, unknown=3, unknown_models=("gpt",), cooled_down=("http://127.0.0.1:8000/v1",)
        ),
    )


def detail() -> ServiceDetail:
    """What a backend says of one service."""
    return ServiceDetail(
        name="r0",
        kind="replica",
        live=True,
        argv=("python", "--model", "/models/qwen"),
        cwd="/runs",
        env={"NAME": "value"},
        unset_env=("OTHER",),
        environment="env",
        interpreter="/usr/bin/python3",
        requirements=("vllm",),
        depends_on=("proxy is ready",),
        probes=(ProbeFacts("ready", "a completion", 1.0, 30.0, 1, NOW - 6, "refused"),),
        restart=RestartPolicy(),
        stop=(StopStage("TERM", "leader", 10.0),),
        generations=(
            Generation(1, 1, "current", NOW - 9, 5_000_000, NOW - 6, NOW - 1, Exit(1), "why", "log"),
        ),
        gpu_memory=(GpuUse("GPU-00000000", 5_000_000, 1 << 30),),
    )


def fill(run_dir: Path, bad: str) -> None:
    """Logs, a trajectory, metrics and events as files, with ``bad`` in every text."""
    line = bad.replace("\n", "")
    name = line.replace("\0", "").replace("\x85", "")
    logs = run_dir / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    text = "".join(f"{line}INFO {line} a line {n} {line}\n" for n in range(30)) + "the last line\n"
    for stem in ("trainer", f"{name}trainer", f"{name}r0"):
        (logs / f"{stem}.1.log").write_text(text, errors="surrogatepass")
    folder = run_dir / TRIAL.path
    folder.mkdir(parents=True)
    call = {
        "id": bad,
        "type": "function",
        "function": {"name": f"{bad}bash", "arguments": json.dumps({bad: bad})},
    }
    answer = {
        "role": "assistant",
        "content": f"{bad}\nthe answer\n{bad}",
        "reasoning_content": f"{bad}reasoning",
        "tool_calls": [call],
    }
    asked = [{"role": "system", "content": f"{bad}system"}, {"role": "user", "content": f"{bad}user"}]
    result = {"role": "tool", "tool_call_id": bad, "content": f"{bad}result\n{bad}"}
    last = {"role": "assistant", "content": f"done{bad}"}
    with (folder / "litellm-trajectory.jsonl").open("w") as file:
        for messages, message in ((asked, answer), ([*asked, answer, result], last)):
            record = {
                "success": True,
                "request_time": (NOW - 40) * 1000,
                "duration_ms": 12,
                "replica": f"{bad}http://127.0.0.1:8000",
                "request_body": {"model": f"{bad}policy", "messages": messages},
                "response_body": {
                    "choices": [{"index": 0, "finish_reason": f"{bad}stop", "message": message}]
                },
            }
            file.write(json.dumps(record) + "\n")
    told = {
        "verifier_result": {"rewards": {f"{bad}reward": 1.0}},
        "exception_info": {"exception_type": f"{bad}Error", "exception_message": f"{bad}message"},
    }
    (folder / "result.json").write_text(json.dumps(told))
    (folder / f"{name}file.txt").write_text(bad)
    with (run_dir / "metrics.jsonl").open("w") as file:
        for step in range(1, 9):
            data = {"critic/score/mean": step / 9, f"{bad}own/metric": step * 2.0}
            file.write(json.dumps({"step": step, "data": data}) + "\n")
    with (run_dir / "events.jsonl").open("w") as file:
        for seq in range(1, 6):
            file.write(json.dumps(msgspec.to_builtins(infect(event(seq, "older", service="r0"), bad))) + "\n")


def the_view(run_dir: Path, pid: int, bad: str, link: str = "live") -> View:
    """What the interface is given, infected."""
    events = tuple(
        event(i, f"event {i}", level, "r0") for i, level in enumerate(("info", "warning", "error"), 1)
    )
    infected = infect(state(run_dir, pid), bad, but=KEPT)
    return View(
        link=link,  # type: ignore[arg-type]
        why=f"{bad}the backend is away",
        snapshot=infected,
        events=tuple(infect(e, bad) for e in events),
    )
