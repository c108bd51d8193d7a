"""A model's own tokenizer and chat template: the ids of conversations, as an engine would make them.

Which of the forms (``Form``) an engine hands to the template is found out by comparing (``token_probes``). Needs the
package ``tokenizers``; nothing here asks an engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from liverl.sessions.chat_template import ChatTemplate, TemplateFailed
from liverl.sessions.messages import Chat, Message
from liverl.sessions.model_folder import ModelFiles, NoModelFiles
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_loose_json

SYNTHETIC = Message("user", "?")  # stands for the history where a template does not need it
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token
# Texts whose ids are kept: trials of one task begin with the same prompt, those of all tasks with the same part of it.
_KEPT_TEXTS = 256
_MOST_KEPT = 64 << 20  # bytes of these texts and their ids
_EACH = 36  # bytes of an id in Python: 8 for its place in the list, 28 for the number


class Form(NamedTuple):
    """What an engine hands to the template. ``parts``: texts as lists of parts; ``whole_tools``: tools with the fields
    of vLLM in its order, and null for those that are missing."""

    parts: bool
    whole_tools: bool


FORMS = (Form(False, True), Form(False, False), Form(True, True), Form(True, False))


class LocalTail(msgspec.Struct, frozen=True):
    """``rest``: the ids behind the end of the last reply; ``text``: the text of these; ``healed``: see ``Tail``."""

    rest: list[int]
    text: str
    healed: bool


class LocalTokens:
    """The tokenizer and the templates of one model."""

    def __init__(self, files: ModelFiles) -> None:
        """Raises:
        NoModelFiles: a file is none that can be used here, or ``tokenizers`` is not installed.
        """
        try:
            import tokenizers
        except ImportError:
            raise NoModelFiles("the package tokenizers is not installed in this environment") from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(files.tokenizer)
        except BaseException as error:  # noqa: BLE001 - a panic of the package is no Exception
            _let_through(error)
            raise NoModelFiles(f"tokenizer.json cannot be used: {error}") from None
        _add_tokens(self._tokenizer, files, tokenizers.AddedToken)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        try:
            self._template = ChatTemplate(files.template, files.variables)
            same = files.with_tools == files.template
            self._with_tools = self._template if same else ChatTemplate(files.with_tools, files.variables)
        except TemplateFailed as error:
            raise NoModelFiles(f"its chat template: {error}") from None
        self.form = FORMS[0]
        self._opening: list[int] | None = None  # the synthetic history up to where the reply begins
        self._cut: tuple[str, int] | None = None  # see ``cut_at``
        self._kept: OrderedDict[str, list[int]] = OrderedDict()
        self._kept_size = 0  # bytes
        self._keeping = threading.Lock()  # requests with long texts run in threads

    # -- ids

    def text(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, reply: bool) -> str:
        """The text of a conversation. ``reply``: up to where a reply begins.

        Raises:
            TemplateFailed: the template does not render it here.
        """
        template = self._with_tools if tools else self._template
        given = [_template_message(message, parts=self.form.parts) for message in messages]
        offered = [_whole_tool(tool) for tool in tools] if self.form.whole_tools else list(tools)
        return template.render(given, offered, generation=reply)

    def cut_at(self, stop: int) -> None:
        """From now on the parts between these tokens, which end turns (``ends_turns``), are encoded by themselves: the
        system prompt and the tools, which the trials of all tasks have, once for all of them. Unless an added token may
        begin before such a token and end in it, or looks at what stands behind itself."""
        word = self.word(stop)
        others = [each for token, each in self.added().items() if token != stop]
        begins = [word[:length] for length in range(1, len(word) + 1)]
        crosses = any(word in each or each.endswith(tuple(begins)) for each in others)
        self._cut = None if crosses or not word or word[0].isalnum() or word[0] == "_" else (word, stop)

    def prompt_ids(self, text: str) -> list[int]:
        """The ids of a conversation's text, a part of it after the other: see ``cut_at``.

        Raises:
            TemplateFailed: the tokenizer fails with it.
        """
        if self._cut is None:
            return self.ids(text)
        word, stop = self._cut
        first, *others = text.split(word)
        ids = self.ids(first)
        for part in others:
            # Behind the token as in the whole: some tokenizers treat the beginning of a text in another way.
            more = self.ids(word + part)
            if more[:1] != [stop] or stop in more[1:]:
                return self.ids(text)
            ids += more
        return ids

    def ids(self, text: str) -> list[int]:
        """The ids of a text.

        Raises:
            TemplateFailed: the tokenizer fails with it.
        """
        with self._keeping:
            known = self._kept.get(text)
            if known is not None:
                self._kept.move_to_end(text)
                return known[:]
        ids = self._ids(text)
        with self._keeping:
            if text not in self._kept:
                self._kept[text] = ids[:]
                self._kept_size += _size(text, ids)
            while len(self._kept) > _KEPT_TEXTS or self._kept_size > _MOST_KEPT:
                self._kept_size -= _size(*self._kept.popitem(last=False))
        return ids

    def _ids(self, text: str) -> list[int]:
        """The ids of a text that is not kept. That no place in the text is noted for each saves a third of the time."""
        with _its_failures():
            # A batch of one: other threads run meanwhile.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def _encoding(self, text: str) -> Any:
        """The same with the place of each id."""
        with _its_failures():
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        return encoding

    def word(self, token: int) -> str:
        """A token's text, special tokens included.

        Raises:
            TemplateFailed: see ``plain``.
        """
        return self.plain([token], special=True)

    def plain(self, ids: Sequence[int], *, special: bool) -> str:
        """The text of ids. ``special``: with that of special tokens.

        Raises:
            TemplateFailed: the tokenizer fails with them.
        """
        with _its_failures():
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=not special)
        return text

    def special_text(self, token: int) -> str:
        """The text of a token that texts are shown without; "" of others.

        Raises:
            TemplateFailed: see ``plain``.
        """
        return "" if self.plain([token], special=False) else self.plain([token], special=True)

    def added(self) -> dict[int, str]:
        """The added tokens: id -> text."""
        found = self._tokenizer.get_added_tokens_decoder()
        return {token: found[token].content for token in sorted(found)}

    def ends_turns(self, token: int) -> bool:
        """Whether a text is cut at this token wherever it stands, so that what comes before it changes no id behind
        it."""
        added = self._tokenizer.get_added_tokens_decoder().get(token)
        return added is not None and not (
            added.normalized or added.lstrip or added.rstrip or added.single_word
        )

    # -- what follows a reply

    def tail(
        self, echo: Message, new: Sequence[Message], reply: Sequence[int], stop: int
    ) -> LocalTail | None:
        """What follows the ids ``reply`` of the message ``echo``, by the rule of ``HttpEngine.tail``. ``stop``: the
        token that ends a reply in the template. None if the template changes what comes before.

        Raises:
            TemplateFailed: see ``text``.
        """
        echo = msgspec.structs.replace(echo, reasoning="")
        before = self.text([SYNTHETIC, echo], reply=False)
        whole = self.text([SYNTHETIC, echo, *new], reply=True)
        word = self.word(stop)
        cut = _behind_last(before, word)
        if not whole.startswith(before[:cut]):
            cut = 0
        end, ids = self._end(whole, cut, word, stop) if cut else (None, self._ids(whole))
        if end is not None:
            early = ids[: end + 1] + self.ids(before[cut:])
        else:
            cut = 0
            early = self.ids(before)
            end = nth(ids, stop, early.count(stop))
        if end is None:
            return None
        if self._opening is None:
            self._opening = self.ids(self.text([SYNTHETIC], reply=True))
        healed = list(reply) != early[len(self._opening) : len(self._opening) + len(reply)]
        return LocalTail(ids[end + 1 :], whole[cut:] if cut else "", healed)

    def _end(self, text: str, cut: int, word: str, stop: int) -> tuple[int | None, list[int]]:
        """Which id of a text ends at ``cut``, and all ids. None: it is not ``stop``, whose text is ``word``."""
        ids = self._ids(text)
        overlaps = (word + word).find(word, 1) < len(word)
        if not overlaps and ids.count(stop) == text.count(word):  # each ``word`` is a ``stop``
            return nth(ids, stop, text.count(word, 0, cut)), ids
        encoding = self._encoding(text)
        end = encoding.char_to_token(cut - 1)
        return end if end is not None and ids[end] == stop else None, encoding.ids

    def ends_with(self, chat: Chat, tail: LocalTail, ids: Sequence[int], stop: int) -> bool:
        """Whether the ids of the whole conversation end with ``ids``, those of ``tail`` with or without ``stop``.

        Raises:
            TemplateFailed: see ``text``.
        """
        whole = self.text(chat.messages, chat.tools, reply=True)
        # A text is cut at ``stop``: equal texts behind it have equal ids, whatever comes before.
        if tail.text and whole.endswith(self.word(stop) + tail.text):
            return True
        return self.ids(whole)[-len(ids) :] == list(ids)


def _size(text: str, ids: Sequence[int]) -> int:
    """Bytes of a text and its ids, at most."""
    return 4 * len(text) + _EACH * len(ids)


@contextmanager
def _its_failures() -> Iterator[None]:
    """Whatever the package raises within is a failure of the tokenizer.

    Raises:
        TemplateFailed: it fails.
    """
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - a panic of the package is no Exception
        _let_through(error)
        raise TemplateFailed(f"the tokenizer fails: {type(error).__name__}: {error}"[:400]) from None


def _let_through(error: BaseException) -> None:
    """Raise again what ends a program or a task: it is no failure of the package."""
    if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit)):
        raise error


def _add_tokens(tokenizer: Any, files: ModelFiles, kind: Callable[..., Any]) -> None:
    """Add what only tokenizer_config.json has, by the rule of transformers (``TokenizersBackend.__init__``): first the
    tokens of its list that differ from those that are there, then special ones by their names, then further ones.

    Raises:
        NoModelFiles: a token cannot be added.
    """

    def made(token: Any, *, special: bool) -> Any:
        if isinstance(token, str):
            return kind(token, special=special)
        flags = {name: token[name] for name in _FLAGS if name in token}
        return kind(token["content"], **flags)

    try:
        have = {repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
        listed = [made(token, special=False) for _, token in sorted(files.listed.items())]
        new = [token for token in listed if repr(token) not in have]
        known = {token.content for token in (*tokenizer.get_added_tokens_decoder().values(), *listed)}
        names = set()
        for token, named in files.special:
            one = made(token, special=True)
            names |= {one.content} if named else set()
            if one.content not in known:
                known.add(one.content)
                new.append(one)
        for token in new:
            token.special = token.special or token.content in names
        if new:
            tokenizer.add_tokens(new)
    except BaseException as error:  # noqa: BLE001 - a panic of the package is no Exception
        _let_through(error)
        raise NoModelFiles(f"the added tokens of tokenizer_config.json cannot be used: {error}") from None


def nth(ids: Sequence[int], token: int, number: int) -> int | None:
    """The index of the ``number``-th (from 1) ``token``; None if there are fewer."""
    for index, each in enumerate(ids):
        if each == token:
            number -= 1
            if not number:
                return index
    return None


def _behind_last(text: str, part: str) -> int:
    """The place behind the last ``part`` in a text; 0 if it has none."""
    begin = text.rfind(part) if part else -1
    return 0 if begin < 0 else begin + len(part)


def _template_message(message: Message, *, parts: bool) -> dict[str, Any]:
    """A message as vLLM hands it to a template: the arguments of calls are objects, not text; texts of tools are no
    lists of parts.

    Raises:
        TemplateFailed: arguments are no JSON.
    """
    content: Any = message.text
    if parts and message.role != "tool":
        content = [{"type": "text", "text": message.text}]
    body: dict[str, Any] = {"role": message.role, "content": content}
    if message.calls:
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.calls
        ]
    if message.reasoning:
        body |= {"reasoning": message.reasoning, "reasoning_content": message.reasoning}
    if message.role == "tool":
        body["tool_call_id"] = message.call_id
    return body


def _arguments(text: str) -> Any:
    try:
        value = decode_loose_json(text) if text else {}
    except BAD_JSON as error:
        raise TemplateFailed(f"the arguments of a call are no JSON: {error}") from None
    return {} if value is None else value


def _whole_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    whole = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        whole["strict"] = function["strict"]
    return {
        "type": "function",
        "function": {**whole, **{k: v for k, v in function.items() if k not in (*whole, "strict")}},
    }
