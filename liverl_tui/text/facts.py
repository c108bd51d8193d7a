"""The state of a run in sentences, for plain mode and tables. Pure.

Every sentence is complete by itself: it is read by screen readers, found by ``grep`` and kept in log files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from liverl.agents.endings import NOT_AS_MEANT, counted
from liverl.diagnose.muting import muted_words
from liverl.model import SMOKE, GpuStatus, SessionsStatus, Snapshot, StepTrials, Trained
from liverl.observe.metrics.rewards import change, course_words, trained_words
from liverl.observe.trials.earlier import Earlier
from liverl.util.ages import step_length
from liverl.util.plural import plural, quantity
from liverl_tui.text.status_label import (
    BUSY,
    SnapshotIndex,
    StatusLabel,
    of_replica,
    owner_of,
    ready_now,
    shown_owner,
    standing,
)
from liverl_tui.text.words import age, count, duration, number, one_line, percent, size, state_word, time_left

_STATES_WITH_WORK = ("starting", "running", "stopping")
_STALLS = ("trainer_stalled:", "process_stopped:trainer", "process_blocked:trainer")  # ids of alerts
_STATES_WITH_PROCESSES = (*_STATES_WITH_WORK, "unsupervised")


def lasted(s: Snapshot) -> float:
    """Seconds from the start of a run's newest attempt to its end, or until now."""
    return s.at - s.started_at if s.result is None else s.result.ended_at - s.result.started_at


def stalled_for(s: Snapshot) -> float | None:
    """Seconds for which the trainer has made no progress, by an alert that says so; None without one."""
    symptom = next((one for one in s.symptoms if one.id.startswith(_STALLS)), None)
    return None if symptom is None or symptom.since is None else max(0.0, s.at - symptom.since)


def remaining(s: Snapshot) -> float | None:
    """Estimated seconds for the remaining steps: ``step_seconds`` each. None if no step was timed, the number of steps
    is unknown or was exceeded, what carries the trials is down, the trainer has stalled, a process for which a step
    may wait is stopped, or the run has ended."""
    works = s.state in _STATES_WITH_WORK and s.carrier_down is None and stalled_for(s) is None
    works = works and not any(standing(service, s.at) for service in s.services if not s.spares(service))
    if s.step_seconds is None or not s.total_steps or not works:
        return None
    left = s.total_steps - (s.step or 0)
    return s.step_seconds * left if left >= 0 else None


def doing(s: Snapshot) -> str:
    """``running: step 8/20: rollout``; only the phase where that begins with the state; ``stalled for 45s: step 8/20:
    rollout`` while the trainer makes no progress."""
    phase = one_line(s.phase)
    stalled = stalled_for(s)
    if stalled is not None and s.state in _STATES_WITH_WORK:
        return f"stalled for {duration(stalled)}: {phase}"
    never = s.state == "dead" and not s.attempt  # a run that was only made has not died
    return phase if never or phase.startswith(s.state) else f"{s.state}: {phase}"


def pace_words(s: Snapshot) -> str | None:
    """``3.4 s a step, about 40s left``; None if no step was timed."""
    if s.step_seconds is None:
        return None
    rest = remaining(s)
    return f"{step_length(s.step_seconds)} a step" + (f", about {time_left(rest)} left" if rest else "")


def batch_words(s: Snapshot, now: float | None = None) -> str | None:
    """``job ends in 3h12m``; None outside of a batch job, and after the run has ended. ``now``: on the clock of the
    snapshot, by default its own time."""
    end = s.batch_end
    if end is None or ended(s):
        return None
    if end.at is None:
        return f"job ends at an unknown time: {one_line(end.problem)}"
    left = end.at - (s.at if now is None else now)
    return f"job ends in {age(left)}" if left > 0 else f"job is {age(-left)} over its time"


def step_words(s: Snapshot) -> str | None:
    """``7 of 20 steps done, reward 0.512, 3.4 s a step, about 40s left``; None for a run that only serves. The phase
    names the step at work, which is another one. The reward is that of the newest step that tells one."""
    if s.step is None and not s.total_steps:
        return None
    done = s.step or 0
    words = (
        f"{done} of {quantity(s.total_steps, 'step')} done"
        if s.total_steps and done <= s.total_steps
        else f"{quantity(done, 'step')} done" + (f" ({s.total_steps} wanted)" if s.total_steps else "")
    )
    newest = s.rewards.newest[-1] if s.rewards is not None and s.rewards.newest else None
    found = s.rewards.course if change(s.rewards) is not None and not s.smoke else None
    course = course_words(found) if found is not None and found.proved else ""
    of = trained_words(s.rewards.newest_of) if s.rewards is not None else ""
    more = "; ".join(filter(None, (of, course)))
    reward = f"reward {number(newest)}" + (f" ({more})" if more else "") if newest is not None else None
    return ", ".join(w for w in (words, reward, pace_words(s)) if w)


def replica_words(s: Snapshot) -> str | None:
    """``2 of 2 ready, 2 in the proxy; r1 loaded but idle 1m15s``; None for a run without replicas."""
    replicas = s.replicas
    if not replicas.expected and not replicas.items:
        return None
    reach = listed_words(s) if s.carrier_down is None else unreachable_words(s)
    words = ", ".join(filter(None, (ready_words(s), reach)))
    return "; ".join([words, *(f"{name} {one_line(label.words)}" for name, label in _troubled(s))])


def ended(s: Snapshot) -> bool:
    """Whether no process of the run is left: nothing is ready, open or expected any more."""
    return s.state not in _STATES_WITH_PROCESSES


def ready_words(s: Snapshot) -> str:
    """``2 of 3 ready``; after the run has ended the states in which its replicas ended: ``1 stopped, 1 failed``."""
    replicas = s.replicas
    if not ended(s):
        return f"{ready_now(SnapshotIndex(s), s.at)} of {replicas.expected} ready"
    states = Counter(state_word(replica.state) for replica in replicas.items)
    return ", ".join(f"{n} {state}" for state, n in states.items()) or f"none of {replicas.expected} started"


def listed_words(s: Snapshot) -> str:
    """``2 in the proxy``, of sessions ``2 listed``: to how many replicas new trials are sent. Empty where nothing keeps
    such a list, and after the run has ended."""
    if not s.has_list or ended(s):
        return ""
    if s.carrier == "sessions":
        return f"{s.replicas.listed} listed"
    return f"{s.replicas.listed} in {s.carrier_words.name}"


def unreachable_words(s: Snapshot) -> str:
    """Why no trial reaches the replicas, while what carries the trials is down."""
    return f"unreachable: {s.carrier_words.name} {s.carrier_words.is_} down"


def _troubled(s: Snapshot) -> list[tuple[str, StatusLabel]]:
    """Names and labels of the replicas with a problem."""
    snapshot_index = SnapshotIndex(s)
    labels = [(r.name, of_replica(r, snapshot_index, s.at)) for r in s.replicas.items]
    return [(name, label) for name, label in labels if label.problem]


def proxy_words(s: Snapshot) -> str | None:
    """``http://127.0.0.1:4000, 812 requests, 3 failed``; with requests that name no trial, and replicas in cooldown.
    None while the proxy has no address; after the run has ended without the address."""
    proxy = s.proxy
    if proxy.address is None:
        return None
    requests = f"{_counter(proxy.requests)} {plural(proxy.requests or 0, 'request')}"
    told = bypassed_words(s) or f"{requests}, {_counter(proxy.failures)} failed"
    words = told if ended(s) else f"{proxy.address}, {told}"
    if proxy.unattributed:
        words += f", {proxy.unattributed} without a trial"
    if proxy.cooled_down:
        words += f"; in cooldown: {', '.join(proxy.cooled_down)}"
    return words


def bypassed_words(s: Snapshot) -> str:
    """Why a proxy has had no requests though trials make calls: ``not used: trials go through the sessions``. Empty
    if it has had some, or carries the trials, or that is not known."""
    if s.carrier == "proxy" or s.proxy.requests != 0 or s.proxy.failures:
        return ""
    return f"not used: trials go through {s.carrier_words.name}"


def sessions_words(s: Snapshot) -> str | None:
    """``http://127.0.0.1:4001, 812 requests, 3 failed, 2 beyond a trial's limit; 16 open, 352 ended``; of verl's
    workers ``in 2 agent-loop workers, ...``. None before they are reached; after the run has ended without where they
    were."""
    sessions = s.sessions
    if sessions is None or not (sessions.address or sessions.workers):
        return None
    where = [hosts_words(sessions) if s.carrier == "workers" else str(sessions.address)]
    counted = f"{sessions.requests} {plural(sessions.requests, 'request')}, {sessions.failed} failed"
    limited = [f"{sessions.limited} beyond a trial's limit"] if sessions.limited else []
    words = ", ".join([*([] if ended(s) else where), counted, *limited])
    return f"{words}; {open_words(s, sessions)}"


def hosts_words(sessions: SessionsStatus) -> str:
    """``in 2 agent-loop workers``: where verl's workers host the sessions."""
    return f"in {quantity(len(sessions.workers), 'agent-loop worker')}"


def open_words(s: Snapshot, sessions: SessionsStatus) -> str:
    """``16 open, 352 ended``; of a run that has ended ``352 ended, 16 cut off``, as nothing is open any more."""
    if not ended(s):
        return f"{count(sessions.open)} open, {count(sessions.finished)} ended"
    cut_off = f", {count(sessions.open)} cut off" if sessions.open else ""
    return f"{count(sessions.finished)} ended{cut_off}"


def _counter(value: int | None) -> str:
    return "?" if value is None else str(value)


def trial_counts(s: Snapshot) -> str:
    """``1 running, 119 of 120 finished``; after a run has ended ``104 of 120 finished, 16 cut off``. Those of an
    earlier attempt at their step, and those that were run again, are named apart."""
    trials, gone = s.trials, s.trials.earlier
    cut_off = trials.cut_off - gone.cut_off
    words = [f"{trials.running} running"] if trials.running or not trials.cut_off else []
    words.append(f"{trials.finished - gone.finished} of {trials.total - gone.total} finished")
    words += [f"{cut_off} cut off"] if cut_off else []
    words += [f"{gone.total} more of an earlier attempt"] if gone.total else []
    words += [f"{Earlier(0, gone.repeated).short} left out"] if gone.repeated else []
    return ", ".join(words)


def trial_words(s: Snapshot) -> str | None:
    """The counts of all trials, those without tool calls, and the newest step with decided trials (``of_step``). None
    without trials."""
    trials = s.trials
    if not trials.total:
        return None
    words = [trial_counts(s)]
    if trials.zero_tool_calls:
        number = f"{trials.zero_tool_calls} of {trials.judged}"
        every = ", those of an earlier attempt included" if trials.earlier.total else ""
        words.append(f"{number} ({without_tools(s):.0%}) made no tool call at all{every}")
    chosen = next((t for t in trials.steps if t.judged and (s.step is None or t.step <= s.step)), None)
    if chosen is not None:
        words.append(of_step(chosen))
    return "; ".join(words)


def without_tools(s: Snapshot) -> float:
    """The share of the trials that made no tool call, of those that have called one or ended without."""
    return s.trials.zero_tool_calls / max(1, s.trials.judged)


_DAMAGED = {
    "zero_logprobs": "with log-probabilities of zero",
    "mask_mismatch": "whose mask does not fit",
    "unreadable": "that cannot be read",
}


def damaged_words(t: StepTrials) -> str:
    """``  ▲ 3 with log-probabilities of zero``: what is wrong with the rows of a step's trials; "" if nothing is."""
    return "".join(
        f"  ▲ {t.damaged[flag]} {words}" for flag, words in _DAMAGED.items() if t.damaged.get(flag)
    )


def of_step(t: StepTrials) -> str:
    """``13 of 16 trials of step 7 call tools, mean reward 0.512``. Counted are the trials that called a tool or ended
    without one."""
    calling = t.judged - t.zero_tool_calls
    reward = f", {words}" if (words := step_reward_words(t)) else ""
    return (
        f"{calling} of {t.judged} trials of step {t.step} call tools{reward}{untrained(t)}{damaged_words(t)}"
    )


def step_reward_words(t: StepTrials) -> str:
    """``mean reward 0.592 (of the 12 of 64 trials that were trained)``; "" without a reward."""
    if t.mean_reward is None:
        return ""
    of = trained_words(Trained(t.trained, t.finished))
    return f"mean reward {number(t.mean_reward)}{f' ({of})' if of else ''}"


def untrained(t: StepTrials) -> str:
    """``, 3 not trained, 1 trained with reward 0``: what became of the trials of a step that did not end well; "" if
    nothing did."""
    words = counted({outcome: sum(t.ended((outcome,)).values()) for outcome in NOT_AS_MEANT})
    return f", {words}" if words else ""


def gpu_words(s: Snapshot) -> str | None:
    """All GPUs in one sentence: load, memory, power, and which are held but idle, free or used by others. None without
    GPUs."""
    if not s.gpus:
        return None
    utilization = [g.utilization for g in s.gpus if g.utilization is not None]
    busy = f", {percent(sum(utilization) / len(utilization))} busy on average" if utilization else ""
    words = [f"{len(s.gpus)}{busy}, memory {_sum(s.gpus, 'memory_used')} of {_sum(s.gpus, 'memory_total')}"]
    power = [g.power_w for g in s.gpus if g.power_w is not None]
    if power:
        words[0] += f", {sum(power) / 1000:.1f} kW"
    snapshot_index = SnapshotIndex(s)
    held = {g.index for g in s.gpus if owner_of(g, snapshot_index) is not None}
    idle = [
        str(g.index) for g in s.gpus if g.index in held and g.utilization is not None and g.utilization < BUSY
    ]
    free = [str(g.index) for g in s.gpus if g.owner == "free"]
    if idle:
        words.append(f"held but idle: {', '.join(idle)}")
    if free:
        words.append(f"free: {', '.join(free)}")
    words += [
        f"GPU {g.index}: {one_line(shown_owner(g.owner))}"
        for g in s.gpus
        if g.index not in held and g.owner != "free"
    ]
    return "; ".join(words)


def _sum(gpus: tuple[GpuStatus, ...], field: str) -> str:
    values = [getattr(g, field) for g in gpus]
    return size(sum(v for v in values if v is not None)) if any(v is not None for v in values) else "-"


def why_no_gpus(s: Snapshot) -> str:
    """Why a run shows no GPU, as its note says it: ``no NVIDIA driver``."""
    return one_line(s.gpu_note or "none seen yet").removeprefix("n/a (").removesuffix(")")


def no_gpus_words(s: Snapshot) -> str | None:
    """``no GPUs (no NVIDIA driver)``; None where there are some, or nothing is known of them."""
    return f"no GPUs ({why_no_gpus(s)})" if s.gpu_note and not s.gpus else None


def machine_words(s: Snapshot) -> str | None:
    """``CPU 12% of 64 cores, memory 71G of 512G``, behind ``no GPUs (why)`` where there are none; None if neither the
    cores nor the memory are known."""
    host = s.host
    if host.cpu_count is None and host.memory_total is None:
        return None
    cpu = "-" if host.cpu_percent is None else f"{host.cpu_percent:.0f}%"
    cores = "" if host.cpu_count is None else f" of {host.cpu_count} cores"
    none = f"{words}, " if (words := no_gpus_words(s)) else ""
    return f"{none}CPU {cpu}{cores}, memory {size(host.memory_used)} of {size(host.memory_total)}"


def disk_words(s: Snapshot) -> str | None:
    """``71G of 512G free, 1.2G of trials a step, full in about 2d04h``; None if it was not measured. A disk that would
    be full only after the run's end is no warning: ``enough for the rest of the run``, with a tenth to spare, as both
    are estimates."""
    disk = s.disk
    if disk is None:
        return None
    step = f", {size(disk.step_bytes)} of trials a step" if disk.step_bytes else ""
    left = disk.seconds_left if s.result is None else None  # a run that has ended writes nothing more
    rest = remaining(s)
    full = f", full in about {duration(left)}" if left is not None else ""
    if left is not None and rest is not None and rest * 1.1 < left:
        full = ", enough for the rest of the run"
    return f"{size(disk.free)} of {size(disk.total)} free{step}{full}"


def symptom_words(s: Snapshot) -> Iterator[tuple[str, str]]:
    """(id, sentence) of each symptom: severity, title and, where there is one, its fix."""
    for symptom in s.symptoms:
        fix = f". Fix: {one_line(symptom.fix)}" if symptom.fix else ""
        yield symptom.id, f"{symptom.severity}: {one_line(symptom.title)}{fix}"


# -- plain mode


def plain_facts(snapshot: Snapshot, previous: Snapshot | None = None) -> list[str]:
    """The sentences to print for ``snapshot`` after those of ``previous``.

    All facts for the first snapshot, after each step and when the run's state or attempt changes. In between only
    changes that matter: a new stage of the start, the number of replicas and those with problems, addresses, the
    proxy's cooldowns, the owners of GPUs, and new or resolved symptoms.
    """
    s, before = snapshot, previous
    if before is None or (s.step, s.state, s.attempt) != (before.step, before.state, before.attempt):
        return [*(words for _, words in _facts(s)), *(words for _, words in symptom_words(s))]
    lines = [words for name, words in _facts(s) if _key_values(s, name) != _key_values(before, name)]
    old, new = dict(symptom_words(before)), dict(symptom_words(s))
    lines += [words for key, words in new.items() if key not in old]
    gone = [(key, words.partition(". Fix: ")[0]) for key, words in old.items() if key not in new]
    faults = {symptom.id for symptom in before.symptoms if symptom.severity != "info"}
    lines += [f"{'resolved' if key in faults else 'over'}: {words}" for key, words in gone]
    return lines


def _facts(s: Snapshot) -> list[tuple[str, str]]:
    """(name, sentence) of each fact that is known."""
    again = f", attempt {s.attempt}" if s.attempt > 1 else ""
    time = f", up {age(lasted(s))}" if s.result is None else f", took {duration(lasted(s))}"
    time = "" if s.state == "dead" else time  # nobody has seen its end
    run = f"run {doing(s)}{again}{time}"
    facts = [
        ("smoke", SMOKE if s.smoke else None),
        ("training", step_words(s)),
        ("batch", batch_words(s)),
        ("replicas", replica_words(s)),
        ("proxy", proxy_words(s)),
        ("sessions", sessions_words(s)),
        ("trials", trial_words(s)),
        ("GPUs", gpu_words(s)),
        ("machine", machine_words(s) if not s.gpus else None),
        ("disk", disk_words(s)),
        ("muted", muted_words(s.muted)),
    ]
    return [("run", run), *((name, f"{name}: {words}") for name, words in facts if words)]


def _key_values(s: Snapshot, name: str) -> object:
    """The part of a fact whose change is printed at once; None if a change of the fact can wait."""
    if name == "run":  # the stages of the start, without their counters
        return re.sub(r"\d+", "", s.phase) if s.state == "starting" else None
    if name == "replicas":
        troubled = [name for name, _ in _troubled(s)]
        return s.replicas.expected, s.replicas.ready, s.replicas.listed, s.carrier_down is None, troubled
    if name == "proxy":
        return s.proxy.address, s.proxy.cooled_down
    if name == "sessions":
        return s.sessions and (s.sessions.address, s.sessions.workers)
    if name == "batch":
        return s.batch_end
    if name == "GPUs":
        return [(g.index, g.owner) for g in s.gpus]
    return None
