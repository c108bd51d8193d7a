"""The table of keys with a user's own keys in it, and everything that can be wrong with them."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from liverl.util.nearest import did_you_mean
from liverl_tui.keys.key import Key, Scope
from liverl_tui.keys.names import BadKey, key_name, parse_key
from liverl_tui.keys.table import ACTIVE_TOGETHER, FIXED, SCOPE_TITLES

# The entry keeps this key beside those of the user: it must always be possible to leave, and text fields in dialogs
# take letters.
ALWAYS = {
    "app.leave": "ctrl+c",
    "dialog.interrupt": "ctrl+c",
    "dialog.pick": "enter",
    "dialog.cancel": "escape",
}
_NEEDED = ("app.help",)  # must have a key: it shows all others
_RESERVED = {"ctrl+c": "it always quits", "escape": "it always goes back"}
_CTRL = "abdefgklnorstuvwxyz"  # letters that a terminal sends with Ctrl as a key of its own
_OFFERED = 6  # free keys in an error


@dataclass(frozen=True)
class KeyProblem:
    """What is wrong with the keys of one entry. ``id``: the entry as the user wrote it."""

    id: str
    text: str


class BadKeys(ValueError):
    """Keys of the user's that cannot be used."""

    def __init__(self, problems: Sequence[KeyProblem]) -> None:
        super().__init__("; ".join(f"{problem.id}: {problem.text}" for problem in problems))
        self.problems = tuple(problems)


def rebound(keys: Sequence[Key], chosen: Mapping[str, str]) -> tuple[Key, ...]:
    """``keys`` with those of ``chosen`` in it: an entry's id -> its keys, separated by commas; empty = no key.

    A key of the user's wins: an entry of the default table that is active together with it and was not chosen loses
    that key, and its help says so. A version with a new default key so changes nothing for who has that key.

    Raises:
        BadKeys: an entry or a key does not exist, cannot be used, was chosen twice, or must stay where it is.
    """
    known = {key.id: key for key in keys}
    problems: list[KeyProblem] = []
    new: dict[str, Key] = {}
    for name, text in chosen.items():
        if name not in known:
            close = did_you_mean(name, known)
            hint = f"; {close}" if close else ""
            problems.append(KeyProblem(name, f"there is no such entry{hint} (liverl-tui keys lists them)"))
            continue
        try:
            new[name] = replace(known[name], keys=",".join(_keys(known[name], text)), shown=None)
        except BadKey as bad:
            problems.append(KeyProblem(name, str(bad)))
    table = tuple(new.get(key.id, key) for key in keys)
    lost, refused = _taken(keys, table, new)
    problems += refused
    if problems:
        raise BadKeys(problems)
    return tuple(_without(key, lost.get(key.id, {})) for key in table)


def _without(entry: Key, lost: Mapping[str, str]) -> Key:
    """``entry`` without the keys that it has lost. ``lost``: key -> the entry that has it now."""
    if not lost:
        return entry
    told = ", ".join(f"{key_name(key)} (yours for {owner})" for key, owner in lost.items())
    left = [name for name in entry.bound if name not in lost]
    return replace(entry, keys=",".join(left), shown=None, help=f"{entry.help}; without its key {told}")


def _keys(entry: Key, text: str) -> list[str]:
    """The keys that ``text`` names for ``entry``, and the one that it always keeps.

    Raises:
        BadKey: one of them cannot be used here.
    """
    names: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            name = parse_key(part)
        except BadKey as bad:
            raise BadKey(f"{part!r} cannot be used: {bad}") from None
        if name in _RESERVED and name not in entry.bound:
            raise BadKey(f"{part!r} cannot be used: {_RESERVED[name]}")
        names.append(name)
    if text.strip() and not names:
        raise BadKey(f"{text!r} names no key; the key of a comma is written: comma")
    if not names and entry.id in _NEEDED:
        raise BadKey("it must keep a key, since it shows all others")
    if entry.id in ALWAYS:
        names.append(ALWAYS[entry.id])
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Clash:
    """Two entries with one key, of which only the first gets it."""

    near: Key
    far: Key
    key: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What the clash is between; the same before and after a change of other keys."""
        return self.near.id, self.far.id, self.key


def clashes(keys: Iterable[Key]) -> Iterator[Clash]:
    """Every two entries with one key that are active together, once: in one scope, or in two of which the nearer one
    hides the key of the other."""
    of_scope: dict[Scope, list[Key]] = {scope: [] for scope in SCOPE_TITLES}
    for key in (*keys, *FIXED):
        of_scope.setdefault(key.scope, []).append(key)
    told: set[tuple[str, str, str]] = set()
    for chain in (*ACTIVE_TOGETHER, *((scope,) for scope in of_scope)):
        holders: dict[str, list[Key]] = {}
        for entry in (entry for scope in chain for entry in of_scope.get(scope, ())):
            for name in entry.bound:
                for nearer in holders.setdefault(name, []):
                    clash = Clash(nearer, entry, name)
                    if clash.place not in told:
                        told.add(clash.place)
                        yield clash
                holders[name].append(entry)


def _taken(
    before: Sequence[Key], after: Sequence[Key], new: Mapping[str, Key]
) -> tuple[dict[str, dict[str, str]], list[KeyProblem]]:
    """What the entries ``new`` take from others: (entry of the default table -> key -> the first entry that has it now,
    the clashes that cannot be solved so, one problem for each entry and key)."""
    known = {clash.place for clash in clashes(before)}
    lost: dict[str, dict[str, str]] = {}
    others: dict[tuple[str, str], list[Key]] = {}
    for clash in clashes(after):
        if clash.place in known:
            continue
        entry, other = (clash.near, clash.far) if clash.near.id in new else (clash.far, clash.near)
        gone = {*lost.get(other.id, ()), clash.key}
        if other.id in new or other in FIXED or not _can_lose(other, gone):
            others.setdefault((entry.id, clash.key), []).append(other)
        else:
            lost.setdefault(other.id, {}).setdefault(clash.key, entry.id)
    problems = []
    for (name, key), entries in others.items():
        taken = " and ".join(
            f"{other.id} ({SCOPE_TITLES.get(other.scope, other.scope)}: {other.label})" for other in entries
        )
        free = " ".join(key_name(free) for free in free_keys(after, new[name].scope, key))
        words = (
            f"{key_name(key)} is also the key of {taken}, at the same time; keys that are free here: {free}"
        )
        problems.append(KeyProblem(name, words))
    return lost, problems


def _can_lose(entry: Key, keys: Iterable[str]) -> bool:
    """Whether an entry can do without these keys of its own."""
    gone = set(keys)
    return ALWAYS.get(entry.id) not in gone and not (entry.id in _NEEDED and gone.issuperset(entry.bound))


def free_keys(keys: Sequence[Key], scope: Scope, wanted: str = "") -> list[str]:
    """A few keys that no entry has which is active together with ``scope``; those like ``wanted`` come first."""
    together = {other for chain in ACTIVE_TOGETHER if scope in chain for other in chain} | {scope}
    taken = {name for key in (*keys, *FIXED) if key.scope in together for name in key.bound}
    letter = wanted.rpartition("+")[2]
    alike = (letter.swapcase(), f"ctrl+{letter.lower()}") if len(letter) == 1 and letter.isalpha() else ()
    usable = (*string.ascii_letters, *(f"f{n}" for n in range(2, 13)), *(f"ctrl+{c}" for c in _CTRL))
    ordered = dict.fromkeys((*(name for name in alike if name in usable), *usable))
    return [name for name in ordered if name not in taken][:_OFFERED]
