"""The files besides the proxy's records that may hold a whole trajectory, and who reads them.

A trial without records is read from the first of ``DOCUMENTS`` that it has. To add a format, write its two functions
in a module of its own and add a line to the table.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from liverl.observe.trials.agent_files import (
    Messages,
    counts,
    first_line,
    mini_messages,
    openhands_messages,
    sweagent_messages,
    turns,
)
from liverl.observe.trials.atif import ATIF, atif_counts, atif_turns
from liverl.observe.trials.message_parts import loads
from liverl.observe.trials.records import ProxyTrajectory, count, parse_proxy_trajectory
from liverl.observe.trials.session_facts import SessionFacts, document_session
from liverl.observe.trials.turns import Turn, turns_of_messages


class TrajectoryDocument(NamedTuple):
    """A file with a trial's conversation.

    ``name``: of the file, relative to the trial's directory; the part behind the last slash may be a pattern.
    ``counts``: its bytes -> what the list of trials shows; None where they are not of this format. ``turns``: the JSON
    object in it -> (turns, what is missing in them, as one sentence); an object of another shape gives no turns.
    ``session``: the JSON object -> the facts of its session; None if it has none. ``at_end``: it is written when the
    agent has ended; else the trial's result says that. ``load``: its bytes -> the JSON object.
    """

    name: str
    counts: Callable[[bytes], ProxyTrajectory | None]
    turns: Callable[[dict[str, Any]], tuple[tuple[Turn, ...], str]]
    session: Callable[[dict[str, Any]], SessionFacts | None] = lambda document: None
    at_end: bool = True
    load: Callable[[bytes], Any] = loads


PROXY_TRAJECTORY = "proxy_trajectory.json"


def _proxy_turns(document: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
    """(turns, what is missing) of a ``proxy_trajectory.json`` of either shape."""
    messages = document.get("messages_snapshot", document.get("messages"))
    if isinstance(messages, list):
        tools = document.get("tools")
        offered = bool(tools) if isinstance(tools, list) else None
        turns = [msgspec.structs.replace(turn, offered=offered) for turn in turns_of_messages(messages)]
        note = "" if not turns else f"{PROXY_TRAJECTORY} has no finish reasons, tokens or times"
        missing = count(document.get("messages_missing"))
        if missing:
            note = "; ".join(filter(None, (note, f"{missing} earlier messages are not known")))
        return tuple(turns), note
    mask = document.get("traj_response_mask")
    if isinstance(mask, list):
        spoken = sum(1 for bit in mask if bit)
        return (
            (),
            f"{PROXY_TRAJECTORY} contains only tokens: {spoken} of the model, {len(mask) - spoken} of others",
        )
    return (), f"{PROXY_TRAJECTORY} has an unknown shape"


def _of_agent(
    name: str, messages: Messages, what: str, load: Callable[[bytes], Any] = loads
) -> Iterator[TrajectoryDocument]:
    """A format of an agent's own, in the folder of the agent's logs or in that of the trial."""
    for place in (name, name.rpartition("/")[2]):
        read = counts(messages, load)
        yield TrajectoryDocument(place, read, turns(messages, what), at_end=False, load=load)


DOCUMENTS: tuple[TrajectoryDocument, ...] = (
    TrajectoryDocument(PROXY_TRAJECTORY, parse_proxy_trajectory, _proxy_turns, document_session),
    TrajectoryDocument(ATIF, atif_counts, atif_turns, at_end=False),
    *_of_agent("agent/*.traj.json", mini_messages, "mini-swe-agent"),
    *_of_agent("agent/*.traj", sweagent_messages, "SWE-agent"),
    *_of_agent("agent/output.jsonl", openhands_messages, "OpenHands", first_line),
)


def present(
    directory: str | os.PathLike[str], top: Collection[str]
) -> Iterator[tuple[TrajectoryDocument, str]]:
    """(document, name of its file relative to ``directory``) for those that a trial may have, in the order of the
    table. ``top``: the names in its directory."""
    listed: dict[str, list[str]] = {"": sorted(top)}
    for document in DOCUMENTS:
        folder, slash, pattern = document.name.rpartition("/")
        if folder and folder not in top:
            continue
        if "*" not in pattern:
            if slash or pattern in top:
                yield document, document.name
            continue
        if folder not in listed:
            try:
                listed[folder] = sorted(os.listdir(os.path.join(directory, folder)))
            except OSError:
                listed[folder] = []
        name = next(iter(fnmatch.filter(listed[folder], pattern)), None)
        if name is not None:
            yield document, f"{folder}{slash}{name}"
