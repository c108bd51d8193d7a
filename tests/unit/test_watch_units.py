"""What ``watch`` takes command lines, folders and configurations for: pure parts."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from kit.screens import service, snapshot

from liverl.causes.catalogue import rows
from liverl.causes.finding import Explanation, Verdict
from liverl.causes.read.reading import read_log
from liverl.causes.signature import Signature
from liverl.model import Evidence, Symptom
from liverl.offline.doctor import kinds
from liverl.procs.procfs import Proc
from liverl.watch.alerts import ended, merged, unseen
from liverl.watch.candidates import candidates
from liverl.watch.folder import LogFound, Surveyor, role_of, trials_root
from liverl.watch.mirror import Mirror, service_name
from liverl.watch.processes import Found, descendants, kind_of, roots
from liverl.watch.proxy import ProxyFacts, replicas_of
from liverl.watch.ray import RayFacts
from liverl.watch.replicas import Answer, Candidate, ReplicaStates, root
from liverl.watch.router import urls_in
from liverl.watch.scene import Scene, stat_of
from liverl.watch.target import Target, WatchError, checked
from liverl.watch.units import Names, TrainerLog, Unit, address_of, belongs, units
from liverl.watch.verdicts import Judge, JudgedLog, Judgement, ended_below, judgement, of_process

DASHBOARD = (
    "/env/bin/python",
    "/env/lib/python3.12/site-packages/ray/dashboard/dashboard.py",
    "--host=127.0.0.1",
    "--port=8265",
    "--gcs-address=127.0.0.1:6379",
)


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ("/env/bin/python /env/bin/vllm serve org/model --port 8001", "replica"),
        ("vllm serve org/model", "replica"),
        ("vllm bench serve", None),
        ("python3 -m vllm.entrypoints.openai.api_server --port 8001", "replica"),
        ("python3 -m vllm.entrypoints.cli.main serve org/model", "replica"),
        ("python3 -u -m verl.trainer.main_ppo data.train_files=x", "trainer"),
        ("python3 -m recipe.dapo.main_dapo", "trainer"),
        ("python3 -X dev -m verl.experimental.fully_async_policy.fully_async_main", "trainer"),
        ("/usr/bin/python3 /src/verl/trainer/main_ppo.py a=b", "trainer"),
        ("python3 -m verl.model_merger", None),
        ("/env/bin/python /env/bin/litellm --config x.yaml", "proxy"),
        ("python3 -m sglang.launch_server --model-path m --port 30001", "replica"),
        ("/env/bin/python -m sglang.srt.entrypoints.http_server", "replica"),
        ("/env/bin/sglang serve --model-path m", "replica"),
        ("sglang generate --model-path m", None),
        ("python -m sglang_router.launch_router --worker-urls http://127.0.0.1:30001", "proxy"),
        ("python -m sglang_router.launch_server --dp-size 2", "proxy"),
        ("/env/bin/sglang-router launch", "proxy"),
        ("smg launch", "proxy"),
        ("python3 -m sglang.bench_serving", None),
        ("python3 -c import verl", None),
        ("vi /src/verl/trainer/main_ppo.py", None),
        ("tail -f vllm.log", None),
        ("", None),
    ],
)
def test_command_lines(argv: str, kind: str | None) -> None:
    assert kind_of(tuple(argv.split())) == kind


def test_the_dashboard_of_ray() -> None:
    assert kind_of(DASHBOARD) == "ray"
    assert address_of(found("ray", argv=DASHBOARD, port=None)) == "http://127.0.0.1:8265"


def test_forked_workers_are_no_servers_of_their_own() -> None:
    assert roots({10: "replica", 11: "replica", 12: "proxy"}, {10: 1, 11: 10, 12: 10}) == [10, 12]


def test_a_tree_ends_at_the_next_leader() -> None:
    table = {
        pid: Proc(pid, parent, 1, 1, 5, "S", "x") for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11))
    }
    assert descendants(table, [10, 12]) == {10: {10, 11}, 12: {12}}


def found(kind: str = "replica", pid: int = 10, **more: object) -> Found:
    values = {"tick": pid, "argv": ("vllm", "serve"), "cwd": "/run", "started_at": 5.0, "port": 8001} | more
    return Found(kind, pid, **values)  # type: ignore[arg-type]


def log(path: str, role: str = "replica", modified: float = 1.0) -> LogFound:
    return LogFound(Path(path), role, f"{role} log", 10, modified)  # type: ignore[arg-type]


def test_names_last_when_a_process_is_started_again() -> None:
    names = Names()
    first = names.assign(units([found(log=Path("/run/a.log")), found(pid=11, port=8002)], [], {}, {}))
    assert list(first) == ["replica-0", "replica-1"]
    again = names.assign(units([found(pid=12, port=8002), found(pid=99, log=Path("/run/a.log"))], [], {}, {}))
    assert {name: unit.pid for name, unit in again.items()} == {"replica-1": 12, "replica-0": 99}
    third = names.assign(units([found(pid=77, port=8003)], [], {}, {}))
    assert list(third) == ["replica-2"]  # not the name of one that has exited


def test_processes_that_share_a_log_have_names_of_their_own() -> None:
    shared = Path("/run/launch.log")
    given = Names().assign(units([found(log=shared), found(pid=11, port=8002, log=shared)], [], {}, {}))
    assert list(given) == ["replica-0", "replica-1"]


def test_of_two_trainers_logs_that_are_written_in_turns_one_stays_the_trainers() -> None:
    names, one = Names(), TrainerLog()

    def trainer(**modified: float) -> str:
        logs = [log(f"/run/{name}.log", "trainer", at) for name, at in modified.items()]
        given = names.assign(units([], logs, {}, {}, one.of(logs)))
        return str(given["trainer"].log)

    assert [trainer(a=1.0), trainer(a=1.0, b=2.0), trainer(a=3.0, b=2.0), trainer(a=3.0, b=4.0)] == [
        "/run/a.log",
        "/run/b.log",  # a new one
        "/run/b.log",
        "/run/b.log",
    ]
    assert trainer(a=305.0, b=4.0) == "/run/a.log"  # which goes on alone
    assert trainer(a=305.0, b=306.0) == "/run/a.log"
    assert trainer(b=306.0) == "/run/b.log"
    assert one.of([log("/run/r.log", "replica", 9.0)]) is None


def test_the_newest_trainer_log_is_the_trainer() -> None:
    logs = [
        log("/run/old.log", "trainer", 1.0),
        log("/run/new.log", "trainer", 9.0),
        log("/run/ray.log", "ray"),
    ]
    given = Names().assign(units([], logs, {Path("/run/new.log"): 42}, {}))
    assert {name: (unit.kind, unit.pid) for name, unit in given.items()} == {
        "trainer": ("trainer", 42),
        "old": ("task", None),
    }
    running = Names().assign(
        units([found("trainer", 3, port=None), found("trainer", 8, port=None, cwd="/b")], logs, {}, {})
    )
    assert running["trainer"].pid == 8
    assert running["old"].kind == running["new"].kind == "task"


@pytest.mark.parametrize(
    ("process", "part"),
    [
        (found(cwd="/data/run7"), True),
        (found(cwd="/data/run7/sub"), True),
        (found(cwd="/data/run77"), False),
        (found(log=Path("/data/run7/logs/x.log")), True),
        (found(argv=("python", "main_ppo.py", "trainer.default_local_dir=/data/run7/checkpoints")), True),
        (found(argv=("python", "main_ppo.py", "/data/run77/x")), False),
    ],
)
def test_what_belongs_to_a_folder(process: Found, part: bool) -> None:
    assert belongs(process, [Path("/data/run7")]) is part


@pytest.mark.parametrize(
    ("folder", "names", "root_of_trials"),
    [
        ("/t/exp/task-1", {"result.json", "agent"}, "/t/exp"),
        ("/t/exp/step_0003/task-1", {"litellm-trajectory.jsonl"}, "/t/exp"),
        ("/t/exp/task-1/agent", {"litellm-trajectory.jsonl"}, "/t/exp"),
        ("/t/exp/step_0003/s", {"proxy_trajectory.json"}, "/t/exp"),
        ("/t/exp/task-1", {"result.json", "exception.txt"}, "/t/exp"),
        ("/t/exp/task-1", {"result.json", "agent.log"}, "/t/exp"),
        ("/t/exp", {"result.json", "config.yaml"}, None),
        ("/t/exp", {"agent", "verifier"}, None),
    ],
)
def test_folders_of_trials(folder: str, names: set[str], root_of_trials: str | None) -> None:
    expected = None if root_of_trials is None else Path(root_of_trials)
    assert trials_root(Path(folder), names) == expected


def test_each_kind_of_log_has_a_role() -> None:
    words = [kind.words for _, kind in kinds._CONTENT if kind.log] + [text for _, text in kinds._RAY_NAMES]
    roles = {text: role_of(text) for text in words}
    assert roles["trainer log (verl, Ray)"] == "trainer"
    assert roles["LiteLLM log"] == "proxy"
    assert roles["vLLM log"] == "replica"
    assert roles["log of Ray's raylet"] == roles["Ray log"] == "ray"
    assert {text for text, role in roles.items() if role == "other"} == {"torch log", "kernel log"}


SGLANG = "[2026-11-20 10:00:00 TP0] Decode batch, #running-req: 64, #token: 90211, token usage: 0.91"


@pytest.mark.parametrize(
    ("line", "role"),
    [
        (SGLANG, "replica"),
        ("[2026-11-20 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 5, #cached-token: 0", "replica"),
        ("[2026-11-20 10:00:00] The server is fired up and ready to roll!", "replica"),
        ("[2026-11-20 10:05:00 TP0] Watchdog timeout (self.watchdog_timeout=300)", "replica"),
        (
            "2025-11-04 10:05:37  INFO sglang_router_rs::server: src/server.rs:830: Starting router on 0.0.0.0:3 |",
            "proxy",
        ),
        ("[Router (Rust)] 2025-03-08 02:33:09 - INFO - Worker http://0.0.0.0:31000 health check is", "proxy"),
        (f"step:3 - actor/loss:0.1\n{SGLANG}", "trainer"),
        ("INFO vLLM API server version 0.24.0", "replica"),
        (
            "(APIServer pid=7) INFO 11-29 10:00:00 [utils.py:1] non-default args: {'model': '/data/verl/ckpt'}",
            "replica",
        ),
        ("(WorkerDict pid=7) INFO vLLM API server version 0.24.0\nuse verl.utils", "trainer"),
        ("LiteLLM: Proxy initialized with Config", "proxy"),
    ],
)
def test_logs_of_servers_and_routers(line: str, role: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{line}\n")
    assert [log.role for log in Surveyor().survey((tmp_path,)).logs] == [role]


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        (
            '{"workers": [{"url": "http://127.0.0.1:30001", "is_healthy": true}], "total": 1}',
            ("http://127.0.0.1:30001",),
        ),
        (
            '{"urls": ["http://localhost:30001/", "http://10.0.0.7:3"]}',
            ("http://127.0.0.1:30001", "http://10.0.0.7:3"),
        ),
        ('{"workers": [{"url": "grpc://127.0.0.1:20000"}, {"id": 3}]}', ()),
        ('{"urls": []}', ()),
        ('{"detail": "Not Found"}', None),
        ("<html>", None),
        ("[]", None),
    ],
)
def test_the_servers_of_a_router(text: str, urls: tuple[str, ...] | None) -> None:
    assert urls_in(text) == urls


def test_a_folder_is_surveyed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/exp.log").write_text("(TaskRunner pid=3) step:1 - critic/rewards/mean:0.5\n")
    (tmp_path / "logs/serve.log").write_text("(APIServer pid=1) INFO vLLM API server version 0.24.0\n")
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": {"a": 1}}) + "\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "x"}) + "\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    for step, name in ((1, "a-1"), (1, "a-2"), (2, "a-3")):
        trial = tmp_path / f"trials/exp/step_{step:04}" / name / "agent"
        trial.mkdir(parents=True)
        (trial / "litellm-trajectory.jsonl").write_text("{}\n")
        (trial / "openhands.log").write_text("litellm\n")
    survey = Surveyor().survey((tmp_path,))
    assert {(log.path.name, log.role) for log in survey.logs} == {
        ("exp.log", "trainer"),
        ("serve.log", "replica"),
    }
    assert survey.metrics == (tmp_path / "metrics.jsonl",)
    assert survey.trials == (tmp_path / "trials/exp",)
    assert not survey.left_out and not survey.empty
    assert Surveyor().survey((tmp_path / "logs",), tmp_path / "trials/exp").trials == (
        tmp_path / "trials/exp",
    )


@pytest.mark.parametrize(("entries", "whole"), [(3, False), (7, True), (8, True)])
def test_a_limit_of_the_survey_is_an_alert(
    entries: int, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "deep").mkdir(parents=True)
    (tmp_path / "b/deep/t.log").write_text("(TaskRunner pid=3) step:1 - critic/rewards/mean:0.5\n")
    (tmp_path / "x.log").write_text("x\n")
    (tmp_path / "y.log").write_text("y\n")
    monkeypatch.setattr("liverl.watch.folder.ENTRIES", entries)
    survey = Surveyor().survey((tmp_path,))
    assert ("t.log" in {log.path.name for log in survey.logs}) == whole
    assert [one.id for one in unseen(survey.left_out, 0.0)] == ([] if whole else ["not_all_seen"])


def test_the_kind_of_a_file_is_read_again_while_it_is_short(tmp_path: Path) -> None:
    surveyor, path = Surveyor(), tmp_path / "run.log"
    path.write_text("hello\n")
    assert surveyor.survey((tmp_path,)).logs[0].role == "other"
    path.write_text("hello\nstep:1 - actor/loss:0.1\n")
    assert surveyor.survey((tmp_path,)).logs[0].role == "trainer"


def test_of_a_proxys_list_only_engines_are_replicas() -> None:
    def entry(model: str, base: str) -> dict[str, object]:
        return {"model_name": "m", "litellm_params": {"model": model, "api_base": base}}

    models = [
        entry("hosted_vllm/policy", "http://gpu-node-3:8001/v1"),
        entry("openai/policy", "http://127.0.0.1:8002/v1"),
        entry("openai/policy", "http://10.0.0.7:8003/v1"),
        entry("openai/gpt", "https://api.example.com/v1"),
        entry("openai/gpt", "http://8.8.8.8/v1"),
    ]
    assert replicas_of({"model_list": models}, {}) == (
        "http://gpu-node-3:8001",
        "http://127.0.0.1:8002",
        "http://10.0.0.7:8003",
    )


def test_each_replica_is_listed_once() -> None:
    unit = Unit("replica", found(), pid=10)
    scene = Scene({"replica-0": unit}, found=(found(), found(pid=11, port=8002)))
    gone = {"replica-0": unit, "replica-9": Unit("replica", found(pid=5, port=8009), pid=5)}
    actor = Candidate("vllm_server_0_0", "http://127.0.0.1:9001", kind="verl", state="ready")
    proxy = ProxyFacts(
        4000,
        "http://127.0.0.1:4000",
        None,
        replicas=("http://127.0.0.1:8001", "http://127.0.0.1:8002", "http://127.0.0.1:9001", "http://node:1"),
    )
    listed = candidates(scene, gone, [proxy], RayFacts(replicas=(actor,)))
    assert [(one.name, one.pid, one.state) for one in listed] == [
        ("replica-0", 10, None),
        ("replica-9", None, "failed"),
        ("vllm_server_0_0", None, "ready"),
        ("backend-8002", 11, None),
        ("node-1", None, None),
    ]


def test_the_states_of_a_replica() -> None:
    states, one = ReplicaStates(), Candidate("r", "http://127.0.0.1:8001", pid=10)

    def state(answer: Answer | None, candidate: Candidate = one) -> str:
        return states.status(candidate, answer, 100.0, listed=True).state

    refused, unwell = Answer("connection refused", False), Answer("GET /health returned 503", True)
    assert state(None) == "starting"
    assert state(refused) == "starting"
    assert state(Answer(None, True)) == "ready"
    assert state(refused) == "degraded"  # it has served before
    assert state(unwell) == "degraded"
    assert state(unwell, Candidate("new", "http://127.0.0.1:8002", pid=11)) == "degraded"
    assert state(None, Candidate("gone", None, state="failed", why="pid 3 has exited")) == "failed"
    assert state(refused, Candidate("other", "http://node:1")) == "stopped"
    assert states.status(one, refused, 100.0, listed=True).listed is False


def test_urls_are_shortened_to_host_and_port() -> None:
    assert root("http://localhost:8001/v1") == "http://127.0.0.1:8001"
    assert root("http://[fd00::1]:8001/v1") == "http://[fd00::1]:8001"


def test_a_cause_in_the_log_of_what_has_ended() -> None:
    cause = Explanation(
        "vllm.oom", "critical", "no memory", "why", "fix", "cmd", evidence=(Evidence("x", "a.log", 3),)
    )
    noise = Explanation("proxy.noise", "warning", "noise")
    result = judgement(Verdict(cause, symptoms=(noise,)), Verdict(symptoms=(noise,)), {"a.log": "replica-0"})
    assert [one.id for one in result.symptoms] == ["log:vllm.oom", "log:proxy.noise"]
    assert result.failed == ("replica-0",) and result.cause == "no memory", "as the alert says it"
    assert result.symptoms[0].fix == "fix. Look with: cmd"
    assert judgement(Verdict(), Verdict(), {}).cause == ""


def test_a_cause_that_is_unknown_has_checks_as_evidence() -> None:
    cause = Explanation("killed", "critical", "trainer was killed by SIGKILL", "why", "look")
    guess = Explanation("guess-memory", "info", "the kernel may have killed it", "", "", "dmesg -T")
    (alert,) = judgement(Verdict(cause, (guess,)), Verdict(), {}).symptoms
    assert alert.fix == "look"
    assert alert.evidence[-1].text == "possible cause: the kernel may have killed it; check: dmesg -T"


def test_what_the_metrics_tell_better_than_the_log_is_told_once() -> None:
    skipped = Symptom("log:verl-grad-not-finite", "critical", "no number", "x", "y")
    since = Symptom("metrics_not_finite", "critical", "NaN since step 2", "x", "y")
    assert [one.id for one in merged([skipped, since])] == ["metrics_not_finite"]
    assert [one.id for one in merged([skipped])] == ["log:verl-grad-not-finite"]


def test_links_only(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "private", "my run")
    (tmp_path / "a.log").write_text("a")
    (tmp_path / "b.log").write_text("b")
    assert mirror.link_log("trainer", tmp_path / "a.log") == "attempt_001/logs/trainer.1.log"
    assert mirror.link_log("trainer", tmp_path / "b.log") == "attempt_001/logs/trainer.2.log"
    assert mirror.link_log("trainer", tmp_path / "a.log") == "attempt_001/logs/trainer.1.log"
    mirror.link_trials(tmp_path)
    mirror.link_trials(tmp_path)
    assert [path.name for path in mirror.run.trial_roots()] == ["trials", "trials.2"]
    assert mirror.run.name.endswith("my-run")


def test_names_of_services_are_names_of_files() -> None:
    assert service_name("../a b.log") == "a-b-log"
    assert service_name("---") == "log"


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        (Target(Path("/nowhere/at/all")), 4, "there is no folder /nowhere/at/all"),
        (Target(Path("/etc/passwd")), 2, "is a file, not a folder"),
        (Target(trials=Path("/nowhere")), 4, "--trials: there is no folder"),
        (Target(ray="8265"), 2, "is not HOST:PORT"),
        (Target(ray="host:99999"), 2, "is not HOST:PORT"),
        (Target(ray="127.0.0.1:1"), 4, "no Ray dashboard answers at 127.0.0.1:1: connection refused"),
        (Target(litellm_port=1), 4, "no proxy answers on port 1 of this host: connection refused"),
    ],
)
def test_bad_targets(target: Target, code: int, words: str) -> None:
    with pytest.raises(WatchError, match=re.escape(words)) as error:
        checked(target)
    assert error.value.exit_code == code


KILLED = Path(__file__).parents[1] / "data" / "watch" / "verl_by_hand_enginecore_killed.log"
ENDED = "vLLM's EngineCore process ended without an error of its own"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", True),
        ("(TaskRunner pid=3) INFO still waiting\n" * 3, True),
        ("".join(f"(TaskRunner pid=3) step:{step} - actor/loss:0.1\n" for step in (3, 4, 5)), False),
    ],
)
def test_an_engine_that_ended_below_a_trainer_that_waits(more: str, told: bool, tmp_path: Path) -> None:
    """Recorded on two H200s: ``kill -9`` of an EngineCore, and the trainer waits without an end."""
    path = tmp_path / "train.log"
    path.write_text(KILLED.read_text() + more)
    status = path.stat()
    judged = JudgedLog(path, "train.log", "trainer", True, status.st_size, status.st_mtime)
    found = Judge(lambda: [judged]).look()
    assert any(ENDED in one.title and one.severity == "critical" for one in found.symptoms) == told
    assert not found.failed and not found.cause, "it runs"


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File 'r.py', line 1, in f\nKeyError: 'answer'\n",
        "ERROR something that nobody knows\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\nstep:3 - a:1\nstep:4 - a:1\n",
    ],
)
def test_an_error_that_a_running_trainer_may_have_caught(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"step:1 - actor/loss:0.1\n{text}")
    assert ended_below(read_log(path, "train.log", 0)) is None


@pytest.mark.parametrize("row", [row for row in rows() if row.alive], ids=lambda row: row.id)
def test_one_complaint_of_a_process_that_goes_on_is_no_failure(row: Signature, tmp_path: Path) -> None:
    """It ended nothing; and how many failed requests are too many, the rules of live logs count."""
    path = tmp_path / "one.log"
    path.write_text(f"{row.fires}\n")
    log = read_log(path, "one.log", 0)
    verdict = ended_below(log)
    assert verdict is None or verdict.cause is None or verdict.cause.id != row.id
    status = path.stat()
    found = Judge(lambda: [JudgedLog(path, "one.log", "proxy", True, status.st_size, status.st_mtime)]).look()
    if row.fails == "request":
        assert f"log:{row.id}" not in {one.id for one in found.symptoms}


@pytest.mark.parametrize(
    ("end", "alive", "told"),
    [
        ("trainer exit code: 0", False, True),
        ("wandb: Run summary:", False, True),
        ("trainer exit code: 0", True, False),
        ("", False, False),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False, False),
    ],
)
def test_a_training_that_ended_early_is_an_alert(end: str, alive: bool, told: bool, tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    steps = "".join(f"step:{n} - training/global_step:{n} - critic/score/mean:0.5\n" for n in range(1, 4))
    log.write_text(f"Total training steps: 20\n{steps}{end}\n")
    watched = JudgedLog(log, "logs/trainer.1.log", "trainer", alive, *stat_of(log), None)
    found = {one.id: one for one in Judge(lambda: [watched]).look().symptoms}
    assert ("log:ended-early" in found) == told
    if told:
        alert = found["log:ended-early"]
        assert alert.title == "training ended without an error after step 3 of 20"
        assert {one.log for one in alert.evidence} == {"logs/trainer.1.log"}


@pytest.mark.parametrize(
    ("judged", "explained", "seconds", "log", "told"),
    [
        (0.0, (), 3.0, "r.log", False),  # its log is judged in a moment
        (1003.0, (), 3.0, "r.log", True),  # and says nothing
        (1003.0, ("r",), 3.0, "r.log", False),  # and says more
        (0.0, (), 60.0, "r.log", True),  # a large log
        (0.0, (), 3.0, None, True),
    ],
)
def test_an_exit_is_an_alert_once_its_log_was_judged(
    judged: float, explained: tuple[str, ...], seconds: float, log: str | None, told: bool
) -> None:
    one = service("r", "replica", "failed", down_since=1000.0, log=log)
    now = snapshot(at=1000.0 + seconds, services=(one,))
    assert bool(ended(now, Judgement(explained=explained, at=judged))) == told


def test_what_an_earlier_process_has_appended_is_no_verdict_on_this_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    old = "[2026-11-20 10:00:00,5 E 1 2] CUDA error: an illegal memory access was encountered\n"
    path.write_text(f"{old}[2026-11-20 12:00:00,5 I 3 4] begin\n")
    at = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    os.utime(path, (at, at))
    log = read_log(path, "train.log", 0)
    assert ended_below(log) is not None
    assert ended_below(of_process(log, at - 600)) is None
    assert ended_below(of_process(log, None)) is not None
    assert ended_below(of_process(log, at - 3 * 3600)) is not None
    os.utime(path, (at + 7 * 3600, at + 7 * 3600))  # the stamps are of another zone
    log = read_log(path, "train.log", 0)
    assert ended_below(of_process(log, at + 7 * 3600 - 600)) is not None
