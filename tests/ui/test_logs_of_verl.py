"""The log pane of a run of verl with sessions: what verl and its engines wrote, and of ours only what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.screens import FakeSource, settle, view
from kit.screens import through_sessions as sessions_snapshot

from liverl.rundir.layout import RunDir
from liverl_tui.app.app import LiverlApp
from liverl_tui.widgets.log.pane import LogsPane

VERL = Path(__file__).parents[1] / "data" / "recordings" / "h200" / "verl.log"  # of verl on two H200s
HEAD = "2026-11-27 09:00:01,861 INFO liverl-sessions: "


def requests(count: int) -> str:
    """Access lines as the sessions write them (``tests/unit/test_logs_access.py`` compares them with the real ones)."""
    kinds = (
        '127.0.0.1 "POST /sess/gsm8k-{n}-aa11/v1/chat/completions HTTP/1.1" 200, 0.255 s',
        'unix "POST /sessions HTTP/1.1" 201, 0.002 s',
        'unix "POST /sessions/gsm8k-{n}-aa11/finish HTTP/1.1" 200, 0.010 s',
    )
    return "".join(f"{HEAD}{kinds[n % 3].format(n=n)}\n" for n in range(count))


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_no_line_is_ours_unless_something_is_wrong(tmp_path: Path, size: tuple[int, int]) -> None:
    logs = RunDir(tmp_path).logs(1)
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").write_text(VERL.read_text())
    (logs / "sessions.1.log").write_text(requests(2000))
    snapshot = msgspec.structs.replace(sessions_snapshot(), run_dir=str(tmp_path), attempt=1)
    shown: dict[str, Any] = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    app = LiverlApp(FakeSource(tmp_path, view=view(**shown)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        pane = app.screen.query_one(LogsPane)
        seen = lambda *words: all(word in pane.text for word in words)  # noqa: E731
        # The title and the lines under it may come with two pictures.
        await pilots.until(
            pilot, lambda: seen("2.01k routine lines", "seconds to wake up tags"), lambda: pane.text
        )
        assert "liverl-sessions" not in pane.text and "/sess" not in pane.text
        with (logs / "sessions.1.log").open("a") as log:
            log.write(f'{HEAD}::1 "POST /sess/gsm8k-7-aa11/v1/messages HTTP/1.1" 503, 90.003 s\n')
        await pilots.until(pilot, lambda: seen("/sess/gsm8k-7-aa11/v1/messages"), lambda: pane.text)
        assert size[0] < 100 or seen('::1 "POST /sess/gsm8k-7-aa11/v1/messages HTTP/1.1" 503'), (
            "cut to what counts"
        )
