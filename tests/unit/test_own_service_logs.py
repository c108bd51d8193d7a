"""The real log of each service that a run starts, through the filter of access lines, the levels and the columns: what
a reader has in a column already is cut from the line, and no line of a successful poll or call is left."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import pytest

from liverl.logs.access_lines import is_access_line
from liverl.logs.levels import level_of_text
from liverl.logs.prefixes import without_prefix
from liverl.logs.stamps import head_length, own_stamp
from liverl.logs.text import plain

CORPUS = Path(__file__).parents[1] / "data" / "healthy_logs"
# Of the sessions and of verl there is no whole log in the corpus: the lines that each of them writes.
SESSIONS = """\
2026-11-29 03:30:59,800 INFO liverl-sessions: restored 0 open sessions
2026-11-29 03:30:59,802 INFO liverl-sessions: generation 1 is serving on http://127.0.0.1:38895; replicas: 0
2026-11-29 03:34:26,733 INFO liverl-sessions: replicas: http://192.0.2.2:43385, http://192.0.2.2:34743
2026-11-29 03:35:08,421 INFO liverl-sessions: unix "POST /sessions HTTP/1.1" 201, 0.005 s
2026-11-29 03:35:09,502 INFO liverl-sessions: 127.0.0.1 "POST /sess/move-1/v1/chat/completions HTTP/1.1" 200, 0.255 s
2026-11-29 03:35:10,502 INFO liverl-sessions: unix "PUT /backends HTTP/1.1" 200, 0.001 s
2026-11-29 03:35:11,502 INFO liverl-sessions: 127.0.0.1 "POST /sess/move-1/v1/chat/completions HTTP/1.1" 502, 0.2 s
2026-11-29 03:37:03,100 INFO liverl-sessions: stopped; replies cut: 0
"""
RAY = """\
2026-11-29 03:31:04,782\tINFO usage_lib.py:448 -- Usage stats collection is disabled.
2026-11-29 03:31:31,492\tSUCC scripts.py:1085 -- Ray runtime started.
2026-11-28 17:47:37,899\tWARNING authentication_token_setup.py:85 -- Token authentication is enabled
"""
VERL = """\
(TaskRunnerV1 pid=8070) INFO:2026-11-29 03:32:56,760:train and validate dataloader initialized
(WorkerDict pid=12010) WARNING:2026-11-29 03:37:00,845:target_num_threads 8 should not exceed total threads
(vLLMHttpServer pid=17144) INFO 11-29 03:34:20 [server.py:49] Replica 0 is ready
"""


def lines_of(name: str) -> list[str]:
    texts = {"sessions": SESSIONS, "ray": RAY, "verl": VERL}
    text = texts.get(name) or lzma.decompress((CORPUS / name).read_bytes()).decode("utf-8", "replace")
    return [plain(line) for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(
    ("name", "hidden", "levels"),
    [
        ("embedded/proxy.1.log.xz", 0, {"info": 7, "warning": 2}),
        ("embedded/replica-0.1.log.xz", 1283, {"info": 91}),
        ("embedded/replica-1.1.log.xz", 1313, {"info": 91}),
        ("embedded/trainer.1.log.xz", 0, {}),
        ("sessions", 3, {"info": 5}),
        ("ray", 0, {"info": 2, "warning": 1}),
        ("verl", 0, {"info": 2, "warning": 1}),
    ],
)
def test_the_log_of_a_service(name: str, hidden: int, levels: dict[str, int]) -> None:
    lines = lines_of(name)
    shown = [line for line in lines if not is_access_line(line)]
    assert len(lines) - len(shown) == hidden
    left = [line for line in shown if '" 2' in line and " HTTP/" in line]
    assert all("/update_weights" in line or "weights" in line for line in left), left[:3]
    found = {line: level_of_text(without_prefix(line)[1]) for line in shown}
    assert Counter(level for line in shown if (level := found[line]) is not None) == levels
    for line in shown:
        if found[line] is None:
            continue
        head = head_length(line)
        assert head, f"the time and level of this line would be shown twice: {line[:80]}"
        rest = line[head:]
        assert own_stamp(rest) is None and level_of_text(rest) is None, rest[:80]
        assert own_stamp(line) is not None or "INFO:  " in line, "uvicorn's head has no time"
