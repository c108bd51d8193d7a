"""Which replies of a session belong to the main conversation, and which were asked for beside it. Pure.

The turns of a session form a tree: the parent of a turn is the turn whose reply ends the longest recorded history in
its request. A tree is a *thread*. What a turn is for can change while the session goes on, so it is worked out anew
from all turns, never stored. The rules:

1. The main agent is the first system prompt whose turns are a conversation: two replies or a tool call. If none is, the
   first one of all.
2. Of the main agent's threads, one that began while an older one went on afterwards is *beside* it. The others followed
   each other: each replaced the history of the one before it, as a compaction or an edit does. The newest of them has
   the main conversation, on the path from its root to its newest reply.
3. A thread or branch beside the main conversation is a conversation of its own (``sub``, trained) if it has two replies
   or a tool call, or if its client names an agent. Otherwise it is an ``aside``: a judge's question, a title.
4. Of several replies to one and the same request, those without a continuation are asides, unless it is the newest
   reply of the main conversation: a retry or a candidate that the agent has dropped.
5. A reply that the agent has left out of its history, and that it went on behind (a reply without a tool call, answered
   with an error message only), is part of the main conversation.
6. A thread of one reply without a tool call that shares nothing with another one (no system prompt, no tools, no reply
   of it, not the beginning of its first user message) replaced no history: it is an aside, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Literal

import msgspec

# ``main``: on the path to the newest reply of the main conversation; ``earlier``: of the conversation, in a history
# that a later one replaced; ``sub``: of a conversation beside it; ``aside``: a reply beside it; ``hidden``: a request
# that its client marked as auxiliary.
Role = Literal["main", "earlier", "sub", "aside", "hidden"]
LINEAGE: tuple[Role, ...] = ("main", "earlier")
BEGINS = 256  # characters of the first user message that are compared


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a request says which conversation its reply belongs to, as journals keep it. ``order``: in which requests
    came, -1 in journals of earlier versions, which have nothing of this; ``parent``: number of the turn that it
    continues, None for the first one of a thread; ``asked``: digest of the whole request; ``agent``: the sub-agent that
    its client names; ``hidden``: see ``Role``; ``passed``: numbers of turns whose request this one continues without
    their reply; ``before``, ``last`` and ``size``: digest of all messages but the last one, and of the text of that
    one, with its number of characters. Of the first request of a thread only: ``system``: how the system prompt begins;
    ``begins``: how the first user message begins; ``tools``: digest of the tools, b"" without any; ``holds``: number of
    an earlier turn whose reply is in it."""

    order: int = -1
    parent: int | None = None
    asked: bytes = b""
    agent: str = ""
    hidden: bool = False
    system: str = ""
    begins: str = ""
    tools: bytes = b""
    holds: int | None = None
    passed: tuple[int, ...] = ()
    before: bytes = b""
    last: bytes = b""
    size: int = 0


class TurnFact(Request, frozen=True, kw_only=True):
    """What is known of one recorded turn. ``number``: in the order in which replies were recorded, from 0; ``calls``:
    whether the reply has a tool call; ``main_agent``: what a journal of an earlier version says of it, which knows
    neither system prompt nor messages; else None."""

    number: int
    calls: bool = False
    main_agent: bool | None = None


class _Thread:
    """A turn without a parent, with all that continues it. ``linked``: whether it shares something with another one."""

    def __init__(self, root: TurnFact, linked: bool) -> None:
        self.root, self.linked = root, linked
        self.turns = [root]
        self.ends = root.order

    def add(self, turn: TurnFact) -> None:
        self.turns.append(turn)
        self.ends = max(self.ends, turn.order)

    @property
    def conversation(self) -> bool:
        """Whether it has two replies or a tool call."""
        return len(self.turns) > 1 or self.root.calls

    @property
    def begins(self) -> int:
        return self.root.order


class History:
    """The turns of one session, and their roles. Each turn costs time in proportion to the turns before it, and no
    more: an agent that asks a thousand times at once shares one process with all others."""

    def __init__(self) -> None:
        self.turns: list[TurnFact] = []
        self._root: list[int] = []  # of each turn: the first turn of its thread
        self._linked: set[int] = set()  # first turns of threads that share something with another one
        self._roles: list[Role] | None = []
        self._system: str | None = None
        # What was asked, while each turn continues the one before it and nothing else has happened: the usual case,
        # in which all turns are the main conversation's. None once it is not so.
        self._plain: set[bytes] | None = set()
        self._ahead: History | None = None  # what ``after`` made last: its roles need not be worked out twice

    def add(self, turn: TurnFact) -> None:
        """One more recorded turn; its number is ``len(turns)``."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.turns[-1] == turn:
            self.turns, self._root, self._linked = ahead.turns, ahead._root, ahead._linked
            self._roles, self._system, self._plain = ahead._roles, ahead._system, ahead._plain
            return
        if self._plain is not None and self._goes_on_plainly(turn):
            self._plain.add(turn.asked)
        else:
            self._plain = None
        self.turns.append(turn)
        root = turn.number if turn.parent is None else self._root[turn.parent]
        self._root.append(root)
        if turn.parent is None:
            self._link(turn)
        self._roles = None

    def after(self, turn: TurnFact) -> History:
        """A copy with one more turn."""
        copy = History()
        copy.turns, copy._root, copy._linked = [*self.turns], [*self._root], {*self._linked}
        copy._plain = None if self._plain is None else {*self._plain}
        copy.add(turn)
        self._ahead = copy
        return copy

    def _goes_on_plainly(self, turn: TurnFact) -> bool:
        last = self.turns[-1] if self.turns else None
        behind = (
            turn.parent is None if last is None else turn.parent == last.number and turn.order > last.order
        )
        usual = not (turn.hidden or turn.agent or turn.passed) and turn.main_agent is None
        return behind and usual and bool(turn.asked) and turn.asked not in (self._plain or ())

    def _link(self, root: TurnFact) -> None:
        """Note which threads share something with the new one of ``root``."""
        held = None if root.holds is None else self._root[root.holds]

        def shares(number: int) -> bool:
            other = self.turns[number]
            return _same_agent(root, other) and _linked(root, other, held == number)

        earlier = {*self._root} - {root.number}
        found = {number for number in earlier - self._linked if shares(number)}
        if found or any(map(shares, earlier & self._linked)):
            self._linked |= {root.number, *found}

    @property
    def roles(self) -> Sequence[Role]:
        """The role of each turn, as far as the turns so far tell."""
        if self._roles is None and self._plain is not None:
            self._roles, self._system = ["main"] * len(self.turns), self.turns[0].system
        if self._roles is None:
            threads = self._threads()
            self._system = _main_system(threads)
            self._roles = _roles(self.turns, threads, self._system)
        return self._roles

    @property
    def main_system(self) -> str | None:
        """How the main agent's system prompt begins; None before its first turn."""
        return self._system if self.roles else None

    @property
    def newest(self) -> int | None:
        """The number of the main conversation's newest turn."""
        roles = self.roles
        return next((n for n in reversed(range(len(self.turns))) if roles[n] == "main"), None)

    @property
    def counted(self) -> int:
        """The replies that count as turns: those of the main conversation, and of the histories that it replaced."""
        return sum(role in LINEAGE for role in self.roles)

    @property
    def without_call(self) -> int:
        """The newest replies in sequence of the main conversation that have no tool call."""
        count, roles = 0, self.roles
        for turn in reversed(self.turns):
            if roles[turn.number] in LINEAGE:
                if turn.calls:
                    break
                count += 1
        return count

    def counts(self, request: TurnFact) -> bool:
        """Whether the reply to a request would be one more turn of the main conversation, as far as can be told before
        it. ``request``: of the main agent, not marked by its client."""
        if self._plain is not None and request.parent is not None:
            return not request.asked or request.asked not in self._plain
        roles = self.roles
        others = [turn for turn in self.turns if roles[turn.number] in LINEAGE]
        if any(request.asked and request.asked == turn.asked for turn in others):
            return False  # another reply to a request that was counted
        if request.parent is not None or not others:
            return True
        held = None if request.holds is None else self._root[request.holds]
        return any(
            _linked(request, turn, held == self._root[turn.number]) for turn in others if turn.parent is None
        )

    def _threads(self) -> list[_Thread]:
        """The threads of agents that no client names, in the order in which they were begun."""
        threads: dict[int, _Thread] = {}
        for turn in self.turns:
            root = self._root[turn.number]
            if root in threads:
                threads[root].add(turn)
            elif root == turn.number and not turn.hidden and not turn.agent:
                threads[root] = _Thread(turn, root in self._linked)
        return sorted(threads.values(), key=lambda thread: thread.begins)


def _roles(turns: Sequence[TurnFact], threads: Sequence[_Thread], system: str | None) -> list[Role]:
    roles: list[Role] = ["hidden" if turn.hidden else "sub" for turn in turns]
    dropped = _dropped(turns)
    ours = [thread for thread in threads if _of_main_agent(thread.root, system)]
    conversation = any(thread.conversation for thread in ours)
    following: list[_Thread] = []  # those of which each replaced the history of the one before it
    ends = -1  # the newest request of these
    for thread in threads:
        if (
            not _of_main_agent(thread.root, system)
            or thread.root.number in dropped
            or (following and ends > thread.begins)
            or (
                not thread.conversation
                and not thread.linked
                and (conversation or ours[0].begins < thread.begins)  # another one has the conversation
            )
        ):
            _beside(thread, roles)
        else:
            following.append(thread)
            ends = max(ends, thread.ends)
    continued = {turn.parent for turn in turns}
    passed = {number for turn in turns for number in turn.passed}
    for thread in following:
        for turn in thread.turns:
            roles[turn.number] = "earlier"
    for thread in following:
        role: Role = "main" if thread is following[-1] else "earlier"
        path = _path(turns, thread, dropped)
        for number in _asides(thread, path, continued, passed):
            roles[number] = "aside"
        for number in path:
            roles[number] = role
    for number in dropped:
        if not turns[number].hidden and roles[number] != "main":
            roles[number] = "aside"
    return roles


def _main_system(threads: Sequence[_Thread]) -> str | None:
    first = threads[0] if threads else None
    conversations = (each for each in threads if each.conversation and each.root.main_agent is not False)
    main = next(conversations, first)
    return None if main is None else main.root.system


def _of_main_agent(root: TurnFact, system: str | None) -> bool:
    return root.system == system if root.main_agent is None else root.main_agent


def _dropped(turns: Sequence[TurnFact]) -> set[int]:
    """The turns without a continuation whose request got another reply as well; of several of which none has a
    continuation, the one that was asked for last is kept: it is what the client has waited for."""
    continued = {turn.parent for turn in turns}
    groups: dict[bytes, list[int]] = {}
    for turn in turns:
        if turn.asked:
            groups.setdefault(turn.asked, []).append(turn.number)
    dropped: set[int] = set()
    for group in groups.values():
        kept = continued.intersection(group) or {max(group, key=lambda number: turns[number].order)}
        dropped.update(number for number in group if number not in kept)
    return dropped


def _beside(thread: _Thread, roles: list[Role]) -> None:
    """A thread beside the main conversation."""
    for turn in thread.turns:
        roles[turn.number] = "sub" if thread.conversation else "aside"


def _same_agent(one: TurnFact, other: TurnFact) -> bool:
    return one.system == other.system and one.agent == other.agent and one.hidden == other.hidden


def _linked(one: TurnFact, other: TurnFact, held: bool) -> bool:
    """Whether one of two first requests may have become the other by a changed history. ``held``: one has a reply of
    the other's thread."""
    if one.main_agent is not None or other.main_agent is not None:
        return True
    alike = any(
        mine and mine == yours for mine, yours in ((one.system, other.system), (one.tools, other.tools))
    )
    return held or alike or _alike(one.begins, other.begins)


def _alike(one: str, other: str) -> bool:
    """Whether two first user messages begin alike, as far as the shorter one goes."""
    length = min(len(one), len(other))
    return one == other or (length > 0 and one[:length] == other[:length])


def _path(turns: Sequence[TurnFact], thread: _Thread, dropped: set[int]) -> set[int]:
    """The way from a thread's first turn to the newest one that was not dropped."""
    kept = [turn for turn in thread.turns if turn.number not in dropped] or thread.turns
    at: int | None = max(kept, key=lambda turn: turn.order).number
    path = set()
    while at is not None:
        path.add(at)
        at = turns[at].parent
    return path


def _asides(thread: _Thread, path: Set[int], continued: Set[int | None], passed: Set[int]) -> Iterator[int]:
    """The replies without a continuation that branch off a thread's path, but those that have a call, and those that
    the agent went on behind."""
    for turn in thread.turns:
        single = turn.parent in path and turn.number not in continued and not turn.calls
        if turn.number not in path and single and turn.number not in passed:
            yield turn.number
