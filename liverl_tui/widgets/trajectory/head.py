"""The rows above a trajectory: which trial it is, and its state, calls, rewards and flags. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from liverl.agents.endings import CAUSES
from liverl.observe.trials.phases import acts_in
from liverl.observe.trials.trajectory import Trajectory
from liverl.util.plural import quantity
from liverl_tui.data.view import Link
from liverl_tui.text.trial_phases import phase_words
from liverl_tui.text.words import count, duration, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.fitting import Part, pack
from liverl_tui.widgets.base.trial_words import DUMPED, NO_TOOLS, ending_words, replica_name, reward_word

_FLAGS = {
    "failed_turns": ("▲ failures", "bad"),
    "not_recorded": ("▲ not recorded", "warn"),
    "moved_replica": ("▲ moved", "warn"),
    "truncated": ("▲ truncated", "warn"),
    "bad_rows": ("▲ bad rows", "bad"),
    "zero_logprobs": ("▲ zero log-probs", "bad"),
    "mask_mismatch": ("▲ mask mismatch", "bad"),
    "unreadable": ("▲ unreadable", "bad"),
    "mostly_sub": ("▲ mostly sub-agents", "warn"),
    "no_reward": ("▲ no reward", "bad"),
}


_EXCEPTION_ROWS = 3  # of an exception, and of how a trial ended


def header_rows(
    width: int,
    path: str,
    trajectory: Trajectory | None,
    *,
    place: str = "",
    among: str = "",
    gone: str = "",
    facts: str = "",
    problem: str = "",
    hidden: Collection[str] = (),
    raw: bool = False,
    names: Mapping[str, str] | None = None,
    link: Link = "live",
) -> list[Row]:
    """The title, a row about the trial, and rows for a problem, an exception and hidden parts.

    ``place``: in the list, as ``3/20``; ``among``: what the list is a part of, shortened to ``+`` in a narrow title;
    ``gone``: words instead of the place if the trial is no longer listed; ``facts``: further words for the title;
    ``problem``: why the trial cannot be read; ``raw``: a record is shown instead of the blocks; ``names``: replica
    names by root address. A ``trajectory`` of None is still being read, or never could be.
    """
    name = one_line(path.rpartition("/")[2])
    title = Row((f" {fit(name, min(len(name), max(8, width - 30)))} ", "title_focus"))
    room = width - len(title.text) - 3
    places = [f"trial {place}{of}" for of in (among, "+")] if among else [place and f"trial {place}"]
    places = [gone, "not listed"] if gone else places
    forms = [" · ".join(w for w in (at, "raw record" if raw else "", facts) if w) for at in places]
    words = next((form for form in forms if len(form) <= room), forms[-1])
    if words and room > 0:
        title.add(" ").add(fit(words, min(len(words), room)), "dim").add(" ")
    title.add("─" * max(0, width - len(title.text)), "rule")
    if trajectory is None:
        return [title, Row((f"  ▲ {problem}", "warn") if problem else ("  reading …", "dim"))]
    rows = [title, pack(_parts(trajectory, names or {}, link), width)]
    if problem:
        rows.append(Row((f"▲ {problem}; showing what was read before", "warn")))
    if trajectory.exception is not None:
        rows += _exception_rows(f"✖ {one_line(trajectory.exception)}", width)
    turns = max(len(trajectory.turns), trajectory.told_turns)
    acted = acts_in(trajectory.kind, trajectory.tool_calls, turns)
    if words := phase_words(
        trajectory.phases.seconds, trajectory.model_seconds, trajectory.kind, acted=acted
    ):
        rows.append(Row((fit(words, min(len(words), width)), "dim")))
    rows += _end_rows(trajectory, width)
    if hidden:
        rows.append(Row((f"hidden: {', '.join(sorted(hidden))}", "info")))
    return rows


def _exception_rows(text: str, width: int) -> list[Row]:
    """An exception in a few rows; behind them where the whole of it is."""
    lines = wrap(text, width)
    rows = [Row((line, "bad")) for line in lines[:_EXCEPTION_ROWS]]
    if len(lines) > _EXCEPTION_ROWS:
        rows.append(Row(("the whole of it is in result.json in the trial's directory", "dim")))
    return rows


def _end_rows(t: Trajectory, width: int) -> list[Row]:
    """Who caused the trial's end and what became of it, and why sampled tokens are not trained."""
    rows = []
    if t.ending and (t.outcome != "trained" or not t.ending.startswith(CAUSES["done"])):
        lines = wrap(one_line(t.ending), width)[:_EXCEPTION_ROWS]
        rows += [Row((line, "dim" if t.outcome == "trained" else "warn")) for line in lines]
    if t.not_trained:
        tokens = ", ".join(f"{count(n)} {one_line(reason)}" for reason, n in sorted(t.not_trained.items()))
        rows.append(Row((f"tokens not trained: {tokens}", "dim")))
    return rows


def _parts(t: Trajectory, names: Mapping[str, str], link: Link) -> list[Part]:
    cut_off = link == "ended"
    state: Span = (
        ("✖ failed", "bad")
        if not t.running and t.exception is not None
        else ("✔ done", "ok")
        if not t.running
        else ("○ cut off", "dim")
        if cut_off
        else ("◐ running", "info")
    )
    calls: Span = (
        (DUMPED, "dim")
        if t.dumped
        else (NO_TOOLS, "alarm")
        if "zero_tool_calls" in t.flags
        else (quantity(t.tool_calls, "call"), "text")
    )
    rewards = [f"{one_line(key)} {reward_word(value)}" for key, value in t.rewards.items()]
    main = (
        f"reward {reward_word(t.rewards['reward'])}"
        if "reward" in t.rewards
        else (rewards or ["no reward"])[0]
    )
    # A number that is recorded for a trial without a reward stands for the missing one: the flag says it.
    told = "" if "no_reward" in t.flags else "  ".join(rewards) or main
    replicas = [replica_name(r, names) for r in t.replicas]
    last = next((turn.finish_reason for turn in reversed(t.turns) if turn.finish_reason), None)
    return [
        _always(state),
        _part(
            3,
            f"step {t.step}"
            if t.step is not None
            else ""
            if t.validated is None
            else f"validation after step {t.validated}",
        ),
        _part(2, f"task {one_line(t.task)}"),
        _part(1, "" if t.dumped else _turns(t)),
        _always(calls),
        Part(4, tuple([(text, "strong")] if text else () for text in (told, told and main, ""))),
        *(_always(_FLAGS[flag]) for flag in t.flags if flag in _FLAGS),
        _part(
            5,
            ending_words(t.ended_by, t.flags)[0]
            if t.ended_by
            else f"finish {one_line(last)}"
            if last
            else "",
        ),
        _part(6, f"{count(t.completion_tokens)} tokens" if t.completion_tokens else ""),
        _part(7, duration(t.seconds) if t.seconds is not None else ""),
        _part(8, ", ".join(replicas)),
        _part(9, f"policy v{t.policy_version}" if t.policy_version is not None else ""),
        _part(10, f"model {one_line(t.model)}" if t.model else ""),
    ]


def _always(span: Span) -> Part:
    return Part(0, ((span,),))


def _part(rank: int, text: str) -> Part:
    return Part(rank, (((text, "text"),), ()) if text else ((),))


def _turns(t: Trajectory) -> str:
    """The number of turns, as the list of trials counts them, and of calls that failed."""
    words = quantity(max(sum(turn.success for turn in t.turns), t.told_turns), "turn")
    failed = sum(not (turn.success or turn.abandoned) for turn in t.turns)
    return f"{words}, {quantity(failed, 'failed call')}" if failed else words
