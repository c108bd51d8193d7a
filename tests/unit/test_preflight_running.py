"""How checks are run and told: side by side, with time-outs, in one list, and with a fix that is shown before it is
written."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import checked_runs
from kit.checked_runs import TwoGpus, tree
from kit.hanging import hanging

from liverl.config import load_config, resolved
from liverl.config.loaded import LoadedConfig
from liverl.daemon import launch
from liverl.model import Check
from liverl.observe.gpu import sampler
from liverl.plan import make_plan
from liverl.preflight import again_on_enter, host, run_checks, running
from liverl.preflight.record import Report, read, record, replaced, write
from liverl.preflight.registry import CHECKS, Entry
from liverl.preflight.subject import Subject
from liverl.rundir.layout import RunDir
from liverl_tui.cli import main as cli

_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2  # prctl(2), capabilities(7)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a run of managed vLLM that could start, on a simulated host with two GPUs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("LIVERL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (TwoGpus(), ""))
    return checked_runs.configured(tmp_path, "managed")


def loaded(file: Path | None = None) -> LoadedConfig:
    from msgspec.structs import replace

    found = load_config(file, sets=["run.name=n"], env={})
    config = resolved(found.config, env={"HOME": "/h"}, cwd=Path("/w"), now=0.0)
    return replace(found, config=config)


def made(entries: list[Entry], file: Path | None = None, **options: Any) -> list[Check]:
    found = loaded(file)
    return run_checks(make_plan(found, Path("/runs/p/n")), found.config, entries=entries, **options)


# --- the table ----------------------------------------------------------------------------------------


def test_every_line_of_the_table_is_a_function_of_what_a_check_may_look_at() -> None:
    import inspect

    assert len({entry.id for entry in CHECKS}) == len(CHECKS)
    for entry in CHECKS:
        wanted = inspect.signature(entry.function).parameters.values()
        needed = {one.name for one in wanted if one.default is one.empty}
        assert needed <= set(Subject.__struct_fields__), entry
        assert entry.function.__doc__ and entry.seconds > 0


# --- checks that do not answer, or fail themselves ----------------------------------------------------


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Ends what hangs in a test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_check_that_hangs_is_skipped_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    def hangs() -> Iterator[Check]:
        yield Check("first half", "ok", "seen")
        released.wait(60)
        yield Check("second half", "ok", "never seen")

    monkeypatch.setattr(host, "replicas", hangs)
    table = [Entry("hung", "host:replicas", seconds=0.3), Entry("trials", "host:trials")]
    told: list[list[str]] = []
    checks = made(table, tell=lambda ids: told.append([*ids]))
    assert [(c.id, c.name, c.status) for c in checks] == [
        ("hung", "first half", "ok"),
        ("hung", "hung", "skipped"),
        ("trials", "trials of a step", "ok"),
    ]
    assert checks[1].text.startswith("no answer within 0.3 s")
    assert "hung" in told[0]


def test_a_storage_that_does_not_answer_does_not_hang_the_command(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tuple(e._replace(seconds=0.5) if e.id.startswith("model") else e for e in CHECKS)
    monkeypatch.setattr(running, "CHECKS", table)
    folder = run.parent / "models" / "Toy-1B"
    with hanging(folder / "config.json", folder / "model-00001-of-00002.safetensors"):
        assert cli.run(["check", "--json", "--config", str(run)]) == 0
    found = {check["id"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    for name in ("model", "model-weights"):
        assert found[name]["status"] == "skipped" and found[name]["text"].startswith("no answer within 0.5 s")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            OSError(116, "Stale file handle", "/mnt/model"),
            "skipped",
            "could not be looked at: /mnt/model: Stale file",
        ),
        (
            KeyError("gone"),
            "warn",
            "was not checked: a fault of liverl-tui's own, please report it: KeyError",
        ),
    ],
)
def test_a_check_that_fails_itself_says_so_and_is_not_ok(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, words: str
) -> None:
    def fails() -> Iterator[Check]:
        raise error
        yield

    monkeypatch.setattr(host, "replicas", fails)
    checks = made([Entry("broken", "host:replicas"), Entry("trials", "host:trials")])
    assert [(c.id, c.status) for c in checks] == [("broken", status), ("trials", "ok")]
    assert checks[0].text.startswith(words)


def test_secrets_are_in_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "a1b2c3d4" * 6
    monkeypatch.setattr(
        host, "replicas", lambda: Check("a", "fail", f"api_key={secret}", fix=f"api_key={secret}")
    )
    assert secret not in str(made([Entry("a", "host:replicas")]))


# --- rights -------------------------------------------------------------------------------------------


def _without_rights_over_all() -> None:
    """Root, too, is then refused what the mode of a file forbids."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        libc.prctl(_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize(
    ("forbidden", "name", "words"),
    [
        ("models/Toy-1B", "model", "cannot read {}/models/Toy-1B/config.json: Permission denied"),
        ("models", "model", "config.json: Permission denied"),
        ("models/Toy-1B/config.json", "model", "Permission denied"),
        ("models/Toy-1B/model-00001-of-00002.safetensors", "model weights", "Permission denied"),
        (".", "run directory", "{} is not writable"),
    ],
)
def test_files_without_rights_are_a_fault(run: Path, forbidden: str, name: str, words: str) -> None:
    path = (run.parent / forbidden).resolve()
    mode = path.stat().st_mode
    path.chmod(0o500 if forbidden == "." else 0)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "liverl_tui", "check", "--json", "--config", "my.yaml"],
            cwd=run.parent,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_without_rights_over_all,
        )
    finally:
        path.chmod(mode)
    assert done.returncode == 3, done.stderr
    found = [c for c in json.loads(done.stdout)["checks"] if c["name"] == name]
    assert [c["status"] for c in found] == ["fail"] and words.format(run.parent) in found[0]["text"]


# --- the command --------------------------------------------------------------------------------------


def test_the_default_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LIVERL_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cli.run(["check", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {c["status"] for c in checks} <= {"ok", "skipped"}
    assert {c["name"]: c["status"] for c in checks}["environment proxy"] == "skipped", "it is not built"
    assert cli.run(["check"]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["STATUS", "CHECK", "FOUND"] and len(rows) == len(checks)
    assert last.startswith(f"{len(checks)} checks: 1 skipped, ")


@pytest.fixture
def port_8002() -> Iterator[None]:
    """Held by this process, as another user's run would."""
    try:
        held = socket.create_server(("127.0.0.1", 8002))
    except OSError:
        pytest.skip("port 8002 is held by something else")
    with held:
        yield


@pytest.mark.usefixtures("port_8002")
def test_the_default_run_starts_beside_whatever_holds_the_default_port() -> None:
    ports = [entry for entry in CHECKS if entry.id == "ports"]

    def found(name: str, *sets: str) -> list[Check]:
        loaded = load_config(None, sets=[f"run.name={name}", *sets], env={})
        return run_checks(make_plan(loaded, Path("/runs/p") / name), loaded.config, entries=ports)

    for name in ("one", "two"):
        assert "fail" not in {check.status for check in found(name)}, name
    (failed,) = [
        check for check in found("set", "infrastructure.litellm_port=8002") if check.status == "fail"
    ]
    assert failed.name == "port 8002 (proxy)" and f"pid {os.getpid()}" in failed.text
    assert failed.patch == {"infrastructure.litellm_port": "0"}


def test_the_worst_stands_first_with_its_fix(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--config", str(run), "--set", f"model.model_path={run.parent}/models/Toy-1b"]
    assert cli.run(words) == 3
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:2] == ["fail", "model"]
    assert lines[2][:3] == ["fix:", "did", "you"]
    assert lines[3][:2] == ["set:", "--set"] and lines[3][2] == f"model.model_path={run.parent}/models/Toy-1B"
    statuses = [line[0] for line in lines if line[0] in ("fail", "warn", "skipped", "ok")]
    assert statuses == sorted(statuses, key=["fail", "warn", "skipped", "ok"].index)


@pytest.mark.parametrize("what", ["folder", "missing", "binary"])
def test_a_configuration_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    assert cli.run(["check", "--config", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_checks_of_this_host_are_left_out_for_another(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "--json", "--other-host", "--config", str(run)]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    (left,) = (check for check in checks if check["id"] == "host")
    assert left["status"] == "skipped"
    ids = {check["id"] for check in checks}
    for entry in CHECKS:
        if entry.host and entry.when(loaded(run).config):
            assert entry.id not in ids and entry.id in left["text"]


def test_plan_and_up_find_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--config", str(run), "--set", "model.model_path=/no/such"]
    assert cli.run(["check", "--json", *wrong]) == 3
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert cli.run(["plan", "--json", *wrong]) == 3
    assert json.loads(capsys.readouterr().out)["checks"] == checks
    before = tree(run.parent)
    assert cli.run(["up", "--no-ui", "--yes", *wrong]) == 3
    said = capsys.readouterr().err
    assert (
        "preflight check failed (model): cannot read /no/such/config.json: No such file or directory" in said
    )
    assert "  fix:  " in said and "1 preflight check failed; nothing was started" in said
    assert tree(run.parent) == before, "nothing was built or started"


# --- --fix --------------------------------------------------------------------------------------------


@pytest.fixture
def wrong(run: Path) -> Path:
    """The configuration with two values that a check can correct."""
    config = run.parent / "models" / "Toy-1B" / "config.json"
    config.write_text(json.dumps({"num_attention_heads": 9, "num_key_value_heads": 9}))
    return run


def fixed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.run(["check", "--fix", *words])
    return code, capsys.readouterr().out


def test_without_consent_a_fix_is_only_shown(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(wrong.parent)
    code, out = fixed(capsys, "--config", str(wrong))
    assert "not fixed: model: nothing was written" in out and "\nfixed:" not in out
    assert code == 3 and tree(wrong.parent) == before
    number = wrong.read_text().splitlines().index("  gen_tp: 2") + 1
    assert f"  - {number:>4}   gen_tp: 2\n  + {number:>4}   gen_tp: 1\n" in out
    assert "nothing was written" in out


def test_with_consent_the_file_is_changed_and_checked_again(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = wrong.read_text()
    code, out = fixed(capsys, "--yes", "--config", str(wrong))
    assert code == 0 and f"wrote {wrong}" in out
    assert wrong.read_text() == before.replace("gen_tp: 2", "gen_tp: 1"), "comments and order stay"
    assert out.count("STATUS") == 2 and "0 failed" not in out
    assert [line for line in out.splitlines() if line.startswith("fixed:")] == [
        "fixed:     model (vllm.gen_tp: 1)"
    ]
    assert "not fixed: model" not in out


def gpu(status: str, text: str, **patch: str) -> Check:
    return msgspec.convert({"name": "gpu", "status": status, "text": text, "patch": patch}, Check)


TP, LENGTH = {"vllm.gen_tp": "1"}, {"vllm.max_model_length": "512"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([gpu("fail", "needs 9.1 GiB", **TP)], [gpu("fail", "needs 8.7 GiB", **TP)], ["not fixed"]),
        ([gpu("fail", "needs 9.1 GiB", **TP)], [gpu("warn", "needs 8.7 GiB")], ["not fixed"]),
        ([gpu("fail", "needs 9.1 GiB", **TP)], [gpu("fail", "needs 8.7 GiB", **TP, **LENGTH)], ["not fixed"]),
        ([gpu("fail", "needs 9.1 GiB", **TP)], [gpu("fail", "too long", **LENGTH)], ["fixed"]),
        ([gpu("fail", "m", **TP), gpu("fail", "n"), gpu("warn", "x", **LENGTH)], [gpu("warn", "n", **LENGTH)],
         ["fixed", "fixed", "not fixed"]),
        ([gpu("warn", "needs 9.1 GiB", **TP)], [gpu("ok", "needs 8.7 GiB")], ["fixed"]),
        ([gpu("fail", "a", **TP), gpu("warn", "b 1", **LENGTH)], [gpu("warn", "b 2", **LENGTH)],
         ["fixed", "not fixed"]),
        ([gpu("fail", "a", **TP), gpu("warn", "b 1")], [gpu("warn", "b 2")], ["fixed", "not fixed"]),
        ([gpu("fail", "a 1", **TP), gpu("fail", "b", **LENGTH)], [gpu("fail", "a 2", **TP)],
         ["not fixed", "fixed"]),
    ],
)  # fmt: skip
def test_a_check_that_fails_with_another_number_is_not_fixed(
    wrong: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: list[Check],
    after: list[Check],
    told: list[str],
) -> None:
    answers = iter((before, after))
    monkeypatch.setattr("liverl_tui.cli.check.checks_of", lambda *_: next(answers))
    _, out = fixed(capsys, "--yes", "--config", str(wrong))
    assert f"wrote {wrong}" in out
    assert [
        n for line in out.splitlines() for n in ("fixed", "not fixed") if line.startswith(f"{n}:")
    ] == told


def test_a_fix_for_scripts(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = fixed(capsys, "--json", "--config", str(wrong))
    told = json.loads(out)
    assert (code, told["applied"], told["patch"], told["file"]) == (
        3,
        False,
        {"vllm.gen_tp": "1"},
        str(wrong),
    )
    code, out = fixed(capsys, "--json", "--yes", "--config", str(wrong))
    told = json.loads(out)
    assert (code, told["applied"], told["failed"]) == (0, True, 0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("--set", "vllm.gen_tp=2"),
            "these keys are set outside the file, and override it: vllm.gen_tp (--set)",
        ),
        (("--set", "run.replicas=1", "--set", "infrastructure.ngpus_per_node=2"), ""),
    ],
)
def test_what_is_set_outside_the_file_is_not_written(
    wrong: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    before = wrong.read_text()
    _, out = fixed(capsys, "--yes", "--config", str(wrong), *words)
    assert (wrong.read_text() == before) == bool(why) and why in out


def test_what_is_set_outside_the_file_is_told_beside_the_rest(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong.write_text(wrong.read_text().replace("Toy-1B", "Toy-1b"))
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = ("--set", f"infrastructure.litellm_port={held.getsockname()[1]}")
        code, out = fixed(capsys, "--yes", "--config", str(wrong), *port)
    assert code == 3 and "set outside the file, and override it: infrastructure.litellm_port (--set)" in out
    port_line = next(line for line in out.splitlines() if line.startswith("not fixed: port"))
    assert port_line.endswith("infrastructure.litellm_port is set by --set, which overrides the file")
    assert "fixed:     model.model_path" in out or "fixed:     model" in out
    assert "Toy-1B" in wrong.read_text(), "what the file decides was written"


@pytest.mark.parametrize(
    ("lines", "sets", "agreed", "told", "code"),
    [
        ("  train_batch_size: 3\n", (), True, "+    2   train_batch_size: 3", None),
        ("  train_batch_size: 3\n", (), False, "nothing was written; to write it", 2),
        ("  train_batch_size: 3\n", ("training.train_prompt_mini_batch_size=2",), True,
         "these keys are set outside the file, and override it: training.train_prompt_mini_batch_size (--set)", 2),
        ("  train_batch_size: 3\n", ("run.name=a b",), True, "no value is known that corrects run.name", 2),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_load_is_fixed_by_numbers_that_were_tried(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: str,
    sets: tuple[str, ...],
    agreed: bool,
    told: str,
    code: int | None,
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"training:\n{lines}")
    words = [*(("--yes",) if agreed else ()), "--config", str(file), *(w for s in sets for w in ("--set", s))]
    ended = cli.run(["check", "--fix", *words])
    out = capsys.readouterr().out
    assert "must divide training.train_batch_size (3)" in out
    if code is None:
        assert "wrote" in out and "train_prompt_mini_batch_size: 1" in file.read_text() and ended != 2
    else:
        assert ended == code and told in out and file.read_text() == f"training:\n{lines}"


MINI = {"training.train_prompt_mini_batch_size": "1"}


@pytest.mark.parametrize("later", ["nothing", "written", "refused"])
def test_scripts_are_told_all_that_was_written_also_before_anything_was_checked(
    wrong: Path, capsys: pytest.CaptureFixture[str], later: str
) -> None:
    wrong.write_text(wrong.read_text() + "training:\n  train_batch_size: 3\n")
    if later == "nothing":
        wrong.write_text(wrong.read_text().replace("gen_tp: 2", "gen_tp: 1"))
    words = ("--set", "vllm.gen_tp=2") if later == "refused" else ()
    _, out = fixed(capsys, "--json", "--yes", "--config", str(wrong), *words)
    told = json.loads(out)
    assert told["patch"] == (MINI | TP if later == "written" else MINI)
    assert (told["applied"], told["file"]) == (True, str(wrong))
    for key, value in told["patch"].items():
        assert f"{key.rpartition('.')[2]}: {value}\n" in wrong.read_text()


def test_a_check_is_made_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert [(c.id, c.status) for c in made([Entry("trials", "host:trials")])] == [("trials", "ok")]


def test_a_file_that_may_not_be_changed_is_named(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong.chmod(0o444)
    code, out = fixed(capsys, "--yes", "--config", str(wrong))
    assert code == 3 and f"{wrong} cannot be changed: it is read-only" in out
    assert "give them as: --set vllm.gen_tp=1" in out


def test_without_a_file_the_values_are_told(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [
        f"model.model_path={wrong.parent}/models/Toy-1b",
        "run.replicas=1",
        "infrastructure.litellm_port=0",
    ]
    words = [word for text in sets for word in ("--set", text)]
    code, out = fixed(capsys, "--yes", "--profile", "vllm-managed", *words)
    assert code == 3 and "nothing was written" in out


@pytest.mark.parametrize(
    "words", [("--yes",), ("--run", "x", "--fix"), ("--run", "x", "--set", "run.replicas=1")]
)
def test_options_that_do_not_go_together(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", *words]) == 2
    assert capsys.readouterr().err


def test_a_run_keeps_what_was_found_and_can_be_checked_again(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``up`` does, up to the start of the backend (simulated: it does not begin)."""
    started: list[Path] = []
    monkeypatch.setattr(launch, "start_or_join", lambda path, **_: started.append(path) or True)
    assert cli.run(["up", "--detach", "--yes", "--config", str(run)]) == 0
    folder = run.parent / "runs" / "liverl" / "n"
    assert started == [folder]
    capsys.readouterr()
    found = read(RunDir(folder))
    assert found is not None and found.host == os.uname().nodename
    assert cli.run(["check", "--json", "--run", str(folder)]) == 0
    checks = msgspec.json.decode(capsys.readouterr().out, type=Report).checks
    assert [(c.id, c.name, c.status) for c in checks] == [(c.id, c.name, c.status) for c in found.checks]
    (run.parent / "models" / "Toy-1B" / "config.json").unlink()
    assert cli.run(["check", "--run", str(folder)]) == 3


# --- preflight.json -----------------------------------------------------------------------------------


def test_what_was_skipped_is_replaced_by_what_was_found(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert read(run) is None
    replaced(run, [Check("data", "ok", "5 rows", "data")])
    assert read(run) is None, "a run of an earlier version has none, and gets none"
    write(run, [Check("ports", "ok", "free", "ports"), Check("data rows", "skipped", "not built", "data")])
    replaced(run, [Check("data.train_index", "fail", "row 3", "data")])
    found = read(run)
    assert found is not None and [(c.name, c.status) for c in found.checks] == [
        ("ports", "ok"),
        ("data.train_index", "fail"),
    ]
    (tmp_path / "preflight.json").write_text("[")
    assert read(run) is None
    assert json.loads(record([]))["schema"] >= 6


@pytest.mark.parametrize(("command", "code"), [("check", 3), ("plan", 0)])
def test_a_host_with_too_few_gpus_fails_the_check_and_not_the_plan(
    run: Path, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    """Plans are made on login nodes."""
    sets = ("infrastructure.ngpus_per_node=64", "run.replicas=9")
    words = [command, "--profile", "vllm-managed", "--config", str(run), *(f"--set={one}" for one in sets)]
    assert cli.run(words) == code
    out = capsys.readouterr().out
    assert any(line.split()[:2] == ["fail", "GPUs"] for line in out.splitlines()), out


def test_ports_are_looked_at_again_when_the_user_has_agreed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = load_config(None, sets=["run.name=n", f"infrastructure.litellm_port={port}"], env={})
    plan = make_plan(found, Path("/runs/p/n"))
    other = Check("disk", "ok", "room", id="storage")
    ports = [entry for entry in CHECKS if entry.id == "ports"]
    before = [other, *run_checks(plan, found.config, entries=ports)]
    assert {check.status for check in before} == {"ok"}
    assert again_on_enter(plan, found.config, before)[-1] == other
    with socket.create_server(("127.0.0.1", port)):
        taken = again_on_enter(plan, found.config, before)
        (failed,) = [check for check in taken if check.status == "fail"]
        assert failed.patch == {"infrastructure.litellm_port": "0"} and other in taken
        assert again_on_enter(plan, found.config, [other]) == [other], (
            "this host was not looked at: --other-host"
        )
