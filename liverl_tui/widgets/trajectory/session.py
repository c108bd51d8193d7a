"""The facts of a trial's session as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.observe.trials.session_facts import SessionFacts
from liverl.util.plural import quantity
from liverl_tui.text.words import count

# Kind of a row -> what it is, in the order in which they are named.
KIND_WORDS = {
    "main": "main",
    "rewrite": "changed history",
    "sub": "sub-agent",
    "aside": "side question",
    "hidden": "auxiliary",
}
_UNTRAINED = ("hidden",)  # kinds that are kept and never trained
_COLUMN = 12  # columns of a line's name
_WAITED_S = 1.0  # seconds without a replica that are worth a word
# Counters of the requests and of what happened to them -> words, as the page shows them
_REQUESTS = {
    "num_calls": "answered",
    "num_joined": "joined to an equal one",
    "num_failed": "failed",
    "context_overflow": "refused as longer than the context",
    "refused_turns": "refused: no turns left",
    "refused_no_tool": "refused: too many replies without a tool call",
    "refused_deadline": "refused: no time left",
    "replica_lost": "refused: no replica answered",
    "poisoned": "refused: replicas died with it",
}
_REPLIES = {
    "healed": "kept as sampled (healed): their text would give other tokens",
    "num_aborts": "cut by a weight update and continued",
    "num_moved": "continued on another replica",
    "parse_failed": "given as plain text: their tool parser failed",
}
_HISTORY = {
    "rewrites": "changed histories",
    "recomputed": "earlier replies with new log-probabilities",
    "recompute_unplaced": "earlier replies masked: not found in the prompt",
    "recompute_failed": "earlier replies masked: no log-probabilities",
    "sub_agents": "sub-agents",
    "asides": "side questions",
    "doubted": "turns not trained: the replica makes other tokens",
}


def session_lines(session: SessionFacts, beside: str = "tools") -> Iterator[str]:
    """What carried the trial, its rows, requests, tokens, versions and times; what is not known is left out.
    ``beside``: see ``rest_word``; between the requests of an agent without tools nothing is done that is told here."""
    numbers = session.counters
    yield _line("recorded", "by the session proxy: the tokens that were sampled, not their text")
    yield _line("rows", _rows(session))
    if not numbers:
        return
    yield _line("requests", _counted(numbers, _REQUESTS, always="num_calls"))
    yield _line("replies", _counted(numbers, _REPLIES, always="healed"))
    yield _line("history", _counted(numbers, _HISTORY, always="rewrites"))
    prompt, sampled = numbers.get("total_prompt_tokens", 0), numbers.get("total_completion_tokens", 0)
    yield _line("tokens", f"{count(prompt)} prompt, {count(sampled)} sampled{_share(session)}")
    if session.overridden:
        yield _line(
            "sampling", f"the trainer's; the agent asked for other values: {', '.join(session.overridden)}"
        )
    if session.ignored:
        yield _line("no effect", f"fields of requests: {', '.join(session.ignored)}")
    if session.refused:
        yield _line(
            "refused",
            f"requests for what they asked: {', '.join(session.refused)}; the newest one: {session.refusal}",
        )
    first, last = numbers.get("min_global_steps"), numbers.get("max_global_steps")
    if first is not None and last is not None:
        yield _line("versions", f"v{first:.0f}" + (f" to v{last:.0f}" if last != first else ""))
    model, tools = numbers.get("proxy_model_inference_sec", 0.0), numbers.get("proxy_tool_call_sec", 0.0)
    gap, waited = numbers.get("tool_gap_sec", 0.0), numbers.get("replica_wait_sec", 0.0)
    between = f"{beside} {tools:.1f} s, " if beside != "reward" else ""
    without = f", without a replica {waited:.1f} s" if waited >= _WAITED_S else ""
    yield _line(
        "time",
        f"model {model:.1f} s, {between}last gap between two requests {gap:.1f} s{without}",
    )


def session_summary(session: SessionFacts) -> str:
    """What the closed line says: how many requests became how many rows that the trainer gets."""
    trained = sum(number for kind, number in session.rows.items() if kind not in _UNTRAINED)
    rows = f"{quantity(trained, 'row')} of tokens for training"
    answered = session.counters.get("num_calls")
    words = rows if answered is None else f"{quantity(int(answered), 'request')} in {rows}"
    healed = session.counters.get("healed")
    kept = f", {quantity(int(healed), 'reply', 'replies')} kept as sampled" if healed else ""
    return words + kept + ("" if session.ended else ", so far")


def _line(name: str, text: str) -> str:
    return f"{name:<{_COLUMN}}{text}"


def _rows(session: SessionFacts) -> str:
    kinds = [
        *(kind for kind in KIND_WORDS if kind in session.rows),
        *(sorted(set(session.rows) - set(KIND_WORDS))),
    ]
    words = ", ".join(f"{session.rows[kind]} {kind}" for kind in kinds) or "none"
    untrained = [kind for kind in kinds if kind in _UNTRAINED]
    kept = f" ({' and '.join(untrained)}: kept, not trained)" if untrained else ""
    return f"{words}{kept}" + ("" if session.ended else ", so far")


def _counted(numbers: dict[str, int | float], names: dict[str, str], always: str) -> str:
    return ", ".join(
        f"{count(numbers.get(name, 0))} {words}"
        for name, words in names.items()
        if name == always or numbers.get(name)
    )


def _share(session: SessionFacts) -> str:
    """How much of the sampled tokens is that of sub-agents; empty if none is."""
    of_sub, total = session.sampled.get("sub", 0), sum(session.sampled.values())
    return f", {of_sub / total:.0%} of them by sub-agents" if of_sub and total else ""
