"""Numbers in the files of a run that no clock shows and no integer holds: every command that reads them goes on."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from liverl.model import StepMetrics
from liverl.observe.metrics.step_lines import decode_record, training_step
from liverl.rundir.layout import read_backend
from liverl_tui.cli.main import run

NUMBERS = ("1e308", "-1e308", "1e999", "Infinity", "NaN", "1" * 10_000, str(2**90), "-1", '"x"')
FILES = {
    "result.json": '{"state":"done","exit_code":0,"cause":null,"steps":%s,"started_at":%s,"ended_at":%s}',
    "events.jsonl": '{"seq":1,"at":%s,"kind":"step","text":"","data":{"step":%s}}\n',
    "history.jsonl": '{"at":%s}\n',
    "metrics.jsonl": '{"step":%s,"data":{"training/global_step":%s,"critic/rewards/mean":%s}}\n',
    "backend.json": '{"pid":%s,"tick":%s,"host":"h","boot_id":"b","socket":"s","started_at":%s,"version":"1"}',
    "trainer.json": '{"phase":"rollout","step":%s,"trials_total":%s,"policy_version":%s,"at":%s}',
    "journal.jsonl": '{"k":"run","at":%s,"seq":%s}\n',
    "snapshot.json": '{"seq":%s,"at":%s,"run":"p/r","run_dir":"/r","state":"running","phase":"","attempt":%s}',
    "exits/trainer.1.json": '{"pid":%s,"tick":%s,"exit":{"code":%s,"at":%s}}',
    "trials/step_0001/a-00000001/result.json": '{"started_at":%s,"finished_at":%s,"verifier_result":{"reward":%s}}',
    "trials/step_0001/a-00000001/liverl.json": '{"step":%s,"uid":%s}',
}
COMMANDS = (("status",), ("status", "--json"), ("events",), ("ls",), ("doctor",), ("logs", "backend"))


@pytest.fixture(params=NUMBERS, ids=range(len(NUMBERS)))
def hostile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "root" / "p" / "r"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("%s", request.param))
    (folder / "plan.json").write_text("{}")
    (folder / "backend.log").write_text("a line\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_goes_on(
    hostile: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    where = {"ls": ["--run-root", str(hostile.parents[1])], "doctor": [str(hostile)]}
    code = run([*command, *where.get(command[0], ["--run", str(hostile)])])
    streams = capsys.readouterr()
    assert code in (0, 1, 2, 4) and "Traceback" not in streams.out + streams.err


def test_a_backends_record_of_such_numbers_is_none(hostile: Path) -> None:
    os.utime(hostile / "backend.json", (time.time(),) * 2)
    found = read_backend(hostile)
    assert found is None or all(math.isfinite(number) for number in (found.pid, found.tick, found.started_at))


@pytest.mark.parametrize("step", [math.inf, -math.inf, math.nan])
def test_a_step_that_is_no_number_is_none(step: float) -> None:
    assert training_step(StepMetrics(1, {"training/global_step": step})) is None
    assert decode_record(f'{{"step":{step},"data":{{}}}}'.replace("inf", "Infinity").encode()) is None
