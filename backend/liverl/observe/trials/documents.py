"""The files besides the proxy's records that may hold a whole trajectory, and who reads them.

A trial without records is read from the first of ``DOCUMENTS`` that it has. To add a format, write its two functions
in a module of its own and add a line to the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from liverl.observe.trials.atif import ATIF, atif_counts, atif_turns
from liverl.observe.trials.records import ProxyTrajectory, parse_proxy_trajectory
from liverl.observe.trials.session_facts import SessionFacts, document_session
from liverl.observe.trials.turns import Turn, turns_of_messages


class TrajectoryDocument(NamedTuple):
    """A JSON file with a trial's conversation.

    ``name``: of the file, relative to the trial's directory. ``counts``: its bytes -> what the list of trials shows;
    None where they are not of this format. ``turns``: the JSON object in it -> (turns, what is missing in them, as one
    sentence); an object of another shape gives no turns. ``session``: the JSON object -> the facts of its session;
    None if it has none. ``at_end``: it is written when the agent has ended; else the trial's result says that.
    """

    name: str
    counts: Callable[[bytes], ProxyTrajectory | None]
    turns: Callable[[dict[str, Any]], tuple[tuple[Turn, ...], str]]
    session: Callable[[dict[str, Any]], SessionFacts | None] = lambda document: None
    at_end: bool = True


PROXY_TRAJECTORY = "proxy_trajectory.json"


def _proxy_turns(document: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
    """(turns, what is missing) of a ``proxy_trajectory.json`` of either shape."""
    messages = document.get("messages_snapshot", document.get("messages"))
    if isinstance(messages, list):
        tools = document.get("tools")
        offered = bool(tools) if isinstance(tools, list) else None
        turns = (msgspec.structs.replace(turn, offered=offered) for turn in turns_of_messages(messages))
        note = f"{PROXY_TRAJECTORY} has no finish reasons, tokens or times"
        missing = document.get("messages_missing")
        if isinstance(missing, int) and missing > 0:
            note += f"; {missing} earlier messages are not known"
        return tuple(turns), note
    mask = document.get("traj_response_mask")
    if isinstance(mask, list):
        spoken = sum(1 for bit in mask if bit)
        return (
            (),
            f"{PROXY_TRAJECTORY} contains only tokens: {spoken} of the model, {len(mask) - spoken} of others",
        )
    return (), f"{PROXY_TRAJECTORY} has an unknown shape"


DOCUMENTS: tuple[TrajectoryDocument, ...] = (
    TrajectoryDocument(PROXY_TRAJECTORY, parse_proxy_trajectory, _proxy_turns, document_session),
    TrajectoryDocument(ATIF, atif_counts, atif_turns, at_end=False),
)
