"""Settings of the interface: section ``ui`` of the run's configuration, and the user's environment.

``config.yaml`` was checked when the run was created. To parse it again with the parser of the configuration would
take longer than the rest of the interface's own start, so the few lines of ``ui`` are parsed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl.util.regular_file import read_text
from liverl_tui.app.key_mapping import UnreadableKeys, flow_mapping, take_keys
from liverl_tui.keys.key import Key
from liverl_tui.keys.table import KEYS
from liverl_tui.text.errors import CliError
from liverl_tui.text.theme_names import AUTO, theme_problem

REMOTE_INTERVAL_S = 1.0  # minimum seconds between two paints of live numbers over ssh; halves the bytes
REMOTE_FPS = "30"  # maximum frames per second over ssh; a key's effect is shown with the next frame
LEAST_INTERVAL_S = 0.05  # smallest accepted refresh_interval
DESKTOP = ("auto", "osc9", "osc777", "off")  # as in the section of the configuration
PREFIX = "LIVERL_UI__"

_KEY = re.compile(r"""[ \t]+(\w+):[ \t]*(?:"([^"]*)"|'([^']*)'|(.*?))(?:[ \t]+\#.*|[ \t]*)$""")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")


class UiSettings(Struct, frozen=True):
    """Settings as read. ``theme``: None = the default one. ``interval``: seconds between two paints of live numbers.
    ``desktop``: how the terminal notifies the desktop. ``keys``: the table of keys, with those of the user.
    ``problems``: values that cannot be used, each with where it was set and what is used in its place."""

    theme: str | None = None
    mouse: bool = False
    bell: bool = True
    interval: float = 0.5
    desktop: str = "auto"
    keys: tuple[Key, ...] = KEYS
    problems: tuple[str, ...] = ()


_DEFAULTS = UiSettings()


def remote(env: Mapping[str, str]) -> bool:
    """Whether the terminal is connected by ssh."""
    return bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))


def before_textual() -> None:
    """Set the environment variables that Textual reads on import; those already set are kept."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    if remote(os.environ):
        os.environ.setdefault("TEXTUAL_FPS", REMOTE_FPS)


def ui_section(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the scalar values of the section ``ui`` in the text of a configuration file, unconverted, and its mapping
    ``keys``.

    Raises:
        UnreadableKeys: ``keys`` is not written as these few lines can be read.
    """
    section: list[str] = []
    inside = False
    for line in text.replace("\r\n", "\n").split("\n"):
        if line[:1] not in (" ", "\t", "#", ""):
            inside = re.fullmatch(r"ui:\s*(#.*)?", line) is not None
        elif inside:
            section.append(line)
    keys, rest = take_keys(section)
    matches = filter(None, map(_KEY.match, rest))
    return {match[1]: match[2] or match[3] or match[4] or "" for match in matches}, keys


def read_settings(config: Path, env: Mapping[str, str] = os.environ) -> UiSettings:
    """Return the settings for a run. ``LIVERL_UI__<KEY>`` overrides the file ``config``; an unreadable file is empty.

    No value keeps a run from being shown: in the place of one that cannot be used stands the default, and ``problems``
    says so. In tmux the mouse is off unless the environment asks for it. Over ssh the interval is at least
    ``REMOTE_INTERVAL_S``.
    """
    problems: list[str] = []
    try:
        values, keys = ui_section(read_text(config, errors="replace"))
    except OSError:
        values, keys = {}, {}
    except UnreadableKeys as error:
        values, keys = {}, {}
        problems.append(f"ui.keys in {config}: {error}; the defaults of section ui are used")
    origin = dict.fromkeys(values, f"ui.{{}} in {config}")
    for key in ("theme", "mouse", "bell", "desktop", "refresh_interval"):
        if chosen := env.get(PREFIX + key.upper()):
            values[key], origin[key] = chosen, PREFIX + key.upper()

    def wrong(key: str, why: str, instead: object) -> None:
        problems.append(f"{origin[key].format(key)}: {why}; {instead} is used")

    def switch(key: str, default: bool) -> bool:
        word = values.get(key, "").lower()
        if word not in (*_TRUE, *_FALSE, ""):
            wrong(key, f"{values[key]!r} is not true or false", str(default).lower())
            return default
        return word in _TRUE if word else default

    theme = values.get("theme") or None
    if why := theme_problem(theme):
        wrong("theme", why, AUTO)
        theme = AUTO
    desktop = values.get("desktop") or _DEFAULTS.desktop
    if desktop not in DESKTOP:
        hint = did_you_mean(desktop, DESKTOP)
        wrong(
            "desktop",
            f"{desktop!r} is not one of {', '.join(DESKTOP)}" + (f"; {hint}" if hint else ""),
            _DEFAULTS.desktop,
        )
        desktop = _DEFAULTS.desktop
    mouse = switch("mouse", _DEFAULTS.mouse)
    if env.get("TMUX") and not env.get(PREFIX + "MOUSE"):
        mouse = False  # tmux handles the mouse itself
    interval = _DEFAULTS.interval
    if text := values.get("refresh_interval"):
        if (seconds := _seconds(text)) is None:
            least = f"{text!r} is not a number of seconds of at least {LEAST_INTERVAL_S:g}"
            wrong("refresh_interval", least, f"{interval:g}")
        else:
            interval = seconds
    if remote(env):
        interval = max(interval, REMOTE_INTERVAL_S)
    try:
        table = _table(keys, str(config), env.get(PREFIX + "KEYS", ""))
    except CliError as error:
        problems += [f"{line}; the default keys are used" for line in str(error).splitlines()]
        table = KEYS
    bell = switch("bell", _DEFAULTS.bell)
    return UiSettings(theme, mouse, bell, interval, desktop, table, tuple(problems))


def _seconds(text: str) -> float | None:
    """The seconds of ``refresh_interval``; None if ``text`` is none that can be used."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if LEAST_INTERVAL_S <= seconds < float("inf") else None


def _table(keys: Mapping[str, str], where: str, variable: str) -> tuple[Key, ...]:
    """The table of keys with ``keys``, over which the entries of the environment's ``variable`` go.

    Raises:
        CliError: they cannot be used.
    """
    try:
        chosen = flow_mapping(variable.strip()) if variable.strip() else {}
    except UnreadableKeys:
        expected = 'as in {logs.access: V, app.theme: ""}'
        raise CliError(
            f"{PREFIX}KEYS: {variable!r} is not a mapping of entries to keys, {expected}", ExitCode.USAGE
        ) from None
    # A run's configuration must not be edited, so an error names the way around it.
    where = f"{where} (for one interface, {PREFIX}KEYS goes over it)"
    places = {**dict.fromkeys(keys, where), **dict.fromkeys(chosen, f"{PREFIX}KEYS")}
    return table_with({**keys, **chosen}, places)


def table_with(keys: Mapping[str, str], places: Mapping[str, str]) -> tuple[Key, ...]:
    """The table of keys with those of the user. ``places``: where each of ``keys`` was set, for errors.

    Raises:
        CliError: they cannot be used; the message names all problems.
    """
    if not keys:
        return KEYS
    from liverl_tui.keys.rebind import BadKeys, rebound

    try:
        return rebound(KEYS, keys)
    except BadKeys as error:
        lines = [f"ui.keys.{bad.id} in {places[bad.id]}: {bad.text}" for bad in error.problems]
        raise CliError("\n".join(lines), ExitCode.USAGE) from None
