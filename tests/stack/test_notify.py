"""Who is told of the embedded default run: a real webhook and a real program, with its backend killed in between."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.real import real_run
from kit.receivers import keeper_of, kept, webhook
from kit.runs import ToyRun
from kit.waiting import wait_until

pytestmark = pytest.mark.stack


@pytest.mark.slow
def test_each_event_of_the_default_run_is_told_once_although_its_backend_is_killed(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    """A replica is ended until it is given up, the backend is killed with that alert on its way, then the trainer is
    ended with the run, the backend is killed again, and the run is resumed to its end."""
    got = tmp_path / "got"
    with webhook(delay=0.5) as hook:
        targets = [
            {"webhook": f"file:{hook.target(tmp_path).file}"},
            {"command": list(keeper_of(got).words)},
        ]
        encoded = msgspec.json.encode(targets).decode()
        run = ending(
            real_run(tmp_path, f"notify.targets={encoded}", "training.total_steps=4", "training.save_freq=1")
        )
        run.start()
        trainer = run.until("trainer", "ready", 240)
        wait_until(lambda: (run.snapshot().step or 0) >= 1, what="a step")
        assert trainer.pid is not None
        os.kill(trainer.pid, signal.SIGKILL)
        wait_until(lambda: any(e.kind == "run_failed" for e in run.events()), what="the failure")
        if not (run.run_dir / "result.json").exists():
            run.kill_backend()
            run.start()
        assert run.result(120).state == "failed"

        run.start(resume=True)
        wait_until(lambda: "resumed" in hook.kinds(), what="the message on the resumption")
        run.kill_backend()
        run.start()
        assert run.result(240).state == "done"
        told = hook.kinds()
        assert {kind: told[kind] for kind in ("failed", "resumed", "done")} == {
            "failed": 1,
            "resumed": 1,
            "done": 1,
        }
        assert set(Counter(body["id"] for body in hook.asked).values()) == {1}
        assert Counter(one["body"]["id"] for one in kept(got)) == Counter(body["id"] for body in hook.asked)
