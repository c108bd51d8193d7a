"""Settings of the interface: section ``ui`` of the run's configuration, and the user's environment.

``config.yaml`` was checked when the run was created. To parse it again with the parser of the configuration would
take longer than the rest of the interface's own start, so the few lines of ``ui`` are parsed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl.util.regular_file import read_text
from liverl_tui.text.errors import CliError

REMOTE_INTERVAL_S = 1.0  # minimum seconds between two paints of live numbers over ssh; halves the bytes
REMOTE_FPS = "30"  # maximum frames per second over ssh; a key's effect is shown with the next frame
LEAST_INTERVAL_S = 0.05  # smallest accepted refresh_interval
PREFIX = "LIVERL_UI__"

_KEY = re.compile(r"""[ \t]+(\w+):[ \t]*(?:"([^"]*)"|'([^']*)'|(.*?))(?:[ \t]+\#.*|[ \t]*)$""")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")


@dataclass(frozen=True)
class UiSettings:
    """Settings as read. ``theme``: None = the default one. ``interval``: seconds between two paints of live numbers."""

    theme: str | None = None
    mouse: bool = False
    bell: bool = True
    interval: float = 0.5


def remote(env: Mapping[str, str]) -> bool:
    """Whether the terminal is connected by ssh."""
    return bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))


def before_textual() -> None:
    """Set the environment variables that Textual reads on import; those already set are kept."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    if remote(os.environ):
        os.environ.setdefault("TEXTUAL_FPS", REMOTE_FPS)


def ui_section(text: str) -> dict[str, str]:
    """Return the scalar values of the section ``ui`` in the text of a configuration file, unconverted."""
    values: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if line[:1] not in (" ", "\t", "#", ""):
            inside = re.fullmatch(r"ui:\s*(#.*)?", line) is not None
        elif inside and (match := _KEY.match(line)):
            values[match[1]] = match[2] or match[3] or match[4] or ""
    return values


def read_settings(config: Path, env: Mapping[str, str] = os.environ) -> UiSettings:
    """Return the settings for a run. ``LIVERL_UI__<KEY>`` overrides the file ``config``; an unreadable file is empty.

    In tmux the mouse is off unless the environment asks for it. Over ssh the interval is at least
    ``REMOTE_INTERVAL_S``.

    Raises:
        CliError: a value is invalid.
    """
    try:
        values = ui_section(read_text(config, errors="replace"))
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
        mouse = False  # tmux handles the mouse itself
    interval = UiSettings.interval
    if text := values.get("refresh_interval"):
        try:
            interval = float(text)
        except ValueError:
            raise wrong("refresh_interval", "a number of seconds") from None
        if not LEAST_INTERVAL_S <= interval < float("inf"):
            raise wrong("refresh_interval", f"a number of seconds of at least {LEAST_INTERVAL_S:g}")
    if remote(env):
        interval = max(interval, REMOTE_INTERVAL_S)
    return UiSettings(values.get("theme") or None, mouse, switch("bell", UiSettings.bell), interval)


def check_theme(name: str | None) -> None:
    """Check that theme ``name`` exists. This imports Textual, and therefore sets its environment first.

    Raises:
        CliError: it does not exist; the message suggests the closest name.
    """
    before_textual()
    from liverl_tui.text.themes import ALIASES, AUTO, PALETTES, resolve

    try:
        resolve(name)
    except KeyError:
        choices = [AUTO, *(theme.removeprefix("liverl-") for theme in PALETTES)]
        close = did_you_mean(str(name), [*choices, *PALETTES, *ALIASES])
        hint = f"; {close}" if close else ""
        raise CliError(f"ui.theme: no theme {name!r}{hint} ({', '.join(choices)})", ExitCode.USAGE) from None
