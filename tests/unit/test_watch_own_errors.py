"""What `watch` says of a service that has ended with an error, where another service's is the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.watch.mirror import Mirror
from liverl.watch.scene import Scene
from liverl.watch.services import Seen, Services
from liverl.watch.units import Unit
from liverl.watch.verdicts import own_errors

FATAL = "ERROR 11-27 09:05:00 [core.py:700] EngineCore encountered a fatal error."
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.20 GiB. GPU 2 has a total capacity of 79.10 GiB "
    "of which 512.00 MiB is free."
)
WELL = "INFO 11-27 09:00:11 [api_server.py:1811] Starting vLLM server on http://0.0.0.0:8100"


def errors_of(folder: Path, **logs: str) -> dict[str, str]:
    records = []
    for name, text in logs.items():
        (folder / name).write_text(f"{text}\n")
        records.append(read_log(folder / name, name, 0))
    return own_errors(records, judge(records))


@pytest.mark.parametrize(
    ("trainer", "replica", "named"),
    [
        (f"2026-11-27 09:01:02 x\n{OOM}", f"{WELL}\n{FATAL}", True),
        (f"2026-11-27 09:01:02 x\n{OOM}", WELL, False),
        (f"2026-11-27 09:01:02 x\n{OOM}", f"{WELL}\nINFO 11-27 09:05:00 Shutting down", False),
    ],
)
def test_a_log_has_its_own_error_beside_the_cause(
    trainer: str, replica: str, named: bool, tmp_path: Path
) -> None:
    found = errors_of(tmp_path, trainer=trainer, replica=replica)
    assert set(found) == ({"replica"} if named else set())
    assert not named or found["replica"].endswith("the first error was: EngineCore encountered a fatal error")


def test_the_row_of_the_service_says_it(tmp_path: Path) -> None:
    log = tmp_path / "vllm_0.log"
    log.write_text(FATAL)
    services = Services(Mirror(tmp_path / "mirror", "watch/x"))
    unit = Unit("replica", log=log, what="vLLM log", modified=1.0)
    scene = Scene({"vllm_0": unit})
    (told,) = services.statuses(Seen(scene, errors={"vllm_0": "vLLM's engine failed"}), 5e9)
    assert told.state == "failed" and told.why.startswith("vLLM's engine failed; ")
    (untold,) = services.statuses(Seen(scene), 5e9)
    assert untold.state == "stopped" and untold.why.startswith("no process writes its log")
