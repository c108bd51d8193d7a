"""Rules of a site in a run: its end is explained by them, also later, and without them once their file has gone.

SIMULATED: the trainer, which prints a line of a site's storage and ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from kit.cli import run_cli
from kit.runs import ToyRun, make_run, toy
from msgspec.structs import replace

from liverl.plan.spec import Settings

LINE = "INFO scratchd: volume is draining"
RULES = """\
[[row]]
id = "scratch-drains"
role = "cause"
text = 'scratchd: volume is draining'
title = "The scratch volume is being emptied"
cause = "The storage team takes it out of service."
fix = "Use another volume."
source = "storage team"
fires = 'INFO scratchd: volume is draining'
spares = 'scratchd: volume has drained'
"""


def test_a_run_and_doctor_explain_an_end_by_the_rules_of_the_site(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    rules = tmp_path / "site.toml"
    rules.write_text(RULES)
    rules.chmod(0o644)
    fails = f"print({LINE!r}, flush=True); raise SystemExit(1)"
    trainer = replace(toy("trainer", kind="trainer"), argv=(sys.executable, "-c", fails), ends_run=True)
    settings = Settings(scan_interval=0.3, stuck_after=5.0, rules=(str(rules),))
    run = ending(make_run(tmp_path, (trainer,), settings=settings))
    run.start()
    cause = run.result().cause
    assert cause is not None and (cause.id, cause.fix) == ("scratch-drains", "Use another volume.")

    # The log alone: doctor takes the rules from the run's plan, or from its option.
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    for given in ((run.run_dir,), ("--rules", rules, log)):
        told = json.loads(run_cli("doctor", "--json", *given).stdout)
        assert told["symptoms"][0]["id"] == "scratch-drains" and told["cause"]["text"] == LINE
        assert not [one for one in told["symptoms"] if one["id"] == "not-all-read"]

    rules.unlink()
    gone = json.loads(run_cli("doctor", "--json", run.run_dir).stdout)
    (unread,) = [one for one in gone["symptoms"] if one["id"] == "not-all-read"]
    assert f"the run's own rules, which cannot be used ({rules}: it cannot be read" in unread["cause"]
    refused = run_cli("doctor", "--rules", rules, log)
    assert refused.returncode == 2 and f"{rules}: it cannot be read" in refused.stderr
