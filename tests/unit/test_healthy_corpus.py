"""Logs of runs in which nothing was wrong, many megabytes of them: no cause, no alert, and hardly a row that matches.

``tests/data/healthy_logs`` has a folder for each program; its README says what was run, and how large each folder is.
"""

from __future__ import annotations

import lzma
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from kit.live_logs import Followed

from liverl.causes.match import whole
from liverl.logs.record import Record
from liverl.offline.doctor.examine import examine

DATA = Path(__file__).parents[1] / "data"
CORPUS = DATA / "healthy_logs"
# Recordings of runs that were well, which other tests read, too.
RECORDED = {
    "vllm": "h200/vllm0 h200/vllm1 vllm_startup vllm_startup_qwen3_coder vllm_sigterm_shutdown",
    "litellm": "h200/litellm litellm_startup litellm_w2 litellm_sigterm_inflight",
    "ray": "ray_job ray_start",
    "verl": "h200/verl h200_run/trainer h200_run/standalone verl_cpu/run6steps.stdout verl_cpu/run6steps.stderr",
}
LOGS = {f"{path.parent.name}/{path.stem}": path for path in sorted(CORPUS.glob("*/*.xz"))} | {
    f"{name}/{log}.log": DATA / "recordings" / f"{log}.log"
    for name, logs in RECORDED.items()
    for log in logs.split()
}
SERVICES = {"litellm": "proxy", "vllm": "r0", "ray": "ray"}  # what the program is in a run; else the trainer
LEAST = 5_000_000  # bytes of text, of all programs

WRONG = b"""Traceback (most recent call last):
  File "/app/run.py", line 9, in <module>
    main()
OSError: [Errno 28] No space left on device
"""

# Rows that match a line of it all the same, and why: what they say is true, and ended nothing.
MATCHED: dict[str, dict[str, str]] = {
    "litellm/proxy_debug.log": {
        "key-error": "a prompt quotes a traceback, and the proxy logs the prompt",
        "module-missing": "LiteLLM swallows that prisma is missing, and says so",
    },
    "litellm/litellm_startup.log": {
        "module-missing": "prisma is not installed; what it is for is not asked for",
        "unexpected-argument": "a callback of the site fails, and LiteLLM goes on",
    },
    "verl/two_hosts.log": {
        "vllm-tool-calls-unreadable": "one answer of the model was no tool call; the run went on",
    },
}


def program(log: str) -> str:
    return log.partition("/")[0]


@cache
def text(log: str) -> bytes:
    data = LOGS[log].read_bytes()
    return lzma.decompress(data) if LOGS[log].suffix == ".xz" else data


@pytest.mark.parametrize("log", LOGS)
def test_doctor_finds_nothing_wrong(log: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(text(log))
    found = examine([path])
    assert found.read
    assert (found.verdict.cause, found.verdict.symptoms) == (None, ())


@pytest.mark.parametrize("log", {program(log): log for log in LOGS}.values())
def test_doctor_would_find_an_error_at_its_end(log: str, tmp_path: Path) -> None:
    """So that silence above is not that of a log that is not read."""
    path = tmp_path / "run.log"
    path.write_bytes(text(log) + WRONG)
    cause = examine([path]).verdict.cause
    assert cause is not None
    assert cause.id == "disk-full"


@pytest.mark.parametrize("log", LOGS)
def test_a_live_run_with_this_log_has_no_alert(log: str, tmp_path: Path) -> None:
    run = Followed(tmp_path)
    run.path(SERVICES.get(program(log), "trainer")).write_bytes(text(log))
    run.look()
    assert run.symptoms() == {}


def test_hardly_a_row_matches_a_line_of_it() -> None:
    """Also where the verdict would have left it out: in another log it might not."""
    matcher = whole()
    found: dict[str, set[str]] = defaultdict(set)
    for log in LOGS:
        seen: set[str] = set()
        for line in text(log).decode("utf-8", "replace").splitlines():
            shape = re.sub(r"\d+", "0", line)
            if shape in seen:
                continue
            seen.add(shape)
            matches = matcher.of(Record(0, 1, text=line))
            if not any(match.signature.role == "noise" for match in matches):  # then the line never counts
                for match in matches:
                    found[log].add(match.signature.id)
    assert found == {name: set(why) for name, why in MATCHED.items()}


def test_the_readme_says_how_large_it_is() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for log in LOGS:
        sizes[program(log)] += len(text(log))
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", (CORPUS / "README.md").read_text(), re.M)
    assert {name: int(size.replace(",", "")) for name, size in rows} == sizes
    assert sum(sizes.values()) > LEAST


@pytest.mark.parametrize(
    "secret", [rb"sk-[0-9a-f]{20}", rb"/root\b", rb"(?<!tmp)/work/", rb"pypi\.org|pythonhosted"]
)
def test_nothing_of_the_host_is_in_it(secret: bytes) -> None:
    assert [log for log in LOGS if re.search(secret, text(log))] == []
