"""The type of an entry in the table of typed commands, and what an entry may know. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from liverl.config.errors import shown
from liverl.model import Snapshot
from liverl.util.listing import listing
from liverl.util.nearest import did_you_mean
from liverl_tui.data.host import Host
from liverl_tui.data.view import View

Act = Callable[[Host], object]  # carries out a command that was understood


class TypedError(Exception):
    """A line that is no command; ``str()`` says what was found, what is expected, and what was probably meant."""


@dataclass(frozen=True)
class Completion:
    """A text that the arguments of a command can begin with or be. ``about``: an explanation."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Here:
    """What commands are completed and checked with: the newest view, the focused ``pane``, Unix time ``now``.

    ``refused``: why no command can be sent to the backend, None if one can. ``refused_attempt``: the same for the next
    attempt of the run, which also an ended run can have. ``problem_with``: why the run cannot have these values (dotted
    key -> value); ``present``: the value of each key; both read the run's configuration.
    """

    view: View = field(default_factory=View)
    refused: str | None = None
    refused_attempt: str | None = None
    pane: Any = None
    now: float = 0.0
    problem_with: Callable[[Mapping[str, str]], str | None] = lambda values: None
    present: Callable[[], Mapping[str, str]] = dict

    @property
    def snapshot(self) -> Snapshot | None:
        """The state of the run; None before the first one."""
        return self.view.snapshot


def _nothing(_text: str, _here: Here) -> Iterable[Completion]:
    return ()


@dataclass(frozen=True)
class Command:
    """One typed command. ``form``: its arguments in short, empty without any. ``help``: one sentence.

    ``parse`` gets the text behind the name, without blanks at its ends, and returns what is to be done, or raises
    TypedError. ``complete`` gets the same text as far as it is typed. ``changes``: refused if no command can be sent to
    the backend.
    """

    name: str
    form: str
    help: str
    parse: Callable[[str, Here], Act]
    complete: Callable[[str, Here], Iterable[Completion]] = _nothing
    changes: bool = False

    @property
    def usage(self) -> str:
        """Name and form: ``scale N``."""
        return f"{self.name} {self.form}".strip()


def missing(command: str, what: str) -> TypedError:
    """The error for a command without its argument; ``what``: what is expected, in words."""
    return TypedError(f"{command}: nothing found after the name; expected {what}")


def wrong(command: str, found: str, expected: str, choices: Iterable[str] = ()) -> TypedError:
    """The error for an argument ``found`` that is not ``expected`` (in words). ``choices``: texts among which the one
    that was probably meant is searched for."""
    hint = did_you_mean(found, choices)
    return TypedError(f"{command}: found {shown(found)}, expected {expected}" + (f"; {hint}" if hint else ""))


def listed(names: Sequence[str], most: int = 8) -> str:
    """``r0, r1 or proxy``; of a long list the beginning and how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} or {len(names) - most} more"
    return listing(names, "or")


def starting(text: str, completions: Iterable[Completion]) -> Iterator[Completion]:
    """Those of ``completions`` that begin with ``text``, then those that contain it; case does not matter."""
    folded, found = text.lower(), list(completions)
    yield from (c for c in found if c.text.lower().startswith(folded))
    yield from (c for c in found if folded in c.text.lower()[1:] and not c.text.lower().startswith(folded))


def one_of(command: str, text: str, what: str, choices: Sequence[str]) -> str:
    """The one of ``choices`` that ``text`` is. ``what``: what they are, in words.

    Raises:
        TypedError: it is none of them.
    """
    if not text:
        raise missing(command, f"{what}: {listed(choices)}" if choices else what)
    if text in choices:
        return text
    folded = {choice.lower(): choice for choice in choices}
    if text.lower() in folded:
        return folded[text.lower()]
    expected = f"{what}: {listed(choices)}" if choices else f"{what}, of which there is none"
    raise wrong(command, text, expected, choices)
