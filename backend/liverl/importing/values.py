"""What the variables of a script are, as far as its text says it. Pure: nothing is executed, and no variable of this
process is read."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence

import msgspec

from liverl.importing.shell_words import Command, Part, Word, assignment, plain, source_text
from liverl.plan.inherit import names_secret

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_DECLARE = ("export", "declare", "readonly", "typeset", "local")
_LARGEST = 1 << 62  # a shell's arithmetic has 64 bits


class Place(msgspec.Struct, frozen=True):
    """Where something stands: a file and its line, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Untold(msgspec.Struct, frozen=True):
    """A text of which only execution could tell the value. ``why``: in words."""

    what: str
    place: Place
    why: str


class Value(msgspec.Struct, frozen=True):
    """A variable. ``text``: None where only execution could tell it, for the reason ``why``. ``default``: the shell
    from which the script is started may set another one."""

    place: Place
    text: str | None
    why: str = ""
    default: bool = False
    exported: bool = False


class Array(msgspec.Struct, frozen=True):
    """An array's words with their places. ``why``: why more may be in it, or ""."""

    words: tuple[tuple[Word, Place], ...]
    why: str = ""


class Unknown(Exception):
    """Only execution could tell it; the message says why."""


class Scope:
    """Variables and arrays while a script is read from top to bottom."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.arrays: dict[str, Array] = {}
        self.untold: list[Untold] = []

    def read(self, command: Command, file: str) -> bool:
        """Take over what a command assigns; whether it only does that."""
        place = Place(file, command.line)
        for name, more, elements in command.arrays:
            self._set_array(name, more, elements, place, command.sure)
        words = list(command.words)
        if words and plain(words[0]) == ":":
            for word in words[1:]:
                self._default(word, place, command.sure)
            return True
        exported = bool(words) and (plain(words[0]) or "") in _DECLARE
        if exported:
            words = [w for w in words[1:] if not (plain(w) or "").startswith("-")]
        for number, word in enumerate(words):
            given = assignment(word)
            if given is None:
                name = plain(word) or ""
                if not exported or name not in self.values:
                    return exported
                self.values[name] = msgspec.structs.replace(self.values[name], exported=True)
                continue
            if not exported and any(assignment(later) is None for later in words[number:]):
                return False  # NAME=value in front of a command is the command's own
            self.assign(given[0], given[1], given[2], place, command.sure, exported)
        return True

    def assign(
        self, name: str, more: bool, word: Word, place: Place, sure: bool, exported: bool = False
    ) -> None:
        """Set a variable to what a word says. ``more``: to be appended; ``sure``: it is set in any case."""
        before = self.values.get(name)
        exported = exported or (before is not None and before.exported)
        if not sure:
            self._unsure(name, place)
            return
        try:
            text, default = self.expand(word, place)
            if more and before is not None:
                if before.text is None:
                    raise Unknown(before.why)
                text = before.text + text
            self.values[name] = Value(place, text, default=default, exported=exported)
        except Unknown as error:
            self.values[name] = Value(place, None, str(error), exported=exported)
            self._unknown(name, word, place, str(error))

    def _unknown(self, name: str, word: Word, place: Place, why: str) -> None:
        if names_secret(name):  # a part of it may stand there
            self.untold.append(
                Untold(name, place, "a secret that only a shell could put together: never taken")
            )
        else:
            self.untold.append(Untold(f"{name}={source_text(word)}", place, why))

    def _unsure(self, name: str, place: Place) -> None:
        why = f"it is set under a condition, in a loop or in a function at line {place.line}"
        self.values[name] = Value(place, None, why)
        self.untold.append(Untold(name, place, why))

    def _default(self, word: Word, place: Place, sure: bool) -> None:
        """``: "${NAME:=default}"``."""
        for part in word:
            if part.kind == "variable" and part.operator in (":=", "=") and part.text not in self.values:
                if not sure:
                    self._unsure(part.text, place)
                    continue
                try:
                    text, _ = self.expand(part.word, place)
                    self.values[part.text] = Value(place, text, default=True)
                except Unknown as error:
                    self.values[part.text] = Value(place, None, str(error))
                    self._unknown(part.text, part.word, place, str(error))

    def _set_array(
        self, name: str, more: bool, words: Sequence[tuple[Word, int]], place: Place, sure: bool
    ) -> None:
        before = self.arrays.get(name)
        if not sure:  # what it had counts, and what it may get is told
            why = f"{name} is changed under a condition, in a loop or in a function at line {place.line}"
            shown = " ".join(source_text(word) for word, _ in words)
            self.untold.append(Untold(f"{name}{'+' * more}=({shown})", place, why))
            self.arrays[name] = Array(before.words if before is not None else (), why)
            return
        old = before.words if before is not None and more else ()
        new = tuple((word, Place(place.file, line)) for word, line in words)
        self.arrays[name] = Array((*old, *new), before.why if before is not None and more else "")

    # --- expansion

    def expand(self, word: Word, place: Place) -> tuple[str, bool]:
        """The text of a word, and whether a default of the script stands in it, which the shell around may override.

        Raises:
            Unknown: only execution could tell it.
        """
        text, default = "", False
        for part in word:
            piece, from_default = self._part(part, place)
            text += piece
            default = default or from_default
        return text, default

    def _part(self, part: Part, place: Place) -> tuple[str, bool]:
        if part.kind == "text":
            return part.text, False
        if part.kind == "command":
            raise Unknown(f"$({part.text}) is a command")
        if part.kind == "arithmetic":
            return str(self._arithmetic(part.text)), False
        known = self.values.get(part.text)
        if part.operator in (":-", "-", ":=", "="):
            if known is None:
                text, _ = self.expand(part.word, place)
                return text, True
            if known.text is None:
                raise Unknown(f"${part.text}: {known.why}")
            if known.text or not part.operator.startswith(":"):
                return known.text, known.default
            return self.expand(part.word, place)
        if part.operator in ("", ":?", "?"):
            if known is None and part.text == "HOME":
                return "~", False
            if known is None:
                raise Unknown(f"${part.text} is not set in what was read")
            if known.text is None:
                raise Unknown(f"${part.text}: {known.why}")
            return known.text, known.default
        raise Unknown(f"${{{part.text}{part.operator}...}} changes a text as only a shell does")

    def _arithmetic(self, text: str) -> int:
        names = {}
        try:
            tree = ast.parse(text.strip().replace("$", "").replace("{", "").replace("}", ""), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Unknown(f"$(({text})) is an expression that only a shell reads") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                value = self.values.get(node.id)
                if value is None or value.text is None or not value.text.lstrip("-").isdecimal():
                    raise Unknown(f"$(({text})) has {node.id}, which is not a number that is known")
                names[node.id] = int(value.text)
        return _computed(tree.body, names, text)

    def flat(self, words: Sequence[tuple[Word, Place]]) -> list[tuple[Word, Place, str]]:
        """Words with arrays (``"${NAME[@]}"``) in their place: word, place, and why more may be there, or ""."""
        found: list[tuple[Word, Place, str]] = []
        for word, place in words:
            name = word[0].text if len(word) == 1 and word[0].kind == "variable" else ""
            if name.endswith(("[@]", "[*]")) and not word[0].operator:
                array = self.arrays.get(name[:-3])
                if array is None:
                    found.append((word, place, f"the array {name[:-3]} is not set in what was read"))
                    continue
                for one, where in array.words:
                    found += self.flat([(one, where)])
            else:
                found.append((word, place, ""))
        return found


def _computed(node: ast.expr, names: dict[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand, names, text)
    if isinstance(node, ast.BinOp):
        left, right = _computed(node.left, names, text), _computed(node.right, names, text)
        kind = ast.FloorDiv if isinstance(node.op, ast.Div) else type(node.op)
        if kind in _ARITHMETIC and not (kind in (ast.FloorDiv, ast.Mod) and right == 0):
            # A shell cuts off towards zero, Python rounds down.
            if kind is ast.FloorDiv:
                result = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            else:
                result = _ARITHMETIC[kind](left, right)
            if abs(result) < _LARGEST:
                return result
    raise Unknown(f"$(({text})) is an expression that only a shell reads")
