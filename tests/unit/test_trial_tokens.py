"""Tokens of a trial's rows, and what their ids stand for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.embedded import tokenizer as embedded
from liverl.observe.trials.rows import FILLED
from liverl.observe.trials.token_rows import MOST, TokenRow, next_begin, token_rows
from liverl.observe.trials.token_texts import (
    LONGEST,
    NoTokenizer,
    embedded_texts,
    read_texts,
    text_of,
    token_bytes,
)
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.turns import Turn

DATA = Path(__file__).parents[1] / "data" / "own_runs_h200"
RECORDED = sorted(path.parent for path in DATA.glob("*/*/proxy_trajectory.json"))


def document(mask: list[int], prompt: int = 2, **changed: Any) -> dict[str, Any]:
    """A row with ids 1000, 1001, ...; token ``i`` behind the prompt has log-probability ``-(i + 1) / 8`` if sampled.
    ``changed``: fields, None: left out."""
    whole = {
        "initial_prompt_token_len": prompt,
        "traj_acc_ids": [1000 + n for n in range(prompt + len(mask))],
        "traj_response_mask": mask,
        "traj_response_logprobs": [-(n + 1) / 8 if bit else 0.0 for n, bit in enumerate(mask)],
        **changed,
    }
    return {name: value for name, value in whole.items() if value is not None}


def only(value: dict[str, Any], turns: tuple[Turn, ...] = ()) -> TokenRow:
    (row,) = token_rows(value, turns).rows
    return row


def turn(number: int, tokens: int | None, **changed: Any) -> Turn:
    return Turn(number, completion_tokens=tokens, **{"kind": "main", "opens": number == 1, **changed})


masks = st.lists(st.sampled_from((0, 1)), max_size=40)


@given(mask=masks, prompt=st.integers(0, 5), size=st.integers(1, 9))
def test_each_token_is_in_one_window_with_its_own_mask_and_log_probability(
    mask: list[int], prompt: int, size: int
) -> None:
    row = only(document(mask, prompt))
    shown = [token for begin in range(0, len(row.ids), size) for token in row.window(begin, size)]
    assert [token.index for token in shown] == list(range(prompt + len(mask)))
    assert [token.id for token in shown] == [1000 + n for n in range(prompt + len(mask))]
    for token in shown:
        at = token.index - prompt
        sampled = at >= 0 and mask[at] == 1
        assert token.sampled is sampled
        assert token.logprob == (-(at + 1) / 8 if sampled else None)


@given(mask=masks, counts=st.lists(st.integers(0, 5), max_size=6))
def test_a_version_belongs_to_as_many_sampled_tokens_as_the_row_says(
    mask: list[int], counts: list[int]
) -> None:
    row = only(document(mask, policy_versions=[[n, count] for n, count in enumerate(counts)]))
    expected = [n for n, count in enumerate(counts) for _ in range(count)]
    found = [token.version for token in row.window(0, 100) if token.sampled]
    assert found == [expected[at] if at < len(expected) else None for at in range(len(found))]


@given(mask=masks, count=st.integers(0, 50))
def test_the_worst_tokens_are_the_least_likely_ones_in_order(mask: list[int], count: int) -> None:
    row = only(document(mask))
    known = [token for token in row.window(0, 100) if token.logprob is not None]
    ordered = sorted(known, key=lambda token: (token.logprob, token.index))
    assert row.worst(count) == [token.index for token in ordered[:count]]


def test_replies_and_what_comes_before_them_are_counted() -> None:
    row = only(document([1, 1, 0, 0, 1, 0], prompt=1))
    assert [token.reply for token in row.window(0, 100)] == [1, 1, 1, 2, 2, 2, 0]
    assert [(reply.begin, reply.end) for reply in row.replies] == [(1, 3), (5, 6)]
    assert row.sampled == 3
    assert [next_begin(row, at, 1) for at in (0, 1, 4, 5)] == [1, 5, 5, None]
    assert [next_begin(row, at, -1) for at in (0, 1, 4, 6)] == [None, None, 1, 5]


def test_a_probability_is_of_a_measured_token_only() -> None:
    row = only(document([1, 0, 1], traj_response_logprobs=[math.log(0.25), 0.0, 0.5]))
    found = [token.probability for token in row.window(0, 100)]
    assert found == [None, None, pytest.approx(0.25), None, None]  # none has a logarithm above 0


@pytest.mark.parametrize(
    ("changed", "sampled", "measured", "missing"),
    [
        ({}, True, True, ""),
        ({"traj_response_logprobs": None}, True, False, "log-probabilities are not recorded"),
        ({"traj_response_logprobs": [-1.0]}, True, False, "log-probabilities are not recorded"),
        ({"traj_response_logprobs": [None] * 9}, True, False, "log-probabilities are not recorded"),
        ({"traj_response_logprobs": [-(10**400)] * 9}, True, False, "log-probabilities are not recorded"),
        ({"traj_response_logprobs": [0.0] * 9}, True, False, "filled with zeros instead of measured"),
        ({"traj_response_mask": [1]}, None, False, "which tokens were sampled is not recorded"),
        ({"traj_response_mask": "1"}, None, False, "which tokens were sampled is not recorded"),
        ({"initial_prompt_token_len": 99}, None, False, "which tokens were sampled is not recorded"),
        ({"initial_prompt_token_len": True}, None, False, "which tokens were sampled is not recorded"),
        ({"policy_versions": [[1]]}, True, True, ""),
    ],
)
def test_what_is_missing_is_said_instead_of_shown(
    changed: dict[str, Any], sampled: bool | None, measured: bool, missing: str
) -> None:
    row = only(document([1] * 9, **changed))
    last = row.window(0, 100)[-1]
    assert (len(row.window(0, 100)), last.sampled) == (11, sampled)
    assert (last.logprob is not None, last.version) == (measured, None)
    assert missing in row.missing and bool(missing) is bool(row.missing)
    assert (row.worst(3) == [], row.mean_logprob is None) == (not measured, not measured)


def test_one_filled_reply_hides_its_own_numbers_only() -> None:
    mask = [1] * FILLED + [0] + [1]
    row = only(document(mask, traj_response_logprobs=[0.0] * FILLED + [0.0, -2.0]))
    assert row.missing == "log-probabilities of 1 of 2 replies were filled with zeros"
    assert row.worst(99) == [2 + FILLED + 1] and row.mean_logprob == -2.0


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ({"messages_snapshot": []}, "it has messages, but no tokens"),
        ({"rows": [3]}, "row 1 of 1: found no object, expected one"),
        ({"rows": [document([1], traj_acc_ids=None)]}, "row 1 of 1: traj_acc_ids is missing"),
        ({"rows": [document([1], traj_acc_ids=7)]}, "row 1 of 1: traj_acc_ids is no list"),
        ({"rows": [document([1], traj_acc_ids=[1, 2, -3])]}, "traj_acc_ids has -3, expected ids from 0"),
        ({"rows": [document([1], traj_acc_ids=[1, 2, 3.5])]}, "traj_acc_ids has 3.5"),
        ({"rows": [document([1], traj_acc_ids=[1, 2, True])]}, "traj_acc_ids has True"),
        ({"rows": [document([1], traj_acc_ids=[1, 2, 1 << 31])]}, "traj_acc_ids has 2147483648"),
        ({"rows": [document([1], traj_acc_ids=[1] * (MOST + 1))]}, "traj_acc_ids has 1,000,001 ids"),
        ({"rows": "many"}, "it has messages, but no tokens"),
    ],
)
def test_a_row_without_ids_is_said(value: dict[str, Any], note: str) -> None:
    found = token_rows(value)
    assert found.rows == () and note in found.note


def test_rows_of_their_own_say_why() -> None:
    main = document([1])
    lists = {name: main.pop(name) for name in list(main)}
    rows = [document([1], kind=kind) for kind in ("sub", "aside", "main")]
    found = token_rows({**lists, "rows": [*rows, {"kind": "rewrite"}]}).rows
    assert [(row.number, row.kind, bool(row.why)) for row in found] == [
        (1, "sub", True),
        (2, "aside", True),
        (3, "main", False),
        (4, "rewrite", True),
    ]
    assert list(found[-1].ids) == lists["traj_acc_ids"]


TWO = document([1, 1, 0, 1])


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ((turn(1, 2), turn(2, 1, healed=True)), [(1, False), (2, True)]),
        ((turn(1, 2), turn(2, 9), turn(3, 4)), [(1, False), (2, False)]),  # cut at its limit
        ((turn(1, 3), turn(2, 1)), [(None, False)] * 2),  # another length
        ((turn(1, 2),), [(None, False)] * 2),
        ((turn(1, 2), turn(2, None)), [(None, False)] * 2),
        ((turn(1, 2, success=False), turn(2, 2, opens=True), turn(3, 1)), [(2, False), (3, False)]),
        ((turn(1, 5), turn(2, 2, kind="rewrite", opens=True), turn(3, 1, kind="rewrite")), [(2, False), (3, False)]),
        ((turn(1, 2), turn(2, 1), turn(3, 2, opens=True), turn(4, 1)), [(None, False)] * 2),  # both fit
        ((turn(1, 2, kind=""), turn(2, 1, kind="")), [(None, False)] * 2),  # of no session
        ((turn(1, 2), turn(2, 1, late=True)), [(None, False)] * 2),
    ],
)  # fmt: skip
def test_a_reply_has_the_number_of_a_turn_only_where_the_lengths_say_so(
    turns: tuple[Turn, ...], found: list[tuple[int | None, bool]]
) -> None:
    assert [(reply.turn, reply.healed) for reply in only(TWO, turns).replies] == found


@pytest.mark.parametrize("folder", RECORDED, ids=lambda path: path.name)
def test_recorded_rows_have_the_turns_of_their_records(folder: Path) -> None:
    value = json.loads((folder / "proxy_trajectory.json").read_text())
    row = only(value, read_trajectory(folder).turns)
    assert [reply.turn for reply in row.replies] == [1, 2]
    assert sum(reply.healed for reply in row.replies) == value["counters"].get("healed", 0)
    assert row.missing == "" and row.faults == ()
    sampled = [token for token in row.window(0, len(row.ids)) if token.sampled]
    assert len(sampled) == sum(value["traj_response_mask"])


# -- texts


def tokenizer(**changed: Any) -> dict[str, Any]:
    """A byte-level BPE of 256 bytes, one word, and an added token with id 300."""
    letters = {letter: byte for byte, letter in _LETTERS.items()}
    model = {"type": "BPE", "vocab": {**letters, "Ġhej": 256, "Ã¥": 257}, "merges": [["Ġ", "h"]]}
    added = [{"id": 300, "content": "<|end of it|>", "special": True}]
    return {"model": model, "decoder": {"type": "ByteLevel"}, "added_tokens": added, **changed}


def _letters() -> dict[int, str]:
    """The character of each byte in GPT-2's vocabulary: itself if it is seen, else one from U+0100 on."""
    plain = [code for code in range(256) if chr(code).isprintable() and not chr(code).isspace()]
    others = [code for code in range(256) if code not in plain]
    return {code: chr(code) for code in plain} | {code: chr(256 + n) for n, code in enumerate(others)}


def folder_with(tmp_path: Path, **files: Any) -> Path:
    for name, value in files.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        (tmp_path / f"{name}.json").write_bytes(data)
    return tmp_path


def test_ids_of_a_byte_level_vocabulary_are_its_bytes(tmp_path: Path) -> None:
    more = {"added_tokens_decoder": {"300": {"content": "other"}, "301": {"content": "<tool>"}}}
    texts = read_texts(folder_with(tmp_path, tokenizer=tokenizer(), tokenizer_config=more))
    assert texts.place == str(tmp_path / "tokenizer.json")
    ids = (256, 257, 10, 0xE2, 300, 301, 302)
    assert [texts.bytes_of(n) for n in ids] == [
        *(b" hej", "å".encode(), b"\n", b"\xe2", b"<|end of it|>", b"<tool>", None),
    ]


@given(st.binary(max_size=40))
def test_bytes_are_spelled_by_one_character_each_and_nothing_is_lost(data: bytes) -> None:
    spelled = "".join(map(_LETTERS.__getitem__, data))
    assert token_bytes(spelled) == data
    if b"\\" not in data:
        back = re.sub(rb"\\x(..)", lambda found: bytes.fromhex(found[1].decode()), text_of(data).encode())
        assert back == data
    assert text_of("å€😀".encode()) == "å€😀" and text_of("€".encode()[:2]) == "\\xe2\\x82"


_LETTERS = _letters()


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_ids_of_the_embedded_engine_join_to_the_text(text: str) -> None:
    texts = embedded_texts()
    parts = [texts.bytes_of(token) for token in embedded.encode(text)]
    assert b"".join(part for part in parts if part is not None) == text.encode() and None not in parts
    assert texts.bytes_of(embedded.VOCAB_SIZE) is None and texts.bytes_of(-1) is None


UNIGRAM = tokenizer(model={"type": "Unigram", "vocab": [["<unk>", 0.0]]})
SENTENCEPIECE = tokenizer(
    decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    model={"type": "BPE", "vocab": {"a": 0}, "byte_fallback": True},
)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no tokenizer.json: no tokenizer is in it"),
        ({"vocab": {}}, "has no tokenizer.json: it has vocab.json, which is not read here"),
        ({"tokenizer": b"{"}, "cannot read "),
        ({"tokenizer": b"\xff\xfe"}, "cannot read "),
        ({"tokenizer": b"[" * 100_000}, "cannot read "),
        ({"tokenizer": b'{"model":' + b"[" * 100_000}, "cannot read "),
        ({"tokenizer": b'{"decoder":' + b'{"decoders":[' * 5_000 + b"]}" * 5_000 + b"}"}, "cannot read "),
        ({"tokenizer": []}, "cannot read "),
        ({"tokenizer": {}}, "BPE without a decoder tokenizer"),
        ({"tokenizer": UNIGRAM}, "is a Unigram tokenizer; only the text of byte-level BPE is read here"),
        ({"tokenizer": SENTENCEPIECE}, "is a SentencePiece BPE tokenizer"),
        ({"tokenizer": tokenizer(model={"type": "BPE", "vocab": {}})}, "its vocabulary is empty"),
        ({"tokenizer": tokenizer(model={"type": "BPE", "vocab": {"a": "b"}})}, "cannot read "),
        ({"tokenizer": tokenizer(model={"type": "BPE", "vocab": {"a": -1}})}, "the token 'a' has the id -1"),
        ({"tokenizer": tokenizer(model={"type": "BPE", "vocab": {"a" * (LONGEST + 1): 1}})}, "4,097 characters"),
        ({"tokenizer": tokenizer(added_tokens=[{"content": "x"}])}, "the added token 'x' has no id"),
        ({"tokenizer": tokenizer(), "tokenizer_config": {"added_tokens_decoder": {"-1": {"content": ""}}}}, "'-1'"),
        ({"tokenizer": tokenizer(), "tokenizer_config": b"{"}, "tokenizer_config.json"),
    ],
)  # fmt: skip
def test_a_tokenizer_that_cannot_be_read_is_refused_in_words(
    tmp_path: Path, files: dict[str, Any], words: str
) -> None:
    with pytest.raises(NoTokenizer) as error:
        read_texts(folder_with(tmp_path, **files))
    assert words in str(error.value) and str(tmp_path) in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: p.symlink_to("/dev/zero"), None])
def test_a_file_that_is_none_is_refused(tmp_path: Path, make: Callable[[Path], None] | None) -> None:
    path = tmp_path / "tokenizer.json"
    if make is None:
        with path.open("wb") as file:
            file.truncate(1 << 30)  # sparse
    else:
        make(path)
    with pytest.raises(NoTokenizer, match="cannot read"):
        read_texts(tmp_path)
