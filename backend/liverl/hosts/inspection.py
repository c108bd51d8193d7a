"""Asks each node of a run's Ray cluster what it has, until all have what the run needs.

One child asks (``verl.discovery.address_client``); a node that has what is needed is not asked again, one that lacks
something is, because somebody may mount or copy it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from liverl.hosts.checks import Lacks, NodeFacts, lacks, question
from liverl.plan.spec import NodeChecks
from liverl.verl.discovery.address_client import AddressClientGone, NodeAnswer
from liverl.verl.discovery.ray_rest import RayNode

ANSWER_S = (
    60.0  # seconds for a node's answer: starting a Python process of Ray there took up to 20 on a busy host
)
AGAIN_S = 15.0  # seconds from its answer until a node that lacks something is asked again
TRIES = 3  # times that nothing can be asked at all, until the run goes on without the answers

Ask = Callable[[Sequence[str], Mapping[str, Any], Mapping[str, str], float], Awaitable[NodeAnswer]]
Fill = Callable[[str], str | None]  # placeholders to values; None: one is not known yet


class Inspection:
    """``lacks``: node id -> what it lacks, of those that have answered. ``failed``: why nothing can be asked; "" if
    something can. ``pending``: what is said of a node without an answer."""

    def __init__(
        self, checks: NodeChecks, ask: Ask, fill: Fill, kick: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        """``clock``: seconds."""
        self.lacks: dict[str, Lacks] = {}
        self.failed, self.pending = "", "it is being checked"
        self._checks, self._ask, self._fill, self._kick = checks, ask, fill, kick
        self._clock = clock
        self._facts: dict[str, NodeFacts] = {}
        self._first = ""  # id of the node with which the others are compared
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._not_before = float("-inf")
        self._since = 0  # how often all was forgotten

    def passed(self, node_id: str) -> bool:
        """Whether the trainer may start as far as this node is concerned."""
        known = self.lacks.get(node_id)
        return self._failures >= TRIES if known is None else not known.fatal

    def counts(self, node_id: str) -> bool:
        """Whether it is one of the hosts that the run needs."""
        known = self.lacks.get(node_id)
        return self.passed(node_id) and (known is None or not known.gpus)

    def host(self, node_id: str) -> str:
        """The host name of a node; "" while it has not answered. Ray has only its address."""
        facts = self._facts.get(node_id)
        return facts.host if facts is not None else ""

    def words(self, node_id: str) -> str:
        """What to say of a node; "" if it has all."""
        known = self.lacks.get(node_id)
        if known is not None:
            return known.words
        return f"what it has could not be checked: {self.failed}" if self._failures >= TRIES else self.pending

    def look(self, nodes: Sequence[RayNode], head: str) -> None:
        """Begin to ask those living ``nodes`` that have not passed yet. ``head``: the address of the node with which
        the others are compared."""
        now = self._clock()
        for gone in self.lacks.keys() - {node.node_id for node in nodes}:
            del self.lacks[gone]
        missing = [node for node in nodes if node.node_id not in self.lacks or self.lacks[node.node_id].fatal]
        new = any(node.node_id not in self.lacks for node in missing)
        if self._task is not None or not missing or (now < self._not_before and not new):
            return
        if self._failures and now < self._not_before:
            return
        asked = self._question()
        if asked is None:
            self.pending = "it is checked once the proxy has its port"
            return
        self._task = asyncio.create_task(self._inspect(missing, head, asked))

    def forget(self) -> None:
        """Ask each node again: what they have answered before says nothing any more."""
        self.lacks.clear()
        self._since += 1
        self._failures, self._not_before = 0, float("-inf")

    def _question(self) -> tuple[dict[str, Any], dict[str, str]] | None:
        texts = {*self._checks.paths.values(), *self._checks.reach.values(), *self._checks.env.values()}
        values: dict[str, str] = {}
        for text in texts:
            value = self._fill(text)
            if value is None:
                return None
            values[text] = value
        return question(self._checks, values), {name: values[text] for name, text in self._checks.env.items()}

    async def _inspect(
        self, nodes: Sequence[RayNode], head: str, asked: tuple[dict[str, Any], dict[str, str]]
    ) -> None:
        since = self._since
        try:
            answer = await self._ask([node.node_id for node in nodes], *asked, ANSWER_S)
        except AddressClientGone as error:
            self.failed, self._failures = str(error), self._failures + 1
        else:
            self.failed, self._failures = "", 0
            if since == self._since:
                self._take(nodes, head, asked[0], answer)
        finally:
            self._task, self._not_before = None, self._clock() + AGAIN_S
            self._kick()

    def _take(
        self, nodes: Sequence[RayNode], head: str, asked: Mapping[str, Any], answer: NodeAnswer
    ) -> None:
        fresh, invalid = dict[str, NodeFacts](), dict[str, str]()
        for node_id, told in answer.facts.items():
            try:
                fresh[node_id] = msgspec.convert(told, NodeFacts)
            except msgspec.ValidationError as error:
                invalid[node_id] = f"gave an invalid answer: {error}"
        self._facts |= fresh
        if self._first not in self._facts:
            answered = [node for node in nodes if node.node_id in fresh]
            order = sorted(answered, key=lambda node: (node.ip != head, node.ip))
            self._first = order[0].node_id if order else ""
        for node in nodes:
            facts = fresh.get(node.node_id)
            if facts is None:
                why = answer.errors.get(node.node_id, "it was not asked")
                silent = f"a task there gave no answer: {why}; is a network file system there not responding?"
                self.lacks[node.node_id] = Lacks((invalid.get(node.node_id, silent),))
                continue
            first = None if node.node_id == self._first else self._facts.get(self._first)
            self.lacks[node.node_id] = lacks(self._checks, asked, node.resources, facts, first)
