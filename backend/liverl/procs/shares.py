"""Attributes the processes of a Ray cluster, all descendants of its head process, to the actors' owners."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def shares(
    tree: Collection[int], parents: Mapping[int, int], actors: Mapping[int, str]
) -> dict[str, set[int]]:
    """Return owner -> pids: each process of ``tree`` belongs to its nearest ancestor (or itself) in
    ``actors``.

    ``actors`` maps the pids of actors to the names of their owners, ``parents`` a pid to its parent's.
    Processes below no actor are Ray's own and left out. Cycles and unknown parents end the search.
    """
    pids_by_owner: dict[str, set[int]] = {}
    for pid in tree:
        at, visited = pid, set[int]()
        while at not in actors and at in parents and at not in visited:
            visited.add(at)
            at = parents[at]
        if at in actors:
            pids_by_owner.setdefault(actors[at], set()).add(pid)
    return pids_by_owner
