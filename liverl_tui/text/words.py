"""States and numbers as words and glyphs, the same in every view. Meaning never depends on colour alone. Pure."""

from __future__ import annotations

import time

from liverl.logs.text import plain
from liverl.model import Level, RunState, ServiceState
from liverl.util import ages
from liverl.util.late_pattern import late_pattern
from liverl_tui.text.columns import columns_of, head

GLYPH: dict[ServiceState, str] = {
    "waiting": "◌",
    "preparing": "◌",
    "starting": "◐",
    "ready": "●",
    "degraded": "▲",
    "stopping": "◑",
    "stopped": "○",
    "failed": "✖",
    "backing_off": "↻",
    "gave_up": "✖",
}
# names of the palette's styles
STYLE: dict[ServiceState, str] = {
    "waiting": "dim",
    "preparing": "info",
    "starting": "info",
    "ready": "ok",
    "degraded": "warn",
    "stopping": "warn",
    "stopped": "dim",
    "failed": "bad",
    "backing_off": "warn",
    "gave_up": "bad",
}
RUN_GLYPH: dict[RunState, str] = {
    "starting": "◐",
    "running": "●",
    "stopping": "◑",
    "done": "✔",
    "failed": "✖",
    "stopped": "○",
    "unsupervised": "▲",
    "dead": "✖",
}
RUN_STYLE: dict[RunState, str] = {
    "starting": "info",
    "running": "ok",
    "stopping": "warn",
    "done": "ok",
    "failed": "bad",
    "stopped": "dim",
    "unsupervised": "warn",
    "dead": "bad",
}
# Where runs are listed: state -> word and style; others are shown as they are.
LISTED_STATE: dict[str, tuple[str, str]] = {
    "live": ("live", "ok"),
    "elsewhere": ("live on", "ok"),
    "orphaned": ("unsupervised", "warn"),
    "lost": ("dead", "bad"),
    "never started": ("never started", "dim"),
    "failed": ("failed", "bad"),
    "stopped": ("stopped", "dim"),
    "done": ("done", "dim"),
}
LISTED_GLYPH = {"live": "●", "elsewhere": "●", "orphaned": "▲", "lost": "✖", "never started": "◌"}
LISTED_GLYPH |= {"failed": "✖", "stopped": "○", "done": "✔"}
LEVEL_GLYPH: dict[Level, str] = {"debug": "·", "info": "•", "warning": "▲", "error": "✖"}
SEVERITY_GLYPH = {"info": "•", "warning": "▲", "critical": "✖"}
SEVERITY_STYLE = {"info": "info", "warning": "warn", "critical": "alarm"}
LEVEL_STYLE: dict[Level, str] = {"debug": "dim", "info": "text", "warning": "warn", "error": "bad"}
UNKNOWN = "-"
_NUMBERS = late_pattern(r"(?:[-_]\d+)+$")
_LINE_END = late_pattern(r"\r?\n")


def step_of(step: int | str, total: int | None, sign: str = "/") -> str:
    """``7/20``; ``7`` if nobody says how many steps are wanted; ``65 (60 wanted)`` after more than those."""
    if not total:
        return str(step)
    return f"{step} ({total} wanted)" if isinstance(step, int) and step > total else f"{step}{sign}{total}"


def one_line(text: str) -> str:
    """Text that this program did not write, safe for a terminal: its lines joined by `` | ``, without colours, other
    control characters visible (``visible``)."""
    if text.isprintable():
        return text if text.strip() else ""
    return plain(" | ".join(part for part in _LINE_END.split(text) if part.strip(" \t\r")).replace("\t", " "))


def state_word(state: str) -> str:
    """A state for people: ``backing off`` for ``backing_off``."""
    return state.replace("_", " ")


def duration(seconds: float | None) -> str:
    """``41s``, ``12m03s``, ``3h05m``, ``2d04h``; ``-`` for None; a negative one counts as 0."""
    return UNKNOWN if seconds is None else ages.duration(seconds)


def age(seconds: float | None) -> str:
    """Like ``duration``, but without seconds from one minute on: ``41s``, ``12m``, ``3h05m``, ``2d04h``."""
    if seconds is None:
        return UNKNOWN
    return duration(seconds) if not 60 <= seconds < 3600 else f"{int(seconds) // 60}m"


def time_left(seconds: float) -> str:
    """How long something will still take, an estimate: rounded to 10 s below 10 minutes, to minutes below a day, else
    to hours: ``40s``, ``1m50s``, ``13m``, ``3h05m``, ``2d04h``."""
    unit = 1 if seconds < 10 else 10 if seconds < 595 else 60 if seconds < 86370 else 3600
    return age(rounded) if (rounded := round(seconds / unit) * unit) >= 600 else duration(rounded)


def moment(at: float, now: float, *, over: bool) -> str:
    """When something happened as ``happened`` says it, without its words: ``12m``, or ``09:43:31``."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if over else age(now - at)


def happened(at: float, now: float, *, over: bool) -> str:
    """When something happened (Unix seconds): ``12m ago`` while a run goes on; ``at 09:43:31`` of one that has ended
    (``over``), whose ``now`` stands still at its end, so that ages would be false."""
    when = moment(at, now, over=over)
    return f"at {when}" if over else f"{when} ago"


def size(count: float | None) -> str:
    """Bytes in at most five columns, in units of 1024: ``812K``, ``1.4G``, ``71G``; ``-`` for None."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "K", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            return f"{value:.1f}{unit}" if 0 < value < 9.95 and unit not in "BK" else f"{value:.0f}{unit}"
        value /= 1024
    raise AssertionError


def count(number: float | None) -> str:
    """A counter in at most five columns, in units of 1000: ``950``, ``12.3k``, ``4.56M``; ``-`` for None."""
    if number is None:
        return UNKNOWN
    value = float(number)
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5 or unit == "G":
            if unit == "":
                return f"{value:.0f}"
            return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}{unit}"
        value /= 1000
    raise AssertionError


def percent(share: float | None) -> str:
    """A ratio 0..1 as ``97%``; ``-`` for None."""
    return UNKNOWN if share is None else f"{share * 100:.0f}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number with ``digits`` decimals: ``0.512``; ``-`` for None."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns; ``…`` at the end if it was cut."""
    return text if columns_of(text) <= width else head(text, max(0, width - 1)) + "…"


def short_name(name: str, width: int) -> str:
    """A service's name in at most ``width`` columns. It is cut in the middle, since the numbers at its end
    (``replica-1``, ``vllm_server_1_0``) distinguish it from others."""
    if columns_of(name) <= width:
        return name
    numbers = _NUMBERS.search(name)
    end = numbers.group() if numbers else ""
    if not end and ("-" in name or "_" in name):
        end = name[max(name.rfind("-"), name.rfind("_")) :]
    if not end or columns_of(end) > width - 2:
        return cut(name, width)
    return head(name, width - 1 - columns_of(end)) + "…" + end


def action_words(action: str) -> str:
    """A symptom's action for people: ``add a replica`` for ``scale +1``, otherwise unchanged (``restart proxy``)."""
    return "add a replica" if action == "scale +1" else action


def step_word(step: int | None, validated: int | None, unknown: str = "-") -> str:
    """The step of a trial in four columns: ``12``; ``val8`` of a validation after that step, ``v12`` from 10 on;
    else ``unknown``."""
    if step is not None:
        return str(step)
    return unknown if validated is None else f"{'val' if validated < 10 else 'v'}{validated}"
