"""Where the rules of ``liverl.causes.verdict.judge`` begin and end: how near, how many, how long, in which log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from kit import signatures
from msgspec.structs import replace

from liverl.causes.finding import Exit, LogRecords, Verdict
from liverl.causes.match import Matcher
from liverl.causes.signature import Signature
from liverl.causes.verdict.errors import told_of
from liverl.causes.verdict.frames import Frame, Origin, frames_of, told_place
from liverl.causes.verdict.judge import NEAR_THE_END, RIGHT_BEHIND, SYMPTOMS, judge
from liverl.causes.verdict.timeline import timeline
from liverl.logs.record import Raised, Record

TRAINER = Exit("trainer", "a.log", 1)


def row(id: str, pattern: str, *words: Any, **more: Any) -> Signature:
    return signatures.row(id, pattern, *words, **{"cause": f"cause of {id}."} | more)


class Log:
    """Records one behind the other, as they stand in a file; ``gap`` bytes of other lines may be between them."""

    def __init__(self, name: str = "a.log") -> None:
        self.name, self.end, self.records = name, 0, list[Record]()

    def say(self, text: str, *, gap: int = 0, **more: Any) -> Record:
        start = self.end + gap
        record = Record(start, start + len(text) + 1, text, **more)
        self.end = record.end
        self.records.append(record)
        return record

    def error(self, text: str, **more: Any) -> Record:
        return self.say(text, level="error", **more)

    def raised(self, *chain: Raised, **more: Any) -> Record:
        lines = tuple(line for one in chain for line in one.text.split("\n"))
        head = "Traceback (most recent call last):"
        return self.say(head, level="error", kind="traceback", more=lines, raised=chain, **more)

    def healthy(self, **more: Any) -> Record:
        return self.say('"GET /health HTTP/1.1" 200 OK', kind="healthy", level="info", **more)

    def read(self) -> LogRecords:
        return LogRecords(self.name, tuple(self.records), self.records[-1] if self.records else None)


def verdict(rows: Sequence[Signature], *logs: Log, exits: Sequence[Exit] = (TRAINER,)) -> Verdict:
    return judge([log.read() for log in logs], exits, Matcher(rows))


def named(found: Verdict) -> str:
    return "" if found.cause is None else found.cause.id


# Scripts: what a shell complains of counts as the last thing before the end.

COMMAND = row("command", r"(?P<what>\w+): not found", fails="command", printer="shell")
FOLDER = row("folder", r"no such folder", fails="command", printer="shell")
REPORT = row("report", "the job ended", role="consequence")
SCRIPTS = (COMMAND, FOLDER, REPORT)


def test_a_script_that_ended_with_a_complaint_is_told_by_it() -> None:
    log = Log()
    log.healthy()
    log.say("torchrun: not found")
    assert named(verdict(SCRIPTS, log)) == "command"


def test_a_log_without_a_complaint_or_an_error_says_nothing() -> None:
    log = Log()
    log.say("loading")
    assert named(verdict(SCRIPTS, log)) == "silent-exit"


@pytest.mark.parametrize(
    ("beside", "cause"),
    [("the job ended", "command"), ("shards differ", "unknown"), ("KeyboardInterrupt", "command")],
)
def test_only_what_reports_the_end_stands_beside_a_scripts_complaint(beside: str, cause: str) -> None:
    log = Log()
    log.say("torchrun: not found")
    log.error(beside)
    assert named(verdict(SCRIPTS, log)) == cause


def test_a_script_that_was_well_afterwards_did_not_end_of_its_complaint() -> None:
    log = Log()
    log.say("torchrun: not found")
    log.healthy()
    assert named(verdict(SCRIPTS, log)) == "silent-exit"
    other, elsewhere = Log(), Log("b.log")
    other.say("torchrun: not found")
    elsewhere.say("waiting", gap=100)
    elsewhere.healthy()
    assert named(verdict(SCRIPTS, other, elsewhere)) == "command", "another program was"


@pytest.mark.parametrize("more", [0, 1])
def test_a_scripts_complaint_counts_near_the_end_of_its_log(more: int) -> None:
    log = Log()
    log.say("torchrun: not found")
    log.say("loading", gap=NEAR_THE_END - len("loading") - 1 + more)
    assert (named(verdict(SCRIPTS, log)) == "command") == (not more)
    log.error("the job ended")
    assert named(verdict(SCRIPTS, log)) == "command", "a launcher that reports the end is near enough"


@pytest.mark.parametrize("more", [0, 1])
def test_the_first_of_several_complaints_of_one_failure_is_told(more: int) -> None:
    log = Log()
    log.say("one: not found")
    log.say("two: not found", gap=NEAR_THE_END + more)
    found = verdict(SCRIPTS, log).cause
    assert found is not None and found.evidence[0].text.startswith("two" if more else "one")


def test_complaints_of_other_kinds_or_logs_are_other_failures() -> None:
    log, other = Log(), Log("b.log")
    log.say("no such folder")
    log.say("one: not found")
    assert named(verdict(SCRIPTS, log)) == "command"
    other.say("zero: not found")
    found = verdict(SCRIPTS, other, log).cause
    assert found is not None and found.evidence[0].text.startswith("one")


def test_two_complaints_in_one_record_are_told_by_the_first() -> None:
    log = Log()
    log.say("x: not found, and no such folder")
    assert named(verdict(SCRIPTS, log)) == "command"


# What a living process complains of, and an error line beside it.

FULL = row("full", "the queue is full", fails="part")
BUSY = row("busy", "the server is busy", fails="request")
TOLD = row("told", "rank 3 ended first", role="consequence", facts=("ended-first",))


@pytest.mark.parametrize(
    ("gap", "near"), [(0, True), (1, True), (NEAR_THE_END, True), (NEAR_THE_END + 1, False)]
)
def test_an_error_line_behind_a_complaint_comes_of_it(gap: int, near: bool) -> None:
    log = Log()
    log.say("warming up " * 400)
    log.say("the queue is full")
    log.error("cannot go on", gap=gap)
    assert named(verdict((FULL,), log, exits=())) == ("full" if near else "unknown")


@pytest.mark.parametrize(("gap", "near"), [(0, True), (RIGHT_BEHIND, True), (RIGHT_BEHIND + 1, False)])
def test_a_complaint_right_behind_an_error_line_is_its_reason(gap: int, near: bool) -> None:
    log = Log()
    log.error("cannot go on")
    log.say("the queue is full", gap=gap)
    assert named(verdict((FULL,), log, exits=())) == ("full" if near else "unknown")


def test_an_error_of_another_kind_does_not_come_of_a_complaint() -> None:
    other, traceback, request, tells = Log("b.log"), Log(), Log(), Log()
    log = Log()
    log.say("the queue is full")
    other.error("cannot go on")
    assert named(verdict((FULL,), log, other, exits=())) == "unknown", "it stands in another log"
    traceback.say("the queue is full")
    traceback.raised(Raised("ValueError", "bad"))
    assert named(verdict((FULL,), traceback, exits=())) == "unknown"
    request.say("the server is busy")
    request.error("cannot go on")
    assert named(verdict((BUSY,), request, exits=())) == "unknown"
    tells.say("the queue is full")
    tells.error("rank 3 ended first")
    assert named(verdict((FULL, TOLD), tells, exits=())) == "unknown"


# How much an error tells.


def test_a_traceback_tells_more_than_an_error_line_before_it() -> None:
    log = Log()
    log.error("cannot go on")
    log.raised(Raised("ValueError", "bad shard"))
    found = verdict((), log).cause
    assert found is not None and "ValueError: bad shard" in found.title


def test_a_process_that_was_asked_to_stop_is_no_error() -> None:
    log = Log()
    log.error("*** SIGTERM received at time=1781518447 on cpu 3 ***")
    assert named(verdict((), log, exits=(Exit("replica-0", "a.log", None, 15),))) == "stopped"
    assert named(verdict((), log, exits=())) == "interrupted"


def test_a_wait_is_no_error_of_its_own_whatever_python_says_in_it() -> None:
    rows = (
        row("rpc", "RPC call timed out", role="waits"),
        row("timeout", "TimeoutError", role="general", printer="python"),
    )
    log = Log()
    for rank in (0, 1):
        log.raised(Raised("TimeoutError", "RPC call timed out"), writer=f"rank{rank}", rank=rank)
    assert named(verdict(rows, log)) == "rpc"


def test_an_error_of_the_same_process_before_its_wait_is_the_cause() -> None:
    rows = (row("rpc", "RPC call timed out", role="waits"),)
    for order in ((0, 1), (1, 0)):
        log = Log()
        for which in order:
            if which:
                log.error("RPC call timed out", writer="rank0", rank=0)
            else:
                log.raised(Raised("ValueError", "bad shard"), writer="rank0", rank=0)
        assert named(verdict(rows, log)) == ("unknown" if order == (0, 1) else "rpc")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            Raised(
                "ValidationError",
                "1 validation error for ModelConfig\n  Value error, no such model\n    see docs",
            ),
            "ValidationError: 1 validation error for ModelConfig: Value error, no such model",
        ),
        (
            Raised("HFValidationError", "these must be strings:\n  a\n  b"),
            "HFValidationError: these must be strings: a",
        ),
        (
            Raised("ValueError", "the shards of step 7 differ\n  a\n  b"),
            "ValueError: the shards of step 7 differ",
        ),
        (
            Raised("ValueError", "1 validation error for ModelConfig"),
            "ValueError: 1 validation error for ModelConfig",
        ),
    ],
)
def test_a_line_that_says_nothing_alone_is_told_with_the_next(raised: Raised, told: str) -> None:
    record = Log().raised(raised)
    assert told_of(record, ()) == told


# Frames of a traceback.


def test_the_first_line_below_a_frame_is_its_code() -> None:
    lines = (
        '  File "/srv/run/a.py", line 3, in <module>',
        "    ~~~~^^^",
        "    step(batch)",
        "    ~~~~^^^^^^^",
        "    batch = [1, 2]",
        '  File "/srv/run/b.py", line 9, in step',
        "    raise error",
        "ValueError: bad",
    )
    chain = (Raised("ValueError", "bad"),)
    record = Record(0, 9, "Traceback (most recent call last):", "traceback", more=lines, raised=chain)
    assert [frame.source for frame in frames_of(record, 0)] == ["step(batch)", "raise error"]


@pytest.mark.parametrize(
    ("function", "told"), [("step", " in step"), ("<module>", ""), ("", "")], ids=["named", "module", "none"]
)
def test_a_place_names_a_function_if_there_is_one(function: str, told: str) -> None:
    frame = Frame("/srv/run/a.py", 3, function)
    assert told_place(Origin(frame, "", "", frame)) == (
        f"It comes from /srv/run/a.py:3{told}, which is no installed package."
    )


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("step(batch)", "step(batch)"),
        ("step(", "step( ...)"),
        ('say("one"', 'say("one"'),
        ('say("one", "', ""),
        ('"one"', ""),
        ("f'{one}'", ""),
        ("raise error", ""),
        ("step(a, \\", "step(a,"),
    ],
)
def test_code_is_quoted_if_it_says_something(source: str, code: str) -> None:
    assert Frame("a.py", 3, "f", source).code == code


# What a general row says of where it was raised.


@pytest.mark.parametrize("of_versions", [False, True])
@pytest.mark.parametrize("effect", [False, True])
def test_a_general_row_tells_whose_code_raised_it(of_versions: bool, effect: bool) -> None:
    rows = (
        row(
            "attribute",
            "AttributeError",
            "general",
            "python",
            where="exception",
            command="look",
            of_versions=of_versions,
            effect=effect,
        ),
    )
    lines = (
        '  File "/srv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 3, in step',
        "    model.head()",
        "AttributeError: no head",
    )
    chain = (Raised("AttributeError", "no head"),)
    log = Log()
    log.say("Traceback (most recent call last):", kind="traceback", level="error", more=lines, raised=chain)
    found = verdict(rows, log).cause
    assert found is not None
    assert found.cause == "cause of attribute. It comes from vllm (core.py:3 in step: model.head())."
    assert found.command == ("pip list | grep -iE '^(vllm)'" if of_versions else "look")
    assert found.title == "title of attribute" + " (core.py:3 in step)" * effect


# Proofs and symptoms.


def test_a_consequence_proves_a_cause_if_it_came_later() -> None:
    rows = (row("oom", "out of memory"), row("died", "the actor died", role="consequence"))
    for order in itertools.permutations(("oom", "early", "late")):
        log = Log()
        for what in order:
            at = {"early": 1.0, "oom": 2.0, "late": 3.0}[what]
            log.error({"oom": "out of memory"}.get(what, f"the actor died {what}"), at=at, writer=what)
        found = verdict(rows, log, exits=()).cause
        assert found is not None and [proof.text for proof in found.evidence] == [
            "out of memory",
            "the actor died late",
        ]


def test_a_symptom_is_told_by_its_first_and_its_last_record() -> None:
    log = Log()
    for number in range(3):
        log.say(f"{number}: the queue is full")
        log.healthy()
    log.say("the disk is slow")
    log.healthy()
    rows = (row("full", "the queue is full", fails="part"), row("slow", "the disk is slow", fails="part"))
    found = verdict(rows, log, exits=(Exit("trainer", "a.log", 0),))
    proofs = {symptom.id: [proof.text for proof in symptom.evidence] for symptom in found.symptoms}
    offsets = [proof.offset for symptom in found.symptoms for proof in symptom.evidence]
    assert offsets == [log.records[place].offset for place in (0, 4, 6)]
    assert proofs == {"full": ["0: the queue is full", "2: the queue is full"], "slow": ["the disk is slow"]}


def test_no_more_symptoms_are_told_than_help() -> None:
    log = Log()
    rows = [row(f"slow-{n}", rf"disk {n:02} is slow", fails="part") for n in range(SYMPTOMS + 3)]
    for number in range(SYMPTOMS + 3):
        log.say(f"disk {number:02} is slow")
    log.raised(Raised("ValueError", "bad"))
    found = verdict(rows, log)
    assert named(found) == "unknown" and len(found.symptoms) == 12
    own = Log()
    for number in range(SYMPTOMS):
        own.say(f"disk {number:02} is slow")
    own.raised(Raised("ValueError", "bad shard"))
    own.error("out of memory")
    found = verdict((*rows, row("oom", "out of memory")), own)
    assert named(found) == "oom" and len(found.symptoms) == 12, "another error is one more"


def test_what_another_failure_may_bring_about_is_no_symptom_beside_it() -> None:
    rows = (
        row("oom", "out of memory"),
        row("slow", "the disk is slow", fails="part", effect=True, gives_way_to=("cuda",)),
    )
    log = Log()
    log.say("the disk is slow")
    assert [one.id for one in verdict(rows, log, exits=(Exit("t", "a.log", 0),)).symptoms] == ["slow"]
    log.error("out of memory")
    assert verdict(rows, log).symptoms == ()


# What a server says that was well afterwards.


@pytest.mark.parametrize(
    ("role", "level", "cause"),
    [
        ("general", "error", False),
        ("cause", "error", True),
        ("cause", "warning", False),
        ("cause", None, True),
    ],
)
def test_a_server_that_was_well_at_the_end_only_logged_a_general_error(
    role: Any, level: Any, cause: bool
) -> None:
    log = Log()
    log.say("the shard is bad", level=level)
    log.healthy()
    rows = (row("bad", "the shard is bad", role),)
    assert (named(verdict(rows, log, exits=())) == "bad") == cause
    assert named(verdict(rows, log)) == ("" if (role, level) == ("general", "warning") else "bad")


@pytest.mark.parametrize("answers_on", [False, True])
def test_health_is_no_sign_where_the_server_answers_without_its_engine(answers_on: bool) -> None:
    log = Log()
    log.error("the engine has ended")
    log.healthy()
    rows = (row("ended", "the engine has ended", role="consequence", facts=("answers-on",) * answers_on),)
    assert named(verdict(rows, log, exits=())) == ("unknown" if answers_on else "")


@pytest.mark.parametrize("kind", ["ignored", "thread"])
def test_an_error_while_an_interpreter_exits_or_of_one_thread_ends_nothing(kind: Any) -> None:
    log = Log()
    log.say("out of memory", kind=kind, level="error")
    assert named(verdict((row("oom", "out of memory"),), log)) == "silent-exit"


def test_a_line_that_is_known_to_explain_nothing_explains_nothing() -> None:
    log = Log()
    log.error("out of memory, as was expected")
    rows = (row("oom", "out of memory, as"), row("expected", "as was expected", role="noise"))
    assert named(verdict(rows, log)) == "silent-exit"


@pytest.mark.parametrize(
    ("exit_", "failed"),
    [
        (Exit("t", "a.log", 0), False),
        (Exit("t", "a.log", None), False),
        (Exit("t", "a.log", 3), True),
        (Exit("t", "a.log", None, 9), True),
        (Exit("t", "a.log", None, None, oom_kills=1), True),
        (Exit("t", "a.log", 0, unasked=True), True),
    ],
)
def test_which_ends_are_failures(exit_: Exit, failed: bool) -> None:
    log = Log()
    log.raised(Raised("ValueError", "bad"))
    assert (verdict((), log, exits=(exit_,)).cause is not None) == failed


@pytest.mark.parametrize(
    ("beside", "cause"), [("consequence", "silent-exit"), ("unknown", "unknown"), ("both", "oom")]
)
def test_an_error_of_its_own_counts_though_a_program_was_asked_to_stop(beside: str, cause: str) -> None:
    rows = (
        row("asked", "shutdown was asked for", role="noise", facts=("stop-asked",)),
        row("died", "the engine died", role="consequence"),
        row("oom", "out of memory"),
    )
    log = Log()
    log.say("shutdown was asked for")
    if beside == "unknown":
        log.raised(Raised("ValueError", "bad shard"))
    else:
        log.error("the engine died" + " of out of memory" * (beside == "both"))
    assert named(verdict(rows, log)) == cause


# How a process ended, without an error in its log.


def test_an_exit_without_an_error_is_told_with_the_last_line() -> None:
    log = Log()
    log.say("loading shard 3")
    found = verdict((), log).cause
    assert found is not None and found.id == "silent-exit"
    assert found.title.endswith(
        "exited with code 1 without an error in its log; its last line is: loading shard 3"
    )
    log.healthy()
    found = verdict((), log).cause
    assert found is not None and found.title.endswith("its log says nothing about it")


def test_a_process_that_crashed_is_named_before_one_that_was_asked_to_stop() -> None:
    asked, crashed = Exit("trainer", "a.log", None, 15), Exit("replica-0", "b.log", None, 11)
    for exits in ((asked, crashed), (crashed, asked)):
        found = verdict((), exits=exits).cause
        assert found is not None and found.title.startswith("replica-0 was killed by SIGSEGV")


def test_a_shell_tells_of_a_crash_unless_an_error_stands_before_it() -> None:
    shell = "line 1: 99 Segmentation fault (core dumped) python x.py"
    for before, cause in (("", "killed"), ("loading", "killed"), ("traceback", "unknown")):
        log = Log()
        if before == "traceback":
            log.raised(Raised("ValueError", "bad shard"))
        elif before:
            log.say(before)
        log.say(shell, kind="shell", level="error")
        assert named(verdict((), log, exits=())) == cause


# When a record was written.


@pytest.mark.parametrize(("newest", "at"), [(220.0, 100.0), (221.0, 221.0)])
def test_a_line_without_a_time_has_that_of_its_process_if_it_is_not_long_ago(
    newest: float, at: float
) -> None:
    log = Log()
    log.say("one", at=100.0, writer="a")
    log.say("two", at=newest, writer="b")
    log.say("three", writer="a")
    (moment,) = (one for one in timeline([log.read()], Matcher(())) if one.record.text == "three")
    assert moment.at == at


@pytest.mark.parametrize(("modified", "at"), [(0.0, 0.0), (7.0, 7.0)])
def test_a_log_without_times_has_that_of_its_file_or_none(modified: float, at: float) -> None:
    record = Record(0, 4, "one")
    (moment,) = timeline([LogRecords("a.log", (record,), record, modified=modified)], Matcher(()))
    assert moment.at == at


@pytest.mark.parametrize(("survived", "expected"), [(-1, False), (0, True), (1, True)])
def test_what_stands_before_the_work_that_was_seen_was_survived_with_any_health(
    survived: int, expected: bool
) -> None:
    log = Log()
    error = log.error("bad shard")
    log.healthy()
    read = replace(log.read(), survived=error.end + survived)
    assert timeline([read], Matcher(()))[0].survived is expected


# Rows in one record.


@pytest.mark.parametrize(
    ("text", "pattern", "told"),
    [
        ("Last error:\nboom\nmore", r"Last error:\nboom", "Last error: boom"),
        ("Last error:\nboom\nmore", r"Last error:", "Last error:"),
        ("first\n  boom  \nmore", r"boom", "boom"),
    ],
)
def test_a_line_that_announces_the_next_is_quoted_with_it(text: str, pattern: str, told: str) -> None:
    first, *more = text.split("\n")
    (match,) = Matcher((row("boom", pattern),)).of(Record(0, 9, first, more=tuple(more)))
    assert match.text == told


def test_an_exception_of_several_lines_is_quoted_with_the_one_that_matches() -> None:
    log = Log()
    log.raised(Raised("ValueError", "several:\n  one\n  the needle is here\n  three"))
    (match,) = Matcher((row("needle", "needle is", where="exception"),)).of(log.records[0])
    assert match.text == "ValueError: several: the needle is here"


def test_rows_stand_as_their_texts_do() -> None:
    last = row("z-last-by-name", "^ValueError", where="exception", printer="python")
    first = row("a-first-by-name", "^KeyError", where="exception", printer="python")
    within = row("within", "eyError: 'k'")
    log = Log()
    log.error("three lines follow", more=("ValueError: one", "", "", "KeyError: 'k'"))
    ids = [match.signature.id for match in Matcher((within, first, last)).of(log.records[0])]
    assert ids == ["z-last-by-name", "a-first-by-name", "within"]


def test_a_traceback_of_a_trial_is_told_by_what_became_of_it() -> None:
    """Not by the TimeoutError within it, which Python's own row knows, as if a process had ended of that."""
    rows = [
        row("timed-out", "^TimeoutError$", role="general", printer="python", where="exception"),
        row("setup", "SetupTimeoutError: ", printer="harbor", where="exception", fails="request"),
    ]
    inner = Raised("TimeoutError", "")
    log = Log()
    log.raised(inner, Raised("SetupTimeoutError", "after 360 s", how="cause"))
    assert named(verdict(rows, log, exits=())) == "setup"
    alone = Log()
    alone.raised(inner)
    assert named(verdict(rows, alone, exits=())) == "timed-out"


def test_a_record_that_tells_for_certain_is_not_told_as_what_it_may_be() -> None:
    rows = [
        row("lost", "Connection error", fails="request", supposes=("no-key",)),
        row("no-key", "Illegal header", fails="request"),
    ]
    both, other = Log(), Log("b.log")
    both.error("Connection error", more=("Illegal header",))
    other.error("Connection error")
    assert [one.id for one in verdict(rows, both, exits=()).explanations] == ["no-key"]
    found = verdict(rows, both, other, exits=()).explanations
    assert {one.id for one in found} == {"lost", "no-key"}, "another record may be of a lost server"
