"""Names of the themes, known without Textual: a configuration is checked without a terminal."""

from __future__ import annotations

from liverl.util.nearest import did_you_mean

AUTO = "auto"  # chosen by the colours of the terminal
FULL = ("liverl-dark", "liverl-light", "liverl-colour-blind", "liverl-ansi")
# Short names, and Textual's own names in older configurations.
ALIASES = {
    "dark": "liverl-dark",
    "light": "liverl-light",
    "colour-blind": "liverl-colour-blind",
    "color-blind": "liverl-colour-blind",
    "ansi": "liverl-ansi",
    "textual-dark": "liverl-dark",
    "textual-light": "liverl-light",
    "textual-ansi": "liverl-ansi",
}


def theme_problem(name: str | None) -> str:
    """What is wrong with ``name`` as the name of a theme, with the closest one; empty if nothing is. None, the default
    theme, is right."""
    known = (AUTO, *FULL, *ALIASES)
    if name is None or name in known:
        return ""
    short = [AUTO, *(full.removeprefix("liverl-") for full in FULL)]
    hint = did_you_mean(name, [*short, *known])
    return f"no theme {name!r}{f'; {hint}' if hint else ''} ({', '.join(short)})"
