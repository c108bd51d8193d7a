"""What was found about a run - alerts, causes, checks - with its evidence."""

from typing import Literal

import msgspec

from liverl.model.times import UnixTime


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of proof. ``log``: the file that holds it, of a run relative to its directory, as in ``Cause``;
    ``offset``: the byte at which ``text`` begins in it, None if the end of ``log``, or all of it, is meant; ``text``:
    what was seen, empty if that is only ``log``; ``value``: the number that was measured."""

    text: str
    log: str | None = None
    offset: int | None = None
    value: float | None = None

    @property
    def words(self) -> str:
        """One line that says where the proof is and what it is."""
        if self.log is None:
            return self.text
        if self.offset is None:  # what its process did, of which the log need not tell
            return f"{self.text}; log: {self.log}" if self.text else self.log
        at = f"{self.log} at byte {self.offset}"
        return f"{at}: {self.text}" if self.text else at


class Symptom(msgspec.Struct, frozen=True, omit_defaults=True):
    """An alert: what is wrong, the evidence, the cause, and what to do. ``step``: the step that it is about, or from
    which on it holds, None if it is about none; ``since``: when it was raised, which is later than that step; of what
    stands still, and of what was there before the first look, when that began."""

    id: str
    severity: Literal["info", "warning", "critical"]
    title: str
    cause: str
    fix: str
    evidence: tuple[Evidence, ...] = ()
    since: UnixTime | None = None
    action: str | None = None  # a command that applies the fix
    patch: dict[str, str] = {}  # configuration key -> the value that mends it
    guess: bool = False  # a rule of thumb chose values of the patch, the evidence does not name them
    step: int | None = None


class Guess(msgspec.Struct, frozen=True):
    """What may have caused a failure. ``check``: a shell command that tells it from the others; ``fix``: what to do if
    it is so."""

    title: str
    check: str
    fix: str = ""


class Cause(msgspec.Struct, frozen=True):
    """Why a service, and with it a run, ended. ``text``: the one sentence that is shown everywhere, behind the name of
    ``service``; ``log`` and ``offset``: where the line that proves it stands, and its byte; ``id``: of the signature
    that explains it, "unknown" if none does, empty if the reason is no log's; ``patch``: configuration key -> the value
    that mends it, and ``guess``: a rule of thumb chose some; ``guesses``: where the cause is unknown, likeliest
    first."""

    service: str | None
    text: str
    at: UnixTime
    log: str | None = None
    offset: int | None = None
    id: str = ""
    why: str = ""
    fix: str = ""
    command: str = ""
    patch: dict[str, str] = {}
    evidence: tuple[Evidence, ...] = ()
    guesses: tuple[Guess, ...] = ()
    guess: bool = False


class Check(msgspec.Struct, frozen=True):
    """The outcome of one preflight check. ``name``: what was looked at; ``text``: what was found there; ``id``: of the
    check in ``liverl.preflight``, the same in each version. ``skipped``: it was not looked at, and ``text`` says why;
    ``ok`` is said only of what was. The other fields are as in ``Symptom``; ``fix`` is empty where ``text`` has it."""

    name: str
    status: Literal["ok", "warn", "fail", "skipped"]
    text: str
    id: str = ""
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    patch: dict[str, str] = {}  # configuration key -> the value that mends it
    guess: bool = False  # a rule of thumb chose values of the patch, the evidence does not name them
    values: dict[str, float] = {}  # numbers that were found; the end of a name is its unit
