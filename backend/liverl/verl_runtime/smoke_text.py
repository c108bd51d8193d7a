"""Text of the smoke model: chat template, tokenizer, and the conversations it is trained on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from liverl.agents.sandbox import Sandbox
from liverl.agents.tasks import Task
from liverl.agents.tools import SUBMIT, TOOLS

SYSTEM = "You are an agent that works on files. Use one tool a turn and call submit when the work is done."
MAX_LENGTH = 2048  # tokens; the model's max_position_embeddings
_VOCABULARY = 1536
_EOS, _PAD = "<|im_end|>", "<|endoftext|>"
_SPECIAL = (_PAD, "<|im_start|>", _EOS)
# One token each, but not special tokens: a decoder must keep them for the tool parser.
_SYNTAX = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# The list of tools is one piece, so that it becomes a few tokens; words and single digits are separate
# pieces, so that text copied from an instruction has the same tokens there and in a call.
_PIECES = r"<tools>[\s\S]*?</tools>|</?(?:function|parameter)[=>]\n?| ?[A-Za-z_]+|\d|[^\sA-Za-z_\d]\n*|\s"

# Qwen3-Coder's form: functions listed as XML, calls as <function=..><parameter=..>, results as tool_response.
CHAT_TEMPLATE = """\
{%- if messages and messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- if system or tools %}
    {{- '<|im_start|>system\\n' + system }}
    {%- if tools %}
        {{- '\\n\\n# Tools\\n\\n<tools>' }}
        {%- for tool in tools %}
            {%- set f = tool.function if tool.function is defined else tool %}
            {{- '\\n<function>\\n<name>' + f.name + '</name>\\n<description>' }}
            {{- (f.description or '') + '</description>\\n<parameters>' }}
            {%- if f.parameters and f.parameters.properties %}
                {%- for name, field in f.parameters.properties | items %}
                    {{- '\\n<parameter>\\n<name>' + name + '</name>\\n<type>' + (field.type or 'string') | string }}
                    {{- '</type>\\n<description>' + (field.description or '') + '</description>\\n</parameter>' }}
                {%- endfor %}
            {%- endif %}
            {{- '\\n</parameters>\\n</function>' }}
        {%- endfor %}
        {{- '\\n</tools>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in rest %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set f = call.function if call.function is defined else call %}
            {{- '<tool_call>\\n<function=' + f.name + '>\\n' }}
            {%- for name, value in f.arguments | items %}
                {{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + (message.content or '') + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""


def opening(task: Task) -> list[dict[str, Any]]:
    """Return the messages of a task before its first turn: the ``prompt`` column of the data."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.instruction}]


def _calls(task: Task) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the shortest sequence of calls that solves the task."""
    target, text = next((path, text) for path, text in task.expect.items() if text is not None)
    if task.kind == "create":
        yield "write_file", {"path": target, "content": text}
    elif task.kind == "replace":
        yield "read_file", {"path": target}
        pairs = zip(task.files[target].splitlines(), text.splitlines(), strict=True)
        old, new = next(pair for pair in pairs if pair[0] != pair[1])
        yield "replace_text", {"path": target, "old": old, "new": new}
    elif task.kind == "move":
        yield "list_files", {"path": "."}
        source = next(path for path, left in task.expect.items() if left is None)
        yield "move_file", {"source": source, "destination": target}
    else:
        yield "read_file", {"path": next(path for path in task.files if path.endswith(".csv"))}
        yield "write_file", {"path": target, "content": text}
    yield SUBMIT, {}


def demonstration(task: Task) -> list[dict[str, Any]]:
    """Return the whole conversation of a solved task, with tool results from a real sandbox."""
    messages = opening(task)
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder) / "work")
        sandbox.prepare(task.files)
        for name, arguments in _calls(task):
            function = {"name": name, "arguments": arguments}
            messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
            messages.append({"role": "tool", "content": sandbox.call(name, arguments)})
    return messages[:-1]  # nothing follows the last call


def build_tokenizer(conversations: Iterable[Sequence[dict[str, Any]]]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on ``conversations`` as the template formats them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_EOS, pad_token=_PAD,
                                   model_max_length=MAX_LENGTH)  # fmt: skip
    fast.chat_template = CHAT_TEMPLATE
    texts = [fast.apply_chat_template(list(c), tools=list(TOOLS), tokenize=False) for c in conversations]
    for marker in (*_SPECIAL, *_SYNTAX):
        texts = [text.replace(marker, "\n") for text in texts]
    tokenizer.train_from_iterator(
        [*texts, json.dumps(TOOLS)],
        trainers.BpeTrainer(
            vocab_size=_VOCABULARY - len(_SYNTAX),
            special_tokens=list(_SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _SYNTAX])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_EOS,
        pad_token=_PAD,
        additional_special_tokens=["<|im_start|>"],
        model_max_length=MAX_LENGTH,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
