"""The formats in which models write tool calls, and the names of the parsers that read them: the one table of them.

Two questions are asked of it. ``resembling``: what a text of a model looks like, also one that is cut off; ``written``:
in which format a call stands that a chat template has rendered, whole. Pure.

Sources of the names: vLLM 0.24 ``tool_parsers/__init__.py``, SGLang 0.5 ``function_call_parser.py``, verl 0.9.1
``experimental/agent_loop/tool_parser.py``. What an installed version has is asked of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from liverl.util.late_pattern import late_pattern

PARSER_KEY = "model.tool_parser"  # key in config.yaml
AUTO = "auto"  # its value for: the parser of the format that the model's chat template writes


@dataclass(frozen=True)
class ToolFormat:
    """A format in which models write tool calls. ``parsers``: names of vLLM's parsers for it, the usual one first;
    ``also``: vLLM's for single models that write it; ``sglang``, ``verl``: their names, () and "" if they have none.
    ``pattern``: a text that resembles it; ``call``: a whole call, None for what is no format of a template."""

    title: str
    mark: str  # its characteristic text, as shown
    parsers: tuple[str, ...]
    pattern: re.Pattern[str]
    call: re.Pattern[str] | None = None
    also: tuple[str, ...] = ()
    sglang: tuple[str, ...] = ()
    verl: str = ""

    @property
    def readers(self) -> tuple[str, ...]:
        """All of vLLM's parsers that read it."""
        return (*self.parsers, *self.also)


def _format(
    title: str,
    mark: str,
    parsers: str,
    pattern: str = "",
    *,
    call: str = "",
    also: str = "",
    sglang: str = "",
    verl: str = "",
) -> ToolFormat:
    """``pattern``: "" = as ``call``."""
    whole = late_pattern(call, re.DOTALL) if call else None
    return ToolFormat(
        title,
        mark,
        tuple(parsers.split()),
        late_pattern(pattern or call, re.DOTALL),
        whole,
        tuple(also.split()),
        tuple(sglang.split()),
        verl,
    )


_NAMED = r"\"(?:name|function|tool)\"\s*:\s*\"[^\"\n]+\"\s*,\s*\"(?:arguments|parameters)\"\s*:"
# The most specific first: several formats begin with <tool_call>, and what follows it decides.
FORMATS: tuple[ToolFormat, ...] = (
    _format("DeepSeek V4.1", "<｜DSML｜ calls>", "deepseek_v41", call=r"<｜DSML｜ calls>", sglang="deepseekv41"),
    _format(
        "DeepSeek V4", "<｜DSML｜tool_calls>", "deepseek_v4", call=r"<｜DSML｜tool_calls>", sglang="deepseekv4",
        verl="deepseek_v4",
    ),
    _format(
        "DeepSeek V3.2", "<｜DSML｜function_calls>", "deepseek_v32", call=r"<｜DSML｜function_calls>",
        sglang="deepseekv32",
    ),
    _format(
        "DeepSeek V3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "deepseek_v3",
        r"<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        call=r"<｜tool▁call▁begin｜>\w*<｜tool▁sep｜>[^\n]+\n```json\n", sglang="deepseekv3",
    ),
    _format(
        "DeepSeek V3.1", "<｜tool▁call▁begin｜>name<｜tool▁sep｜>", "deepseek_v31",
        r"<｜tool▁call▁begin｜>(?!function<)|<｜tool▁calls▁begin｜>(?!\s{0,9}<｜tool▁call▁begin｜>function<)",
        call=r"<｜tool▁call▁begin｜>[^<\n]+<｜tool▁sep｜>\s*\{", sglang="deepseekv31",
    ),
    _format("Step 3", '<steptml:invoke name="...">', "step3", call=r"<steptml:invoke name=\"", sglang="step3"),
    _format(
        "Kimi K2", "<|tool_call_begin|>", "kimi_k2", r"<\|tool_calls?(?:_section)?_begin\|>",
        call=r"<\|tool_call_begin\|>\s*[\w.\-]+:\d+\s*<\|tool_call_argument_begin\|>", sglang="kimi_k2", verl="kimi",
    ),
    _format(
        "Harmony", "to=functions.name", "openai", r"<\|channel\|>|\bto=functions\.\w",
        call=r"<\|channel\|>(?:commentary|analysis)[^<]*to=[\w.\-]+|to=[\w.\-]+\s*<\|channel\|>commentary",
        sglang="gpt-oss", verl="gpt-oss",
    ),
    _format(
        "MiniMax M3", "]<]minimax[>[<tool_call>", "minimax_m3", call=r"\]<\]minimax\[>\[<tool_call>",
        sglang="minimax-m3",
    ),
    _format(
        "MiniMax M2", "<minimax:tool_call>", "minimax_m2", r"<minimax:tool_call>",
        call=r"<minimax:tool_call>\s*<invoke name=", sglang="minimax-m2", verl="minimax",
    ),
    _format(
        "Seed-OSS XML", "<seed:tool_call>", "seed_oss", r"<seed:tool_call>", call=r"<seed:tool_call>\s*<function=",
        verl="seed",
    ),
    _format(
        "Gemma 4", "<|tool_call>call:name", "gemma4", call=r"<\|tool_call>\s*call:", sglang="gemma4", verl="gemma4"
    ),
    _format("FunctionGemma", "<start_function_call>call:", "functiongemma", call=r"<start_function_call>call:"),
    _format("LFM2", "<|tool_call_start|>[", "lfm2", call=r"<\|tool_call_start\|>\[", sglang="lfm2"),
    _format("LongCat", "<longcat_tool_call>", "longcat", call=r"<longcat_tool_call>"),
    _format("dots", "<dots_function_call>", "dots", call=r"<dots_function_call>", sglang="dots"),
    _format(
        "InternLM", "<|action_start|><|plugin|>", "internlm", call=r"<\|action_start\|>\s*<\|plugin\|>",
        sglang="interns1",
    ),
    _format("Granite 3.0", "<|tool_call|>[", "granite", call=r"<\|tool_call\|>\s*\["),
    _format("Granite 20B", "<function_call> {", "granite-20b-fc", call=r"<function_call>\s*\{"),
    _format("Jamba", "<tool_calls>[", "jamba", call=r"<tool_calls>\s*\["),
    _format(
        "Mistral", "[TOOL_CALLS]", "mistral", r"\[TOOL_CALLS\]",
        call=r"\[TOOL_CALLS\]\s*(?:\[\s*\{|[\w\-.]+\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?\s*\{)", sglang="mistral",
    ),
    _format("Phi-4-mini", "functools[", "phi4_mini_json", call=r"functools\s*\["),
    _format(
        "Qwen3-Coder XML", "<function=...>", "qwen3_coder qwen3_xml",
        r"<function=[^\s>]|<parameter=[^\s>]",
        call=r"<function=[^>\s]+>", also="step3p5", sglang="qwen3_coder step3p5 nanbeige", verl="qwen3_coder",
    ),
    _format(
        "GLM", "<tool_call>name<arg_key>", "glm45 glm47", r"<arg_key>",
        call=r"<tool_call>\s*[^\s<{\[]+\s*(?:<arg_key>|</tool_call>)", also="ling3 poolside_v1",
        sglang="glm45 glm47 ling3 poolside_v1", verl="glm",
    ),
    _format("Granite 3.1", "<tool_call>[", "granite", call=r"<tool_call>\s*\["),
    _format(
        "Hermes JSON", '<tool_call>{"name": ...}', "hermes", r"<tool_call>\s*\{",
        call=r"<tool_call>\s*\{\s*\"(?:name|arguments)\"", also="qwen3_json granite4",
        sglang="hermes qwen25 qwen trinity", verl="hermes",
    ),
    _format("MiniCPM 5", '<function name="...">', "minicpm5", call=r"<function\s+name=[\"']", sglang="minicpm5"),
    _format("Apertus", "<|tools_prefix|>[", "apertus", call=r"<\|tools_prefix\|>\s*\[", sglang="apertus2509"),
    _format("Olmo 3", "<function_calls>name(...)", "olmo3", call=r"<function_calls>\s*\w+\("),
    _format(
        "Llama 3 JSON", "<|python_tag|>", "llama3_json", r"<\|python_tag\|>", call=r"<\|python_tag\|>\s*\{",
        also="llama4_json", sglang="llama3",
    ),
    _format("Anthropic XML", '<invoke name="...">', "", r"<invoke name=\""),
    _format(
        "JSON in a code fence", "```json", "",
        r"```(?:json|tool_call|tool_code)?\s*\{\s*\"(?:name|function|tool|tool_name|action)\"",
    ),
    # Weak: these count only where they are the whole text.
    _format(
        "bare JSON", '{"name": ..., "arguments": ...}', "llama3_json", rf"\A\s*\{{\s*{_NAMED}",
        call=rf"\A\s*\{{\s*(?:\"type\"\s*:\s*\"function\"\s*,\s*)?{_NAMED}", also="llama4_json", sglang="llama3",
    ),
    _format(
        "Python calls", "[name(key=...)]", "pythonic llama4_pythonic",
        call=r"\A\s*\[\s*[A-Za-z_][\w.]*\s*\((?:[A-Za-z_]\w*\s*=[^=].*)?\)\s*\]\s*\Z", sglang="pythonic",
    ),
    _format("list of JSON", '[{"name": ..., "arguments": ...}]', "xlam", call=rf"\A\s*\[\s*\{{\s*{_NAMED}"),
    _format("<tool_call> without a known content", "<tool_call>", "", r"</?tool_call>"),
)  # fmt: skip

# One of these stands in each text that resembles a format: to search for each format takes longer than most texts do
_MARKS = late_pattern(r"[<\[{`=]")

# vLLM's name of a parser -> verl's name for the same format.
VERL_FORMATS: dict[str, str] = {name: f.verl for f in FORMATS if f.verl for name in f.readers}


def resembling(text: str) -> tuple[ToolFormat, ...]:
    """Return the formats that ``text`` resembles, most specific first; the generic last one only if no other
    matches."""
    if _MARKS.search(text) is None:
        return ()
    matching = tuple(f for f in FORMATS[:-1] if f.pattern.search(text))
    if matching or not FORMATS[-1].pattern.search(text):
        return matching
    return (FORMATS[-1],)


def written(text: str) -> ToolFormat | None:
    """The format of the call that ``text`` holds, whole and without what stands around it; None if it is none of
    these."""
    return next((f for f in FORMATS if f.call is not None and f.call.search(text)), None)


def readers_of(title: str) -> tuple[str, ...]:
    """Return the parsers that read the format with this title; none for an unknown title."""
    return next((f.parsers for f in FORMATS if f.title == title), ())


def readers_like(parser: str) -> tuple[str, ...]:
    """vLLM's parsers that read the same format as ``parser``; none if its format is unknown."""
    return tuple(name for form in FORMATS if parser in form.readers for name in form.readers)


def look(formats: Sequence[ToolFormat]) -> str:
    """Return the formats as text: ``Qwen3-Coder XML (<function=...>)``."""
    return " and ".join(f"{f.title} ({f.mark})" for f in formats)


def reads(parser: str, wanted: ToolFormat) -> bool:
    """Whether a parser, by the name that vLLM, SGLang or verl has for it, reads calls of the format ``wanted``."""
    return parser in (*wanted.readers, *wanted.sglang, wanted.verl)
