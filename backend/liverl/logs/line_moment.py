"""The moment that one line of a log states. Pure."""

from __future__ import annotations

from liverl.logs.heads import LineHead, parse_head
from liverl.logs.json_lines import json_parts
from liverl.logs.moments import Moment
from liverl.logs.prefix_chain import PrefixChain, split_prefixes
from liverl.logs.prefixes import colourless

HEAD = 600  # characters of a line in which its stamp stands


def stamp_in(line: str) -> Moment | None:
    """The stamp of a line as it stands in a file, with colours or in JSON; None without one."""
    return stamp_of(json_parts(colourless(line).rstrip())[0][:HEAD])


def stamp_of(line: str) -> Moment | None:
    """The stamp of a plain line; None without one."""
    chain = split_prefixes(line)
    return moment_of_line(chain, parse_head(chain.text))


def moment_of_line(chain: PrefixChain, head: LineHead) -> Moment | None:
    """The time that a line states in its prefixes or its head."""
    moment = head.moment
    if chain.moment is not None and (moment is None or chain.moment.offset is not None):
        return chain.moment
    return moment
