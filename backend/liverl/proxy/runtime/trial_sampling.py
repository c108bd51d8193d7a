"""The sampling parameters of each trial, and which of its clients' were replaced.

A trial's ``liverl.json`` is written before its first request: it has the parameters that the trainer gave the trial,
and says whether that belongs to a validation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .files import read_below
from .sampling import OTHER, Decided, Policy, decided, parameters
from .trial_folders import steps

FACTS = "liverl.json"
_REMEMBERED = 4096  # number of trials cached
_LARGEST = 1 << 20  # bytes read of a trial's file
_AGAIN_S = 5.0  # seconds after which a trial without a file is looked for again
_MOST_NAMES = 100  # names of parameters that are counted
_READERS = 4  # threads, so that slow storage delays few other trials


class TrialSampling:
    """Decides the parameters of each request. ``overridden``: parameter, or field that is not sent on ->
    trials in which a client asked for another value; all requests that name no trial count as one."""

    def __init__(self, policy: Policy, trials: Path) -> None:
        """``trials``: the directory of all trials."""
        self.overridden: Counter[str] = Counter()
        self._policy = policy
        self._trials = trials
        self._known: OrderedDict[str, Mapping[str, float]] = OrderedDict()
        self._missing: OrderedDict[str, float] = OrderedDict()  # trial -> monotonic seconds of the last look
        self._told: OrderedDict[str | None, set[str]] = OrderedDict()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="trial-sampling")

    async def decide(self, trial: str | None, body: Mapping[str, Any]) -> Decided:
        """``body`` with the parameters of ``trial``; ``asked`` without those that an earlier request of the trial asked
        for."""
        found = decided(body, await self._chosen(trial), keeps_seed=self._policy.keeps_seed)
        return Decided(found.body, self._first(trial, found.asked))

    def _first(self, trial: str | None, asked: dict[str, Any]) -> dict[str, Any]:
        if not asked:
            return asked
        asked = {self._counted(name): value for name, value in asked.items()}
        told = self._told.setdefault(trial, set())
        self._told.move_to_end(trial)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        new = {name: value for name, value in asked.items() if name not in told}
        told.update(new)
        self.overridden.update(new.keys())
        return new

    def _counted(self, name: str) -> str:
        """The name under which a parameter is counted: a client may think of any number of fields."""
        return name if name in self.overridden or len(self.overridden) < _MOST_NAMES else OTHER

    async def _chosen(self, trial: str | None) -> Mapping[str, float]:
        if trial is None:
            return self._policy.training
        known = self._known.get(trial)
        if known is not None:
            self._known.move_to_end(trial)
            return known
        now = time.monotonic()
        if now - self._missing.get(trial, -_AGAIN_S) < _AGAIN_S:
            return self._policy.training
        facts = await asyncio.get_running_loop().run_in_executor(self._readers, self._read, trial)
        if facts is None:
            _remember(self._missing, trial, now)
            return self._policy.training
        chosen = self._of(facts)
        _remember(self._known, trial, chosen)
        return chosen

    def _of(self, facts: Mapping[str, Any]) -> Mapping[str, float]:
        own = parameters(facts.get("sampling"))
        if own is not None:
            return own
        return self._policy.validation if "validation_after_step" in facts else self._policy.training

    def _read(self, trial: str) -> dict[str, Any] | None:
        """What ``liverl.json`` says of ``trial``; None if there is none. That of a validation is directly below the
        directory of all trials, others are in that of their step."""
        with contextlib.suppress(OSError):
            for step in ("", *steps(self._trials)):
                facts = _read_facts(self._trials, self._trials / step / trial / FACTS)
                if facts is not None:
                    return facts
        return None


def _remember(cache: OrderedDict[str, Any], trial: str, value: Any) -> None:
    cache[trial] = value
    cache.move_to_end(trial)
    if len(cache) > _REMEMBERED:
        cache.popitem(last=False)


def _read_facts(trials: Path, path: Path) -> dict[str, Any] | None:
    """The content of a trial's file; None if it is missing or unusable: an agent may have put anything in its place."""
    try:
        facts = json.loads(read_below(trials, path, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None
