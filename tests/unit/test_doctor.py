"""``liverl-tui doctor``: what files are, and what it says of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import service, snapshot
from msgspec.structs import replace

from liverl.causes.finding import Explanation, Verdict
from liverl.causes.inputs.places import offset_of
from liverl.causes.read.reading import MOST_AFTER
from liverl.causes.row_files import Fault, RowsError
from liverl.causes.verdict.guesses import guesses
from liverl.model import Cause, Evidence, Result
from liverl.model import Exit as ServiceExit
from liverl.offline.doctor import examine as examine_module
from liverl.offline.doctor import reading as reading_module
from liverl.offline.doctor import unpacked
from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.inputs import collect, look
from liverl.offline.doctor.kinds import kind_of
from liverl.offline.doctor.report import as_text
from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.main import run
from liverl_tui.cli.progress import Progress

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
TRACEBACK = b"""starting
Traceback (most recent call last):
  File "/srv/train.py", line 3, in main
    load(path)
ValueError: the column 'prompt' is missing
"""


@pytest.mark.parametrize(
    ("name", "content", "words", "log"),
    [
        ("a.log", b"(APIServer pid=1) INFO vLLM API server version 0.24.0\n", "vLLM log", True),
        (
            "a.log",
            b"(TaskRunner pid=8) step:1 - actor/loss:0.1\n(EngineCore pid=3) x\n",
            "trainer log (verl, Ray)",
            True,
        ),
        ("a.log", b"LiteLLM: Proxy initialized\n", "LiteLLM log", True),
        ("slurm-1.out", b"slurmstepd: error: Detected 1 oom_kill event\n", "Slurm output", True),
        (
            "slurm-1.out",
            b"step:1 - x:2\nsrun: error: node7\n",
            "Slurm output with a trainer log (verl, Ray)",
            True,
        ),
        ("raylet.out", b"anything\n", "log of Ray's raylet", True),
        ("gcs_server.err", b"anything\n", "log of Ray's GCS", True),
        ("worker-ab12-01000000-77.err", b"anything\n", "log of a Ray worker", True),
        ("dashboard_agent.log", b"anything\n", "log of a Ray service", True),
        ("train.log", b"[rank0]: Traceback\n", "torch log", True),
        ("a.log", b"(MegatronTrainRayActor pid=7) timer.py:24 - x\n", "trainer log (slime, Ray)", True),
        ("metrics.txt", b"# HELP vllm:x y\n", "Prometheus metrics", False),
        ("a.json", b"{}", "JSON data", False),
        ("model.safetensors", b"\0\0\0", "model weights", False),
        ("core", b"\x7fELF\0\0", "binary", False),
        ("a.log", b"", "empty", False),
        (
            "a.log",
            "hello".encode("utf-16"),
            "text in UTF-16; convert it first: iconv -f utf-16 -t utf-8",
            False,
        ),
        ("run.log", b"Sending keys: ['asciinema rec --stdin /logs/tests.cast', 'Enter']\n", "text", True),
        ("a.tar.gz", b"\x1f\x8b\0", "compressed; unpack it first", False),
        ("notes.log", b"hello\n", "text", True),
        ("cut.log", "caf\u00e9".encode()[:-1], "text", True),
    ],
)
def test_what_a_file_is(name: str, content: bytes, words: str, log: bool) -> None:
    assert kind_of(name, content)[:2] == (words, log)


@pytest.mark.parametrize(
    ("name", "content", "missed"),
    [
        ("train.log.1.gz", b"\x1f\x8b\0", True),
        ("slurm-4711.out.xz", b"\xfd7zXZ\0", True),
        ("logs.tar.gz", b"\x1f\x8b\0", True),
        ("train.log", b"\0\1\2" * 100, True),
        ("stderr.txt", "hello".encode("utf-16"), True),
        ("model.safetensors", b"\0\0\0", False),
        ("core", b"\x7fELF\0\0", False),
        ("data.parquet", b"PAR1\0", False),
        ("weights.tar.gz", b"\x1f\x8b\0", False),
        ("train.py", b"print()\n", False),
        ("a.log", b"", False),
    ],
)
def test_which_file_that_is_not_read_may_be_a_log(name: str, content: bytes, missed: bool) -> None:
    kind = kind_of(name, content, named=False)
    assert (kind.log, kind.missed) == (False, missed)


def test_text_of_no_log_is_read_only_where_it_is_named() -> None:
    assert kind_of("notes.foo", b"hello\n").log
    assert not kind_of("notes.foo", b"hello\n", named=False).log
    assert kind_of("slurm.out", b"hello\n", named=False).log


def test_what_cannot_be_read_is_one_line_each(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "weights.log").write_bytes(bytes(1000))
    (tmp_path / "empty.log").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    found = {
        Path(one.path).name: one
        for one in collect([tmp_path, tmp_path / "folder", tmp_path / "missing"]).files
    }
    assert not any(one.read for one in found.values())
    assert {name: one.what for name, one in found.items()} == {
        "fifo": "not a regular file but a FIFO",
        "weights.log": "binary",
        "empty.log": "empty",
        "link": "cannot be read: No such file or directory",
        "folder": "an empty folder",
        "missing": "cannot be read: No such file or directory",
    }


def test_a_run_of_ours_is_read_with_its_exits(tmp_path: Path) -> None:
    now = time.time()
    run_dir = make_run(tmp_path / "run", Result("failed", 1, None, 3, now - 9000, now - 7200))
    found = collect([tmp_path])
    assert [(Path(one.path).name, one.what) for one in found.files] == [
        (run_dir.name, "a run of liverl-tui: failed, attempt 1, 2 h ago"),
        ("trainer.1.log", "liverl-tui's log of trainer"),
    ]
    assert [(e.name, e.code) for e in found.exits] == [("the run", 1)]


STATED = Cause(
    *(
        "trainer",
        "An actor waits for 6 CPUs, and Ray has 5 of 7 CPUs free",
        1.0,
        "attempt_001/logs/ray.1.log",
    ),
    id="ray-too-few-resources",
    fix="Start Ray with at least 8 CPUs",
    evidence=(Evidence("pending: 6 CPUs", "attempt_001/logs/ray.1.log"),),
)


def test_what_the_backend_saw_counts_where_the_logs_do_not_explain_the_end(tmp_path: Path) -> None:
    """Ray's state, a preflight check and the kernel's counters are in no log."""
    run_dir = make_run(tmp_path / "run", Result("failed", 1, STATED, 3, 1.0, 2.0))
    cause = examine([run_dir]).verdict.cause
    assert cause is not None and cause.id == STATED.id and cause.fix == STATED.fix
    assert cause.title == f"trainer: {STATED.text}"
    assert [one.log for one in cause.evidence] == [str(run_dir / "attempt_001/logs/ray.1.log")]

    refused = Cause("env:verl", "the installed verl has no key trainer.total_epoch", 1.0)
    silent = make_run(tmp_path / "silent", Result("failed", 3, refused, 0, 1.0, 2.0))
    (silent / "attempt_001" / "logs" / "trainer.1.log").unlink()
    cause = examine([silent]).verdict.cause
    assert cause is not None and cause.title == f"env:verl: {refused.text}"

    told = make_run(tmp_path / "told", Result("failed", 1, refused, 0, 1.0, 2.0))
    cause = examine([told]).verdict.cause
    assert cause is not None and "the column 'prompt' is missing" in cause.title, (
        "an error in a log tells more"
    )


def test_slips_of_the_model_are_no_symptom(tmp_path: Path) -> None:
    line = "ERROR 11-25 22:21:03 [tool_calls.py:80] Error in extracting tool call from response.\n"
    log = tmp_path / "vllm.log"
    log.write_text("INFO 11-25 22:21:01 [api_server.py:1] vLLM API server\n" + line * 4)
    assert not examine([log]).found
    log.write_text("INFO 11-25 22:21:01 [api_server.py:1] vLLM API server\n" + line * 5)
    assert examine([log]).found


def make_run(path: Path, result: Result) -> Path:
    import msgspec

    logs = path / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    (path / "result.json").write_bytes(msgspec.json.encode(result))
    (logs / "trainer.1.log").write_bytes(TRACEBACK)
    (logs / "trainer.1.log.idx").write_text("5 1.0\n")
    return path


def test_who_else_held_gpu_memory_is_known_to_the_run_only(tmp_path: Path) -> None:
    stranger = "Not of this run: pid 7 of ann (python train.py) holds 48.0 GiB of GPU 0."
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 "
        "GiB of which 1.00 GiB is free."
    )

    def told(folder: Path, cause: Cause) -> Explanation:
        run_dir = make_run(folder, Result("failed", 1, cause, 0, 1.0, 2.0))
        (run_dir / "attempt_001" / "logs" / "trainer.1.log").write_text(oom)
        found = examine([folder]).verdict.cause
        assert found is not None and found.id == "cuda-oom" and found.evidence
        return found

    alone = told(tmp_path / "1", Cause("trainer", "exit 1", 1.0))
    assert stranger not in alone.cause
    why = f"It is used up. {stranger}"
    same = told(tmp_path / "2", Cause("trainer", alone.title, 1.0, "x.log", 0, id="cuda-oom", why=why))
    assert same.cause == why
    other = told(tmp_path / "3", Cause("trainer", "another error", 1.0, id="gpu-memory-held", why=why))
    assert other.cause == alone.cause


def test_a_run_that_was_stopped_while_a_service_kept_failing(tmp_path: Path) -> None:
    """The second process was stopped with the run, before it served."""
    log, exits = "attempt_001/logs/replica-0.2.log", tmp_path / "exits"
    run_dir = make_run(
        tmp_path, Result("stopped", 0, Cause(None, "stopped by cli pid 9", 60.0), 0, 1.0, 60.0)
    )
    (run_dir / "attempt_001" / "logs" / "trainer.1.log").rename(run_dir / log.replace(".2.", ".1."))
    (run_dir / log).write_text("starting\n")
    exits.mkdir()
    (exits / "replica-0.1.json").write_text('{"token": "replica-0.1", "exit": {"code": 1, "at": 50.0}}')
    (exits / "replica-0.2.json").write_text('{"token": "replica-0.2", "exit": {"signal": 9, "at": 59.0}}')

    def found(ready_at: float | None) -> list[str]:
        replica = service(
            "replica-0", "replica", "stopped", log=log, failed_at=50.1, ready_at=ready_at, generation=2
        )
        (run_dir / "snapshot.json").write_bytes(encode_snapshot(snapshot(services=(replica,))))
        cause = examine([tmp_path]).verdict.cause
        return [] if cause is None else [one.text for one in cause.evidence]

    assert found(None) == [
        "ValueError: the column 'prompt' is missing",
        "replica-0 exited with code 1",
    ]
    assert found(55.0) == [], "it served again"
    (exits / "replica-0.1.json").write_text("{")
    assert found(None) == [], "how it ended is not known"


def test_an_end_that_nothing_explains_is_told_as_the_result_tells_it(tmp_path: Path) -> None:
    """An error that another service logged is not taken for it; the guesses are kept."""
    text = "cause unknown: vLLM's EngineCore process ended without an error of its own"
    stated = Cause(
        "replica-0", text, 60.0, "attempt_001/logs/replica-0.1.log", 0, id="unknown", fix="Look at dmesg."
    )
    run_dir = make_run(tmp_path / "run", Result("failed", 60, stated, 1, 1.0, 60.0))
    logs = run_dir / "attempt_001" / "logs"
    (logs / "trainer.1.log").unlink()
    (logs / "proxy.1.log").write_text("14:07:28 - LiteLLM Proxy:ERROR: x.py:24 - Packaged UI is invalid.\n")
    (logs / "replica-0.1.log").write_text("ERROR EngineDeadError\n")
    fallen = service(
        "replica-0", "replica", "failed", log="attempt_001/logs/replica-0.1.log", exit=ServiceExit(code=1)
    )
    (run_dir / "snapshot.json").write_bytes(encode_snapshot(snapshot(services=(fallen,))))
    found = examine([run_dir])
    cause = found.verdict.cause
    assert cause is not None
    assert (cause.title, cause.fix) == (f"replica-0: {text}", "Look at dmesg.")
    assert found.verdict.guesses
    assert as_text(found, 200).startswith(f"replica-0: {text}\n")


def test_a_run_ends_by_what_ended_the_last_process_of_a_service(tmp_path: Path) -> None:
    """What ended the process before it, the run has survived. Of another service it may be the cause."""
    result = Result("failed", 60, Cause("trainer", "exit 1", 60.0), 1, 1.0, 60.0)
    run_dir = make_run(tmp_path / "run", result)
    logs = run_dir / "attempt_001" / "logs"
    (logs / "trainer.2.log").write_text("2026-11-26 11:00:00,000 ERROR MemoryError\n")

    def found(name: str) -> list[str]:
        log = f"attempt_001/logs/{name}.2.log"
        ended = service(name, "trainer", "failed", log=log, exit=ServiceExit(code=1), generation=2)
        (run_dir / "snapshot.json").write_bytes(encode_snapshot(snapshot(services=(ended,))))
        verdict = examine([run_dir]).verdict
        assert verdict.cause is not None
        return [verdict.cause.id, *(one.id for one in verdict.symptoms)]

    (logs / "trainer.1.log").write_text(
        "2026-11-26 10:00:00,000 ERROR OSError: [Errno 28] No space left on device\n"
    )
    assert found("trainer") == ["memory-error", "disk-full"]
    (logs / "trainer.2.log").write_text("")
    assert found("replica-0")[0] == "disk-full"


@pytest.mark.parametrize(
    "result", [Result("done", 0, None, 3, 1.0, 2.0), Result("stopped", 5, None, 3, 1.0, 2.0)]
)
def test_a_run_that_did_not_fail_has_nothing_wrong(result: Result, tmp_path: Path) -> None:
    make_run(tmp_path / "run", result)
    assert not examine([tmp_path]).found


def test_a_folder_of_trials_is_one_line_and_no_log(tmp_path: Path) -> None:
    trial = tmp_path / "step_0001" / "hello-1"
    (trial / "agent").mkdir(parents=True)
    (trial / "agent" / "agent.log").write_bytes(TRACEBACK)
    (trial / "result.json").write_text("{}")
    (one,) = collect([tmp_path]).files
    assert (one.path, one.what, one.read) == (str(tmp_path), "1 trial in 1 step", False)


def test_the_line_of_a_quote_is_found() -> None:
    assert offset_of(TRACEBACK, "ValueError: the column 'prompt' is missing") == TRACEBACK.index(
        b"ValueError"
    )
    assert offset_of(b"a\n  ValueError:   two  blanks\n", "ValueError: two blanks") == 2
    assert offset_of(b"pydantic: 1 error\nx\n  wrong value\n", "pydantic: 1 error: wrong value") in (0, 20)
    assert offset_of(b"nothing", "of this") == 0


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = run(["doctor", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_an_error_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(TRACEBACK)
    code, out, _ = doctor(capsys, log, "--json")
    assert code == 1
    said: dict[str, Any] = json.loads(out)
    offset = TRACEBACK.index(b"ValueError")
    text = "ValueError: the column 'prompt' is missing"
    assert said["cause"] == {"text": text, "log": str(log), "offset": offset, "at": None}
    (symptom,) = said["symptoms"]
    assert symptom.keys() == {
        "id",
        "severity",
        "title",
        "cause",
        "fix",
        "at",
        "command",
        "patch",
        "guess",
        "evidence",
    }
    assert symptom["fix"]
    assert symptom["evidence"][0] == {
        "text": text,
        "log": str(log),
        "offset": offset,
        "line": 5,
        "value": None,
    }
    assert said["files"] == [
        {"path": str(log), "what": "text", "read": True, "size": len(TRACEBACK), "missed": False}
    ]
    code, out, _ = doctor(capsys, tmp_path)
    assert code == 1
    assert f"{log}:5 (byte {offset}):" in out
    assert text in out and "fix: " in out


NO_TOKENS = "ValueError: response_mask must contain at least one valid token (1).\n"


def test_what_the_result_of_a_run_knows_of_its_trials_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its logs alone do not show which parser fits; result, alert and report say it."""
    cause = Cause("trainer", "no tokens", 1.0, id="verl-no-tokens", why="They write JSON", fix="set it")
    known = replace(cause, patch={"model.tool_parser": "hermes"})
    for name, told in (("known", known), ("unknown", cause), ("other", replace(known, id="cuda-oom"))):
        run_dir = make_run(tmp_path / name, Result("failed", 1, told, 3, 1.0, 2.0))
        log = run_dir / "attempt_001" / "logs" / "trainer.1.log"
        log.write_bytes(
            TRACEBACK.replace(b"ValueError: the column 'prompt' is missing\n", NO_TOKENS.encode())
        )
        _, out, _ = doctor(capsys, run_dir)
        assert ("why: They write JSON" in out and "set: model.tool_parser: hermes" in out) == (
            name == "known"
        ), out


@pytest.mark.parametrize(
    ("uses", "number", "left"),
    [
        ({"may_use_ray": False, "cpus": False}, signal.SIGKILL, ["guess-memory", "guess-stopped"]),
        ({"may_use_ray": True, "cpus": True}, signal.SIGKILL, ["guess-memory", "guess-ray", "guess-stopped"]),
        ({"may_use_ray": False, "cpus": True}, signal.SIGABRT, ["guess-native", "guess-memory"]),
        (
            {"may_use_ray": False, "cpus": False},
            signal.SIGABRT,
            ["guess-native", "guess-gpu", "guess-memory"],
        ),
    ],
)
def test_what_a_run_has_not_is_no_possible_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses: dict[str, bool], number: int, left: list[str]
) -> None:
    """The trainer of a run without Ray was killed, and the second possible cause was Ray; a replica on CPUs crashed,
    and it was a GPU."""
    run_dir = make_run(tmp_path / "run", Result("failed", 1, None, 3, 1.0, 2.0))
    monkeypatch.setattr(examine_module, "plan_of", lambda path: SimpleNamespace(**uses))
    found = examine([run_dir]).verdict
    monkeypatch.setattr(
        examine_module, "judge_found", lambda *_: Verdict(found.cause, guesses(number, ""), ())
    )
    assert [one.id for one in examine([run_dir]).verdict.guesses] == left


def test_the_exit_of_a_service_is_told_and_not_again_that_of_its_run(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", Result("failed", 139, None, 3, 1.0, 2.0))
    fallen = service("trainer", "trainer", "failed", exit=ServiceExit(signal=11))
    (run_dir / "snapshot.json").write_bytes(encode_snapshot(snapshot(services=(fallen,))))
    assert [(one.name, one.signal) for one in collect([run_dir]).exits] == [("trainer", 11)]


def test_lines_that_say_the_same_are_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "trainer.log"
    log.write_text(
        "step:1 - actor/loss:0.1\n" + "WARN: grad_norm is not finite: nan\n" * 3 + "step:2 - actor/loss:0.1\n"
    )
    _, out, _ = doctor(capsys, log)
    assert out.count("WARN: grad_norm") == 1 and "(again in line 4)" in out
    assert not out.startswith("\n")


def test_a_cause_that_is_unknown_is_not_called_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.log").write_bytes(TRACEBACK.replace(b"ValueError", b"acme.Failure"))
    assert doctor(capsys, tmp_path)[1].startswith("cause unknown; the first error was: ")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_sentences_fit_into_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("WARN: grad_norm is not finite: nan\n")
    text = as_text(examine([tmp_path]), width)
    lines = [line for line in text.partition("files:")[0].splitlines() if str(tmp_path) not in line]
    assert max(len(line) for line in lines if " " in line.strip()) <= width  # a word is not cut


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fine.log").write_text("all is well\n")
    assert doctor(capsys, tmp_path)[:2] == (
        0,
        f"nothing wrong was found\n\nfiles:\n  {tmp_path}/fine.log: text\n",
    )
    code, out, _ = doctor(capsys, tmp_path / "missing")
    assert code == 4
    assert "cannot be read: No such file or directory" in out and "nothing to read" in out
    code, out, _ = doctor(capsys, tmp_path / "missing", "--json")
    assert code == 4 and json.loads(out)["cause"] is None


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".log.gz"])
def test_a_path_that_cannot_be_looked_at_is_no_fault_of_the_doctor(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a folder of another user's that must not be entered: ``stat`` fails otherwise than for a missing file."""
    assert run(["doctor", str(tmp_path / name)]) == 4
    assert "cannot be read: File name too long" in capsys.readouterr().out


def test_the_name_of_a_run_is_as_good_as_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run_dir = make_run(tmp_path / "liverl/runs/mine/first", Result("failed", 1, None, 3, 1.0, 2.0))

    def ageless(text: str) -> str:
        """Without how long ago it was, which grows between two looks."""
        return re.sub(r", \d+ s ago$", "", text, flags=re.MULTILINE)

    code, out, _ = doctor(capsys, run_dir)
    for name in ("first", "mine/first", "fir"):
        by_name, its_out, told = doctor(capsys, name)
        assert (by_name, ageless(its_out)) == (code, ageless(out))
        assert told == f"reading run mine/first in {run_dir}\n"
    assert (
        json.loads(doctor(capsys, "first", "--json")[1]).keys()
        == json.loads(doctor(capsys, run_dir, "--json")[1]).keys()
    )
    for close in ("frist", "mine/frist"):
        code, _, err = doctor(capsys, close)
        assert code == 4 and err.endswith(f"no run {close}: did you mean mine/first?\n")
    assert doctor(capsys, "/no/such/log")[2] == ""
    (tmp_path / "first").write_text("all is well\n")
    monkeypatch.chdir(tmp_path)
    assert doctor(capsys, "first")[2] == "", "a file of that name is meant"


def test_without_a_path_it_reads_the_newest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, _, err = doctor(capsys)
    assert (
        code == 4
        and f"there is no run under {tmp_path / 'liverl/runs'}; name a file or a folder with logs" in err
    )
    run_dir = make_run(tmp_path / "liverl/runs/mine/first", Result("failed", 1, None, 3, 1.0, 2.0))
    code, out, err = doctor(capsys)
    assert code == 1 and str(run_dir) in out
    assert err == (
        "no run is live on this host; the newest is mine/first (it has ended: failed)\n"
        f"reading run mine/first in {run_dir}\n"
    )
    assert doctor(capsys, "--run", "first")[::2] == (1, f"reading run mine/first in {run_dir}\n")


def test_a_fault_of_its_own_is_no_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(examine_module, "judge_found", fails)
    code, out, err = doctor(capsys, tmp_path)
    assert (code, out) == (70, "")
    assert "doctor itself failed: KeyError: 'x'" in err


def test_faults_of_rows_are_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RowsError([Fault("vllm.toml", 7, "a-row", "rolle", "there is no such key; did you mean role?")])

    monkeypatch.setattr(examine_module, "judge_found", fails)
    code, out, err = doctor(capsys, tmp_path)
    assert (code, out) == (70, "") and "Traceback" not in err
    assert err.endswith(
        "cannot be used:\nvllm.toml:7: a-row: rolle: there is no such key; did you mean role?\n"
    )


def test_of_a_huge_log_the_end_is_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"ok\n" * 1000 + TRACEBACK)
    monkeypatch.setattr(reading_module, "MOST", 500)
    found = examine([log])
    assert found.files[0].what.endswith("of 0.0 MiB were read")
    assert found.verdict.cause is not None
    assert found.verdict.cause.evidence[0].offset == 3000 + TRACEBACK.index(b"ValueError")


def test_a_named_file_is_looked_at_without_its_folder(tmp_path: Path) -> None:
    assert look(tmp_path / "nothing", named=True).what == "cannot be read: No such file or directory"


def test_what_takes_long_to_read_is_told_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    deadline, said = time.monotonic() + 60, ""
    with Progress(quiet=0.01) as progress:
        progress.say("reading 1 of 1 logs, 300.0 MiB: a.log")
        while "a.log" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
    assert said == "reading 1 of 1 logs, 300.0 MiB: a.log\n"
    with Progress(quiet=60.0) as progress:
        progress.say("nothing")
    assert capsys.readouterr().err == ""


def test_what_is_being_read_is_repeated_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    said: list[str] = []
    texts = iter(("a", "a", "a", "a", "b", "b"))
    progress = Progress()

    class Over:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            progress.say(next(texts, ""))
            return len(waits) > 6

    monkeypatch.setattr(progress, "_over", Over())
    monkeypatch.setattr("liverl_tui.cli.progress.echo", lambda text, err: said.append(text))
    progress._run()
    assert said == ["a", "a", "a", "a", "b", "b"]
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 2.0, 4.0]


def test_what_was_left_out_of_a_log_is_told(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"ERROR 11-20 23:51:24 [a.py:1] no {n}\n" for n in range(MOST_AFTER)))
    (one,) = examine([log]).files
    assert "left out" not in one.what
    log.write_text("".join(f"ERROR 11-20 23:51:24 [a.py:1] no {n}\n" for n in range(MOST_AFTER + 7)))
    (one,) = examine([log]).files
    assert one.what.endswith("; of its warnings and errors 7 in the middle were left out")


def as_json(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_a_compressed_log_is_read_if_it_is_named(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"a.log{suffix}"
    log.write_bytes(pack(TRACEBACK))
    code, found = as_json(str(log), capsys=capsys)
    assert (code, found["cause"]["log"], found["cause"]["offset"]) == (
        1,
        str(log),
        TRACEBACK.index(b"ValueError"),
    )
    assert found["files"] == [
        {"path": str(log), "what": "text", "size": len(TRACEBACK), "read": True, "missed": False}
    ]
    assert as_json(str(tmp_path), capsys=capsys)[0] == 4


def test_standard_input_is_read_for_a_dash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TRACEBACK)))
    code, found = as_json("-", capsys=capsys)
    assert (code, found["cause"]["log"], found["cause"]["offset"]) == (1, "-", TRACEBACK.index(b"ValueError"))


def test_a_compressed_log_that_ends_early_is_read_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress(TRACEBACK + os.urandom(1 << 16).hex().encode())[:-2000])
    code, found = as_json(str(log), capsys=capsys)
    assert code == 1 and "the rest cannot be unpacked: " in found["files"][0]["what"]
    log.write_bytes(TRACEBACK)
    code, found = as_json(str(log), capsys=capsys)
    assert code == 4 and found["files"][0]["what"].startswith("cannot be unpacked: Not a gzipped file")


LONG = b"INFO " + b"x" * 1018 + b"\n"  # 1 KiB


def test_logs_together_are_unpacked_up_to_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "MOST", 2 << 20)
    monkeypatch.setattr(unpacked, "MOST_IN_ALL", 3 << 20)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.log.gz").write_bytes(gzip.compress(TRACEBACK + LONG * (5 << 10)))
    _, found = as_json(*(str(tmp_path / f"{name}.log.gz") for name in ("a", "b", "c")), capsys=capsys)
    what = [one["what"] for one in found["files"]]
    assert what[0].endswith("only its first 0 GiB were unpacked")
    assert (
        "only its first 1 MiB were unpacked: with what stands before it these are 0 GiB; name it alone"
        in what[1]
    )
    assert "only its first 0 MiB were unpacked" in what[2]


def test_it_is_said_how_much_was_read_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(LONG * (9 << 10)))
    (tmp_path / "out").mkdir()
    said: list[str] = []
    given = unpacked.unpack([str(tmp_path / "a.log.gz")], tmp_path / "out", said.append)
    assert said[0] == f"unpacking {tmp_path}/a.log.gz" and said[-1] == f"{said[0]}, 9 MiB so far"
    said.clear()
    examine(given.paths, said.append)
    (log,) = given.paths
    assert f"reading 1 of 1 logs, 9.0 of 9.0 MiB: {log}" in said and len(said) > 8
    assert said[-1] == "judging what the logs say"


def test_a_log_that_begins_with_zeros_is_none_less(tmp_path: Path) -> None:
    """As one that was emptied while its writer went on at its old place."""
    log = tmp_path / "a.log"
    log.write_bytes(bytes(200_000) + TRACEBACK)
    assert examine([log]).verdict.cause is not None
    log.write_bytes(bytes(200_000))
    assert not examine([log]).read


def test_files_that_are_not_looked_at_are_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl.offline.doctor.inputs.FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.log").write_bytes(b"fine\n")
    assert next(iter(collect([tmp_path]).files)).path == "..."
