"""Rows that say the same of different texts: one failure, as each program prints it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from liverl.causes.signature import Component, Signature


class Text(NamedTuple):
    """What differs between the rows of a family; ``source``, ``component``, ``title``: if they are not those of the
    first row."""

    id: str
    needle: str
    pattern: str
    fires: str
    spares: str
    source: str = ""
    component: Component | None = None
    recorded: bool = False
    title: str = ""


def family(first: Signature, *others: Text) -> tuple[Signature, ...]:
    """The first row, and those that say the same of other texts."""
    return (
        first,
        *(
            replace(
                first,
                id=other.id,
                needle=other.needle,
                pattern=other.pattern,
                fires=other.fires,
                spares=other.spares,
                source=other.source or first.source,
                component=other.component or first.component,
                recorded=other.recorded,
                title=other.title or first.title,
            )
            for other in others
        ),
    )
