"""The tokens of one trial with their text: read from its files and those of the model's tokenizer, for scripts and for
the interface. Read-only; blocking.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from liverl.config import ConfigError, load_config
from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.engines import ENGINES
from liverl.model import SCHEMA, Snapshot
from liverl.observe.trials.documents import PROXY_TRAJECTORY
from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.message_parts import loads
from liverl.observe.trials.records import unreadable_document
from liverl.observe.trials.token_rows import NOT_RECORDED, Token, TokenRow, TokenRows, token_rows
from liverl.observe.trials.token_texts import (
    NoTokenizer,
    TokenTexts,
    embedded_texts,
    read_texts,
    text_of,
)
from liverl.observe.trials.trajectory import Trajectory
from liverl.offline.checkpoints import plan_of
from liverl.offline.trials import NoSuchTrial, path_of
from liverl.preflight.model import folder_of, named
from liverl.rundir.layout import RunDir
from liverl.util import redact
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import read_regular

_LARGEST = 64 << 20  # bytes of a trial's document: a row of 10^6 tokens has 20 MiB
HIDDEN = "***"  # in the place of the text of a token that is part of a secret


class ReplyShown(msgspec.Struct, frozen=True):
    """A reply: tokens ``begin`` to ``end`` of its row. ``turn``: its number in the trial, null: not known; ``healed``:
    the text of the reply before it has other ids than those that were sampled, which the row keeps; ``measured``: its
    log-probabilities are no filling."""

    begin: int
    end: int
    turn: int | None
    healed: bool
    measured: bool


class RowShown(msgspec.Struct, frozen=True):
    """A row of a trial. ``why``: why it is a row of its own; ``prompt``: tokens before the first reply; ``missing``:
    why tokens have no log-probability; each "" where it does not apply. ``mean_logprob``: of the sampled tokens."""

    number: int
    kind: str
    why: str
    tokens: int
    prompt: int
    sampled: int
    mean_logprob: float | None
    missing: str
    faults: tuple[str, ...]
    replies: tuple[ReplyShown, ...]


class TokenShown(msgspec.Struct, frozen=True):
    r"""A token. ``id``: null where its text is part of a secret, and is shown as ``***``; ``text``: null: not known;
    bytes that are no whole character are ``\xe2`` in it, and ``bytes`` has all of them in hexadecimal then. The other
    fields: see ``liverl.observe.trials.token_rows.Token``."""

    index: int
    id: int | None
    text: str | None
    bytes: str | None
    sampled: bool | None
    logprob: float | None
    probability: float | None
    reply: int
    turn: int | None
    version: int | None


class TokensShown(msgspec.Struct, frozen=True):
    """``trials show --tokens --json``. ``rows``: all of the trial; ``row``: the number of that whose ``tokens`` are
    listed, null: there is none; ``worst``: its least likely sampled tokens, the least likely first. ``tokenizer``: the
    file by which ids have their text, "" without one: ``no_text`` says why; ``note``: what is missing of the trial.
    ``not_recorded``: facts that no file has. ``not_trained``: sampled tokens that are in no row, by the reason."""

    run: str
    run_dir: str
    trial: str
    rows: tuple[RowShown, ...]
    row: int | None
    tokens: tuple[TokenShown, ...]
    worst: tuple[TokenShown, ...]
    tokenizer: str
    no_text: str
    note: str
    not_trained: dict[str, int]
    not_recorded: tuple[str, ...] = NOT_RECORDED
    schema: int = SCHEMA


class TrialTokens(NamedTuple):
    """What is known of a trial's tokens. ``texts``: None without a tokenizer, ``no_text`` says why; ``note``: what is
    missing of the rows; ``not_trained``: reason -> sampled tokens that are in no row."""

    rows: tuple[TokenRow, ...]
    texts: TokenTexts | None
    no_text: str
    note: str
    not_trained: dict[str, int]


class RowText:
    """The text of a row's tokens, each by its index. Text that looks like a secret is hidden, with the ids that spell
    it."""

    def __init__(self, row: TokenRow, texts: TokenTexts | None) -> None:
        """Reads the whole row: some 3 s for 10^6 tokens."""
        self.row = row
        self._bytes = [None if texts is None else texts.bytes_of(token) for token in row.ids]
        self._texts = [None if data is None else text_of(data) for data in self._bytes]
        self._hidden = frozenset(_secret([text or "\n" for text in self._texts]))

    def text(self, index: int) -> str | None:
        """None: not known."""
        return HIDDEN if index in self._hidden else self._texts[index]

    def id(self, index: int) -> int | None:
        """None: hidden."""
        return None if index in self._hidden else self.row.ids[index]

    def shown(self, index: int) -> str:
        """The text, or the id in angle brackets where it is not known."""
        text = self.text(index)
        return f"<{self.row.ids[index]}>" if text is None else text

    def partial(self, index: int) -> str | None:
        """The bytes in hexadecimal of a token that is no whole character; None of any other."""
        data = self._bytes[index]
        if data is None or index in self._hidden:
            return None
        try:
            data.decode()
        except UnicodeDecodeError:
            return data.hex()
        return None


def load(
    run_dir: Path,
    path: str,
    trajectory: Trajectory,
    tokenizer: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> TrialTokens:
    """The tokens of the trial at ``path`` of a run's directory. ``trajectory``: of the trial; ``tokenizer``: a model's
    folder instead of the run's. ``env``: variables by which the hub's cache is found.

    Raises:
        OSError: the storage failed.
    """
    found, lost = _rows(run_dir / path, trajectory)
    texts, why = None, ""
    try:
        texts = read_texts(tokenizer) if tokenizer is not None else texts_of(run_dir, env or os.environ)
    except NoTokenizer as error:
        why = str(error)
    return TrialTokens(found.rows, texts, why, found.note, {**trajectory.not_trained, **lost})


def _rows(folder: Path, trajectory: Trajectory) -> tuple[TokenRows, dict[str, int]]:
    """The rows of a trial, and the sampled tokens that are in none."""
    if trajectory.dumped:
        return TokenRows(note="one of verl's own agent loops ran this trial: its tokens are not recorded"), {}
    try:
        data = read_regular(folder / PROXY_TRAJECTORY, _LARGEST, inside=folder.parent)
    except (FileNotFoundError, NotADirectoryError):
        return TokenRows(note=_none(trajectory)), {}
    except OSError as error:
        return TokenRows(note=f"cannot read {PROXY_TRAJECTORY}: {error.strerror or error}"), {}
    document = loads(data)
    if not isinstance(document, dict):
        why = unreadable_document(data) or "it is no JSON object"
        return TokenRows(note=f"cannot read {PROXY_TRAJECTORY}: {why}"), {}
    found = token_rows(document, trajectory.turns)
    note = f"{PROXY_TRAJECTORY}: {found.note}" if found.note else ""
    healed = 0 if trajectory.session is None else int(trajectory.session.counters.get("healed", 0))
    healed -= sum(reply.healed for row in found.rows for reply in row.replies)
    if healed > 0:
        note = "; ".join(filter(None, (note, f"{quantity(healed, 'turn')} more healed, not known which")))
    return msgspec.structs.replace(found, note=note), _counts(document.get("not_trained"))


def _none(trajectory: Trajectory) -> str:
    if trajectory.running:
        return f"{PROXY_TRAJECTORY}, which has the tokens, is written when the trial ends"
    if trajectory.session is not None:
        return (
            f"it has no {PROXY_TRAJECTORY}: its session did not end, or the file was removed or not recorded"
        )
    return (
        f"it has no {PROXY_TRAJECTORY}: its calls went through no session, so that only their text is recorded; "
        "proxy.trials_through: sessions records the tokens, too"
    )


def _counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(reason): n for reason, n in value.items() if type(n) is int and n > 0}


def texts_of(run_dir: Path, env: Mapping[str, str]) -> TokenTexts:
    """The text of ids of a run's model.

    Raises:
        NoTokenizer: it is not known which tokenizer that is, or it cannot be read.
        OSError: the hub's cache cannot be read.
    """
    run = RunDir(run_dir)
    if not run.config.exists():
        raise NoTokenizer(
            "the run has no config.yaml that names its model; trials show --tokenizer DIR names one"
        )
    try:
        config = load_config(run.config, env={}, read_secrets=False).config
    except (ConfigError, OSError) as error:
        words = " ".join(str(error).split())
        raise NoTokenizer(
            f"the run's config.yaml, which names its model, cannot be read: {words[:300]}"
        ) from None
    return _of_config(run_dir, config, env)


def _of_config(run_dir: Path, config: RunConfig, env: Mapping[str, str]) -> TokenTexts:
    if when.managed(config) and not ENGINES[config.run.engine].gpus:
        return embedded_texts()
    if when.command(config):
        raise NoTokenizer(
            "the run's own launch script chooses the model; trials show --tokenizer DIR names its folder"
        )
    plan = plan_of(run_dir)
    if plan is None:
        raise NoTokenizer("the run's plan.json, which says where its model is, cannot be read")
    key, name = named(config)
    folder = folder_of(plan, config, env)
    if folder is None:
        raise NoTokenizer(
            f"the model {name} ({key}) is not on this host; trials show --tokenizer DIR names another folder"
        )
    return read_texts(folder)


def shown_tokens(
    run: RunDir,
    state: Snapshot | None,
    name: str,
    *,
    row: int | None = None,
    begin: int = 0,
    most: int = 1000,
    worst: int = 10,
    tokenizer: Path | None = None,
) -> TokensShown:
    """``trials show --tokens``: the tokens ``begin`` to ``begin + most`` of a row (None: the last, which is that of the
    conversation), and the ``worst`` least likely ones of it.

    Raises:
        NoSuchTrial: there is no such trial, or no such row of it.
        OSError: the storage failed.
    """
    path = path_of(run, state, name)
    trajectory = reader_of(run.path / path).read()
    found = load(run.path, path, trajectory, tokenizer)
    chosen = _chosen(found.rows, row, path, found.note)
    tokens: Sequence[TokenShown] = ()
    least: Sequence[TokenShown] = ()
    if chosen is not None:
        text = RowText(chosen, found.texts)
        tokens = [shown_token(token, text) for token in chosen.window(begin, most)]
        least = [shown_token(chosen.window(index, 1)[0], text) for index in chosen.worst(worst)]
    return TokensShown(
        run=run.name,
        run_dir=str(run.path),
        trial=path,
        rows=tuple(map(row_shown, found.rows)),
        row=None if chosen is None else chosen.number,
        tokens=tuple(tokens),
        worst=tuple(least),
        tokenizer="" if found.texts is None else found.texts.place,
        no_text=redact.value(found.no_text),
        note=redact.value(found.note),
        not_trained=found.not_trained,
    )


def _chosen(rows: Sequence[TokenRow], number: int | None, path: str, note: str) -> TokenRow | None:
    if number is None:
        return rows[-1] if rows else None
    found = next((row for row in rows if row.number == number), None)
    if found is None:
        there = ", ".join(str(row.number) for row in rows[:20])
        have = f"it has {plural(len(rows), 'row')} {there}" if rows else note
        raise NoSuchTrial(f"trial {path} has no row {number}: {have}")
    return found


def row_shown(row: TokenRow) -> RowShown:
    """A row in the form of scripts."""
    return RowShown(
        row.number,
        row.kind,
        row.why,
        len(row.ids),
        row.prompt,
        row.sampled,
        row.mean_logprob,
        row.missing,
        row.faults,
        tuple(ReplyShown(r.begin, r.end, r.turn, r.healed, r.measured) for r in row.replies),
    )


def shown_token(token: Token, text: RowText) -> TokenShown:
    """A token in the form of scripts."""
    return TokenShown(
        index=token.index,
        id=text.id(token.index),
        text=text.text(token.index),
        bytes=text.partial(token.index),
        sampled=token.sampled,
        logprob=token.logprob,
        probability=token.probability,
        reply=token.reply,
        turn=token.turn,
        version=token.version,
    )


def _secret(texts: Sequence[str]) -> Iterator[int]:
    """Which of these texts, read together, are part of what looks like a secret."""
    whole = "".join(texts)
    redacted = redact.value(whole)
    if redacted == whole:
        return
    spans, at = [], 0
    for part in redacted.split(HIDDEN):  # each is in the text as it was, in this order
        begin = whole.find(part, at)
        begin = at if begin < 0 else begin
        spans.append((at, begin))
        at = begin + len(part)
    spans = [(begin, end) for begin, end in [*spans, (at, len(whole))] if begin < end]
    ends = [end for _, end in spans]
    place = 0
    for index, text in enumerate(texts):
        end = place + len(text)
        next_one = bisect_right(ends, place)
        if next_one < len(spans) and spans[next_one][0] < end:
            yield index
        place = end


def encoded(document: Any) -> bytes:
    """A document of this module as JSON. Its tokens are hidden already where they are part of a secret."""
    return msgspec.json.encode(document)
