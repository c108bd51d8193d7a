"""What doctor says of logs with errors that ended nothing: that they are there, and no clean bill."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.passed_errors import PASSED
from liverl.offline.doctor.report import as_json, as_text

DATA = Path(__file__).parents[1] / "data"
ANSWER = 'INFO:     10.0.0.7:32107 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
UNKNOWN = "ERROR 05-01 01:51:54 [warm.py:8] The cache of 7 blocks could not be warmed\n"
SLIP = "ERROR 10-09 09:39:54 [hermes_tool_parser.py:157] Error in extracting tool call from response.\n"
STEP = "(TaskRunner pid=3201) step:{} - critic/score/mean:0.{} - training/global_step:{}\n"
TOOL = """(AgentLoopWorker pid=4402) Traceback (most recent call last):
(AgentLoopWorker pid=4402)   File "/verl/tool_agent_loop.py", line 150, in _call_tool
(AgentLoopWorker pid=4402)     tool = self.tools[tool_name]
(AgentLoopWorker pid=4402) KeyError: 'lookup'
"""
STEPS = [STEP.format(n, n, n) for n in range(1, 9)]
CLEAN = "nothing wrong was found"
NOT_CLEAN = "no failure was found; the logs have errors that ended nothing"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (UNKNOWN + ANSWER, ["have 1 error that ended nothing", "log.txt:1: The cache of 7 blocks could"]),
        (
            (ANSWER + UNKNOWN.replace("7", "{}") + ANSWER) * 60,
            ["have 60 errors that", "log.txt:2: The cache"],
        ),
        (ANSWER + SLIP + ANSWER, ["have 1 error that", "log.txt:2: Error in extracting tool call"]),
        (TOOL.join(STEPS), ["have 7 errors that", "log.txt:2: KeyError: 'lookup'"]),
        ((UNKNOWN + ANSWER + TOOL) * 9 + ANSWER, ["have 18 errors of 2 kinds that"]),
    ],
)
def test_an_error_that_ended_nothing_is_told(tmp_path: Path, text: str, says: list[str]) -> None:
    (tmp_path / "log.txt").write_text(text)
    found = examine([tmp_path / "log.txt"])
    told = " ".join(as_text(found).split())
    assert (found.found, [one.id for one in found.notes]) == (False, [PASSED])
    assert told.startswith(NOT_CLEAN) and CLEAN not in told
    assert [one for one in says if one not in told] == []


@pytest.mark.parametrize(
    "text",
    [
        ANSWER * 3,
        UNKNOWN.replace("ERROR", "INFO") + ANSWER,
        UNKNOWN.replace("ERROR", "WARNING") + ANSWER,
        "Exception ignored in: <function f at 0x7f>\n"
        + TOOL.replace("(AgentLoopWorker pid=4402) ", "")
        + ANSWER,
    ],
)
def test_a_log_without_errors_is_clean(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.txt").write_text(text)
    found = examine([tmp_path / "log.txt"])
    assert (found.found, found.notes) == (False, ())
    assert as_text(found).startswith(CLEAN)


SURVIVED = ANSWER * 30
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
]


KINDS = "".join(UNKNOWN.replace("cache", one) + ANSWER for one in WORDS)  # more than are remembered
FLOODS = "".join(UNKNOWN.replace("cache", one) * 500 for one in WORDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (KINDS, "have at least 8 errors of 8 or more kinds"),
        (UNKNOWN * 4500, "have at least 4,000 errors that"),
        (FLOODS, "have at least "),
    ],
)
def test_errors_that_were_not_counted_are_not_said_to_be_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "log.txt").write_text(text + SURVIVED)
    assert says in " ".join(as_text(examine([tmp_path / "log.txt"])).split())


def test_what_fails_in_the_sandbox_of_a_trial_is_not_told(tmp_path: Path) -> None:
    head = "asciinema: recording asciicast to /logs/agent.cast\n"
    (tmp_path / "agent.log").write_text(head + (UNKNOWN + ANSWER * 30) * 2)
    found = examine([tmp_path / "agent.log"])
    assert "transcript of a trial" in found.files[0].what
    assert found.notes == () and as_text(found).startswith(CLEAN)


def test_further_errors_of_a_symptom_are_not_said_to_be_unknown_to_the_rules() -> None:
    found = examine([DATA / "doctor" / "P07-harbor-networks" / "train.log"])
    assert "trial-failed" in [one.id for one in found.verdict.symptoms]
    assert PASSED not in [one.id for one in found.notes]


def test_an_interrupt_at_the_end_is_no_error_that_ended_nothing() -> None:
    log = DATA / "verdicts" / "services" / "a-router-that-had-served-was-interrupted.log"
    found = examine([log])
    assert found.notes == () and as_text(found).startswith(CLEAN)


def test_secrets_and_enormous_lines_are_not_shown(tmp_path: Path) -> None:
    secret = "sk-proj-" + "Ab3" * 12
    text = f"ERROR 05-01 01:51:54 [warm.py:8] the key {secret} was refused {'y' * 3_000_000}\n"
    (tmp_path / "log.txt").write_text(text + ANSWER)
    found = examine([tmp_path / "log.txt"])
    for shown in (as_text(found), as_json(found)):
        assert "was refused" in shown and secret not in shown and len(shown) < 4000


def test_beside_a_cause_they_are_not_told(tmp_path: Path) -> None:
    end = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB"
    (tmp_path / "log.txt").write_text(UNKNOWN + ANSWER + TOOL.replace("KeyError: 'lookup'", end))
    found = examine([tmp_path / "log.txt"])
    assert found.verdict.cause is not None and found.notes == ()
