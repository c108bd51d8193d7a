"""Names of keys: Textual's, and as people write them."""

from __future__ import annotations

import string
import unicodedata

from liverl.util.nearest import did_you_mean

# Textual's name -> as the interface writes it.
_SPECIAL = {
    "escape": "Esc",
    "enter": "Enter",
    "tab": "Tab",
    "space": "Space",
    "backspace": "Backspace",
    "delete": "Del",
    "insert": "Ins",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
_PREFIXES = (("ctrl+", "^"), ("shift+", "⇧"), ("alt+", "Alt-"))
_RENAMED = {  # Textual's name of a character, where it is not Unicode's
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_ALSO = {"return": "enter", "page_up": "pageup", "page_down": "pagedown"}
_SAME_BYTES = {"i": "Tab", "m": "Enter", "[": "Esc", "h": "Backspace"}  # with Ctrl
_WITH_SHIFT = ("tab", "up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert", "delete")
_WITH_CTRL = ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "insert", "delete")

_WORKS = {
    "ctrl": "the letters, arrow keys, Home, End, PgUp, PgDn, Ins and Del",
    "alt": "letters and digits",
    "shift": "Tab, arrow keys, Home, End, PgUp, PgDn, Ins and Del",
}


class BadKey(ValueError):
    """A text that names no key, or a key that no terminal can send. Its message is the reason."""


def _of_character(character: str) -> str:
    """Textual's name of the key that types ``character``."""
    if character.isalnum():
        return character
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


CHARACTERS = {_of_character(char): char for char in string.punctuation}
_NAMES = {name: name for name in (*_SPECIAL, *CHARACTERS)}
_NAMES |= {shown.lower(): name for name, shown in _SPECIAL.items()} | _ALSO


def key_name(key: str) -> str:
    """A key's Textual name as people write it: ``slash`` is /, ``ctrl+p`` is ^p, ``shift+left`` is ⇧←."""
    for prefix, sign in _PREFIXES:
        if key.startswith(prefix):
            return sign + key_name(key.removeprefix(prefix))
    return _SPECIAL.get(key) or CHARACTERS.get(key, key)


def parse_key(text: str) -> str:
    """Textual's name of the key that ``text`` names, in Textual's words or as people write it: ``?``, ``^r``,
    ``ctrl+r``, ``PgUp``, ``G``.

    Raises:
        BadKey: it names no key, or one that terminals do not send or send as another one.
    """
    modifier, base = _split(text)
    if not modifier:
        return _plain(base, text)
    if modifier == "ctrl" and (twin := _SAME_BYTES.get(_character(base).lower())):
        raise BadKey(f"terminals send {twin} for it")
    name = _plain(base, text)
    if modifier == "ctrl":
        name = name.lower()
        fits = name in string.ascii_lowercase or name in _WITH_CTRL
    elif modifier == "alt":
        fits = name.isascii() and name.isalnum() and len(name) == 1
    elif len(name) == 1 and name.isalpha():
        raise BadKey(f"write a letter with Shift as {name.upper()}")
    else:
        fits = name in _WITH_SHIFT
    if not fits:
        raise BadKey(f"terminals send no such key; {modifier} works with {_WORKS[modifier]}")
    return f"{modifier}+{name}"


def _split(text: str) -> tuple[str, str]:
    """The modifier (ctrl, shift, alt or none) and the rest."""
    for sign, modifier in (("^", "ctrl"), ("⇧", "shift")):
        if text.startswith(sign) and len(text) > 1:
            return modifier, text[1:]
    for modifier in ("ctrl", "shift", "alt"):
        for mark in "+-":
            if text.lower().startswith(f"{modifier}{mark}") and len(text) > len(modifier) + 1:
                return modifier, text[len(modifier) + 1 :]
    return "", text


def _character(base: str) -> str:
    """The character of a key that types one; else ``base``."""
    return CHARACTERS.get(base.lower(), base)


def _plain(base: str, text: str) -> str:
    if len(base) == 1 and (base.isalnum() or base in string.punctuation):
        return _of_character(base)
    name = _NAMES.get(base.lower())
    if name is None:
        close = did_you_mean(base, [*_NAMES, *_SPECIAL.values()])
        raise BadKey("there is no key with this name" + (f"; {close}" if close else ""))
    return name
