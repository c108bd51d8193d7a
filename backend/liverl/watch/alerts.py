"""The alerts of a watched run: the rules of a live run, what the logs say, and processes that have exited. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from liverl.causes.verdict.plain_keys import in_plain_words
from liverl.diagnose.catalogue import services as service_rules
from liverl.diagnose.catalogue.rules import RULES
from liverl.model import Evidence, Snapshot, Symptom
from liverl.util.ages import ago
from liverl.watch.advice import for_watched
from liverl.watch.quiet import Pace
from liverl.watch.services import quiet_words
from liverl.watch.verdicts import Judgement

# These say how a service of ours is started again; ``ended`` reports the processes of others.
_OF_OURS = (
    service_rules.service_down,
    service_rules.service_backing_off,
    service_rules.service_restarted,
)
WATCH_RULES = tuple(rule for rule in RULES if rule.look not in _OF_OURS)
# Alerts from logs that say less than another one about the same thing.
_SAYS_MORE = {
    "log:verl-grad-not-finite": {"metrics_not_finite"},
    "log_silent:trainer": {"trainer_stalled:trainer", "log:hangs"},
    "log:hangs": {"trainer_stalled:trainer"},
}
_OURS_ONLY = ": liverl-tui fix does it"  # the end of what to do about an alert of a run of ours
JUDGED_S = 15.0  # seconds after an exit in which the log of the process is usually judged
_RANK = {"critical": 0, "warning": 1, "info": 2}


def merged(found: Iterable[Symptom]) -> tuple[Symptom, ...]:
    """The symptoms, each id once, the most severe first, then in the order of ``found``. None has an action, as nothing
    can be changed from here, and each says what to do in terms of the run's own."""
    unique: dict[str, Symptom] = {}
    for one in found:
        fix = for_watched(one.fix.removesuffix(_OURS_ONLY)) if one.fix else ""
        unique.setdefault(
            one.id,
            msgspec.structs.replace(one, action=None, patch={}, cause=in_plain_words(one.cause), fix=fix),
        )
    # "log:ID:service" is the same as "log:ID", told as often as it was just seen.
    often = {one.rpartition(":")[0] for one in unique if one.startswith("log:") and one.count(":") > 1}
    shown = (
        one
        for one in unique.values()
        if _SAYS_MORE.get(one.id, set()).isdisjoint(unique) and one.id not in often
    )
    return tuple(sorted(shown, key=lambda one: _RANK[one.severity]))


def engines_ended(snapshot: Snapshot) -> list[Symptom]:
    """A replica that a trainer has started has ended while the trainer goes on. verl starts no other one, and waits
    for its answers for ever. It is not raised when the training ends, since its replicas end then, too."""
    if not any(one.kind == "trainer" and one.state not in ("stopped", "failed") for one in snapshot.services):
        return []
    return [
        Symptom(
            id=f"replica_ended:{one.name}",
            severity="critical",
            title=f"{one.name} has ended, but its trainer still runs",
            cause=f"{one.why}; verl does not start another replica, and waits for answers that never come",
            fix="read the last lines of its process in the trainer's log, and check dmesg -T for an out-of-memory "
            "kill; then stop the training and resume it from its last checkpoint",
            since=one.since,
        )
        for one in snapshot.replicas.items
        if one.kind == "verl" and one.state == "failed"
    ]


def silent(snapshot: Snapshot, quiet: Mapping[str, Pace]) -> list[Symptom]:
    """A trainer lives and has written nothing to its log for five minutes, for five times its usual gap, and for three
    times as long as a step takes; polls of its health do not count. It is not raised where ``trainer_stalled`` is,
    which says more.

    ``quiet``: service -> the pace of its log.

    - a pid is named -> ``py-spy dump --pid PID`` shows where it waits
    - no pid is named (another host, or another user's process) -> ``nvidia-smi`` on its host shows whether the GPUs
      work: if they do, it computes; if not, it hangs
    """
    longest = 3.0 * (snapshot.step_seconds or 0.0)
    found = []
    for name, pace in quiet.items():
        service = snapshot.service(name)
        if service is None or snapshot.at - pace.since <= longest:
            continue
        words = quiet_words(pace, snapshot.at)
        pid = f"py-spy dump --pid {service.pid} shows where; " if service.pid is not None else ""
        found.append(
            Symptom(
                id=f"log_silent:{name}",
                severity="warning",
                title=f"{name} writes nothing to its log",
                cause=f"{words}; up to {ago(pace.allowed)} would be normal",
                fix=f"see whether it hangs: {pid}nvidia-smi shows whether its GPUs work",
                evidence=(Evidence("", log=service.log),) if service.log is not None else (),
                since=pace.since,
            )
        )
    return found


def unseen(left_out: Sequence[str], at: float) -> list[Symptom]:
    """The view leaves something out: the folder has more files than are read, its files lie deeper, or its logs are
    longer. The evidence names what is left out.

    ``left_out``: in words; ``at``: Unix time."""
    if not left_out:
        return []
    return [
        Symptom(
            id="not_all_seen",
            severity="warning",
            title="the run was not looked at as a whole",
            cause=f"left out: {left_out[0]}"
            + (f", and {len(left_out) - 1} more" if len(left_out) > 1 else ""),
            fix="watch the folder of the run itself, or name further folders with --logs and --trials; liverl-tui "
            "doctor FILE reads a single log as a whole",
            evidence=tuple(Evidence(words) for words in left_out),
            since=at,
        )
    ]


def ended(snapshot: Snapshot, judgement: Judgement) -> list[Symptom]:
    """A process that was there has exited, and no log says why. Only the process that started it knows its exit
    status. If a log says why, that is the alert in its place. The end of a trainer is only a warning, since a
    trainer also exits when it is done."""
    return [
        Symptom(
            id=f"process_ended:{service.name}",
            severity="warning" if service.kind == "trainer" else "critical",
            title=f"{service.name} has exited",
            cause=f"{service.why}; only the process that started it knows its exit status",
            fix=f"read the end of the log of {service.name}; start it again where it was started",
            evidence=(Evidence("", log=service.log),) if service.log is not None else (),
            since=service.since,
        )
        for service in snapshot.services
        if service.down_since is not None
        and service.state in ("stopped", "failed")
        and service.kind != "task"
        # Of a server that is known by its log only nobody knows: without requests it writes nothing.
        and (service.kind == "trainer" or service.started_at is not None)
        and service.name not in judgement.explained
        and (
            service.log is None
            or judgement.at >= service.down_since
            or snapshot.at - service.down_since > JUDGED_S
        )
    ]
