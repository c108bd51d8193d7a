"""Faults that a run of this program recovered from: a service of it ended, was started again, and served. What its logs
say of that time is no present fault, and no other cause of it is to be looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from liverl.causes.finding import Evidence, Explanation, Verdict
from liverl.causes.finding import Exit as LogExit
from liverl.causes.match import Matcher, whole
from liverl.model import Exit, ServiceStatus, Snapshot
from liverl.offline.doctor.verdicts import row_of
from liverl.rundir.log_names import read_log_name
from liverl.util.ages import clock

RECOVERED = "recovered"
# Logs have whole seconds, and a client may see the end of a server a little before its exit is known, or answer late.
SLACK_S = 5.0


class Recovery(NamedTuple):
    """``service``: the name; ``generation``: of the process that ended; ``exit``: how, as far as it is known;
    ``failed``: nobody had asked for it; ``served_at``: Unix time since which its last successor serves."""

    service: str
    generation: int
    exit: Exit
    failed: bool
    served_at: float

    @property
    def words(self) -> str:
        """``proxy was killed by SIGKILL at TIME and served again at TIME``."""
        how = self.exit.words()
        told = (
            f"was {how}" if how.startswith("killed") else "ended" if not self.exit.known else f"ended ({how})"
        )
        when = f" at {clock(self.exit.at)}" if self.exit.at is not None else ""
        return f"{self.service} {told}{when} and served again at {clock(self.served_at)}"

    def covers(self, at: float | None) -> bool:
        """Whether the service was down at a Unix time."""
        began = self.exit.at
        return at is not None and began is not None and began - SLACK_S <= at <= self.served_at + SLACK_S


def recoveries(run: Snapshot, exit_of: Callable[[str, int], Exit | None]) -> tuple[Recovery, ...]:
    """The processes of its services that others have replaced which served. ``exit_of``: how a process of a service
    ended, by its number; None if that is not known."""
    return tuple(one for service in run.services for one in _of_service(service, exit_of))


def _of_service(service: ServiceStatus, exit_of: Callable[[str, int], Exit | None]) -> Iterator[Recovery]:
    served, failed_at = service.ready_at, service.failed_at
    if served is None or service.down_since is not None or (failed_at is not None and served < failed_at):
        return
    for generation in range(1, service.generation):
        exit_ = exit_of(service.name, generation) or Exit()
        known = exit_.at is not None and failed_at is not None and exit_.at <= failed_at + SLACK_S
        yield Recovery(service.name, generation, exit_, known and not exit_.ok, served)


def over_before(found: Sequence[Recovery], exits: Sequence[LogExit], logs: Sequence[str]) -> frozenset[str]:
    """The logs of processes whose successors served before anything of ``exits`` ended, which has other causes."""
    ends = [one.at for one in exits if one.at is not None]
    over = [one for one in found if ends and one.served_at < min(ends)]
    return frozenset(log for log in logs if any(_wrote(one, log) for one in over))


def with_recovered(
    verdict: Verdict,
    found: Sequence[Recovery],
    written: Callable[[Evidence], float | None],
    matcher: Matcher | None = None,
) -> Verdict:
    """``verdict`` with what is proved only by lines of such a time as what is over, behind all else. ``written``: when
    a line was written, Unix seconds, None: that is not known; ``matcher``: of another catalogue than ours."""
    rows = (matcher or whole()).by_id
    present: list[Explanation] = []
    over: list[Explanation] = []
    for one in verdict.symptoms:
        row = rows.get(row_of(one.id))
        of = _of(one, found, written, of_requests=row is not None and row.fails == "request")
        (over if of else present).append(_as_over(one, of) if of else one)
    return Verdict(verdict.cause, verdict.guesses, (*present, *over))


def _of(
    one: Explanation,
    found: Sequence[Recovery],
    written: Callable[[Evidence], float | None],
    *,
    of_requests: bool,
) -> tuple[Recovery, ...]:
    """The recoveries that end all of what proves it; none if a line is of another time, or nobody knows of which.
    ``of_requests``: it says that requests failed: those of a service that goes on do while another one is down."""
    lines = [proof for proof in one.evidence if proof.log is not None and proof.offset is not None]
    by_line = [
        (of_requests and [each for each in found if each.covers(written(line))])
        or [each for each in found if _wrote(each, line.log or "")]
        for line in lines
    ]
    return tuple(dict.fromkeys(each for of in by_line for each in of)) if by_line and all(by_line) else ()


def _wrote(recovery: Recovery, log: str) -> bool:
    name = read_log_name(Path(log).name)
    return name is not None and (name.service, name.generation) == (recovery.service, recovery.generation)


def _as_over(one: Explanation, of: Sequence[Recovery]) -> Explanation:
    told = "; ".join(each.words for each in of)
    return replace(
        one,
        severity="info" if one.severity == "info" else "warning",
        title=f"{one.title} (recovered)",
        cause=f"{one.cause} The run has recovered from it: {told}.".lstrip(),
        fix=f"Nothing, unless it comes again. Then: {one.fix}" if one.fix else one.fix,
    )


def recovered_note(found: Sequence[Recovery], verdict: Verdict) -> Explanation | None:
    """The note that services failed and served again, as far as the verdict does not name them; None without any."""
    told = {one.id.partition(":")[2] for one in verdict.explanations}
    said = " ".join(one.cause for one in verdict.explanations)
    more = [one for one in found if one.failed and one.service not in told and one.words not in said]
    if not more:
        return None
    return Explanation(
        RECOVERED,
        "info",
        "The run recovered from a failure" if len(more) == 1 else "The run recovered from failures",
        "; ".join(one.words for one in more),
    )
