"""The system's clock is no stopwatch: who reads it is in this list, with the reason. What takes how long is counted on
``liverl.util.clocks``."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = "a stamp that is shown, or written for people"
STAMPS = "compared with stamps of files or of logs, which others have written by this clock"
PROTOCOL = "a moment for others, who know no better: an HTTP field, a driver, another host"

ALLOWED: dict[str, tuple[int, str]] = {
    "backend/liverl/agents/trial_files.py": (1, SHOWN),
    "backend/liverl/daemon/batch_end.py": (1, PROTOCOL),
    "backend/liverl/daemon/job_end.py": (2, SHOWN),
    "backend/liverl/daemon/next_attempt.py": (1, SHOWN),
    "backend/liverl/daemon/retention.py": (1, STAMPS),
    "backend/liverl/embedded/engine/http.py": (2, PROTOCOL),
    "backend/liverl/offline/trial_index.py": (1, STAMPS),
    "backend/liverl/sandboxes/daemon_faults.py": (1, PROTOCOL),  # whether a certificate has expired
    "backend/liverl/embedded/engine/metrics.py": (1, PROTOCOL),
    "backend/liverl/embedded/engine/replies.py": (1, PROTOCOL),
    "backend/liverl/embedded/trainer/history.py": (1, SHOWN),
    "backend/liverl/embedded/trainer/trials.py": (3, SHOWN),
    "backend/liverl/environments/build.py": (1, SHOWN),
    "backend/liverl/environments/local_copy.py": (1, SHOWN),
    "backend/liverl/environments/locking.py": (1, SHOWN),
    "backend/liverl/external/config_file.py": (1, SHOWN),
    "backend/liverl/external/repair.py": (1, SHOWN),
    "backend/liverl/hosts/lacks.py": (1, PROTOCOL),
    "backend/liverl/verl_runtime/addresses.py": (
        2,
        PROTOCOL,
    ),  # against which the clock of a node is compared
    "backend/liverl/hosts/node_facts.py": (1, PROTOCOL),
    "liverl_tui/data/config_change.py": (1, PROTOCOL),  # when a batch job ends, as the user says
    "backend/liverl/observe/boot/replica_stages.py": (1, STAMPS),
    "backend/liverl/observe/clock_jumps.py": (
        1,
        "compared with the clocks that are not set, to tell that it was",
    ),
    "backend/liverl/observe/gpu/detail.py": (1, SHOWN),
    "backend/liverl/observe/gpu/processes.py": (1, PROTOCOL),
    "backend/liverl/observe/gpu/xid.py": (2, SHOWN),
    "backend/liverl/observe/metrics/files.py": (2, STAMPS),
    "backend/liverl/observe/trials/dumps.py": (1, STAMPS),
    "backend/liverl/observe/trials/scanner.py": (1, STAMPS),
    "backend/liverl/observe/trials/steps.py": (2, STAMPS),
    "backend/liverl/observe/trials/trajectory.py": (1, STAMPS),
    "backend/liverl/agents/harbor/runner.py": (1, SHOWN),
    "backend/liverl/offline/archive.py": (1, SHOWN),
    "backend/liverl/offline/checkpoints.py": (1, SHOWN),
    "backend/liverl/offline/clean.py": (1, SHOWN),
    "backend/liverl/offline/clean_host.py": (1, STAMPS),
    "backend/liverl/offline/envs_gc.py": (1, STAMPS),
    "backend/liverl/offline/doctor/examine.py": (1, STAMPS),
    "backend/liverl/offline/doctor/inputs.py": (1, SHOWN),
    "backend/liverl/offline/doctor/rules.py": (1, SHOWN),
    "backend/liverl/offline/doctor/trials.py": (1, STAMPS),
    "backend/liverl/offline/job_end.py": (1, SHOWN),
    "backend/liverl/offline/run.py": (1, STAMPS),
    "backend/liverl/offline/run_list.py": (1, STAMPS),
    "backend/liverl/offline/trials.py": (1, STAMPS),
    "backend/liverl/preflight/batch_end.py": (1, PROTOCOL),
    "backend/liverl/preflight/record.py": (1, SHOWN),
    "backend/liverl/sandboxes/kubernetes/client.py": (
        1,
        "compared with the end of a token, a stamp of the plug-in",
    ),
    "backend/liverl/proxy/runtime/assignments.py": (
        2,
        "for people; read where an earlier version wrote nothing else",
    ),
    "backend/liverl/proxy/runtime/calls.py": (1, SHOWN),
    "backend/liverl/proxy/runtime/status.py": (1, SHOWN),
    "backend/liverl/replay/record.py": (5, STAMPS),
    "backend/liverl/rundir/layout.py": (
        2,
        "shown; another host's heartbeat: only its file tells it",
    ),
    "backend/liverl/serving/worker_reports.py": (1, "a default for callers without a run"),
    "backend/liverl/sessions/chat_template.py": (1, PROTOCOL),  # the date that a template asks for
    "backend/liverl/sessions/client.py": (1, PROTOCOL),
    "backend/liverl/sessions/finished.py": (2, STAMPS),
    "backend/liverl/supervise/keeper/process/liverl_keeper/children.py": (1, SHOWN),
    "backend/liverl/supervise/recovery/evidence.py": (2, SHOWN),
    "backend/liverl/util/before_end.py": (1, PROTOCOL),
    "backend/liverl/util/clocks.py": (3, "the wall part of a moment, used where the boot is another one"),
    "backend/liverl/util/weight_requests.py": (1, PROTOCOL),
    "backend/liverl/verl_runtime/cpuengine/http.py": (2, PROTOCOL),
    "backend/liverl/verl_runtime/cpuengine/replies.py": (1, PROTOCOL),
    "backend/liverl/verl_runtime/loop_trial.py": (4, SHOWN),
    "backend/liverl/verl_runtime/worker_sessions.py": (2, SHOWN),
    "backend/liverl/watch/processes.py": (1, STAMPS),
    "backend/liverl/watch/services.py": (1, STAMPS),
    "backend/liverl/watch/watcher.py": (5, STAMPS),
    "backend/liverl/watch/verdicts.py": (4, STAMPS),
    "backend/liverl/offline/doctor/logs.py": (1, STAMPS),
    "liverl_tui/app/crash.py": (1, SHOWN),
    "liverl_tui/app/navigation.py": (1, SHOWN),
    "liverl_tui/app/app.py": (1, SHOWN),
    "liverl_tui/app/start.py": (2, SHOWN),
    "liverl_tui/cli/envs.py": (2, STAMPS),
    "liverl_tui/cli/events.py": (1, STAMPS),
    "liverl_tui/cli/logs.py": (1, STAMPS),
    "liverl_tui/cli/notify.py": (1, SHOWN),
    "liverl_tui/cli/plain.py": (1, SHOWN),
    "liverl_tui/cli/state_to_read.py": (1, SHOWN),
    "liverl_tui/cli/trials.py": (4, STAMPS),
    "backend/liverl/daemon/start_run.py": (1, SHOWN),
    "liverl_tui/cli/target.py": (1, SHOWN),
    "liverl_tui/cli/disk.py": (1, SHOWN),
    "liverl_tui/screens/disk.py": (1, SHOWN),
    "liverl_tui/screens/entries.py": (1, SHOWN),
    "liverl_tui/widgets/log/session.py": (1, STAMPS),
    "liverl_tui/widgets/log/view.py": (2, STAMPS),
}


def _names(nodes: list[ast.AST]) -> dict[str, str]:
    """What the names of a module mean, of those that lead to a clock."""
    known = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            known |= {
                alias.asname or alias.name: alias.name
                for alias in node.names
                if alias.name in ("time", "datetime")
            }
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


CLOCKS = {"time.time", "time.time_ns"}
NOW = {
    f"{owner}.{name}"
    for owner in ("datetime.datetime", "datetime.date")
    for name in ("now", "utcnow", "today")
}
WITHOUT_A_TIME = {"time.gmtime", "time.localtime", "time.ctime", "time.asctime", "time.strftime"}


# What stands in each module that does: most do not, and are not parsed.
_MAY = re.compile(
    r"\.(?:time|time_ns|now|utcnow|today|gmtime|localtime|ctime|asctime|strftime|CLOCK_REALTIME)\b"
    r"|\bfrom time import\b"
)


def wall_clocks(source: str) -> Iterator[ast.AST]:
    """Where a module reads the system's clock, or passes on a function that does."""
    if not _MAY.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    known = _names(nodes)

    def full(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = full(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    for node in nodes:
        match node:
            case ast.Attribute(attr="CLOCK_REALTIME"):
                yield node
            case ast.Name() | ast.Attribute() if full(node) in CLOCKS | NOW:
                yield node
            case ast.Call(func=func, args=args) if full(func) in WITHOUT_A_TIME:
                if len(args) < (2 if full(func) == "time.strftime" else 1):
                    yield node


def _modules() -> list[Path]:
    return [
        path
        for folder in ("backend/liverl", "liverl_tui", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def test_who_reads_the_system_s_clock_is_in_the_list_with_a_reason() -> None:
    found = Counter[str]()
    lines: dict[str, list[int]] = {}
    for path in _modules():
        name = str(path.relative_to(ROOT))
        for node in wall_clocks(path.read_text()):
            found[name] += 1
            lines.setdefault(name, []).append(node.lineno)
    wrong = [
        f"{name}: lines {lines.get(name)}, listed {ALLOWED.get(name, (0, ''))[0]}"
        for name in sorted({*found, *ALLOWED})
        if found[name] != ALLOWED.get(name, (0, ""))[0]
    ]
    assert not wrong, (
        "measure seconds with liverl.util.clocks; a stamp needs an entry in ALLOWED:\n" + "\n".join(wrong)
    )


@pytest.mark.parametrize(
    "text",
    [
        "import time\nbegan = time.time()",
        "import time as t\nbegan = t.time()",
        "from time import time\nbegan = time()",
        "from time import time as now\nbegan = now()",
        "import time\ndef f(clock=time.time): ...",
        "from dataclasses import field\nimport time\nx = field(default_factory=time.time)",
        "import time\nbegan = time.time_ns()",
        "import time\nbegan = time.clock_gettime(time.CLOCK_REALTIME)",
        "from datetime import datetime\nbegan = datetime.now()",
        "import datetime\nbegan = datetime.datetime.utcnow()",
        "import datetime as dt\nbegan = dt.datetime.now(dt.UTC)",
        "from datetime import date\nd = date.today()",
        "import time\nstamp = time.strftime('%H', time.gmtime())",
        "import time\nstamp = time.strftime('%H')",
    ],
)
def test_every_way_to_read_it_is_found(text: str) -> None:
    assert len(list(wall_clocks(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import time\nbegan = time.monotonic()",
        "import asyncio\nbegan = loop.time()",
        "class time: pass\ntime.time()",
        "import time\ntext = time.strftime('%H', time.localtime(at))",
        "from datetime import datetime\nd = datetime.fromtimestamp(at)",
        "import time\ntime.sleep(1)",
    ],
)
def test_what_is_no_system_clock_is_not_found(text: str) -> None:
    assert list(wall_clocks(text)) == []
