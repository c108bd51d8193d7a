"""``liverl.causes.verdict.judge``: from records and exit statuses to the cause that is shown."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from kit import regexes
from kit.signatures import row

from liverl.causes.finding import Exit, LogRecords, Verdict
from liverl.causes.match import EACH, NAMES, Matcher
from liverl.causes.verdict import errors
from liverl.causes.verdict.errors import without_speculation
from liverl.causes.verdict.judge import judge as judge_with
from liverl.logs.record import Raised, Record
from liverl.util.late_pattern import LatePattern

ROWS = (
    row(
        "cuda-oom",
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ GiB)",
        printer="cuda",
        where="exception",
        needle="CUDA out of memory",
        title="the GPU's memory is full: {size} more were wanted of {total}",
        patch={"vllm.gpu_memory_utilization": "0.8", "vllm.gen_tp": "{total}"},
    ),
    row("memory", r"^MemoryError", role="general", printer="python", where="exception"),
    row("watchdog", "Watchdog caught collective", printer="nccl"),
    row("engine-dead", "EngineDeadError|Engine core initialization failed", role="consequence"),
    row("actor-died", "ActorDiedError", role="consequence", printer="ray", of=("watchdog",)),
    row("pending", "No available node types", printer="ray", fails="part"),
    row("leak", "resource_tracker", role="noise"),
)


def judge(logs: list[LogRecords], exits: list[Exit]) -> Verdict:
    return judge_with(logs, exits, Matcher(ROWS))


class Maker:
    def __init__(self) -> None:
        self.offset = 0

    def __call__(self, text: str, **more: Any) -> Record:
        record = Record(self.offset, self.offset + len(text) + 1, text, **more)
        self.offset = record.end
        return record

    def error(self, text: str, **more: Any) -> Record:
        return self(text, level="error", **more)

    def raised(self, *chain: Raised | str, **more: Any) -> Record:
        all_of = tuple(one if isinstance(one, Raised) else Raised(*one.partition(": ")[::2]) for one in chain)
        more.setdefault("level", "error")
        more.setdefault("kind", "traceback")
        text = "Traceback (most recent call last):"
        return self(text, more=tuple(one.text for one in all_of), raised=all_of, **more)

    def healthy(self, text: str = 'INFO: "GET /health HTTP/1.1" 200 OK', **more: Any) -> Record:
        return self(text, kind="healthy", level="info", **more)


@pytest.fixture
def say() -> Maker:
    return Maker()


def log(*records: Record, name: str = "a.log", **more: Any) -> LogRecords:
    return LogRecords(name, records, records[-1] if records else None, **more)


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."


def test_a_cause_beats_the_consequences_before_and_behind_it(say: Maker) -> None:
    records = (
        say.error(DEAD),
        say.raised(OOM),
        say.error(DEAD),
        say.error("Engine core initialization failed"),
    )
    verdict = judge([log(*records)], [])
    assert verdict.cause is not None
    assert verdict.cause.id == "cuda-oom"
    assert verdict.cause.title == "the GPU's memory is full: 2.00 GiB more were wanted of ?"
    assert verdict.cause.patch == {"vllm.gpu_memory_utilization": "0.8"}
    assert verdict.cause.fix == "fix of cuda-oom"
    assert verdict.cause.evidence[0].text == OOM
    assert (verdict.cause.evidence[0].log, verdict.cause.evidence[0].offset) == ("a.log", records[1].offset)
    assert verdict.cause.evidence[1].text == DEAD
    assert verdict.symptoms == ()


def test_the_earliest_stamp_wins_over_the_place_in_the_file(say: Maker) -> None:
    late = say.error("[E] Watchdog caught collective operation timeout", at=200.0, writer="rank 1")
    early = say.raised(OOM, at=100.0, writer="rank 0")
    verdict = judge([log(late, early)], [])
    assert verdict.cause is not None and verdict.cause.id == "cuda-oom"
    assert [symptom.id for symptom in verdict.symptoms] == ["watchdog"]


def test_logs_are_ordered_among_each_other_by_their_stamps(say: Maker) -> None:
    trainer = log(say.error("Watchdog caught collective", at=200.0), name="trainer.log")
    replica = log(say("starting", at=90.0), say.raised(OOM), name="replica.log")
    for logs in ([trainer, replica], [replica, trainer]):
        cause = judge(logs, []).cause
        assert cause is not None and cause.evidence[0].log == "replica.log"


def test_a_general_signature_gives_way_to_a_special_one(say: Maker) -> None:
    cause = judge([log(say.raised("MemoryError"), say.raised(OOM))], []).cause
    assert cause is not None and cause.id == "cuda-oom"
    cause = judge([log(say.raised("MemoryError"))], []).cause
    assert cause is not None and cause.id == "memory"


def test_what_a_process_survived_ended_nothing(say: Maker) -> None:
    oom = say.raised(OOM, writer="A")
    of_others = [say.healthy(writer="B") for _ in range(50)]
    few = [say.healthy(writer="A") for _ in range(20)]
    cause = judge([log(oom, *of_others, *few)], []).cause
    assert cause is not None and cause.id == "cuda-oom"
    assert judge([log(oom, *of_others, *few, say.healthy(writer="A"))], []).cause is None
    assert judge([log(oom, say.healthy("step:4 - actor/loss:0.1", writer="B"))], []).cause is None


def test_noise_and_the_exit_of_an_interpreter_are_no_failure(say: Maker) -> None:
    records = (
        say.error("resource_tracker: There appear to be 1 leaked semaphore objects"),
        say.raised("AttributeError: x", kind="ignored"),
        say.raised("ValueError: y", kind="thread"),
    )
    assert judge([log(*records)], []).cause is None


def test_the_first_error_without_a_signature_is_said_to_be_unknown(say: Maker) -> None:
    records = (
        say.raised("ValueError: rewards must be numbers, not 'x'", writer="A"),
        say.raised("foo.BarError: other", writer="B"),
    )
    verdict = judge([log(*records)], [])
    assert verdict.cause is not None
    assert verdict.cause.id == "unknown"
    assert (
        verdict.cause.title
        == "cause unknown; the first error was: ValueError: rewards must be numbers, not 'x'"
    )
    logged = judge([log(say.error("the worker is gone"))], [])
    assert logged.guesses and all(guess.command for guess in logged.guesses)


def test_an_exception_that_its_own_process_exited_with_is_no_riddle(say: Maker) -> None:
    """Nothing else than its own exception ended it: neither the kernel nor a full disk is guessed at."""
    cause, said = say.raised("foo.BarError: the reward has no column"), Exit("trainer", code=1)
    verdict = judge([log(cause)], [said])
    assert verdict.cause is not None and verdict.guesses == ()
    assert "Read the traceback of this error in the log" in verdict.cause.fix
    assert "check with" not in verdict.cause.fix
    killed = judge([log(cause)], [Exit("trainer", signal=signal.SIGKILL)])
    assert killed.guesses and killed.cause is not None
    assert killed.guesses[0].command in killed.cause.fix, "the first check stands in the fix itself"
    exited = judge([log(say.healthy())], [said])
    assert exited.cause is not None and exited.guesses[0].command in exited.cause.fix
    lost = judge([log(say.raised("foo.BarError: the node was lost"))], [said])
    assert [guess.id for guess in lost.guesses] == ["guess-ray"]


def test_a_consequence_alone_is_shown_as_unknown_without_rays_speculation(say: Maker) -> None:
    text = "ray.exceptions.ActorDiedError: The actor is dead. There are some potential root causes. (1) OOM killer"
    verdict = judge([log(say.error(text))], [])
    assert verdict.cause is not None
    assert (
        verdict.cause.title
        == "cause unknown: title of actor-died; the first error was: ray.exceptions.ActorDiedError: The actor is dead."
    )
    assert verdict.guesses[0].id == "guess-ray"


def test_an_error_that_nothing_explains_beats_a_consequence_before_it(say: Maker) -> None:
    verdict = judge([log(say.error(DEAD), say.raised("ValueError: the real one"))], [])
    assert verdict.cause is not None and "the real one" in verdict.cause.title


@pytest.mark.parametrize(
    ("number", "name", "guess"),
    [(signal.SIGKILL, "SIGKILL", "guess-memory"), (signal.SIGSEGV, "SIGSEGV", "guess-native")],
)
@pytest.mark.parametrize("as_code", [False, True])
def test_a_healthy_log_explains_no_signal(
    say: Maker, number: int, name: str, guess: str, as_code: bool
) -> None:
    exit_ = Exit("replica-0", code=128 + number) if as_code else Exit("replica-0", signal=number)
    verdict = judge([log(say.healthy())], [exit_])
    assert verdict.cause is not None
    assert verdict.cause.title == f"replica-0 was killed by {name}; its log says nothing about it"
    assert verdict.guesses[0].id == guess
    assert verdict.guesses[0].command in verdict.cause.fix, "the first check stands in the fix itself"


def test_a_cause_in_the_log_counts_though_the_process_was_then_killed(say: Maker) -> None:
    cause = judge([log(say.raised(OOM))], [Exit("trainer", signal=signal.SIGKILL)]).cause
    assert cause is not None and cause.id == "cuda-oom"
    assert cause.evidence[-1].text == "trainer was killed by SIGKILL"


def test_a_stop_by_sigterm_is_a_warning(say: Maker) -> None:
    cause = judge([log(say.healthy())], [Exit("trainer", signal=signal.SIGTERM)]).cause
    assert cause is not None and cause.severity == "warning"
    assert cause.title == "trainer was stopped by SIGTERM; its log says nothing about it"


def test_an_exit_code_without_an_error_is_told(say: Maker) -> None:
    cause = judge([log(say.healthy())], [Exit("trainer", code=3)]).cause
    assert cause is not None and cause.title == "trainer exited with code 3; its log says nothing about it"


def test_the_count_of_a_cgroup_beats_what_the_others_saw_of_it(say: Maker) -> None:
    exits = [Exit("trainer", signal=signal.SIGKILL, oom_kills=2)]
    cause = judge([log(say.error("Watchdog caught collective"))], exits).cause
    assert cause is not None and cause.id == "cgroup-oom-kill"
    assert cause.evidence[0].value == 2.0
    cause = judge([log(say.raised("MemoryError"))], exits).cause
    assert cause is not None and cause.id == "memory"


def test_with_all_processes_well_there_are_symptoms_only(say: Maker) -> None:
    records = (say.raised(OOM), say("No available node types can fulfill"))
    verdict = judge([log(*records)], [Exit("trainer", code=0)])
    assert verdict.cause is None
    assert [symptom.id for symptom in verdict.symptoms] == ["pending"]


def test_an_interrupt_is_a_consequence_of_what_was_waited_for(say: Maker) -> None:
    waits = [say("No available node types can fulfill", level="error") for _ in range(3)]
    cause = judge([log(*waits, say.raised("KeyboardInterrupt"))], []).cause
    assert cause is not None and cause.id == "pending"
    alone = judge([log(say.raised("KeyboardInterrupt"))], []).cause
    assert alone is not None and alone.id == "interrupted"
    # With an error besides, the waiting was not what ended it.
    cause = judge([log(*waits, say.raised("ValueError: bad"))], []).cause
    assert cause is not None and cause.id == "unknown"


def test_a_failed_request_gives_way_to_any_other_error(say: Maker) -> None:
    request = say.raised("ValueError: of a request", writer="AgentLoopWorker pid=3")
    cause = judge([log(request, say.raised("ValueError: of the trainer"))], []).cause
    assert cause is not None and "of the trainer" in cause.title


def test_of_a_chain_the_exception_that_tells_most_is_shown(say: Maker) -> None:
    disk = Raised("OSError", "[Errno 28] No space left on device")
    closing = Raised(
        "RuntimeError", "unexpected pos 5116 vs 5110", "serialization.py:5 in __exit__", "", "context"
    )
    cause = judge([log(say.raised(disk, closing))], []).cause
    assert cause is not None and "No space left" in cause.title
    lookup, told = (
        Raised("KeyError", "'x'"),
        Raised("ValueError", "no column 'x' in train.parquet", how="context"),
    )
    cause = judge([log(say.raised(lookup, told))], []).cause
    assert cause is not None and "train.parquet" in cause.title


def test_an_exception_without_words_is_shown_with_its_place(say: Maker) -> None:
    bare = Raised("AssertionError", "", "fsdp.py:12 in step", "    assert a == b")
    cause = judge([log(say.raised(bare))], []).cause
    assert cause is not None
    assert (
        cause.title
        == "cause unknown; the first error was: AssertionError (fsdp.py:12 in step: assert a == b)"
    )


def test_a_shell_that_reports_a_crash_is_evidence_of_the_signal(say: Maker) -> None:
    shell = say("line 1: 99 Segmentation fault (core dumped) python x.py", kind="shell", level="error")
    cause = judge([log(say.healthy(), shell)], []).cause
    assert (
        cause is not None and cause.title == "a process was killed by SIGSEGV; its log says nothing about it"
    )


def test_a_flood_of_consequences_after_the_cause_does_not_hide_it(say: Maker) -> None:
    flood = [say.error(f"{DEAD} {n}") for n in range(3000)]
    cause = judge([log(say.error(DEAD), say.raised(OOM), *flood)], []).cause
    assert cause is not None and cause.id == "cuda-oom"


def test_a_match_tells_its_line_and_groups(say: Maker) -> None:
    (found,) = Matcher(ROWS).of(say.raised("ValueError: first\nmore", OOM))
    assert (found.text, found.raised, found.groups) == (OOM, 1, {"size": "2.00 GiB"})
    (found,) = Matcher(ROWS).of(say(f"(pid=3) failed with {OOM}"))
    assert found.text == OOM
    assert Matcher(ROWS).of(say("CUDA out of memory. Tried to allocate 2.00 GiB")) == ()


def test_only_what_a_cause_can_bring_about_is_its_proof(say: Maker) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died"
    cause = judge([log(say.raised(OOM), say.error(died))], []).cause
    assert cause is not None and [proof.text for proof in cause.evidence] == [OOM]
    cause = judge([log(say.error("Watchdog caught collective"), say.error(died))], []).cause
    assert cause is not None and cause.evidence[-1].text == died


def test_an_unexplained_error_that_was_survived_ended_nothing(say: Maker) -> None:
    records = (say.raised("ValueError: of a request"), *(say.healthy() for _ in range(21)))
    cause = judge([log(*records)], [Exit("replica-0", code=1)]).cause
    assert cause is not None and cause.title == "replica-0 exited with code 1; its log says nothing about it"


def test_one_complaint_of_a_server_that_is_well_is_a_symptom(say: Maker) -> None:
    complaint = "No available node types can fulfill"
    once = judge([log(say(complaint), say.healthy())], [])
    assert once.cause is None and [symptom.id for symptom in once.symptoms] == ["pending"]
    twice = judge([log(say(complaint), say(complaint), say.healthy())], [])
    assert twice.cause is not None and twice.cause.id == "pending"


def test_a_line_without_words_is_no_error(say: Maker) -> None:
    assert judge([log(say.error("^^^^^^^~~~"))], []).cause is None


def test_a_chain_tells_the_tasks_own_exception_though_rays_wrapper_is_a_consequence(say: Maker) -> None:
    """As verl's asynchronous trainer logs a sample that raised; asyncio's line behind it tells nothing."""
    task = Raised("ray.exceptions.RayTaskError(KeyError)", "ray::ActorDiedError.run() (pid=1)")
    own = Raised("KeyError", "'reward of the row'", "rewards.py:3 in score")
    records = (say.raised(task, own), say.error("Exception in callback handler(<Task finished>)"))
    found = judge([log(*records)], []).cause
    assert found is not None and found.title == (
        "cause unknown; the first error was: KeyError: 'reward of the row' (rewards.py:3 in score)"
    )


def test_an_exception_of_a_program_says_where_to_look_and_is_not_guessed_at(say: Maker) -> None:
    own = Raised("ValueError", "rewards of group 17 are not finite", "rewards.py:3 in score")
    found = judge([log(say.raised(own))], [Exit("trainer", code=1)])
    assert found.cause is not None and "it was raised in rewards.py:3 in score" in found.cause.fix
    assert found.guesses == () == judge([log(say.raised(own))], []).guesses
    killed = judge([log(say.raised(own))], [Exit("trainer", signal=signal.SIGKILL)])
    assert killed.guesses, "a signal is no exception's"


def test_a_failure_that_reports_complaints_is_told_by_the_newest_of_them(say: Maker) -> None:
    trial = row("trial", "trial .* failed", printer="liverl", fails="request", title="trials fail")
    all_failed = row("all-failed", "no trajectories", role="consequence", of=("trial",))
    lines = [say("trial a failed: Old", at=1.0), say("trial b failed: New", at=2.0)]
    end = say.raised("RuntimeError: no trajectories", at=3.0)
    late = say("trial c failed: Late", at=4.0)
    found = judge_with(
        [log(*lines, end, late)], [Exit("trainer", code=1)], Matcher((trial, all_failed))
    ).cause
    assert found is not None and (found.id, found.evidence[0].text) == ("trial", "trial b failed: New")
    other = row("other", "no trajectories", role="consequence")
    unknown = judge_with([log(*lines, end)], [Exit("trainer", code=1)], Matcher((trial, other))).cause
    assert unknown is not None and unknown.id == "unknown"


@pytest.mark.parametrize(("count", "told"), [(2, False), (3, True)])
def test_slips_are_no_symptom(say: Maker, count: int, told: bool) -> None:
    slip = row("slip", "cannot be read", fails="request", slips=2)
    lines = [record for _ in range(count) for record in (say("a call cannot be read"), say.healthy())]
    elsewhere = log(say("a call cannot be read"), name="b.log")
    found = judge_with([log(*lines), elsewhere], [], Matcher((slip,)))
    everything = [one.id for one in (found.cause, *found.symptoms) if one is not None]
    assert everything == (["slip"] if told else [])


def test_lines_that_ray_merged_into_one_count_each(say: Maker) -> None:
    slip = row("slip", "cannot be read", fails="request", slips=2)
    for repeated, told in ((1, False), (2, True)):
        found = judge_with([log(say("a call cannot be read", repeated=repeated))], [], Matcher((slip,)))
        assert [one.id for one in (found.cause, *found.symptoms) if one is not None] == ["slip"] * told


def test_a_line_with_thousands_of_exceptions_is_not_searched_behind_each(say: Maker) -> None:
    """Each row would read the whole line as often: 45 kB took two seconds."""
    late = row("late", "^LateError: here", where="exception", needle="LateError")
    far = row("far", "FarError: there", where="exception", needle="FarError")
    names = "retried after ResetError: gone; "

    def found(count: int) -> list[str]:
        line = f"trial 7 {names * count}then LateError: here; {'.' * EACH} at last FarError: there"
        return [match.signature.id for match in Matcher((late, far)).of(say.error(line))]

    assert found(NAMES - 1) == ["late", "far"]
    assert found(NAMES) == ["far"], "one that may stand anywhere is found behind the first name"


@pytest.mark.parametrize(
    ("before", "size", "read"),
    [("", EACH, True), ("a ResetError: gone; ", 9, True), ("a ResetError: gone; ", EACH, False)],
)
def test_behind_the_first_exception_of_a_line_all_of_it_is_read(
    say: Maker, before: str, size: int, read: bool
) -> None:
    wide = row("wide", rf"^LateError: \.{{1,{EACH}}} last", where="exception", needle="LateError")
    line = say.error(f"trial 7 {before}LateError: {'.' * size} last")
    assert [match.signature.id for match in Matcher((wide,)).of(line)] == ["wide"] * read


REFUSED = "litellm.BadRequestError: OpenAIException - Error code: 400 - tools are required"


def test_requests_that_failed_have_ended_nothing_that_is_known(say: Maker) -> None:
    records = [
        say.error(REFUSED),
        say('INFO: "POST /v1/messages HTTP/1.1" 400 Bad Request'),
        say.error(REFUSED),
    ]
    found = judge([log(*records)], [])
    assert found.cause is None and found.guesses == ()
    (symptom,) = found.symptoms
    assert (symptom.id, symptom.severity) == ("requests-failed", "warning")
    assert symptom.title == f"Requests failed; the first error was: {REFUSED}"
    assert [one.offset for one in symptom.evidence] == [records[0].offset, records[2].offset]
    (one,) = judge([log(records[0])], []).symptoms
    assert one.title == f"A request failed; the first error was: {REFUSED}" and len(one.evidence) == 1


def test_a_request_that_failed_is_told_of_what_is_known_to_have_failed(say: Maker) -> None:
    logs = [log(say.error(REFUSED))]
    for found in (
        judge(logs, [Exit("proxy", code=1)]),
        judge_with(logs, (), Matcher(ROWS), failed_anyway=True),
    ):
        assert found.cause is not None and found.cause.id == "unknown" and found.symptoms == ()
    beside = judge([log(say.error(REFUSED), say.raised("ValueError: it broke"))], []).cause
    assert beside is not None and "it broke" in beside.title and beside.id == "unknown"


REPORTED = (
    row("reported", "docker failed", role="consequence", of=("name-taken",)),
    row("name-taken", "name is taken", printer="host", fails="part"),
)


def test_a_complaint_is_the_cause_of_what_is_known_to_report_it(say: Maker) -> None:
    found = judge_with(
        [log(say("the name is taken"), say.error("docker failed"))], [], Matcher(REPORTED)
    ).cause
    assert found is not None and found.id == "name-taken"
    other = judge_with(
        [log(say("the name is taken"), say.raised("ValueError: no"))], [], Matcher(REPORTED)
    ).cause
    assert other is not None and other.id == "unknown"


@pytest.mark.parametrize("asked", [False, True])
def test_what_an_engine_says_of_its_processes_once_it_was_asked_to_stop_is_no_failure(
    say: Maker, asked: bool
) -> None:
    matcher = Matcher(
        (*ROWS, row("asked", "shutdown triggered", role="noise", facts=("stop-asked",) * asked))
    )
    records = (say("[shutdown] API server: shutdown triggered"), say.error(DEAD))
    cause = judge_with([log(*records)], [], matcher).cause
    assert (cause is None) is asked
    exits = [Exit("server", "a.log", 1)]
    ids = [judge_with([log(*all_of)], exits, matcher).cause for all_of in (records, records[::-1])]
    assert [one and one.id for one in ids] == ["silent-exit" if asked else "unknown", "unknown"]


@pytest.mark.parametrize("again", [False, True])
def test_what_ray_says_of_the_worker_of_a_task_that_it_runs_again_is_no_cause(
    say: Maker, again: bool
) -> None:
    matcher = Matcher(
        (
            row("broken", "worker broke"),
            row("again", "will be retried", role="noise", facts=("retried",) * again),
        )
    )
    records = (say.error("worker broke", writer="w"), say.error("the task will be retried", writer="w"))
    cause = judge_with([log(*records)], [], matcher).cause
    assert (cause is None) is again
    other = (say.error("worker broke", writer="v"), say.error("the task will be retried", writer="w"))
    cause = judge_with([log(*other)], [], matcher).cause
    assert cause is not None and cause.id == "broken"


def test_guesses_of_ray_and_repeated_command_lines_are_cut_off() -> None:
    assert without_speculation("it died.  \n Some common causes include: (1) OOM\nmore") == "it died."
    assert (
        without_speculation("Error executing job with overrides: ['a=1']")
        == "Error executing job with overrides"
    )
    assert without_speculation("it died. \n") == "it died. \n"


@pytest.mark.parametrize("pattern", [one for one in vars(errors).values() if isinstance(one, LatePattern)])
def test_patterns_for_errors_take_linear_time(pattern: re.Pattern[str]) -> None:
    assert regexes.unbounded(pattern.pattern) == []
