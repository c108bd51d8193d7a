"""Notifications of the desktop through the terminal: OSC 9 and OSC 777, which terminals show outside of their window.

OSC 9 is iTerm2's, and also of kitty, WezTerm, Ghostty and Windows Terminal; OSC 777 is rxvt-unicode's, and also of
foot and of terminals made with VTE. Terminals ignore the form that they do not know. Over ssh only TERM tells which
terminal it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from liverl.util.visible import visible

TEXT_MOST = 200  # characters
_NAME = "liverl-tui"  # also keeps a text from beginning with a digit, which is another command of OSC 9
_SILENT = ("linux", "dumb")  # terminals that may print the sequence as text
_RXVT_LIKE = ("rxvt", "foot")


def form(setting: str, env: Mapping[str, str]) -> str:
    """``osc9``, ``osc777`` or ``off``: the form for this terminal, by ``ui.desktop`` and the environment."""
    if setting == "off" or env.get("TERM", "dumb") in _SILENT:
        return "off"
    if setting != "auto":
        return setting
    return "osc777" if env.get("VTE_VERSION") or env["TERM"].startswith(_RXVT_LIKE) else "osc9"


def sequence(text: str, setting: str, env: Mapping[str, str]) -> str:
    """What makes the terminal notify of ``text``; "" if it is not to. Characters that would end the sequence are made
    visible. In tmux it goes through tmux, which passes it on with its option ``allow-passthrough``."""
    kind = form(setting, env)
    if kind == "off":
        return ""
    shown = visible(" ".join(text.split()))[:TEXT_MOST]
    if kind == "osc777":
        osc = f"\x1b]777;notify;{_NAME};{shown.replace(';', ',')}\x07"
    else:
        osc = f"\x1b]9;{_NAME}: {shown}\x07"
    if env.get("TMUX"):
        doubled = osc.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return f"\x1bP{osc}\x1b\\" if env.get("STY") else osc  # GNU screen
