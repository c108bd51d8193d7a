"""How an adapter describes which metrics of its engine fill the fields of ``EngineFacts``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Names = tuple[
    str, ...
]  # names of one metric in several versions, newest first; the first one present is read


# Facts that are texts.
SLEEP_STATE, POLICY_DIGEST, WEIGHT_REQUESTS = "sleep_state", "policy_digest", "weight_requests"


class ByLabel(NamedTuple):
    """The samples of a counter whose ``label`` has the value ``value``."""

    names: Names
    label: str
    value: str


@dataclass(frozen=True, eq=False)
class MetricNames:
    """Keys of the mappings are fields of ``EngineFacts``. Samples of several engines are summed, those in ``means``
    averaged, those in ``least`` the smallest. Counters carry ``_total`` in the text form of prometheus_client, not in
    that of every exporter: name both."""

    values: Mapping[str, Names]
    by_label: Mapping[str, ByLabel] = field(default_factory=dict)
    means: frozenset[str] = frozenset()
    least: frozenset[str] = frozenset()
    sleep_state: str = ""  # metric whose samples are 1 for the state that their label `sleep_state` names
    weight_requests: str = ""  # counter of requests that can have changed the weights, by the label `route`
    policy_info: str = ""  # metric whose label `digest` is the digest of the weights
    cache_info: str = ""  # metric whose labels are facts of the KV cache
    cache_labels: Mapping[str, str] = field(default_factory=dict)  # fact -> that metric's label

    @functools.cached_property
    def wanted(self) -> frozenset[str]:
        """The names of all metrics that are read."""
        lists = (*self.values.values(), *(rule.names for rule in self.by_label.values()))
        named = {name for names in lists for name in names}
        return frozenset(
            named | {self.sleep_state, self.cache_info, self.policy_info, self.weight_requests} - {""}
        )

    @functools.cached_property
    def facts_of(self) -> Mapping[str, tuple[str, ...]]:
        """The facts that each metric has a part in."""
        read: list[tuple[str, Names]] = [
            *self.values.items(),
            *((fact, rule.names) for fact, rule in self.by_label.items()),
            *((fact, (self.cache_info,)) for fact in self.cache_labels),
            (SLEEP_STATE, (self.sleep_state,)),
            (POLICY_DIGEST, (self.policy_info,)),
            (WEIGHT_REQUESTS, (self.weight_requests,)),
        ]
        return {name: tuple(fact for fact, names in read if name in names) for name in self.wanted}
