"""How a trial ended, who caused it, and what becomes of its tokens: the same for all kinds of agents.

Pure; for Python 3.10 with few packages. The words here are those of the trial's page, the step line, the alert,
verl's metrics and the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

# ``done``: the agent said that it has finished; ``limit``: it had all its turns, tokens or context; ``timeout``: its
# time was over; ``exit``: its program, its class or its verifier failed; ``infrastructure``: no fault of the agent's.
Cause = Literal["done", "limit", "timeout", "exit", "infrastructure"]
# What follows, as ``agent.endings`` says. ``train``: its rows with its reward; ``reward_zero``: its rows with reward
# 0; ``mask``: no row; ``drop``: no row, and its reward counts nowhere; ``repeat``: it is run again, at last masked.
Treatment = Literal["train", "reward_zero", "mask", "drop", "repeat"]
Outcome = Literal["trained", "zeroed", "masked", "dropped", "repeated"]

CAUSES: dict[Cause, str] = {
    "done": "the agent finished",
    "limit": "the agent reached a limit",
    "timeout": "the agent ran out of time",
    "exit": "the agent or its reward failed",
    "infrastructure": "the infrastructure failed",
}
OUTCOMES: dict[Outcome, str] = {
    "trained": "trained",
    "zeroed": "trained with reward 0",
    "masked": "not trained",
    "dropped": "not trained, reward not counted",
    "repeated": "run again",
}
NOT_AS_MEANT: tuple[Outcome, ...] = ("masked", "dropped", "zeroed")  # what the alert counts
ENDING = "ending"  # the reason for sampled tokens that are not trained because of how their trial ended
LENGTH = "length"  # ... and because they are beyond what verl trains of a row
SPLIT = "split"  # ... and because their prompt does not continue the tokens before it (through LiteLLM)
WAITED = 0.5  # share of a trial's time: if it waited longer than that for us, the rest was too short
SAME = 0.25  # share of a step's trials: if so many end in the same way, the agents are not the cause
LEAST_WAIT_S = 0.5  # seconds of waiting that say anything about a trial
FEWEST = 2  # trials that end in the same way at least, whatever their share

# Exit statuses that say what happened to a program, not what it did: not executable, not found, abort, kill (the
# kernel's, when memory runs out), segmentation fault.
NOT_ITS_OWN = (126, 127, 134, 137, 139)
# How a conversation ended, as ``Conversation.ended_by`` says -> what ran out.
LIMITS: dict[str, str] = {
    "max_iterations": "it had all its turns",
    "context_length": "its prompt no longer fits into the context",
    "response_length": "its row has no room for another token",
    "max_consecutive_no_tool": "too many replies in sequence called no tool",
}
# Counter of the session -> the name in LIMITS of what it refused for. After the first ones nothing more is answered;
# after the others an agent may have gone on with a shorter prompt: then ``too_long`` is 0 again.
_OVER = (("refused_turns", "max_iterations"), ("refused_no_tool", "max_consecutive_no_tool"))
OF_THE_ENGINE = "engine"  # in the counter ``refused``: what no field of the request is known to have caused
_TOO_LONG = (("refused_tokens", "response_length"), ("context_overflow", "context_length"))


class Endings(msgspec.Struct, frozen=True):
    """``agent.endings``: what follows each cause."""

    limit: Treatment = "train"
    timeout: Treatment = "reward_zero"
    exit: Treatment = "mask"
    infrastructure: Treatment = "repeat"

    def after(self, cause: Cause) -> Treatment:
        """What follows ``cause``."""
        return "train" if cause == "done" else getattr(self, cause)


class Ended(msgspec.Struct, frozen=True):
    """How one attempt at a trial ended, as its agent's side shows it. ``by``: a name in ``LIMITS``, or another word
    about a conversation; ``why``: in words; ``same``: what equal endings have in common, such as an exit status;
    ``again``: whether it could end otherwise another time."""

    cause: Cause = "done"
    by: str = ""
    why: str = ""
    same: str = ""
    again: bool = True


class Session(msgspec.Struct, frozen=True):
    """What is known of an attempt's requests. ``counters``: of its session, see ``liverl.sessions.counters``;
    ``replies`` of the model; ``seconds``: the attempt took; ``waited``: those of them in which it waited for a sandbox
    or a proxy."""

    counters: Mapping[str, Any] = {}
    replies: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def count(self, name: str) -> float:
        """A counter; 0 if it is not known."""
        value = self.counters.get(name, 0)
        return value if isinstance(value, (int, float)) else 0

    @property
    def waiting(self) -> float:
        """Seconds of waiting for the queue, a replica or a sandbox."""
        queue, replica = self.count("proxy_scheduler_wait_sec"), self.count("replica_wait_sec")
        return queue + max(replica, self.waited)


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a trial's result says. ``why``: in words, "" if the agent finished; ``reward``: of a trial whose reward
    counts nowhere; ``verified``: a verifier wrote its reward."""

    cause: Cause
    why: str
    outcome: Outcome
    reward: float | None = None
    verified: bool = False


def told(ending: Ending) -> str:
    """An ending in words, for a person: who caused it, why, and what became of the trial."""
    why = f": {ending.why}" if ending.why else ""
    return f"{CAUSES[ending.cause]}{why}; {OUTCOMES[ending.outcome]}"


def logged(ending: Ending) -> str:
    """An ending in a line of a log. What became of the trial comes first: the reason may end with an error that is
    quoted. Of a limit only the limit is told: an error of a program that was then refused follows from it."""
    why = ending.why
    if ending.cause == "limit":
        why = next((words for words in LIMITS.values() if why.startswith(words)), why)
    return f"{CAUSES[ending.cause]}; {OUTCOMES[ending.outcome]}" + (f": {why}" if why else "")


def cause_words(cause: str) -> str:
    """A cause in words; one that is not known as it is."""
    return next((words for name, words in CAUSES.items() if name == cause), cause)


def counted(outcomes: Mapping[str, int]) -> str:
    """``3 not trained, 1 trained with reward 0``: of outcomes other than ``trained`` and ``repeated``; "" of none."""
    return ", ".join(f"{outcomes[name]} {OUTCOMES[name]}" for name in NOT_AS_MEANT if outcomes.get(name))


def exited(status: int, why: str) -> Ended:
    """A program that ended with a status other than 0; a negative one is a signal's."""
    code = status if status >= 0 else 128 - status
    cause: Cause = "infrastructure" if code in NOT_ITS_OWN else "exit"
    return Ended(cause, why=why, same=f"exit {code}")


def judged(ended: Ended, session: Session) -> Ended:
    """Who caused the end of an attempt. A quarter of a step's trials with the same ending is judged by its caller, who
    knows the step: of an ending that ``counts_together``."""
    lost = _lost(session)
    if lost:
        return Ended("infrastructure", why=_both(lost, ended.why))
    spent = _spent(ended, session)
    if spent:
        return Ended("limit", spent, _both(LIMITS[spent], ended.why))
    if session.count("refused_deadline") and ended.cause in ("done", "exit"):
        ended = Ended("timeout", why=_both("its time was over", ended.why), same="timeout")
    told = refused(session.counters)
    if told and ended.cause not in ("done", "limit") and told not in ended.why:
        ended = msgspec.structs.replace(ended, why=_both(told, ended.why))
    if not session.replies and asks_for_it(session.counters) and ended.cause != "limit":
        # Harbor would run it again, and it would ask for the same.
        return Ended("exit", ended.by, ended.why or told, again=False)
    if ended.cause in ("infrastructure", "limit"):
        return ended
    if not session.replies:
        return Ended("infrastructure", ended.by, _both("it had no reply yet", ended.why), again=ended.again)
    if ended.cause != "done" and session.waiting > max(WAITED * session.seconds, LEAST_WAIT_S):
        words = (
            f"it waited {session.waiting:.0f} of {session.seconds:.0f} s for its turn, a replica or a sandbox"
        )
        return Ended("infrastructure", ended.by, _both(words, ended.why))
    return ended


def counts_together(ended: Ended) -> str:
    """The name by which equal endings of a step are counted; "" if the agent alone is known to have caused it, or if
    nothing failed."""
    if ended.cause not in ("exit", "timeout") or not ended.again:
        return ""
    return ended.same or ended.cause


def enough(same: int, total: int) -> bool:
    """Whether so many equal endings of a step's trials are no agent's fault."""
    return same >= max(FEWEST, SAME * total)


def of_many(ended: Ended, same: int, total: int) -> Ended:
    """An ending that a quarter of its step has."""
    words = f"{same} of the {total} trials of its step ended in the same way"
    return Ended("infrastructure", ended.by, _both(words, ended.why))


def outcome_of(cause: Cause, endings: Endings, *, verified: bool, left: int, rows: bool) -> Outcome:
    """What becomes of an attempt. ``verified``: a verifier wrote its reward, which wins; ``left``: how many times it
    may still be run again; ``rows``: whether anything was sampled that can be trained."""
    treatment = "train" if verified and rows else endings.after(cause)
    if treatment == "repeat":
        return "repeated" if left > 0 else "masked"
    if treatment == "drop":
        return "dropped"
    if not rows or treatment == "mask":
        return "masked"
    return "trained" if treatment == "train" else "zeroed"


def refused(counters: Mapping[str, Any]) -> str:
    """``WORDS (its session refused 3 requests of the agent, the last one with these words)``; "" without one. The words
    come first: whoever quotes a reason may cut its end."""
    names = counters.get("refused")
    number = sum(names.values()) if isinstance(names, dict) else 0
    if not number:
        return ""
    many = "1 request" if number == 1 else f"{number} requests"
    last = ", the last one with these words" if number > 1 else ""
    return f"{counters.get('refusal')} (its session refused {many} of the agent{last})"


def asks_for_it(counters: Mapping[str, Any]) -> bool:
    """Whether a request of the agent was refused for what the agent asks. What the engine refuses may be what the run
    asks of it."""
    names = counters.get("refused")
    return isinstance(names, dict) and any(name != OF_THE_ENGINE for name in names)


def _lost(session: Session) -> str:
    if session.count("poisoned"):
        return "a request of it ended replicas, and was refused"
    if session.count("replica_lost"):
        return "no replica answered it"
    return ""


def _spent(ended: Ended, session: Session) -> str:
    """The name in ``LIMITS`` of what ran out; "" if nothing did."""
    if ended.by in LIMITS:
        return ended.by
    went_on = ended.cause == "done" and not session.count("too_long")
    told = _OVER if went_on else (*_OVER, *_TOO_LONG)
    return next((name for counter, name in told if session.count(counter)), "")


def _both(first: str, then: str) -> str:
    return f"{first}; {then}" if then and then != first else first
