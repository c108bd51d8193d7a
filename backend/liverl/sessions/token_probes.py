"""Whether our ids of a few conversations are an engine's: before any prompt is made of ours.

The conversations have what tokenizers and templates are known to differ in: white space, digits, other scripts, accents
in both of Unicode's forms, text that looks like a special token, tools, calls, and results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from liverl.sessions.chat_template import TemplateFailed
from liverl.sessions.local_tokens import FORMS, SYNTHETIC, LocalTokens
from liverl.sessions.messages import Call, Chat, Message
from liverl.sessions.token_trust import first_difference
from liverl.util.deadline import within

TEXT = (
    "  two blanks,\ttab,  \n\n\n lines \r\n end   \n"
    "I'll don't WE'RE it's 1234567890 3.14159 1,000,000 0x1F e-10 v2.0.1\n"
    "café cafe\u0301 ﬁne Å Å ½ ① naïve Straße İstanbul ǆ\n"
    "日本語のテキスト 한국어 العربية עברית हिन्दी ไทย 🙂👩‍👩‍👧 🇩🇪 \u200b\u00a0\ufeff\n"
    "def f(x):\n\treturn {'a': [x**2, \"b\"], **kw}  # <|im_end|> </s> <think> [INST] <tool_call>\n"
    "a , b . c ' s n't ! ?  --- === ___ ... \\n \\u00e9 &amp; https://example.com/a?b=c#d"
)
_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.\nAt <b>things</b> & 'others'.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where — 日本."},
                    "depth": {"type": "integer", "minimum": 1, "default": 3},
                },
                "required": ["path"],
            },
        },
    },
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
)
_CALL = Call(
    "call_0123456789ab", "look", '{"path":"/tmp/ä b","depth":2,"more":[1.5,true,null,{"k":"\\u2028"}]}'
)
_USER, _SYSTEM = Message("user", TEXT), Message("system", "You are careful.")
_CALLED = Message("assistant", "I look.", calls=(_CALL,))
_RESULT = Message("tool", TEXT, call_id=_CALL.id)

_THOUGHT = "<think>\nFirst.\n</think>\n\nI look."  # a reply whose thought is in its text
_THOUGHT_CALLED = Message("assistant", _THOUGHT, calls=(_CALL,))

# (the messages, the tools, whether up to where a reply begins)
PROBES: tuple[tuple[Chat, bool], ...] = (
    (Chat((SYNTHETIC,)), True),
    (Chat((_USER,)), True),
    (Chat((_SYSTEM, _USER)), True),
    (Chat((SYNTHETIC, Message("assistant", TEXT))), False),
    (Chat((SYNTHETIC, Message("assistant", "So."), _USER)), True),
    (Chat((_SYSTEM, _USER), _TOOLS), True),
    (Chat((SYNTHETIC, _CALLED)), False),
    (Chat((SYNTHETIC, _CALLED, _RESULT)), True),
    (Chat((_SYSTEM, _USER, _CALLED, _RESULT), _TOOLS), True),
    (Chat((SYNTHETIC, Message("assistant", _THOUGHT))), False),
    (Chat((SYNTHETIC, Message("assistant", _THOUGHT), _USER)), True),
    (Chat((SYNTHETIC, Message("assistant", _THOUGHT, "Before."), _USER)), True),
    (Chat((SYNTHETIC, Message("assistant", "So.", "Before."), _USER)), True),
    (Chat((SYNTHETIC, _THOUGHT_CALLED, _RESULT)), True),
    (Chat((_SYSTEM, _USER, _THOUGHT_CALLED, _RESULT), _TOOLS), True),
    (Chat((_SYSTEM, _USER, _THOUGHT_CALLED, _RESULT, Message("assistant", _THOUGHT), _USER), _TOOLS), True),
)
ADDED_AT_ONCE = 256  # added tokens in one conversation, or in one text that is asked for
# What ends a thought within the text of a reply.
_CLOSES = ("</think>", "[/THINK]", "</seed:think>", "</mm:think>", "◁/think▷", "</thought>", "</reasoning>")
# What parsers of reasoning look for (vLLM's table of them), in a reply without tools.
THOUGHTS = (
    "<think>one</think>two",
    "<think>\none\n</think>\n\ntwo",
    "one</think>two",
    "[THINK]one[/THINK]two",
    "<seed:think>one</seed:think>two",
    "<mm:think>one</mm:think>two",
    "◁think▷one◁/think▷two",
    "<|START_THINKING|>one<|END_THINKING|>two",
    "<|begin_of_thought|>one<|end_of_thought|>two",
    "<|channel>thought\none<channel|>two",
    "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>two",
    "<think_fast>one</think_fast><answer>two</answer>",
    "<reasoning>one</reasoning>two",
    "<thought>one</thought>two",
    "Here is my thought process: one Here is my response: two",
    "Here's my thought process: one Here's my response: two",
    "two",
    TEXT,
)

# (a conversation, up to where a reply begins) -> the engine's ids, None if it refuses it
Ask = Callable[[Chat, bool], Awaitable["list[int] | None"]]


class Differs(Exception):
    """Our ids of a conversation are other ones; the text says where."""


def closes_thought(message: Message) -> bool:
    """Whether the text of a reply has the end of a thought."""
    return message.role == "assistant" and any(end in message.text for end in _CLOSES)


def _added(local: LocalTokens) -> list[tuple[Chat, bool]]:
    """Conversations with the text of every added token, bare and between blanks."""
    words = list(local.added().values())
    return [
        (
            Chat((Message("user", "".join(f"a{word}b {word} c" for word in words[n : n + ADDED_AT_ONCE])),)),
            True,
        )
        for n in range(0, len(words), ADDED_AT_ONCE)
    ]


async def compare(
    local: LocalTokens, ask: Ask, *, settled: bool = False, seconds: float | None = None
) -> None:
    """Find the form in which the engine's template gets conversations; ``local`` has it then. ``settled``: it has it
    already, by another engine; ``seconds``: for our part with one form.

    Raises:
        TimeoutError: that takes longer.
        Differs: with each form an id differs; the text is about the form that is right for longest.
        TemplateFailed: the template renders none of them here.
    """
    asked = []
    for chat, reply in PROBES:
        theirs = await ask(chat, reply)
        if theirs is not None:  # a template may refuse a kind of message
            asked.append((chat, reply, theirs))
    if not asked:
        raise TemplateFailed("the engine renders none of the conversations that are compared")
    for chat, reply in _added(local):
        theirs = await ask(chat, reply)
        if theirs is None:
            raise TemplateFailed("the engine refuses a text with its added tokens")
        asked.append((chat, reply, theirs))
    most, words, loop = -1, "", asyncio.get_running_loop()
    for form in (local.form,) if settled else FORMS:
        local.form = form
        # In a thread: the template is a stranger's program, and others are served meanwhile.
        right, why = await within(loop.run_in_executor(None, _compared, local, asked), seconds)
        if not why:
            return
        if right > most:
            most, words = right, why
    raise Differs(words)


def _compared(local: LocalTokens, asked: Sequence[tuple[Chat, bool, list[int]]]) -> tuple[int, str]:
    """How many conversations agree before the first one that does not, and where that differs."""
    for number, (chat, reply, theirs) in enumerate(asked):
        try:
            ours = local.ids(local.text(chat.messages, chat.tools, reply=reply))
        except TemplateFailed as error:
            return number, f"the template fails here: {error}"
        words = first_difference(ours, theirs, local.word)
        if words:
            kinds = "+".join(message.role for message in chat.messages) + (" with tools" * bool(chat.tools))
            return number, f"{words} ({kinds})"
    return len(asked), ""
