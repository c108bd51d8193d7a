"""The text of a token's id, from the files of a model's tokenizer. Reads ids only: it splits no text.

A byte-level BPE (GPT-2 and all that follow it: Qwen, Llama 3, DeepSeek, GLM) writes each byte as one character in its
vocabulary; what its ids stand for is known without its merges. Other kinds are refused in words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from liverl.embedded import tokenizer as embedded
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder, decode_json
from liverl.util.regular_file import read_regular

FILE = "tokenizer.json"
_MORE = "tokenizer_config.json"  # may list added tokens that the other file lacks
LARGEST = 64 << 20  # bytes of a file; Gemma's, with 262,144 tokens, has 33 MiB
LONGEST = 4096  # characters of a token; the longest of the usual vocabularies, of spaces, have 128 to 512
_MOST_ID = (1 << 31) - 1
_BYTE_LEVEL = "ByteLevel"
_DEEPEST = 8  # decoders within each other


class TokenTexts(NamedTuple):
    """``bytes_of``: id -> the bytes that it stands for, None if the vocabulary does not have it; ``place``: the file
    that says so."""

    place: str
    bytes_of: Callable[[int], bytes | None]


class NoTokenizer(Exception):
    """What ids stand for is not known; the text says why."""


class _Added(msgspec.Struct):
    content: str
    id: int | None = None


class _File(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"{}")
    decoder: msgspec.Raw = msgspec.Raw(b"null")
    added_tokens: list[_Added] = []


class _Model(msgspec.Struct):
    type: str | None = None
    vocab: msgspec.Raw = msgspec.Raw(b"{}")
    byte_fallback: bool | None = None


class _Config(msgspec.Struct):
    added_tokens_decoder: dict[str, _Added] = {}


_file, _model, _config = JsonDecoder(_File), JsonDecoder(_Model), JsonDecoder(_Config)
_vocab = JsonDecoder(dict[str, int])


def _byte_characters() -> dict[str, int]:
    """The character by which a byte-level vocabulary writes each byte (``bytes_to_unicode`` of GPT-2's encoder.py):
    the printable ones of Latin-1 as they are, the others from U+0100 on in their order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_characters()


def token_bytes(piece: str) -> bytes:
    """The bytes of an entry of a byte-level vocabulary. One with a character that stands for no byte, such as an added
    token with a space, is its own text, as in the ``ByteLevel`` decoder of the library tokenizers."""
    try:
        return bytes([_BYTES[character] for character in piece])
    except KeyError:
        return piece.encode("utf-8", "surrogatepass")


def text_of(data: bytes) -> str:
    r"""Bytes of a token as text; those that are no whole character, as where one is spread over several tokens, as
    ``\xe2``: nothing is lost."""
    return data.decode("utf-8", "backslashreplace")


def embedded_texts() -> TokenTexts:
    """Of the embedded engine's own tokenizer."""

    def bytes_of(token: int) -> bytes | None:
        return embedded.token_bytes(token) if 0 <= token < embedded.VOCAB_SIZE else None

    return TokenTexts("the embedded engine's tokenizer", bytes_of)


def read_texts(folder: Path) -> TokenTexts:
    """Of the tokenizer in a model's folder.

    Raises:
        NoTokenizer: there is none that can be read, in words.
    """
    path = folder / FILE
    data = _read(path)
    if data is None:
        raise NoTokenizer(f"{folder} has no {FILE}: {_others(folder)}")
    pieces = vocabulary(data, str(path))
    config = folder / _MORE
    more = _read(config)
    if more is not None:
        for token, piece in _added_by_config(more, str(config)).items():
            pieces.setdefault(token, piece)

    def bytes_of(token: int) -> bytes | None:
        piece = pieces.get(token)
        return None if piece is None else token_bytes(piece)

    return TokenTexts(str(path), bytes_of)


def vocabulary(data: bytes, place: str) -> dict[int, str]:
    """id -> entry of a byte-level ``tokenizer.json``, its added tokens with it. ``place``: of the file, for words.

    Raises:
        NoTokenizer: it is none.
    """
    try:
        file = _file.decode(data)
        model = _model.decode(bytes(file.model))
        decoder = decode_json(bytes(file.decoder))
        if model.type not in ("BPE", None) or not _is_byte_level(decoder):
            raise NoTokenizer(
                f"{place} is a {_kind(model, decoder)} tokenizer; only the text of byte-level BPE is read here"
            )
        vocab = _vocab.decode(bytes(model.vocab))
    except BAD_JSON as error:
        raise NoTokenizer(f"cannot read {place}: {error}") from None
    if not vocab:
        raise NoTokenizer(f"cannot read {place}: its vocabulary is empty")
    pieces = {token: piece for piece, token in vocab.items()}
    for added in file.added_tokens:
        if added.id is None:
            raise NoTokenizer(f"cannot read {place}: the added token {added.content[:40]!r} has no id")
        pieces[added.id] = added.content
    return _checked(pieces, place)


def _added_by_config(data: bytes, place: str) -> dict[int, str]:
    try:
        listed = _config.decode(data).added_tokens_decoder
    except BAD_JSON as error:
        raise NoTokenizer(f"cannot read {place}: {error}") from None
    pieces = {}
    for number, added in listed.items():
        if not (number.isascii() and number.isdecimal() and len(number) <= 10):
            raise NoTokenizer(f"cannot read {place}: found {number[:40]!r} as an id in added_tokens_decoder")
        pieces[int(number)] = added.content
    return _checked(pieces, place)


def _checked(pieces: dict[int, str], place: str) -> dict[int, str]:
    for token, piece in pieces.items():
        if not 0 <= token <= _MOST_ID:
            raise NoTokenizer(f"cannot read {place}: the token {piece[:40]!r} has the id {token}")
        if len(piece) > LONGEST:
            raise NoTokenizer(
                f"cannot read {place}: token {token} has {len(piece):,} characters, expected {LONGEST:,} at most"
            )
    return pieces


def _is_byte_level(decoder: object, depth: int = 0) -> bool:
    if not isinstance(decoder, Mapping) or depth > _DEEPEST:
        return False
    inner = decoder.get("decoders")
    if decoder.get("type") == "Sequence" and isinstance(inner, list):
        return any(_is_byte_level(each, depth + 1) for each in inner)
    return decoder.get("type") == _BYTE_LEVEL


def _kind(model: _Model, decoder: object) -> str:
    if model.type not in ("BPE", None):
        return str(model.type)[:40]
    name = decoder.get("type") if isinstance(decoder, Mapping) else None
    if model.byte_fallback:
        return "SentencePiece BPE"
    return f"BPE with the decoder {str(name)[:40]}" if name else "BPE without a decoder"


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NoTokenizer(f"cannot read {path}: {error.strerror or error}") from None


def _others(folder: Path) -> str:
    """What a folder without a ``tokenizer.json`` has of a tokenizer, in words."""
    try:
        names = {*os.listdir(folder)}
    except OSError as error:
        return f"the folder cannot be read ({error.strerror or error})"
    known = ("tokenizer.model", "tekken.json", "vocab.json", "spiece.model", "tokenizer.tiktoken")
    found = [name for name in known if name in names]
    return f"it has {' and '.join(found)}, which is not read here" if found else "no tokenizer is in it"
