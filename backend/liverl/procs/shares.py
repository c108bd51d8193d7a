"""Which of a Ray cluster's processes belong to whom: all of them hang in the head's process tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def shares(
    tree: Collection[int], parents: Mapping[int, int], actors: Mapping[int, str]
) -> dict[str, set[int]]:
    """Owner -> pids. Each process of ``tree`` goes to its nearest ancestor (or itself) in ``actors``, a mapping of
    actors' pids to the owner's name; what hangs below no actor is left out, as it is Ray's own.

    ``parents``: pid -> parent's pid. Loops and unknown parents end the search.
    """
    found: dict[str, set[int]] = {}
    for pid in tree:
        at, seen = pid, set[int]()
        while at not in actors and at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        if at in actors:
            found.setdefault(actors[at], set()).add(pid)
    return found
