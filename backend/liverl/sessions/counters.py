"""What is counted of one session."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

import msgspec

MOST_REFUSED = 16  # names in ``Counters.refused``; what is refused beyond them is counted as ``OTHERS``
OTHERS = "others"
# Names of what is no field; ``ENGINE``: the engine has refused it, which may be for what the run asks of it
BODY, PATH, KEY, ENGINE = "body", "path", "key", "engine"
LONGEST = 300  # characters of ``Counters.refusal``
_INDEX = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")


class Counters(msgspec.Struct, omit_defaults=True):
    """``num_aborts``: samples that a weight update cut and that were continued; ``num_joined``: requests that got the
    reply of an equal one; ``num_failed``: requests that were refused or found no replica; ``healed``: turns that a
    prompt made of text would have broken; ``rewrites``, ``sub_agents``: segments of these kinds; ``recomputed``:
    earlier replies that count as sampled again behind a changed history; ``recompute_unplaced``: those whose place in
    it was not found, or for which the row had no room; ``recompute_failed``: those whose log-probabilities no replica
    gave; ``doubted``: turns that are not trained, as our tokenizer made their prompts and was then seen to differ from
    the engine; ``consecutive_no_tool``: replies of the main conversation without a call, in sequence; ``asides``:
    replies beside it that are no conversation.

    ``refused_turns``, ``refused_no_tool``, ``refused_tokens``, ``refused_deadline``: requests that a limit of the
    session refused, on turns, on replies without a tool call, on the length of its row, and on its time;
    ``context_overflow``: those that the model's context or the row had no room for, and ``too_long`` those of them that
    came after the newest reply, so that the conversation has ended with them; ``replica_lost``: those that no
    replica answered in time; ``poisoned``: those with which replicas died; ``parse_failed``: replies that were given as
    plain text, since their tool parser failed on two replicas. ``journal_cut``: starts of the service at which the
    journal could be read up to a damaged line only; ``journal_rewritten``: how many times the journal had been removed
    or changed, and was written anew from memory; ``journal_unreadable``: of a whole host, journals that say nothing at
    all. ``overridden``: parameters of which the client asked for
    another value than the trainer's; ``ignored``: fields that had no effect; both -> 1, and added up the number of
    sessions. ``refused``: requests that were refused for what they ask, by the field of theirs, such as ``tool_choice``
    or ``messages[].content``, or ``body``, ``path``, ``key``, ``engine``; they are of ``num_failed``; ``refusal``: what
    the newest of them was answered.

    ``proxy_model_inference_sec``: seconds of waiting for the engine, without those in the queue; ``replica_wait_sec``:
    seconds without a replica that answers, of all requests;
    ``proxy_tool_call_sec``: between a reply and the next request of its conversation; ``tool_gap_sec``: the last of
    these gaps. ``proxy_scheduler_num_waits`` and
    ``_wait_sec``: samples that waited for room in their replica's KV cache, and their seconds.
    """

    num_calls: int = 0
    num_aborts: int = 0
    num_joined: int = 0
    num_failed: int = 0
    num_moved: int = 0
    total_prompt_tokens: int = 0
    total_completion_tokens: int = 0
    healed: int = 0
    rewrites: int = 0
    sub_agents: int = 0
    recomputed: int = 0
    recompute_unplaced: int = 0
    recompute_failed: int = 0
    context_overflow: int = 0
    too_long: int = 0
    consecutive_no_tool: int = 0
    min_global_steps: int | None = None
    max_global_steps: int | None = None
    proxy_model_inference_sec: float = 0.0
    proxy_tool_call_sec: float = 0.0
    tool_gap_sec: float = 0.0
    proxy_scheduler_num_waits: int = 0
    proxy_scheduler_wait_sec: float = 0.0
    replica_wait_sec: float = 0.0
    asides: int = 0
    refused_turns: int = 0
    refused_no_tool: int = 0
    refused_tokens: int = 0
    refused_deadline: int = 0
    replica_lost: int = 0
    poisoned: int = 0
    parse_failed: int = 0
    journal_cut: int = 0
    journal_rewritten: int = 0
    journal_unreadable: int = 0
    doubted: int = 0
    overridden: dict[str, int] = {}
    ignored: dict[str, int] = {}
    refused: dict[str, int] = {}
    refusal: str = ""

    def note_too_long(self, *, ends: bool = True) -> None:
        """Count a request that there is no room for. ``ends``: it may be what ends the conversation; one beside it is
        not."""
        self.context_overflow += 1
        self.too_long += ends

    def note_refused(self, at: str, words: str) -> bool:
        """Count a request that was refused for what it asks. ``at``: the path of the field; ``words``: what the client
        is told. Returns whether it is the first one that is refused for that."""
        name = _INDEX.sub("[]", at)
        if name not in self.refused and len(self.refused) >= MOST_REFUSED:
            name = OTHERS
        self.refused[name] = self.refused.get(name, 0) + 1
        self.refusal = words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
        return self.refused[name] == 1


def together(several: Iterable[Counters]) -> Counters:
    """The counters of several sessions added up; of versions the smallest and the largest. What belongs to one
    conversation, such as the last gap, is left out."""
    every = list(several)
    total = Counters()
    for name in Counters.__struct_fields__:
        values = list(map(attrgetter(name), every))
        if name in ("min_global_steps", "max_global_steps"):
            known = [value for value in values if value is not None]
            setattr(total, name, (min if name.startswith("min") else max)(known, default=None))
        elif name in ("overridden", "ignored", "refused"):
            counted: Counter[str] = Counter()
            for value in filter(None, values):
                counted.update(value)
            setattr(total, name, dict(counted))
        elif name not in ("consecutive_no_tool", "too_long", "tool_gap_sec", "refusal"):
            setattr(total, name, sum(values))
    return total
