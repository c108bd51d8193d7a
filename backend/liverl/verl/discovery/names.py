"""Parses names of verl's server actors into engine, role and replica. Pure.

verl 0.9.1 (``workers/rollout``) names them ``vllm_server_{rank}_{node_rank}``, with ``reward_``, ``teacher_`` or
``decode_`` before the rank for servers that are not policy replicas, and ``_{suffix}`` at the end where its caller
gave one. ``sglang`` does the same; ``trtllm_server_{rank}`` has no node rank.
"""

from __future__ import annotations

import re
from typing import Literal, cast

import msgspec

from liverl.util.late_pattern import late_pattern

Engine = Literal["vllm", "sglang", "trtllm"]
Role = Literal["policy", "reward", "teacher", "decode"]

_NUMBER = "(0|[1-9][0-9]*)"
_BY_NODE = late_pattern(
    rf"(vllm|sglang)_server_(?:(reward|teacher|decode)_)?{_NUMBER}_{_NUMBER}(?:_(.+))?", re.DOTALL
)
_WHOLE = late_pattern(rf"(trtllm)_server_(?:(reward|teacher|decode)_)?{_NUMBER}(?:_(.+))?", re.DOTALL)


class ServerName(msgspec.Struct, frozen=True):
    """A parsed name. ``node_rank`` > 0: a part of a replica that spans nodes (the first one owns the HTTP server). For
    ``decode`` it counts the decode servers of one replica."""

    engine: Engine
    role: Role
    rank: int
    node_rank: int = 0
    suffix: str = ""

    @property
    def text(self) -> str:
        """The actor's name in Ray, as ``parse_name`` reads it."""
        role = "" if self.role == "policy" else f"{self.role}_"
        node = "" if self.engine == "trtllm" else f"_{self.node_rank}"
        return f"{self.engine}_server_{role}{self.rank}{node}" + (f"_{self.suffix}" if self.suffix else "")

    @property
    def counted(self) -> bool:
        """Whether this is a replica of the policy with its own HTTP server, and not a part of one."""
        return self.role == "policy" and self.node_rank == 0


def parse_name(text: str) -> ServerName | None:
    """The parts of an actor's name; None if it is not the name of a server."""
    match = _BY_NODE.fullmatch(text)
    if match is not None:
        engine, role, rank, node_rank, suffix = match.groups()
    else:
        match = _WHOLE.fullmatch(text)
        if match is None:
            return None
        engine, role, rank, suffix = match.groups()
        node_rank = "0"
    return ServerName(
        engine=cast(Engine, engine),
        role=cast(Role, role or "policy"),
        rank=int(rank),
        node_rank=int(node_rank),
        suffix=suffix or "",
    )
