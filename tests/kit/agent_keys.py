"""The configuration's keys about agents: of which kind's rows each has an effect, and how many keys of a run have one.

``PYTHONPATH=backend:.:tests python -m kit.agent_keys`` prints how many keys are live and inert, per trainer, and under
verl per kind of agent. tests/unit/test_agent_keys.py shows the effect of each key in a trial.
"""

from __future__ import annotations

from collections.abc import Iterator

from kit.key_effects import base
from liverl.config import leaves
from liverl.config.consumers import consumers
from liverl.config.sections.verl import AGENT_LOOPS
from liverl.engines import ENGINES

KINDS = ("task", "chat", "tools", "python", "command")
_ALL = frozenset(KINDS)
# Key -> the kinds of agents in whose trials it has an effect.
EFFECT: dict[str, frozenset[str]] = {
    "agent.kind": _ALL,
    "harbor_agent.override_timeout_sec": _ALL,
    "harbor_agent.max_timeout_sec": _ALL,
    "algorithm.temperature": _ALL,
    "agent.path": _ALL,  # every process of verl imports from there, for reward functions and tools too
    "harbor_agent.max_iterations": _ALL - {"chat"},  # a chat is one reply
    "agent.python": frozenset({"python"}),
    "agent.command": frozenset({"command"}),
    "agent.verifier": frozenset({"command"}),
    "agent.env": frozenset({"command"}),
    "agent.tools": frozenset({"tools"}),
    "agent.functions": frozenset({"tools"}),
    # Of each cause that a trial of the kind's can have here; tests/unit/test_verl_endings.py shows what they do.
    "agent.endings.limit": _ALL,
    "agent.endings.timeout": _ALL,
    "agent.endings.exit": _ALL,
    "agent.endings.infrastructure": _ALL,
    # The other kinds give a reward of their own, or may.
    "reward.function": frozenset({"chat", "tools"}),
    "reward.kwargs": frozenset({"chat", "tools"}),
}
# What a kind needs to run rows.
NEEDS: dict[str, tuple[str, ...]] = {
    "tools": ("agent.tools=/tools.yaml",),
    "python": ("agent.python=mine:Agent",),
    "command": ("agent.command=[agent]",),
}
VERL = ("verl", "vllm", "verl")


def counts() -> Iterator[tuple[str, int, int]]:
    """(what runs, live keys, inert keys)."""
    combinations = [
        (t, e.name, k) for e in ENGINES.values() for t, kinds in e.trainers.items() for k in kinds
    ]
    for combination in combinations:
        topology, engine, kind = combination
        yield (f"topology {topology}, engine {engine}, trainer {kind}", *_counted(combination))
    for kind in (*KINDS, "harbor"):
        yield (f"verl, agent.kind {kind}", *_counted(VERL, f"agent.kind={kind}", *NEEDS.get(kind, ())))
    own = next(loop for loop in AGENT_LOOPS if not loop.startswith(("auto", "liverl")))
    yield (f"verl, verl.agent_loop {own}", *_counted(VERL, f"verl.agent_loop={own}"))


def _counted(combination: tuple[str, str, str], *sets: str) -> tuple[int, int]:
    live = len(consumers(base(combination, *sets).config))
    return live, len(leaves()) - live


def main() -> None:
    """Print both tables."""
    print(f"{'':56} {'live':>5} {'inert':>5}")
    for name, live, inert in counts():
        print(f"{name:56} {live:5} {inert:5}")
    print(f"\nof the {len(EFFECT)} keys about agents, in the trials of a kind:")
    for kind in KINDS:
        without = [key for key, kinds in EFFECT.items() if kind not in kinds]
        print(
            f"{kind:8} {len(EFFECT) - len(without):2} have an effect, {len(without)} have none: {', '.join(without)}"
        )


if __name__ == "__main__":
    main()
