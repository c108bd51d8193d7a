"""How the interface looks: the section ``ui`` of the run's own configuration, and the environment of who looks.

The whole of ``config.yaml`` was checked when the run was made. Reading it with the parser of the configuration
again costs more than everything else of the interface's own start, so these few lines are read by themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.exit_codes import ExitCode
from liverl_tui.text.errors import CliError

REMOTE_INTERVAL_S = 1.0  # between two paints of live numbers over ssh; half as many bytes
REMOTE_FPS = "30"  # frames in one second at most, over ssh; a key waits for the next one
LEAST_INTERVAL_S = 0.05
PREFIX = "LIVERL_UI__"

_KEY = re.compile(r"""[ \t]+(\w+):[ \t]*(?:"([^"]*)"|'([^']*)'|(.*?))(?:[ \t]+\#.*|[ \t]*)$""")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")


@dataclass(frozen=True)
class UiSettings:
    """``theme``: None = the default one. ``interval``: seconds between two paints of live numbers."""

    theme: str | None = None
    mouse: bool = False
    bell: bool = True
    interval: float = 0.5


def remote(env: Mapping[str, str]) -> bool:
    """Whether the terminal is at the other end of a network."""
    return bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))


def before_textual() -> None:
    """What Textual reads when it is imported."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    if remote(os.environ):
        os.environ.setdefault("TEXTUAL_FPS", REMOTE_FPS)


def ui_section(text: str) -> dict[str, str]:
    """The plain values of the section ``ui``."""
    values: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if line[:1] not in (" ", "\t", "#", ""):
            inside = re.fullmatch(r"ui:\s*(#.*)?", line) is not None
        elif inside and (match := _KEY.match(line)):
            values[match[1]] = match[2] or match[3] or match[4] or ""
    return values


def read_settings(config: Path, env: Mapping[str, str] = os.environ) -> UiSettings:
    """The settings for a run; ``LIVERL_UI__<KEY>`` goes before its own. Without a readable file: the defaults.

    Raises:
        CliError: a value that cannot be used.
    """
    try:
        values = ui_section(config.read_text(errors="replace"))
    except OSError:
        values = {}
    origin = dict.fromkeys(values, f"ui.{{}} in {config}")
    for key in ("theme", "mouse", "bell", "refresh_interval"):
        if chosen := env.get(PREFIX + key.upper()):
            values[key], origin[key] = chosen, PREFIX + key.upper()

    def wrong(key: str, expected: str) -> CliError:
        return CliError(f"{origin[key].format(key)}: {values[key]!r} is not {expected}", ExitCode.USAGE)

    def switch(key: str, default: bool) -> bool:
        word = values.get(key, "").lower()
        if word not in (*_TRUE, *_FALSE, ""):
            raise wrong(key, "true or false")
        return word in _TRUE if word else default

    mouse = switch("mouse", UiSettings.mouse)
    if env.get("TMUX") and not env.get(PREFIX + "MOUSE"):
        mouse = False  # tmux has a mouse of its own; who wants ours there says so
    interval = UiSettings.interval
    if text := values.get("refresh_interval"):
        try:
            interval = float(text)
        except ValueError:
            raise wrong("refresh_interval", "a number of seconds") from None
        if not LEAST_INTERVAL_S <= interval < float("inf"):
            raise wrong("refresh_interval", f"a number of seconds from {LEAST_INTERVAL_S:g} on")
    if remote(env):
        interval = max(interval, REMOTE_INTERVAL_S)
    return UiSettings(values.get("theme") or None, mouse, switch("bell", UiSettings.bell), interval)


def check_theme(name: str | None) -> None:
    """Whether there is such a theme.

    Raises:
        CliError: there is none; it names the nearest one.
    """
    before_textual()
    from liverl_tui.text.themes import ALIASES, AUTO, PALETTES, resolve

    try:
        resolve(name)
    except KeyError:
        from difflib import get_close_matches

        known = [AUTO, *(theme.removeprefix("liverl-") for theme in PALETTES)]
        close = get_close_matches(str(name), [*known, *PALETTES, *ALIASES], 1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise CliError(f"ui.theme: no theme {name!r}{hint} ({', '.join(known)})", ExitCode.USAGE) from None
