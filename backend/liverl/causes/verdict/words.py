"""The sentences of a diagnosis: what result, alert, status, report and events show. Pure."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence

from liverl.causes.finding import Evidence, Exit, Explanation
from liverl.causes.match import Match
from liverl.causes.verdict.verl_keys import meant

LONGEST = 600  # characters of a line that is shown
REWARD_FILE = "reward_file"  # in braces: the user's file in parentheses, or nothing
_GROUP = re.compile(r"\{(\w+)\}")


def short(text: str) -> str:
    """On one line, and not longer than ``LONGEST``."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def point(title: str) -> str:
    """What a title says in short: its part before the first semicolon."""
    return title.partition(";")[0]


def filled(text: str, groups: dict[str, str]) -> str:
    """``text`` with captured groups in place of ``{name}``; what was not captured is shown as "?"."""
    return _GROUP.sub(lambda found: groups.get(found[1], "?"), text)


def explained(match: Match, evidence: tuple[Evidence, ...], reward_file: str = "") -> Explanation:
    """What a signature says of the record that it matched. ``reward_file``: of the user's reward function, if known."""
    row = match.signature
    groups = match.groups | _meant(match) if "{meant}" in row.fix else match.groups
    groups = groups | {REWARD_FILE: f" ({reward_file})" if reward_file else ""}
    patch = {
        key: filled(value, groups)
        for key, value in row.patch.items()
        if all(name in groups for name in _GROUP.findall(value))
    }
    return Explanation(
        row.id,
        row.severity,
        short(filled(row.title, groups)),
        filled(row.cause, groups),
        filled(row.fix, groups),
        filled(row.command, groups),
        patch,
        evidence,
        guess=any(_chosen(row.patch[key]) for key in patch),
    )


def _chosen(value: str) -> bool:
    """Whether a value of a patch was chosen by a rule of thumb: it is no switch, and the log does not name it."""
    return value not in ("true", "false") and _GROUP.search(value) is None


def _meant(match: Match) -> dict[str, str]:
    key = meant(match.groups.get("key", "").lstrip("+"))
    return {"meant": f" (did you mean {key}?)" if key else ""}


def signal_name(number: int) -> str:
    """``SIGKILL``; a number without a name is ``signal 77``."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(exit_: Exit) -> str:
    """How a process ended: ``was killed by SIGKILL``, ``exited with code 1``."""
    number = signal_of(exit_)
    if number is not None:
        verb = (
            "was stopped by"
            if number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
            else "was killed by"
        )
        return f"{verb} {signal_name(number)}"
    return f"exited with code {exit_.code}" if exit_.code is not None else "ended"


def signal_of(exit_: Exit) -> int | None:
    """The signal that ended a process or, as 128+n of a shell, its child."""
    if exit_.signal is not None:
        return exit_.signal
    if exit_.code is not None and 128 < exit_.code < 128 + 65:
        return exit_.code - 128
    return None


def of_exits(exits: Sequence[Exit]) -> tuple[Evidence, ...]:
    """How the processes ended, as evidence."""
    return tuple(Evidence(f"{e.name} {ending(e)}", e.log or None) for e in exits[:3])
