"""The verdict on logs that were found: how their processes ended may not be known, and some may be of processes that
others have replaced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from liverl.causes.finding import Exit, LogRecords, Verdict
from liverl.causes.inputs.going_on import without_outlived
from liverl.causes.inputs.started_again import without_earlier_starts
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.judge import SYMPTOMS, judge
from liverl.causes.verdict.unexplained import REQUESTS_FAILED, UNEXPLAINED, is_doubtful
from liverl.rundir.log_names import read_log_name


def judge_found(
    logs: Sequence[LogRecords],
    exits: Sequence[Exit],
    matcher: Matcher | None = None,
    over: Collection[str] = (),
) -> Verdict:
    """The verdict on logs that lie at the paths that they are shown by. Why a service failed for good stands in the log
    of its last process: why the processes before it failed is something else that is wrong. ``exits``: as far as known;
    ``matcher``: of another catalogue than ours; ``over``: logs of processes whose successors served before the run
    failed."""
    ended = [name for one in exits if (name := read_log_name(one.log)) is not None]
    last = {name.service: name.generation for name in ended}
    names = {log.log for log in logs if log.log in over or _is_replaced(log, last)}
    replaced = [log for log in logs if log.log in names]
    verdict = _judge([log for log in logs if log.log not in names], exits, matcher)
    if not replaced:
        return verdict
    seen = {one.id for one in verdict.explanations} | UNEXPLAINED
    more = [one for one in _judge(replaced, (), matcher).explanations if one.id not in seen]
    return msgspec.structs.replace(verdict, symptoms=(*verdict.symptoms, *more)[:SYMPTOMS])


def of_trials(log: LogRecords, matcher: Matcher | None = None) -> LogRecords:
    """A transcript of a trial without what its task did: an agent's commands and tests fail all the time, and only what
    is known to fail a whole trial is a failure of the run."""
    of = (matcher or whole()).of
    rows = {record.offset: [match.signature for match in of(record)] for record in log.records}
    kept = [one for one in log.records if any(row.fails == "request" for row in rows[one.offset])]
    return msgspec.structs.replace(log, records=tuple(kept), passed=(), passed_more=False)


def _is_replaced(log: LogRecords, last: Mapping[str, int]) -> bool:
    name = read_log_name(log.log)
    return name is not None and name.generation < last.get(name.service, 0)


def _judge(logs: Sequence[LogRecords], exits: Sequence[Exit], matcher: Matcher | None) -> Verdict:
    """Where it is not known how the processes ended, an error in the middle of a log that goes on as before is no
    cause, nor is a request that failed there a symptom. Whether a log goes on takes reading it again, so that it is
    only asked where the verdict hangs on it. Likewise an error of a start of a server before one that came to serve."""
    if not exits:
        logs = [without_earlier_starts(log) for log in logs]
    verdict = judge(logs, exits, matcher)
    told = verdict.symptoms if verdict.cause is None else (verdict.cause,)
    if exits or not any(one.id == REQUESTS_FAILED or is_doubtful(one.id, matcher) for one in told):
        return verdict
    return judge([without_outlived(log) for log in logs], exits, matcher)
