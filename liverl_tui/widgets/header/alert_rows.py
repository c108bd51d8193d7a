"""Alerts in one row each: what is wrong, and what to type or press. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from liverl.diagnose.failures import ids_for
from liverl.diagnose.titles import point
from liverl.model import Snapshot, Symptom
from liverl_tui.keys.bindings import find
from liverl_tui.text.next_attempt import set_options
from liverl_tui.text.words import SEVERITY_GLYPH, SEVERITY_STYLE, action_words, happened, one_line
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.base.fitting import Form, Part, pack

_RANK = ("info", "warning", "critical")  # severities, ascending
_SHORTEST = 24  # columns of a title at least


def worst(symptoms: Iterable[Symptom]) -> Symptom | None:
    """The most severe symptom, None without symptoms. Of equally severe ones the earliest, since later ones may be
    its consequences."""
    return max(symptoms, key=lambda s: (_RANK.index(s.severity), -(s.since or inf)), default=None)


def shown_alerts(snapshot: Snapshot) -> list[Symptom]:
    """The alerts that get a row, the worst first: no notices, and not the failure that the result names already."""
    result = snapshot.result
    told = ids_for(result.cause) if result is not None else ()
    serious = [s for s in snapshot.symptoms if s.severity != "info" and s.id not in told]
    return sorted(serious, key=lambda s: (-_RANK.index(s.severity), s.since or inf))


def remedies(symptom: Symptom, resume: str | None = None) -> tuple[str, ...]:
    """What to type or press, from the longest wording to the shortest: the fix, then a whole command, keys, or the
    beginning of the fix. ``resume``: the command that goes on with a run that has ended."""
    keys = f"{find('app', 'alerts').mention} then {find('alerts', 'apply').mention}"
    if symptom.patch and resume is not None:
        return (f"{resume} {set_options(symptom.patch)}",)
    if symptom.patch:
        return symptom.fix, f"{keys}: {set_options(symptom.patch)}", keys
    if symptom.action is not None:
        return symptom.fix, f"{keys}: {action_words(symptom.action)}"
    return symptom.fix, point(symptom.fix)


def alert_row(
    symptom: Symptom,
    width: int,
    now: float,
    resume: str | None = None,
    told: str | None = None,
    *,
    over: bool = False,
) -> Row:
    """One alert: its title, when it began, and its fix. Where these do not fit, the fix gets shorter, then the title
    loses its explanation; what to type or press stays, while a fix of words only is left out before the title is cut.
    ``now``: Unix time; ``resume``: see ``remedies``; ``told``: a command that stands above it already; ``over``:
    the run has ended."""
    glyph, style = SEVERITY_GLYPH[symptom.severity], SEVERITY_STYLE[symptom.severity]
    title = one_line(symptom.title)
    short = point(title)
    forms = dict.fromkeys(f"{glyph} {text}" for text in (title, short, fit(short, _SHORTEST).rstrip()))
    parts = [Part(1, tuple(((form, style),) for form in forms))]
    if symptom.since is not None:
        parts.append(Part(3, (((happened(symptom.since, now, over=over), "dim"),), ())))
    fixes = dict.fromkeys(one_line(text) for text in remedies(symptom, resume) if text and text != told)
    fix_forms: tuple[Form, ...] = tuple((("→ ", "dim"), (fix, "strong")) for fix in fixes)
    if fix_forms and not symptom.patch and symptom.action is None:
        fix_forms += ((),)
    if fix_forms:
        parts.append(Part(2, fix_forms))
    return pack(parts, width)
