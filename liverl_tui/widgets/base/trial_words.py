"""The status of one trial, and of all trials of a step, as glyphs and words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from liverl.model import Snapshot, StepTrials, TrialHead
from liverl.observe.trials.earlier import Earlier, counted, earlier_of
from liverl.observe.trials.ending_words import CUT_OFF, TRUNCATED, ending_of, ending_word, endings_of
from liverl.observe.trials.query import calls_known
from liverl.observe.trials.replica_names import replica_name as known_replica
from liverl.observe.trials.tools_offered import NOT_RECORDED
from liverl.offline.replica_names import names_of
from liverl_tui.data.view import Link
from liverl_tui.text.words import age, number, one_line
from liverl_tui.widgets.base.cells import Span

NO_TOOLS = "✖ NO TOOLS"
ALL_EQUAL = "same reward"
DUMPED = "in verl's dump only"  # of a trial that one of verl's own agent loops ran
UNKNOWN = "-"  # a number that a dump does not have
EARLIER = "earlier attempt"  # of a step that was begun again
REPEATED = "earlier try"  # of a trial that was run again

# Endings of our agents at a limit; of the other words for endings, those of exceptions are bad.
_LIMITS = ("max_iterations", "context_length", "response_length")


# Flags of what is wrong with a trial's rows, and the words for them.
DAMAGED = (
    ("unreadable", "unreadable"),
    ("zero_logprobs", "zero log-probs"),
    ("mask_mismatch", "mask mismatch"),
)


def state_of(head: TrialHead, link: Link) -> tuple[str, str]:
    """(glyph and word, style) of a trial's state. ``link``: after the end of the run an unfinished trial is cut off."""
    if head.state == "finished":
        return ("✖ failed", "warn") if head.error else ("✔ done", "ok")
    if head.state == "cut_off" or link == "ended":
        return "○ cut off", "dim"
    return "◐ running", "info"


def ending(head: TrialHead, link: Link) -> Span:
    """(words, style): how the trial ended; ``-`` while it runs. An exception without words of ours stands by its
    name. ``link``: see ``state_of``."""
    if head.state != "finished":
        return ("-" if state_of(head, link)[1] == "info" else CUT_OFF), "dim"
    return ending_words(head.ended_by, head.flags)


def ending_words(ended_by: str | None, flags: Collection[str] = ()) -> Span:
    """(words, style) of what the result of a trial says of its end. ``flags``: those of the trial."""
    word = one_line(ending_word(ended_by, flags))
    if ended_by is None:
        return word, "dim"
    # Our agents' reasons are words in lower case; whatever else there is comes from an exception.
    style = "warn" if ended_by in _LIMITS else "dim" if ended_by.islower() else "bad"
    return word, style


def ran(head: TrialHead, now: float, ended: bool) -> float | None:
    """Seconds that a trial took, or has taken at ``now``; None before it is known when it began. ``ended``: the run is,
    so nothing runs any more."""
    return head.took(now, over=ended)


def time_word(head: TrialHead, now: float, ended: bool) -> str:
    """``38s``: how long a trial took; of a running one in steps of 10 s, as otherwise the rows of all running trials
    would change every second. See ``ran``."""
    seconds = ran(head, now, ended)
    if seconds is None or head.state != "running" or ended or seconds >= 60:
        return age(seconds)
    return "<10s" if seconds < 10 else age(seconds - seconds % 10)


def calls_of(head: TrialHead) -> tuple[str, str]:
    """(text, style) of a trial's number of tool calls; an alarm for a trial that ended without one."""
    if "zero_tool_calls" in head.flags:
        return NO_TOOLS, "alarm"
    calls = calls_known(head)
    return (UNKNOWN, "dim") if calls is None else (str(calls), "text")


def turns_of(head: TrialHead) -> Span:
    """(text, style) of a trial's number of turns."""
    return (UNKNOWN, "dim") if head.dumped else (str(head.turns), "text")


def flag_words(head: TrialHead, equal: bool = False) -> tuple[Span, ...]:
    """Further flags of a trial, the most serious first. ``equal``: all trials of its group have the same reward."""
    words: list[Span] = []
    flags = head.flags
    if "failed_turns" in flags:
        words.append(("failures", "bad"))
    if flags:  # most trials have none
        words += [(text, "bad") for flag, text in DAMAGED if flag in flags]
    if NOT_RECORDED in flags:
        words.append(("not recorded", "warn"))
    if head.finish_reason in TRUNCATED:
        words.append(("truncated", "warn"))
    if head.state == "finished" and not head.turns and not head.dumped:
        words.append(("no turn", "warn"))
    if flags:
        words += [span for flag, span in _LATER if flag in flags]
    if head.dumped:
        words.append((DUMPED, "dim"))
    if equal:
        words.append((ALL_EQUAL, "dim"))
    if head.earlier:
        words.append((REPEATED if head.repeated else EARLIER, "dim"))
    return tuple(words)


# Flags that are said after those by the way in which a trial has ended -> their words
_LATER: tuple[tuple[str, Span], ...] = (
    ("no_reward", ("no reward", "bad")),
    ("moved_replica", ("moved", "warn")),
    ("mostly_sub", ("mostly sub-agents", "warn")),
)


def flagged(head: TrialHead) -> bool:
    """Whether a trial has a flag. Equal rewards do not count: late in a training most groups have them. Nor does a
    trial whose step was begun again."""
    problems = (style for _, style in flag_words(head) if style != "dim")
    return not head.earlier and ("zero_tool_calls" in head.flags or any(problems))


def part_of(shown: int, known: int, total: int) -> str:
    """Words to put after the number of trials in a list, if only the newest ``known`` of ``total`` trials are known:
    `` newest of 1,240`` if all known ones are shown, `` in the newest 200`` if a filter hides some of them. Empty if
    all are known."""
    if known >= total:
        return ""
    return f" newest of {total:,}" if shown == known else f" in the newest {known}"


def replica_names(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Root address -> name of each replica, also of ended ones; empty without a snapshot."""
    return names_of(snapshot)


def replica_name(address: str | None, names: Mapping[str, str]) -> str:
    """A replica's name for ``address`` as the proxy recorded it: root address, api base, or a name already. An unknown
    address is returned without its scheme; ``-`` for none. ``names``: see ``replica_names``."""
    return known_replica(address, names) if address else "-"


class Tally(Struct):
    """Counts of the trials of one step. ``calling``: trials that called a tool and were not cut off; ``zero``: trials
    that ended without a tool call; ``finishes``: how they ended, in the words of lists -> number; ``earlier``: trials
    from before the step was begun again, which are in no other count; ``failed``: of those that have ended, how many
    did so with an exception; ``damaged``: flag of ``DAMAGED`` -> number;
    ``unrecorded``: trials of which it is not known whether they call tools."""

    step: int | None
    total: int = 0
    running: int = 0
    calling: int = 0
    zero: int = 0
    mean_reward: float | None = None
    finishes: Mapping[str, int] = field(default_factory=dict)
    cut_off: int = 0
    earlier: Earlier = Earlier()
    damaged: Mapping[str, int] = field(default_factory=dict)
    unrecorded: int = 0
    failed: int = 0

    @property
    def decided(self) -> bool:
        """Whether any trial has called a tool or ended without a tool call."""
        return self.calling + self.zero > 0

    @property
    def style(self) -> str:
        """``alarm`` if no trial called a tool and at least half of all have ended, so that one early end is not enough;
        ``warn`` if any ended without a tool call; otherwise ``ok``."""
        if self.zero and not self.calling and 2 * self.zero >= self.total:
            return "alarm"
        return "warn" if self.zero else "ok"

    @property
    def glyph(self) -> str:
        """The sign of ``style``."""
        return {"alarm": "✖", "warn": "▲", "ok": "●"}[self.style]

    @property
    def done(self) -> int:
        """Number of trials that have ended."""
        return self.total - self.running - self.cut_off

    @property
    def share(self) -> str:
        """``▲ 13/16 call tools``, out of the trials that called a tool or ended without one."""
        return f"{self.glyph} {self.calling}/{self.calling + self.zero} call tools"


def tally_of(step: StepTrials) -> Tally:
    """The counts of a step from the snapshot, where the backend has counted."""
    return Tally(
        step.step,
        step.total,
        step.running,
        step.judged - step.zero_tool_calls,
        step.zero_tool_calls,
        mean_reward=step.mean_reward,
        finishes=endings_of(step),
        cut_off=step.cut_off,
        earlier=counted(step.earlier, step.repeated),
        damaged=step.damaged,
        unrecorded=step.unrecorded,
        failed=sum(step.failures.values()),
    )


def tally_heads(step: int | None, heads: Iterable[TrialHead]) -> Tally:
    """The counts of a step, counted here from the heads of all of its trials."""
    every = list(heads)
    trials = [head for head in every if not head.earlier]
    rewards = [reward for h in trials if (reward := h.counted_reward) is not None]
    return Tally(
        step,
        len(trials),
        sum(h.state == "running" for h in trials),
        sum(h.tool_calls > 0 and h.state != "cut_off" for h in trials),
        sum("zero_tool_calls" in h.flags for h in trials),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        finishes=Counter(word for word in map(ending_of, trials) if word),
        cut_off=sum(h.state == "cut_off" for h in trials),
        earlier=earlier_of(every),
        damaged=Counter(flag for h in trials for flag, _ in DAMAGED if flag in h.flags),
        unrecorded=sum(NOT_RECORDED in h.flags and not h.tool_calls for h in trials),
        failed=sum(bool(h.error) for h in trials),
    )


def attempt_before(snapshot: Snapshot) -> str:
    """The name of the attempt from which counts of the steps before this one are: ``attempt 1``, or that it is an
    earlier one, where it is not known which of several."""
    return "attempt 1" if snapshot.attempt == 2 else EARLIER


def damage_words(tally: Tally) -> list[str]:
    """``▲ 3 mask mismatch``: what is wrong with the rows and the records of a step's trials."""
    missing = [f"▲ {tally.unrecorded} not recorded"] if tally.unrecorded else []
    return missing + [f"▲ {tally.damaged[flag]} {text}" for flag, text in DAMAGED if tally.damaged.get(flag)]


def reward_word(value: float | None) -> str:
    """A reward with 3 decimals, or none if it is whole: ``0.512``, ``1``; ``-`` for None."""
    return number(value) if value is None or value != int(value) else f"{value:.0f}"
