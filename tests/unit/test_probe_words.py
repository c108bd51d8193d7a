"""What probes say: for people."""

from __future__ import annotations

from pathlib import Path

import msgspec
from kit.runs import make_run, toy

from liverl.daemon.service_detail import filed_detail
from liverl.plan.render import plan_text
from liverl.plan.spec import Plan, Probe, Probes
from liverl.supervise.services.probes import Http, Target, check


async def test_a_pattern_is_shown_as_it_was_written(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("not yet\n")
    target = Target("127.0.0.1", {}, log, 0, tmp_path, 1, 1)
    probe = Probe("log_line", pattern=r"port \d+ is 'open'")
    assert (
        await check(probe, target, Http()) == r"waits for a line in its log that matches 'port \d+ is 'open''"
    )
    said = msgspec.structs.replace(probe, waits_for="the port; usually 1 s")
    assert await check(said, target, Http()) == "waits for the port; usually 1 s"
    log.write_text("port 80 is 'open'\n")
    assert await check(probe, target, Http()) is None


def test_the_service_screen_and_the_plan_show_it_so_too(tmp_path: Path) -> None:
    probe = Probe("log_line", pattern=r"port \d+")
    run = make_run(tmp_path, [toy("a", "sleep", "9", probes=Probes(startup=probe))])
    detail = filed_detail(run.run_dir, "a")
    assert detail is not None and [p.what for p in detail.probes] == [r"a line in its log matches 'port \d+'"]
    plan = msgspec.json.decode((run.run_dir / "plan.json").read_bytes(), type=Plan)
    assert r"ready     a line in its log matches 'port \d+', within" in plan_text(plan)
