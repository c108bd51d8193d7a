"""Filters of trials: ``reward<1 calls=0 step=3..9 task~move finish=timeout kind=command``, and plain words. Pure.

``FIELDS`` is the table of fields. A term is FIELD OPERATOR VALUE without blanks (``task~"two words"`` with quotes); a
word without an operator is looked for in all texts of a trial. A validation may be named as lists name it:
``step=val8`` and ``kind=validation`` are terms on the field ``val``. All terms must hold. A number that is not known of
a trial holds for no comparison, but for ``FIELD=none``; a text that is not known is unlike every other, so that ``!=``
and ``!~`` hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from liverl.model import TrialHead
from liverl.observe.trials.ending_words import ending_of
from liverl.observe.trials.phases import PHASES
from liverl.observe.trials.tools_offered import NOT_RECORDED, ZERO
from liverl.util.late_pattern import late_pattern
from liverl.util.nearest import did_you_mean

STATE_WORDS = {"running": "running", "finished": "done", "cut_off": "cut off"}
NONE = "none"  # the value of a field that is not known
EARLIER = "earlier"  # the field that says whether another trial stands in its place
SEPARATOR = "\x1f"  # between texts that are searched as one; no text and no word has it
PART = "rewards."  # before the name of a part of the reward, as a field
Texts = tuple[str, ...]  # any of them may be meant
_TERM = late_pattern(r"([A-Za-z][\w.-]*)(<=|>=|!=|!~|==|<|>|=|~)(.*)", re.DOTALL)
_WORD = late_pattern(r'(?:[^\s"]|"[^"]*"?)+')
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_UNIT = "ms|s|m|h"
_RANGE = late_pattern(rf"(?:({_NUMBER})({_UNIT})?)?\.\.(?:({_NUMBER})({_UNIT})?)?")
_SECONDS = late_pattern(rf"(\d+(?:\.\d+)?)({_UNIT})")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_TEXT_OPERATORS = ("=", "!=", "~", "!~")
_VALIDATION = late_pattern(
    r"(v|val|validations?)(\d*)", re.IGNORECASE
)  # as lists name a validation after a step
_AFFIXES = late_pattern(r"^(?:Agent|Trial)(?=[A-Z])|(?:Error|Exception)$")


class BadFilter(ValueError):
    """A filter that cannot be read; ``str()`` says which term, what was expected, and what was probably meant."""


class NumberField(Struct, frozen=True):
    """A field with a number. ``seconds``: it is a time; values may have units (``30s``, ``5m``)."""

    name: str
    help: str
    read: Callable[[TrialHead], float | None]
    seconds: bool = False


class TextField(Struct, frozen=True):
    """A field with texts. ``many``: nearly each trial has a value of its own; ``searched``: plain words are looked for
    in it."""

    name: str
    help: str
    read: Callable[[TrialHead], Texts]
    many: bool = False
    searched: bool = True


def took(head: TrialHead) -> float | None:
    """Seconds that a trial took; None of one that runs or was cut off, and where it is not known when it began."""
    return head.took(0.0) if head.state == "finished" else None


def calls_known(head: TrialHead) -> int | None:
    """The number of tool calls of a trial, so far if it runs; None where no call does not mean that the model made
    none: it may still call one, it was cut off before it could, or not all of its answers are recorded."""
    if head.dumped:
        return None
    if head.tool_calls or ZERO in head.flags:
        return head.tool_calls
    return 0 if head.state == "finished" and NOT_RECORDED not in head.flags else None


def _finish(head: TrialHead) -> Texts:
    word = ending_of(head)
    if head.state != "finished":
        return _some(word)
    # Of a record's own word for two endings that lists tell apart, the word of lists counts.
    ended = "" if head.ended_by in (None, "no_tool_call") else head.ended_by
    words = (word, ended, _AFFIXES.sub("", ended), head.finish_reason or "", head.error, head.cause)
    return tuple(dict.fromkeys(word for word in words if word))


def _some(*values: str | None) -> Texts:
    return tuple(value for value in values if value)


def _validation(head: TrialHead) -> Texts:
    """How a list names a validation, its step alone, and what it is."""
    step = head.validated
    return () if step is None else (str(step), f"val{step}", f"v{step}", "val", "validation")


def earlier_texts(earlier: bool) -> Texts:
    """What the field ``earlier`` has of a trial. ``earlier``: see ``TrialHead.earlier``."""
    return ("yes" if earlier else "no", "any")


def _phase(name: str) -> Callable[[TrialHead], float | None]:
    return lambda head: head.phases.get(name)


FIELDS: tuple[NumberField | TextField, ...] = (
    NumberField("reward", "the reward; rewards.NAME is one of its parts", lambda head: head.reward),
    NumberField("calls", "tool calls; 0 only of a trial that has ended", calls_known),
    NumberField("turns", "answers of the model", lambda head: None if head.dumped else head.turns),
    NumberField("step", "training step; val8: of the validation after step 8", lambda head: head.step),
    NumberField("tokens", "sampled tokens", lambda head: None if head.dumped else head.completion_tokens),
    NumberField("time", "seconds from begin to end (30s, 5m)", took, seconds=True),
    *(NumberField(name, f"seconds of the phase {name}", _phase(name), seconds=True) for name in PHASES),
    TextField("task", "the task", lambda head: _some(head.task)),
    TextField(
        "finish", "how it ended, as lists say it: submitted, max turns, cut off, or an exception", _finish
    ),
    TextField(
        "state", "running, finished (done), cut_off", lambda head: (head.state, STATE_WORDS[head.state])
    ),
    TextField("flag", "a flag, such as zero_tool_calls", lambda head: head.flags),
    TextField("error", "the exception that ended it", lambda head: _some(head.error)),
    TextField(
        "kind", "the kind of agent: task, chat, command, harbor; validation", lambda head: _some(head.kind)
    ),
    TextField("val", "of a validation: the step after which it ran; none: a training trial", _validation),
    TextField("replica", "the replica that answered it", lambda head: _some(head.replica)),
    TextField(
        "waits", "what it waits for, or waited for most", lambda head: _some(head.waits_for, head.spent_on)
    ),
    TextField(
        "cause",
        "who caused its end: done, limit, timeout, exit, infrastructure",
        lambda head: _some(head.cause),
    ),
    TextField("outcome", "what became of its tokens: trained, masked, ...", lambda head: _some(head.outcome)),
    TextField(
        EARLIER,
        "yes: run again as another trial, or of an earlier attempt at its step; else left out; any: all",
        lambda head: earlier_texts(head.earlier),
        searched=False,
    ),
    TextField("name", "its name", lambda head: _some(head.name), many=True),
    TextField("group", "its prompt in the step", lambda head: _some(head.group), many=True),
    TextField("last", "its last call or words", lambda head: _some(head.preview), many=True),
)
BY_NAME = {field.name: field for field in FIELDS}
_SEARCHED = tuple(field for field in FIELDS if isinstance(field, TextField) and field.searched)


class NumberTerm(Struct, frozen=True):
    """``reward<1``, ``step=3..9``. ``low``, ``high``: bounds of a range, both inside; None: none. ``unknown``: it holds
    for what is not known, and for nothing else (``=none``), or for what is known (``!=none``)."""

    field: NumberField
    operator: str
    value: float = 0.0
    low: float | None = None
    high: float | None = None
    unknown: bool = False

    @property
    def range(self) -> bool:
        """Whether it is a range."""
        return self.low is not None or self.high is not None

    def holds(self, value: float | None) -> bool:
        """Whether the term holds for a value of its field; None: not known."""
        if value is None or value != value:
            return self.unknown and self.operator == "="
        if self.unknown:
            return self.operator == "!="
        if not self.range:
            return _COMPARE[self.operator](value, self.value)
        inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return inside is (self.operator == "=")

    def holds_for(self, head: TrialHead) -> bool:
        """Whether the term holds for a trial."""
        return self.holds(self.field.read(head))


class TextTerm(Struct, frozen=True):
    """``task~move``. ``=``: one of the field's texts is the value, whatever its case, ``_`` and blanks (of a field with
    ``many`` texts, whatever its case); ``~``: one of them contains it."""

    field: TextField
    operator: str
    value: str

    def holds(self, texts: Texts) -> bool:
        """Whether the term holds for the texts of its field."""
        if self.value == NONE and self.operator in ("=", "!="):
            return bool(texts) is (self.operator == "!=")
        folded = str.lower if self.field.many else _folded
        wanted = folded(self.value)
        if self.operator.endswith("~"):
            found = any(wanted in folded(text) for text in texts)
        else:
            found = any(wanted == folded(text) for text in texts)
        return found is not self.operator.startswith("!")

    @property
    def positive(self) -> TextTerm:
        """The term without ``!``."""
        return replace(self, operator=self.operator.removeprefix("!"))

    def holds_for(self, head: TrialHead) -> bool:
        """Whether the term holds for a trial."""
        return self.holds(self.field.read(head))


Term = NumberTerm | TextTerm


class Query(Struct, frozen=True):
    """What a filter asks for. ``problems``: what of it cannot be read, one sentence each; the rest holds. Trials of an
    earlier attempt at their step are left out, as the policy was not trained on them, unless a term names ``earlier``.
    """

    terms: tuple[Term, ...] = ()
    words: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it holds for every trial that is not of an earlier attempt."""
        return not (self.terms or self.words)

    @property
    def earlier_too(self) -> bool:
        """Whether it says itself of which attempts it asks for trials."""
        return any(term.field.name == EARLIER for term in self.terms)

    def holds_for(self, head: TrialHead, text: str | None = None) -> bool:
        """Whether it holds for a trial. ``text``: in which its words are looked for; None: ``text_of``."""
        if head.earlier and not self.earlier_too:
            return False
        if not all(term.holds_for(head) for term in self.terms):
            return False
        return not self.words or contains(self.words, text_of(head) if text is None else text)


def contains(words: tuple[str, ...], text: str) -> bool:
    """Whether ``text`` has each word; case matters only for a word with a capital."""
    lowered = text.lower()
    return all(word in (lowered if word == word.lower() else text) for word in words)


def text_of(head: TrialHead) -> str:
    """The texts of a trial in which plain words are looked for."""
    texts = (text for field in _SEARCHED for text in field.read(head))
    return SEPARATOR.join(text.replace(SEPARATOR, " ") for text in (*texts, head.failure))


def parse(text: str, saved: Mapping[str, str] | None = None) -> Query:
    """Read a filter. ``saved``: name -> text of saved filters, which ``@NAME`` stands for."""
    terms: list[Term] = []
    words: list[str] = []
    problems: list[str] = []
    before = ""
    for word in _expanded(text.replace(SEPARATOR, " "), saved or {}, problems):
        match, field, before = _TERM.fullmatch(word), before, word
        if match is None and word[0] in "=<>!~" and field.lower() in BY_NAME:
            problems.append(f"{field} {word}: a term has no blanks in it: {field}{word}")
            words.pop()
            continue
        if match is None:
            words += [bare] if (bare := word.replace('"', "")) else []
            continue
        try:
            terms.append(_term(match[1], match[2].replace("==", "="), match[3].replace('"', ""), word))
        except BadFilter as error:
            problems.append(str(error))
    return Query(tuple(terms), tuple(words), tuple(problems))


def parsed(text: str, saved: Mapping[str, str] | None = None) -> Query:
    """Read a filter.

    Raises:
        BadFilter: a term of it cannot be read.
    """
    query = parse(text, saved)
    if query.problems:
        raise BadFilter(query.problems[0])
    return query


def without(text: str, fields: Collection[str]) -> str:
    """``text`` of a filter without its terms on these fields. ``fields``: in small letters."""
    words = ((word, _TERM.fullmatch(word)) for word in _WORD.findall(text))
    return " ".join(word for word, term in words if term is None or term[1].lower() not in fields)


def with_step(query: Query, step: int) -> Query:
    """``query`` among the trials of one step."""
    field = BY_NAME["step"]
    assert isinstance(field, NumberField)
    return replace(query, terms=(*query.terms, NumberTerm(field, "=", float(step))))


def _expanded(text: str, saved: Mapping[str, str], problems: list[str]) -> Iterator[str]:
    for word in _WORD.findall(text):
        if not word.startswith("@") or len(word) == 1:
            yield word
        elif (found := saved.get(word[1:])) is not None:
            yield from _WORD.findall(found)
        else:
            names = [f"@{name}" for name in saved]
            hint = did_you_mean(word, names) or (
                f"there are {', '.join(names)}" if names else "none is saved yet"
            )
            problems.append(f"no saved filter {word}: {hint}")


def _term(name: str, sign: str, value: str, word: str) -> Term:
    field = _field(name, word)
    if (of_validation := _validation_term(field, sign, value, word)) is not None:
        return of_validation
    if isinstance(field, TextField):
        if sign not in _TEXT_OPERATORS:
            raise BadFilter(
                f"{word}: {field.name} is text; expected one of {' '.join(_TEXT_OPERATORS)}, found {sign}"
            )
        if not value:
            raise BadFilter(f"{word}: expected a text behind {sign}")
        return TextTerm(field, sign, value)
    if sign not in _COMPARE:
        raise BadFilter(
            f"{word}: {field.name} is a number; expected one of {' '.join(_COMPARE)}, found {sign}"
        )
    return _number_term(field, sign, value, word)


def _validation_term(field: NumberField | TextField, sign: str, value: str, word: str) -> Term | None:
    """A term on validations that is written with another field, as lists show them: ``step=val8`` is ``val=8``, and
    ``kind=validation`` is ``val=validation``; None for any other term.

    Raises:
        BadFilter: a step of a validation is compared as a number.
    """
    said = _VALIDATION.fullmatch(value)
    if said is None or field.name not in ("step", "kind") or value.lower() == "v":
        return None
    if field.name == "kind" and said[2]:
        raise BadFilter(f"{word}: for the validations after one step expected val={said[2]}")
    if field.name == "step" and sign not in ("=", "!="):
        raise BadFilter(f"{word}: a validation is no number; expected = or !=, as in step=val{said[2] or 8}")
    validations = BY_NAME["val"]
    assert isinstance(validations, TextField)
    return TextTerm(validations, "!=" if sign.startswith("!") else "=", said[2] or "validation")


def _field(name: str, word: str) -> NumberField | TextField:
    found = BY_NAME.get(name.lower())
    if found is not None:
        return found
    if name.lower().startswith(PART) and len(name) > len(PART):
        part = name[len(PART) :]
        return NumberField(f"{PART}{part}", "a part of the reward", lambda head: head.rewards.get(part))
    hint = did_you_mean(name, BY_NAME)
    raise BadFilter(f"{word}: no field {name!r}: " + (hint or f"expected one of {', '.join(BY_NAME)}"))


def _number_term(field: NumberField, sign: str, value: str, word: str) -> NumberTerm:
    if value.lower() == NONE and sign in ("=", "!="):
        return NumberTerm(field, sign, unknown=True)
    bounds = _RANGE.fullmatch(value)
    if bounds is not None and sign in ("=", "!=") and any(bounds.groups()):
        return _range_term(field, sign, bounds, word)
    span = _SECONDS.fullmatch(value) if field.seconds else None
    if span is not None:
        return NumberTerm(field, sign, float(span[1]) * _UNITS[span[2]])
    if re.fullmatch(_NUMBER, value) is None:
        forms = "a number" + (" or a time such as 30s or 5m" if field.seconds else "")
        example = "30s..2m" if field.seconds else "3..9"
        forms += f", a range such as {example}, or none" if sign in ("=", "!=") else ""
        raise BadFilter(f"{word}: expected {forms} behind {sign}" + (f", found {value!r}" if value else ""))
    return NumberTerm(field, sign, float(value))


def _range_term(field: NumberField, sign: str, bounds: re.Match[str], word: str) -> NumberTerm:
    """``3..9``, ``30s..2m``. A bound without a unit is in seconds; which one is meant must be clear (``1..2m``)."""
    low, low_unit, high, high_unit = bounds.groups()
    if (low_unit or high_unit) and not field.seconds:
        raise BadFilter(f"{word}: {field.name} is no time, and has no unit; expected a range such as 3..9")
    if (
        low is not None
        and high is not None
        and {low_unit, high_unit} in ({None, "m"}, {None, "h"}, {None, "ms"})
    ):
        unit = low_unit or high_unit
        raise BadFilter(
            f"{word}: in which unit is {low if low_unit is None else high}? "
            f"expected {low}{unit}..{high}{unit}, or {low}{low_unit or 's'}..{high}{high_unit or 's'}"
        )
    ends = [
        None if bound is None else float(bound) * _UNITS[unit or "s"]
        for bound, unit in ((low, low_unit), (high, high_unit))
    ]
    if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        turned = f"{high}{high_unit or ''}..{low}{low_unit or ''}"
        raise BadFilter(f"{word}: no number is in {bounds[0]}; expected the lower end first: {turned}")
    return NumberTerm(field, sign, low=ends[0], high=ends[1])


def _folded(text: str) -> str:
    return re.sub(r"[_\s-]+", "", text).lower()
