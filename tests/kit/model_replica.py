"""A scripted replica of a model with its own tokenizer and chat template, as vLLM has it: what it renders is made in
the plainest way, the whole conversation at once. It counts what it is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from kit.token_replica import TokenReplica
from liverl.agents.tool_calls import parse_hermes, parse_qwen3_coder

END, START, OTHER_END = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
_WORDS = ("th", "the", "in", "on", "er", "es", "ing", "re", "  ", "\n\n", "un", "10", "00")  # merged bytes
_LINE = "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
_TOOLS = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content + '\\n\\n' }}{%- endif %}{{- '# Tools\\n<tools>' }}{%- for tool in tools %}"
    "{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
)
_OPEN = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
_RESULTS = (
    "{%- elif m.role == 'tool' %}{%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}"
    "{{- '<|im_start|>user' }}{%- endif %}{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}"
)


def _template(call: str, before: str = "") -> str:
    return (
        _TOOLS
        + "{%- for m in messages %}{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}"
        + before
        + "{{- m.content }}{%- for c in m.tool_calls or [] %}{%- set c = c.function %}"
        + call
        + "{%- endfor %}{{- '<|im_end|>\\n' }}"
        + _RESULTS
        + "{%- elif m.role == 'user' or not (tools and loop.first) %}"
        + _LINE
        + "{%- endif %}{%- endfor %}"
        + _OPEN
    )


HERMES = _template(
    '{{- \'\\n<tool_call>\\n{"name": "\' + c.name + \'", "arguments": \' }}{{- c.arguments | tojson }}'
    "{{- '}\\n</tool_call>' }}"
)
CODER = _template(
    "{{- '\\n<tool_call>\\n<function=' + c.name + '>\\n' }}{%- for name, value in c.arguments | items %}"
    "{{- '<parameter=' + name + '>\\n' ~ (value if value is string else value | tojson) ~ '\\n</parameter>\\n' }}"
    "{%- endfor %}{{- '</function>\\n</tool_call>' }}"
)
# As Qwen3's: the last reply has an empty thought, the earlier ones have none.
THINKS = _template("{{- c.name }}", "{%- if loop.last %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}")
# What is behind a reply depends on how much was before it.
REWRITES = HERMES.replace(
    _LINE,
    "{{- '<|im_start|>' + m.role + '\\n' ~ (messages[0].content | length) ~ '. ' + m.content + '<|im_end|>\\n' }}",
)
PARTS = (
    HERMES.replace(  # its messages have lists of parts
        "{{- m.content }}", "{%- for c in m.content %}{{- c.text }}{%- endfor %}"
    )
    .replace(_LINE, "{{- '<|im_start|>' + m.role + '\\n' + m.content[0].text + '<|im_end|>\\n' }}")
    .replace("messages[0].content +", "messages[0].content[0].text +")
)


def tokenizer() -> Tokenizer:
    """Bytes, with a few that are merged, and special tokens."""
    vocab = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in _WORDS:
        shown = word.replace(" ", "Ġ").replace("\n", "Ċ")
        merges.append((shown[:-1], shown[-1]))
        vocab[shown] = len(vocab)
    known = [(one, other) for one, other in merges if one in vocab and other in vocab]
    made = Tokenizer(models.BPE(vocab={**vocab}, merges=known))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [AddedToken(each, special=True, normalized=False) for each in (START, END, OTHER_END)]
    )
    return made


def write_model(folder: Path, template: str | None = HERMES, *, with_tokenizer: bool = True) -> Path:
    """A model's folder, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    if with_tokenizer:
        tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "bos_token": None}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


class ModelReplica(TokenReplica):
    """``template``: of the replica; ``folder``: of the model, as it says; ``None``: it does not say."""

    def __init__(
        self,
        reply: Callable[[str, int], str],
        folder: Path | None,
        template: str = HERMES,
        *,
        parts: bool = False,
    ) -> None:
        super().__init__(reply)
        self.tokenizer = tokenizer()
        self.asked: Counter[str] = Counter()
        self.changed: Callable[[list[int]], list[int]] = lambda ids: ids  # what its rendering is changed to
        self.reasons = False  # it parses reasoning
        self._folder, self._parts = folder, parts
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(template)

    def app(self) -> web.Application:
        """See ``TokenReplica.app``."""
        app = super().app()
        app.middlewares.append(self._count)
        return app

    @web.middleware
    async def _count(self, request: web.Request, handler: Any) -> Any:
        self.asked[request.path.rsplit("/", 1)[1]] += 1
        return await handler(request)

    def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    async def _models(self, _request: web.Request) -> web.Response:
        root = {} if self._folder is None else {"root": str(self._folder)}
        return web.json_response({"data": [{"id": "m", "max_model_len": self.context, **root}]})

    def text_of(self, body: dict[str, Any]) -> str:
        """The text of a request, as vLLM 0.24 makes it."""
        messages = json.loads(json.dumps(body["messages"]))
        for message in messages:
            if self._parts and message["role"] != "tool":
                message["content"] = [{"type": "text", "text": message["content"]}]
            for call in message.get("tool_calls") or ():
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        tools = [
            {
                "type": "function",
                "function": {"name": None, "description": None, "parameters": None, **tool["function"]},
            }
            for tool in body.get("tools") or ()
        ]
        return self._template.render(
            messages=messages,
            tools=tools or None,
            add_generation_prompt=body.get("add_generation_prompt", True),
            eos_token=END,
        )

    async def _render(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.render_failures:
            status = self.render_failures.pop(0)
            return web.json_response({"error": {"message": f"scripted {status}"}}, status=status)
        ids = self.changed(self.ids(self.text_of(body)))
        self.rendered += len(ids)
        return web.json_response({"request_id": "r", "token_ids": ids, "sampling_params": {}})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.decode((await request.json())["tokens"])})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.arrived += 1
        self.begun.set()
        await self.gate.wait()
        prompt = body["token_ids"]
        before = self.decode(prompt).rsplit("<|im_start|>assistant\n", 1)[0]
        turn = before.count("<|im_start|>assistant\n")
        text = self.reply(before, turn)
        # Every other reply in ids that no encoding gives: one for each byte.
        ids = self.ids(text) if turn % 2 else [token for letter in text for token in self.ids(letter)]
        ids = [*ids, *self.ids(END)][: body["sampling_params"]["max_tokens"]]
        self.prompts.append(prompt)
        self.replies.append(ids)
        content = [{"token_id": token, "logprob": -token / 1000, "rank": 1} for token in ids]
        finish = "stop" if ids[-1:] == self.ids(END) else "length"
        choice = {"index": 0, "token_ids": ids, "finish_reason": finish, "logprobs": {"content": content}}
        return web.json_response({"request_id": "g", "choices": [choice]})

    async def _derender(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids, chat = body["generate_response"]["choices"][0]["token_ids"], body.get("chat_request")
        # What is not parsed is shown without special tokens.
        text = self.tokenizer.decode(ids, skip_special_tokens=chat is None)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if chat is not None:
            self.parsed.append(chat)
            if self.reasons and "</think>" in text:
                thought, _, text = text.partition("</think>")
                message |= {"reasoning": thought.replace("<think>", ""), "content": text}
            if chat.get("tools"):
                read = parse_hermes if '"name"' in text else parse_qwen3_coder
                parsed = read(text, chat["tools"])
                calls = self._calls((call.name, call.arguments) for call in parsed.calls)
                message |= {"content": parsed.content, "tool_calls": calls}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
