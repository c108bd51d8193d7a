"""One object per inference engine, with everything that the rest of liverl needs to know about it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from liverl.engines.adapter.argv import IfKnown, Part, Read, keys_of
from liverl.engines.adapter.boot import BootLog
from liverl.engines.adapter.metrics import MetricNames


def _no_arguments(read: Read) -> dict[str, tuple[str, ...]]:
    return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Engine:
    """One engine. Everything is data or a pure function of configuration keys."""

    name: str  # value of run.engine
    title: str  # name in sentences: vLLM, the embedded engine
    trainers: Mapping[str, tuple[str, ...]]  # run.topology -> the values of trainer.kind that go with it
    argv: tuple[Part, ...]  # of a replica in topology managed; placeholders as in ServiceSpec
    token_routes: tuple[IfKnown, ...] = ()  # further arguments that open the token routes
    env: Mapping[str, Part] = field(default_factory=dict)
    arguments: Callable[[Read], dict[str, tuple[str, ...]]] = _no_arguments  # of single replicas, by index
    argument_keys: frozenset[str] = frozenset()  # keys that `arguments` reads
    environment: str | None = None  # key under environments; None = the interpreter that runs us
    token_variables: tuple[str, ...]  # of a replica's environment: each gets the token that its ports require
    path: str = ""  # directory of the run on its PYTHONPATH, from which it imports modules of ours; "" = none
    requirements: tuple[str, ...] = ()  # of that environment, if the configuration does not define it
    gpus: str = ""  # key whose value is the number of GPUs of one replica; "" = it needs none
    policies: tuple[str, ...] = ()  # serves only these, as builtin:NAME; () = serves checkpoints
    tool_parsers: tuple[str, ...]  # values of model.tool_parser
    metrics: MetricNames
    boot: BootLog
    litellm_prefix: str  # LiteLLM's provider for its servers, with a slash at the end
    replica_kind: str = "managed"  # kind of a replica, as shown in its row

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """The configuration keys that a replica of it depends on in topology managed."""
        return keys_of((*self.argv, *self.env.values())) | self.argument_keys | {self.gpus} - {""}
