"""Ray's note that it merged equal lines of several actors changes nothing that a parser reads of the line before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liverl.causes.quiet.told import read_told
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.logs.bars import is_training_bar
from liverl.logs.records import RecordReader
from liverl.observe.boot.facts import tensorboard_in
from liverl.observe.boot.replica_stages import ReplicaStages
from liverl.observe.metrics.step_lines import decode_step_line

# As Ray 2.60 writes them: in a file, the first one of a log, and to a terminal
NOTES = (
    " [repeated 3x across cluster]",
    " [repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log "
    "deduplication, or see https://docs.ray.io/en/master/ray-observability for more options.)",
    "\x1b[32m [repeated 3x across cluster]\x1b[0m",
)
STEP = "(TaskRunner pid=12) step:5 - actor/loss:0.5 - perf/throughput:15.5"
BAR = "(TaskRunner pid=12) Training Progress:  25%|#5   | 5/20 [00:34<04:16, 17.10s/it]"
TRACEBACK = (
    "(WorkerDict pid=7) Traceback (most recent call last):",
    '(WorkerDict pid=7)   File "/app/train.py", line 8, in update',
    "(WorkerDict pid=7)     return masks[name]",
    "(WorkerDict pid=7) KeyError: 'response_mask'",
)


def told(line: str, folder: Path) -> Any:
    (folder / "log.txt").write_text(f"{line}\n")
    read = read_told(folder / "log.txt")
    return read.total, read.step, read.made, read.rate, read.checkpoint, read.trains


def records(line: str, _: Path) -> Any:
    reader = RecordReader()
    return [
        (one.text, one.level, one.kind, one.more, one.raised)
        for one in (*reader.feed(f"{line}\n".encode()), *reader.end())
    ]


def ready(line: str, _: Path) -> Any:
    found = ReplicaStages().feed(f"{line}\n", now=0.0)
    return {pid: (one.stage, one.progress, one.up) for pid, one in found.items()}


def of_line(function: Callable[[str], Any]) -> Callable[[str, Path], Any]:
    def parse(line: str, _: Path) -> Any:
        return function(line)

    return parse


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (of_line(decode_step_line), STEP),
        (of_line(decode_step_line), "step:5 - actor/loss:0.5"),
        (told, STEP),
        (told, BAR),
        (told, "(TaskRunner pid=12) Total training steps: 20"),
        (told, "(TaskRunner pid=12) step 3/20"),
        (told, "(TaskRunner pid=12) Load from checkpoint folder: /ckpt/global_step_5"),
        (records, '(Server pid=4) {"level": "error", "message": "the cache is full"}'),
        (records, "(Server pid=4) Killed"),
        (records, "\n".join(TRACEBACK)),
        (ready, "(vLLMHttpServer pid=9) INFO:     Application startup complete."),
    ],
)
def test_a_line_is_read_as_without_the_note(
    tmp_path: Path, parse: Callable[[str, Path], Any], line: str, note: str
) -> None:
    assert parse("\n".join(f"{one}{note}" for one in line.split("\n")), tmp_path) == parse(line, tmp_path)
    assert parse(line, tmp_path)


@pytest.mark.parametrize("note", [NOTES[0], NOTES[1]])  # of plain lines
def test_a_plain_line_is_read_as_without_the_note(note: str) -> None:
    saving = "Saving tensorboard log to /runs/tb."
    assert tensorboard_in(f"{saving}{note}") == tensorboard_in(saving) == "/runs/tb"
    assert is_training_bar(f"{BAR}{note}") and is_training_bar(BAR)


def test_a_cause_is_shown_without_the_note(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("".join(f"{line}{NOTES[0]}\n" for line in TRACEBACK))
    cause = judge([read_log(tmp_path / "log.txt", "log.txt")]).cause
    assert cause is not None
    assert cause.evidence[0].text == "KeyError: 'response_mask'" and "repeated" not in cause.title
