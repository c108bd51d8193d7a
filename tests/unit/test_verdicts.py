"""Each log of ``tests/data/verdicts/index.toml`` gets the verdict that stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.verdict_logs import INDEX, VerdictLog, verdict_logs

from liverl.causes.finding import Explanation
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.offline.doctor.examine import examine

LOGS = verdict_logs()
WELL = [one for one in LOGS if one.cause == ""]
FAILED = [one for one in LOGS if one.cause != ""]


def named(one: VerdictLog) -> str:
    return one.file.removeprefix("verdicts/")


def test_each_log_is_listed_once() -> None:
    files = [one.file for one in LOGS]
    assert len(set(files)) == len(files)
    assert {one.path for one in LOGS} >= set(INDEX.parent.rglob("*.log"))


@pytest.mark.parametrize("one", WELL, ids=named)
def test_a_log_of_a_program_that_was_well_has_nothing_wrong(one: VerdictLog) -> None:
    found = examine([one.path])
    assert found.read
    assert (found.verdict.cause, found.verdict.symptoms) == (None, ())


@pytest.mark.parametrize("one", FAILED, ids=named)
def test_a_log_gets_its_cause_by_its_line(one: VerdictLog) -> None:
    assert one.lines, "nothing would be asked"
    assert_right(one, judge([read_log(one.path, "x")], one.exits).cause)
    if one.exits:
        return  # which doctor would not know
    cause = examine([one.path]).verdict.cause
    assert_right(one, cause)
    if (
        cause is not None and one.cause is None
    ):  # the line is the whole claim: it stands at the byte that is told
        proof = cause.evidence[0]
        at = one.path.read_bytes()[proof.offset :].split(b"\n", 1)[0].decode("utf-8", "replace")
        assert any(line in proof.text for line in one.lines), (cause.id, proof.text)
        assert any(part in at for part in (*one.lines, proof.text[:40])), (at, proof.text)


def assert_right(one: VerdictLog, cause: Explanation | None) -> None:
    assert cause is not None
    if one.cause is None:
        assert cause.id != "unknown" and cause.cause and cause.fix, cause
    else:
        assert cause.id == one.cause, cause
    said = [cause.title, *(proof.text for proof in cause.evidence)]
    assert any(line in text for line in one.lines for text in said), (cause.id, said)
    missing = [words for words in one.says if words not in spoken(cause)]
    assert not missing, (missing, spoken(cause))
    assert "killed by SIGKILL by OOM killer" not in str(cause), "one of Ray's guesses is told"


def spoken(cause: Explanation) -> str:
    return " ".join((cause.title, cause.cause, cause.fix, cause.command)).lower()


def test_what_only_supposes_the_cause_is_its_proof_and_no_further_symptom() -> None:
    """ "The disk is probably full" beside the line that says so, and for which path: one failure, told once."""
    (one,) = (one for one in FAILED if "before-the-line-that-names-the-full-disk" in one.file)
    found = judge([read_log(one.path, "x")])
    assert found.cause is not None and found.symptoms == ()
    first, supposed = found.cause.evidence
    assert "/ckpt/global_step_10" in first.text and "PytorchStreamWriter failed writing file" in supposed.text


def test_a_record_that_is_the_cause_is_no_further_symptom() -> None:
    (one,) = (one for one in FAILED if "what-a-compiler-raised" in one.file)
    assert judge([read_log(one.path, "x")]).symptoms == ()


def test_attempts_that_fail_again_and_again_are_a_symptom(tmp_path: Path) -> None:
    """Although the last one worked: a few fail by chance."""
    (one,) = (one for one in WELL if "a-request-that-worked-when-tried-again" in one.file)
    text = one.path.read_text()
    (attempt,) = (line for line in text.splitlines(keepends=True) if "RateLimitError" in line)
    log = tmp_path / "proxy.log"
    log.write_text(text.replace(attempt, attempt * 6))
    assert [found.id for found in examine([log]).verdict.symptoms] == ["litellm-rate-limit"]
