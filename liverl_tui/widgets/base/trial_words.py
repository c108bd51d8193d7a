"""How a trial and a step's trials stand, in glyphs and words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from liverl.model import Snapshot, StepTrials, TrialHead
from liverl.observe.trials.trial import TRUNCATED
from liverl_tui.data.view import Link
from liverl_tui.text.words import number
from liverl_tui.widgets.base.cells import Span

NO_TOOLS = "✖ NO TOOLS"
ALL_EQUAL = "same reward"


def state_of(head: TrialHead, link: Link) -> tuple[str, str]:
    """A trial's state as glyph and word, and its style."""
    if head.state == "finished":
        return "✔ done", "ok"
    if head.state == "cut_off" or link == "ended":
        return "○ cut off", "dim"  # nobody will finish it
    return "◐ running", "info"


def calls_of(head: TrialHead) -> tuple[str, str]:
    """How many tools it called; not to be overlooked where it will never call any."""
    if "zero_tool_calls" in head.flags:
        return NO_TOOLS, "alarm"
    return str(head.tool_calls), "text"


def flag_words(head: TrialHead, equal: bool = False) -> tuple[Span, ...]:
    """What else is odd about it, the worst first. ``equal``: the whole group has the same reward."""
    words: list[Span] = []
    if "failed_turns" in head.flags:
        words.append(("failures", "bad"))
    if head.finish_reason in TRUNCATED:
        words.append(("truncated", "warn"))
    if head.state == "finished" and not head.turns:
        words.append(("no turn", "warn"))
    if "moved_replica" in head.flags:
        words.append(("moved", "warn"))
    if equal:
        words.append((ALL_EQUAL, "dim"))
    return tuple(words)


def flagged(head: TrialHead) -> bool:
    """Whether it stands out. A group with equal rewards does not: late in a training most are."""
    return "zero_tool_calls" in head.flags or bool(flag_words(head))


def part_of(shown: int, known: int, total: int) -> str:
    """What a list of ``shown`` trials is part of, where of all ``total`` only the newest ``known`` are known:
    `` newest of 1,240``, `` in the newest 200`` where some of these are left out; else nothing."""
    if known >= total:
        return ""
    return f" newest of {total:,}" if shown == known else f" in the newest {known}"


def replica_names(snapshot: Snapshot | None) -> dict[str, str]:
    """Replicas by their root address."""
    if snapshot is None:
        return {}
    services = {s.address: s.name for s in snapshot.services if s.kind == "replica" and s.address}
    return services | {r.address: r.name for r in snapshot.replicas.items if r.address}


def replica_name(address: str | None, names: Mapping[str, str]) -> str:
    """A replica's name, from what the proxy recorded: its root address or api base, or a name already.
    ``names``: by root address."""
    if not address:
        return "-"
    bare = address.removesuffix("/chat/completions").rstrip("/").removesuffix("/v1")
    return names.get(bare, bare.partition("://")[2] or bare)


@dataclass
class Tally:
    """How the trials of a step go."""

    step: int | None
    total: int = 0
    running: int = 0
    calling: int = 0
    zero: int = 0
    mean_reward: float | None = None
    finishes: Mapping[str, int] = field(default_factory=dict)
    cut_off: int = 0

    @property
    def decided(self) -> bool:
        """Whether it is known of any trial."""
        return self.calling + self.zero > 0

    @property
    def style(self) -> str:
        if self.zero and not self.calling and 2 * self.zero >= self.total:  # not by the first that ends
            return "alarm"
        return "warn" if self.zero else "ok"

    @property
    def share(self) -> str:
        """``▲ 13/16 trials call tools``: of those that have shown what they do, called a tool or ended without."""
        glyph = {"alarm": "✖", "warn": "▲", "ok": "●"}[self.style]
        return f"{glyph} {self.calling}/{self.calling + self.zero} trials call tools"

    @property
    def undecided(self) -> int:
        """Trials at work that have called no tool yet."""
        return min(self.running, self.total - self.calling - self.zero)


def tally_of(told: StepTrials) -> Tally:
    return Tally(
        told.step,
        told.total,
        told.total - told.finished - told.cut_off,
        told.judged - told.zero_tool_calls,
        told.zero_tool_calls,
        mean_reward=told.mean_reward,
        finishes=told.finish_reasons,
        cut_off=told.cut_off,
    )


def tally_heads(step: int | None, heads: Iterable[TrialHead]) -> Tally:
    """The same, counted from all heads of a step."""
    found = list(heads)
    rewards = [h.reward for h in found if h.reward is not None]
    return Tally(
        step,
        len(found),
        sum(h.state == "running" for h in found),
        sum(h.tool_calls > 0 for h in found),
        sum("zero_tool_calls" in h.flags for h in found),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        finishes=Counter(h.finish_reason for h in found if h.finish_reason is not None),
        cut_off=sum(h.state == "cut_off" for h in found),
    )


def finish_words(finishes: Mapping[str, int]) -> str:
    """``stop 12, length 1``, the most frequent first."""
    ordered = sorted(finishes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {times}" for name, times in ordered)


def reward_word(value: float | None) -> str:
    """``0.512``, ``1``, ``-``"""
    return number(value) if value is None or value != int(value) else f"{value:.0f}"
