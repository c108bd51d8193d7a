"""The text of a shell script as simple commands of words, whose parts say what a shell would put there. Pure.

It is a part of POSIX's grammar and of bash's (``man bash``, "SHELL GRAMMAR", "QUOTING", "EXPANSION"): enough to know
which words are fixed, which depend on variables, and which only a shell could tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_OPERATORS = (
    "&&",
    "||",
    ";;",
    ">>",
    "<<-",
    "<<<",
    "<<",
    ">&",
    "<&",
    "&>",
    "|&",
    ";",
    "|",
    "&",
    "(",
    ")",
    "<",
    ">",
)
_REDIRECTIONS = frozenset({">", ">>", "<", ">&", "<&", "&>", "<<<"})
_OPENS = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSES = frozenset({"fi", "done", "esac", "}"})
_HEADED = frozenset({"for", "select", "case"})
_IF_SO = ("&&", "||")
_BETWEEN = frozenset({"then", "do", "else", "elif", "!", "time"})


class Part(msgspec.Struct, frozen=True):
    """A piece of a word. ``kind``: ``text`` as it stands; ``variable``: ``text`` is the name, ``operator`` and ``word``
    what follows it in braces (``:-default``); ``command`` or ``arithmetic``: ``text`` is what a shell would compute."""

    kind: Literal["text", "variable", "command", "arithmetic"]
    text: str
    quoted: bool = False
    operator: str = ""
    word: tuple[Part, ...] = ()


Word = tuple[Part, ...]


class Command(msgspec.Struct, frozen=True):
    """A simple command. ``line``: from 1, ``lines``: of each word. ``sure``: it stands in no condition, loop or
    function, and behind no ``&&`` or ``||``. ``arrays``: name, whether it is appended to, and its words with lines."""

    line: int
    words: tuple[Word, ...]
    sure: bool
    arrays: tuple[tuple[str, bool, tuple[tuple[Word, int], ...]], ...] = ()
    lines: tuple[int, ...] = ()


class Unreadable(Exception):
    """The text is no shell script that can be read; the message says where and why."""


def commands(text: str) -> Iterator[Command]:
    """The simple commands of a script, in their order.

    Raises:
        Unreadable: a quote or a bracket is not closed.
    """
    yield from _Reader(text).commands()


def plain(word: Word) -> str | None:
    """The text of a word in which nothing is expanded; None otherwise."""
    return "".join(part.text for part in word) if all(part.kind == "text" for part in word) else None


def assignment(word: Word) -> tuple[str, bool, Word] | None:
    """(name, whether it is appended to, value) of ``NAME=value``; None if the word is none."""
    if not word or word[0].kind != "text" or word[0].quoted:
        return None
    match = _ASSIGNMENT.match(word[0].text)
    if match is None:
        return None
    rest = word[0].text[match.end() :]
    first = (Part("text", rest),) if rest else ()
    return match[1], bool(match[2]), (*first, *word[1:])


def source_text(word: Word) -> str:
    """A word as it was written, for people."""
    told = []
    for part in word:
        inner = source_text(part.word)
        shown = {
            "text": part.text,
            "variable": f"${{{part.text}{part.operator}{inner}}}" if part.operator else f"${part.text}",
            "command": f"$({part.text})",
            "arithmetic": f"$(({part.text}))",
        }
        told.append(shown[part.kind])
    return "".join(told)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._heredocs: list[tuple[str, bool]] = []

    # --- characters

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._text[at] if at < len(self._text) else ""

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._line += taken.count("\n")
        self._at += count
        return taken

    def _fail(self, line: int, why: str) -> Unreadable:
        return Unreadable(f"line {line}: {why}")

    # --- commands

    def commands(self) -> Iterator[Command]:
        after, words, lines = "", list[Word](), list[int]()
        arrays: list[tuple[str, bool, tuple[tuple[Word, int], ...]]] = []
        open_: list[str] = []  # the keywords and brackets in which a command stands
        header = ""  # the keyword whose own words come: for NAME in WORDS, case WORD in
        line = self._line
        skip = False  # the word behind a redirection
        for kind, value, at in self._tokens():
            if kind == "word":
                text = plain(value)
                start = not words and not arrays
                if skip:
                    skip = False
                elif header:
                    header = "" if header == "case" and text == "in" else header
                elif start and text in _OPENS:
                    open_.append(text)
                    header = text if text in _HEADED else ""
                elif start and text in _CLOSES:
                    del open_[-1:]
                elif text == "{" and plain(words[0] if words else ()) == "function":
                    words, lines = [], []
                    open_.append(text)
                elif not (start and text in _BETWEEN):
                    line = at if start else line
                    words.append(value)
                    lines.append(at)
                continue
            if kind == "array":
                line = at if not words and not arrays else line
                arrays.append(value)
                continue
            operator, header = value, ""
            if operator in _REDIRECTIONS:
                skip = True
                if words and (plain(words[-1]) or "").isdecimal():
                    words.pop()  # the number of a descriptor: 2>
                    lines.pop()
                continue
            function = (operator == "(" and len(words) == 1) or bool(words and plain(words[0]) == "function")
            pattern = operator == ")" and open_[-1:] == ["case"]
            ended = bool(words or arrays)
            if ended and not function and not pattern:
                yield Command(
                    line, tuple(words), not open_ and after not in _IF_SO, tuple(arrays), tuple(lines)
                )
            words, arrays, lines = [], [], []
            if operator == "(":
                open_.append(operator)
            elif operator == ")" and not pattern:
                del open_[-1:]
            if operator != "\n" or ended:  # a line may end behind && and ||
                after = operator
        if words or arrays:
            yield Command(line, tuple(words), not open_ and after not in _IF_SO, tuple(arrays), tuple(lines))

    def _tokens(self) -> Iterator[tuple[str, Any, int]]:
        while self._at < len(self._text):
            char, at = self._peek(), self._line
            if char == "\n":
                self._take()
                self._skip_heredocs()
                yield "operator", "\n", at
            elif char in " \t":
                self._take()
            elif char == "\\" and self._peek(1) == "\n":
                self._take(2)
            elif char == "#":
                while self._peek() not in ("\n", ""):
                    self._take()
            elif operator := self._operator():
                self._take(len(operator))
                if operator in ("<<", "<<-"):
                    self._heredoc(operator == "<<-")
                else:
                    yield "operator", operator, at
            else:
                word = self._word()
                given = assignment(word)
                if given is not None and not given[2] and self._peek() == "(":
                    self._take()
                    yield "array", (given[0], given[1], self._array(at)), at
                else:
                    yield "word", word, at

    def _operator(self) -> str:
        return next((o for o in _OPERATORS if self._text.startswith(o, self._at)), "")

    def _array(self, began: int) -> tuple[tuple[Word, int], ...]:
        words: list[tuple[Word, int]] = []
        while True:
            char = self._peek()
            if not char:
                raise self._fail(began, "the bracket of an array is not closed")
            if char == ")":
                self._take()
                return tuple(words)
            if char in " \t\n":
                self._take()
            elif char == "\\" and self._peek(1) == "\n":
                self._take(2)
            elif char == "#":
                while self._peek() not in ("\n", ""):
                    self._take()
            else:
                line = self._line
                words.append((self._word(inside_array=True), line))

    def _heredoc(self, tabs: bool) -> None:
        while self._peek() in " \t" and self._peek():
            self._take()
        self._heredocs.append((plain(self._word()) or "", tabs))

    def _skip_heredocs(self) -> None:
        for end, tabs in self._heredocs:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                text = self._take(stop - self._at)
                self._take()
                if (text.lstrip("\t") if tabs else text) == end:
                    break
        self._heredocs = []

    # --- words

    def _word(self, *, inside_array: bool = False) -> Word:
        parts: list[Part] = []
        text = ""

        def flush() -> None:
            nonlocal text
            if text:
                parts.append(Part("text", text))
                text = ""

        while char := self._peek():
            if char in " \t\n" or char in ";|&<>" or (char in "()" and not inside_array) or char == ")":
                break
            if char == "\\":
                self._take()
                if self._peek() == "\n":
                    self._take()
                else:
                    text += self._take()
            elif char == "'" or (char == "$" and self._peek(1) == "'"):
                flush()
                parts.append(Part("text", self._single(), quoted=True))
            elif char == '"':
                flush()
                parts += self._double()
            elif char == "$" or char == "`":
                found = self._expansion(quoted=False)
                if found is None:
                    text += self._take()
                else:
                    flush()
                    parts.append(found)
            else:
                text += self._take()
        flush()
        if not parts and self._peek() and self._peek() not in " \t\n":
            self._take()  # a bracket that belongs to nothing known
            return (Part("text", ""),)
        return tuple(parts)

    def _single(self) -> str:
        began = self._line
        self._take(2 if self._peek() == "$" else 1)
        end = self._text.find("'", self._at)
        if end < 0:
            raise self._fail(began, "a single quote is not closed")
        text = self._take(end - self._at)
        self._take()
        return text

    def _double(self) -> list[Part]:
        began = self._line
        self._take()
        parts: list[Part] = []
        text = ""
        while True:
            char = self._peek()
            if not char:
                raise self._fail(began, "a double quote is not closed")
            if char == '"':
                self._take()
                break
            if char == "\\" and self._peek(1) in '$`"\\\n':
                self._take()
                escaped = self._take()
                text += "" if escaped == "\n" else escaped
                continue
            found = self._expansion(quoted=True) if char in "$`" else None
            if found is None:
                text += self._take()
            else:
                if text:
                    parts.append(Part("text", text, quoted=True))
                    text = ""
                parts.append(found)
        if text or not parts:
            parts.append(Part("text", text, quoted=True))
        return parts

    def _expansion(self, quoted: bool) -> Part | None:
        """What begins with a dollar or a backquote; None if it is only that sign."""
        began = self._line
        if self._peek() == "`":
            self._take()
            end = self._text.find("`", self._at)
            if end < 0:
                raise self._fail(began, "a backquote is not closed")
            text = self._take(end - self._at)
            self._take()
            return Part("command", text, quoted)
        if self._text.startswith("$((", self._at):
            self._take(3)
            text = self._balanced(began, 2)
            return Part("arithmetic", text, quoted)
        if self._peek(1) == "(":
            self._take(2)
            return Part("command", self._balanced(began, 1), quoted)
        if self._peek(1) == "{":
            return self._braces(quoted, began)
        match = _NAME.match(self._text, self._at + 1)
        if match is not None:
            self._take(1 + len(match[0]))
            return Part("variable", match[0], quoted)
        if self._peek(1) and self._peek(1) in "@*#?$!-0123456789":
            self._take()
            return Part("variable", self._take(), quoted)
        return None

    def _balanced(self, began: int, brackets: int) -> str:
        """The text up to the closing brackets, of which there are one or two."""
        depth, start = 0, self._at
        while char := self._peek():
            if char in "'\"" and brackets == 1:
                if char == "'":
                    self._single()
                else:
                    self._double()
                continue
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    text = self._text[start : self._at]
                    self._take(brackets)
                    return text
                depth -= 1
            self._take()
        raise self._fail(began, "the bracket of $( is not closed")

    def _braces(self, quoted: bool, began: int) -> Part:
        self._take(2)
        start = self._at
        prefix = self._take() if self._peek() in "#!" and self._peek(1) not in "}" else ""
        match = _NAME.match(self._text, self._at)
        name = (
            self._take(len(match[0]))
            if match
            else self._take()
            if self._peek() and self._peek() in "@*0123456789?#"
            else ""
        )
        if self._peek() == "[":
            end = self._text.find("]", self._at)
            if end > 0:
                name += self._take(end + 1 - self._at)
        operator = ""
        while self._peek() and self._peek() in ":-=?+%#/^,@" and len(operator) < 2:
            operator += self._take()
        word = self._inner_word(began)
        if prefix:  # ${!name}, ${#name}
            return Part("command", self._text[start : self._at - 1], quoted)
        return Part("variable", name, quoted, operator, word)

    def _inner_word(self, began: int) -> Word:
        """The word behind an operator in braces, up to the bracket that closes them."""
        parts: list[Part] = []
        text = ""
        while True:
            char = self._peek()
            if not char:
                raise self._fail(began, "the bracket of ${ is not closed")
            if char == "}":
                self._take()
                break
            if char == "\\":
                self._take()
                text += self._take()
                continue
            found: list[Part] = []
            if char in "$`":
                one = self._expansion(quoted=False)
                found = [one] if one is not None else []
            elif char == "'":
                found = [Part("text", self._single(), quoted=True)]
            elif char == '"':
                found = self._double()
            if found:
                if text:
                    parts.append(Part("text", text))
                    text = ""
                parts += found
            else:
                text += self._take()
        if text:
            parts.append(Part("text", text))
        return tuple(parts)
