"""What doctor says of faults that a run recovered from: a service ended, was started again, and served."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.screens import service, snapshot

from liverl.model import Cause, Evidence, Result, Symptom
from liverl.offline.doctor.examine import Examination, examine
from liverl.offline.doctor.report import as_text
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot

KILLED_AT, SERVED_AT = 1_796_092_831.0, 1_796_092_832.0
HUNG_UP = "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected"
REFUSED = "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8001 ssl:default "
REFUSED += "[Connection refused]"
OWN = "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8002): address already in use"


def line(at: float, text: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))},000 ERROR {text}\n"


def a_run(
    path: Path, logs: dict[str, str], *, state: Any = "done", exit_: object = None, **of_replica: Any
) -> Path:
    """A run whose replica r1 was killed and served again, with these logs."""
    folder = path / "attempt_001" / "logs"
    folder.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    for name, text in logs.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (KILLED_AT + 900, KILLED_AT + 900))
    (path / "exits").mkdir()
    ended = {"signal": 9, "at": KILLED_AT} if exit_ is None else exit_
    (path / "exits" / "r1.1.json").write_text(json.dumps({"token": "r1.1", "exit": ended}))
    cause = Cause("trainer", "exit 1", KILLED_AT + 900) if state == "failed" else None
    result = Result(state, int(cause is not None), cause, 20, KILLED_AT - 60, KILLED_AT + 900)
    (path / "result.json").write_bytes(msgspec.json.encode(result))
    values = {
        "generation": 2,
        "failed_at": KILLED_AT,
        "ready_at": SERVED_AT,
        "log": "attempt_001/logs/r1.2.log",
    }
    replica = service("r1", "replica", "stopped", **values | of_replica)
    proxy = service("proxy", "proxy", "stopped")
    last = snapshot(services=(replica, proxy), symptoms=(), state=state, result=result, run_dir=str(path))
    (path / "snapshot.json").write_bytes(encode_snapshot(last))
    return path


def found(run: Path) -> list[tuple[str, bool]]:
    """Severity, and whether it is called recovered, of each thing that is wrong."""
    said = examine([run]).verdict.explanations
    return [(one.severity, one.title.endswith(" (recovered)")) for one in said]


OVER = [("warning", True)]
PRESENT = [("critical", False)]


@pytest.mark.parametrize(
    ("logs", "of_replica", "says"),
    [
        ({"proxy.1.log": line(KILLED_AT, HUNG_UP)}, {}, OVER),
        ({"proxy.1.log": line(KILLED_AT - 60, HUNG_UP)}, {}, PRESENT),
        ({"proxy.1.log": line(SERVED_AT + 60, HUNG_UP)}, {}, PRESENT),
        ({"proxy.1.log": line(KILLED_AT, HUNG_UP) + line(SERVED_AT + 60, HUNG_UP)}, {}, PRESENT),
        ({"proxy.1.log": HUNG_UP + "\n"}, {}, PRESENT),
        ({"proxy.1.log": line(KILLED_AT, HUNG_UP)}, {"ready_at": None}, PRESENT),
        ({"proxy.1.log": line(KILLED_AT, HUNG_UP)}, {"ready_at": KILLED_AT - 30}, PRESENT),
        ({"proxy.1.log": line(KILLED_AT, HUNG_UP)}, {"down_since": SERVED_AT + 9}, PRESENT),
        ({"r1.1.log": line(KILLED_AT - 60, HUNG_UP)}, {}, OVER),
        ({"r1.1.log": HUNG_UP + "\n"}, {}, OVER),
        ({"r1.2.log": line(SERVED_AT + 60, HUNG_UP)}, {}, PRESENT),
        ({"r1.1.log": line(KILLED_AT - 60, HUNG_UP)}, {"ready_at": None}, PRESENT),
    ],
    ids=[
        "a request while it was down",
        "before",
        "after",
        "also after",
        "no time",
        "never served again",
        "served before only",
        "down again",
        "its own log",
        "its own log without a time",
        "the log of its successor",
        "its own log, never again",
    ],
)
def test_what_is_over_is_ranked_as_over(
    tmp_path: Path, logs: dict[str, str], of_replica: dict[str, Any], says: list[tuple[str, bool]]
) -> None:
    assert found(a_run(tmp_path, logs, **of_replica)) == says


@pytest.mark.parametrize(
    ("at", "says"),
    [(KILLED_AT, OVER), (SERVED_AT + 60, PRESENT)],
    ids=["while", "after"],
)
def test_an_alert_on_such_a_line_is_over_with_it(
    tmp_path: Path, at: float, says: list[tuple[str, bool]]
) -> None:
    """It led the verdict on a run that had recovered, beside the same line that was called recovered."""
    run = a_run(tmp_path, {"proxy.1.log": line(at, HUNG_UP)})
    place = Evidence(HUNG_UP, "attempt_001/logs/proxy.1.log", 0)
    often = Evidence("proxy: 8 times in the last 5 minutes", value=8)
    alert = Symptom("log:server-hung-up:proxy", "warning", "proxy: it hung up", "", "look", (place, often))
    last = RunDir(run).read_snapshot()
    assert last is not None
    RunDir(run).snapshot.write_bytes(encode_snapshot(msgspec.structs.replace(last, symptoms=(alert,))))
    assert found(run) == says


def words(examination: Examination) -> str:
    return " ".join(as_text(examination).split())


def test_what_is_over_names_what_had_ended_and_comes_last(tmp_path: Path) -> None:
    logs = {"proxy.1.log": line(KILLED_AT, HUNG_UP) + line(SERVED_AT + 60, REFUSED)}
    said = words(examine([a_run(tmp_path, logs)]))
    assert said.startswith("critical: ") and "r1 was killed by SIGKILL at" in said
    assert said.index("Connection refused") < said.index("(recovered)")
    assert "Nothing, unless it comes again. Then: Look in the server's log" in said


@pytest.mark.parametrize(
    ("exit_", "of_replica", "told"),
    [
        (None, {}, True),
        ({"code": 0, "at": KILLED_AT}, {}, False),
        (None, {"failed_at": None}, False),
        (None, {"ready_at": None}, False),
    ],
    ids=["failed", "exit 0", "by a command", "not again"],
)
def test_an_end_without_a_line_in_a_log_is_a_note(
    tmp_path: Path, exit_: object, of_replica: dict[str, Any], told: bool
) -> None:
    examination = examine([a_run(tmp_path, {"r1.1.log": "serving\n"}, exit_=exit_, **of_replica)])
    assert not examination.found
    said = "The run recovered from a failure: r1 was killed by SIGKILL at"
    assert (said in words(examination)) == told


@pytest.mark.parametrize(
    ("ready_at", "cause"),
    [(SERVED_AT, "cuda-oom-short"), (None, "port-in-use-address")],
    ids=["over", "not over"],
)
def test_what_was_over_is_no_cause_of_a_later_end(tmp_path: Path, ready_at: float | None, cause: str) -> None:
    """The trainer ran out of memory a quarter of an hour later; the replica was blamed for it."""
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    logs = {"r1.1.log": line(KILLED_AT - 9, OWN), "trainer.1.log": line(KILLED_AT + 800, oom)}
    verdict = examine([a_run(tmp_path, logs, state="failed", ready_at=ready_at)]).verdict
    assert verdict.cause is not None and verdict.cause.id == cause
    over = [one.title for one in verdict.symptoms if one.title.endswith(" (recovered)")]
    assert over == ["Port 8002 on 127.0.0.1 is taken by another process (recovered)"] * (ready_at is not None)
