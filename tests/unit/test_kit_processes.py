"""How tests stop a process."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

from kit.processes import states, stop_process
from kit.waiting import wait_until

TESTS = Path(__file__).parents[1]
ONE_HELPER = Path("kit/processes.py")
RECORDED = Path("data")
MANY_THREADS = """
import threading, time
def work():
    while True:
        sum(range(1000))
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_process_stands_with_all_its_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", MANY_THREADS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            for _ in range(20):
                stop_process(process.pid)
                assert states(process.pid) == {"T"}
                os.kill(process.pid, signal.SIGCONT)
                wait_until(lambda: "T" not in states(process.pid), what="it goes on")
        finally:
            process.kill()


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        wait_until(lambda: states(process.pid) == {"Z"}, what="its end")
        stop_process(process.pid)


def stops(source: str) -> list[int]:
    """Lines that name the signal. Most files do not, and are not parsed."""
    nodes = ast.walk(ast.parse(source)) if "SIGSTOP" in source else ()
    return [node.lineno for node in nodes if isinstance(node, ast.Attribute) and node.attr == "SIGSTOP"]


def test_nobody_stops_a_process_without_waiting_for_it() -> None:
    assert stops("import os\nimport signal\n\nos.kill(pid, signal.SIGSTOP)  # SIGSTOP\n") == [4]
    found = []
    for path in TESTS.rglob("*.py"):
        name = path.relative_to(TESTS)
        if name != ONE_HELPER and RECORDED not in name.parents:
            found += [f"{name}:{line}" for line in stops(path.read_text())]
    assert found == [], "use kit.processes.stop_process"
