"""Chat templates in the styles of the families of models, written for these tests: each writes a tool call in one
format, with the roles, special tokens and habits of its family."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """``text``: a template; ``title``: the format that it writes; ``parser``: vLLM's usual parser of it, ``verl``:
    verl's name, "" if it has none; ``wrong``: a parser that does not read it."""

    text: str
    title: str
    parser: str
    verl: str
    wrong: str


_CHATML = (
    "{%- if tools %}\n{{- '<|im_start|>system\\n# Tools\\n' }}\n{%- for tool in tools %}\n{{- tool | tojson }}\n"
    "{%- endfor %}\n{{- '<|im_end|>\\n' }}\n{%- endif %}\n{%- for message in messages %}\n"
    "{%- if message.role == 'assistant' %}\n{{- '<|im_start|>assistant\\n' + (message.content or '') }}\n"
    "{%- for call in message.tool_calls or [] %}\n{%- set call = call.function %}\nCALL"
    "{%- endfor %}\n{{- '<|im_end|>\\n' }}\n{%- else %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n{%- endif %}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\\nBEGIN' }}\n{%- endif %}"
)


def chatml(call: str, begin: str = "") -> str:
    """A template of ChatML. ``call``: what it writes for ``call``; ``begin``: of an answer."""
    return _CHATML.replace("CALL", call).replace("BEGIN", begin)


HERMES = chatml(
    '{{- \'\\n<tool_call>\\n{"name": "\' + call.name + \'", "arguments": \' }}{{- call.arguments | tojson }}'
    "{{- '}\\n</tool_call>' }}"
)
CODER = chatml(
    "{{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' }}{%- for name, value in call.arguments | items %}"
    "{{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}"
    "{%- endfor %}{{- '</function>\\n</tool_call>' }}",
    "<think>\\n",
)
LLAMA3 = """{{- bos_token }}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' and tools is not none and loop.first %}
{{- '<|start_header_id|>user<|end_header_id|>\\n\\nGiven these functions, answer with JSON:\\n' }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}{{- message.content + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}
{%- if not message.tool_calls | length == 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}
{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}
{{- call.arguments | tojson }}{{- '}' }}{{- '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
PYTHONIC = """{{- bos_token }}{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if message.tool_calls %}
{{- '[' }}{%- for call in message.tool_calls %}
{{- call.function.name + '(' }}
{%- for name, value in call.function.arguments.items() %}
{{- name + '=' + (value | tojson) }}{%- if not loop.last %}, {% endif %}
{%- endfor %}{{- ')' }}{%- if not loop.last %}, {% endif %}
{%- endfor %}{{- ']' }}
{%- else %}{{- message.content }}{%- endif %}{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
MISTRAL_OLD = """{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST] ' + message.content + '[/INST]' }}
{%- elif message.tool_calls is defined and message.tool_calls is not none %}
{{- '[TOOL_CALLS] [' }}
{%- for call in message.tool_calls %}
{%- set out = call.function | tojson %}
{{- out[:-1] }}
{%- if not call.id is defined or call.id | length != 9 %}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
{%- endif %}
{{- ', "id": "' + call.id + '"}' }}
{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}
{%- endfor %}
{%- else %}{{- ' ' + message.content + eos_token }}{%- endif %}
{%- endfor %}"""
MISTRAL_NEW = """{{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' %}{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.tool_calls %}
{%- for call in message.tool_calls %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{%- endfor %}{{- eos_token }}
{%- else %}{{- message.content + eos_token }}{%- endif %}{%- endfor %}"""
DEEPSEEK_V3 = """{{- bos_token }}{%- for message in messages %}
{%- if message['role'] == 'user' %}{{- '<｜User｜>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is none %}
{%- for call in message['tool_calls'] %}
{%- if loop.first %}{{- '<｜Assistant｜><｜tool▁calls▁begin｜>' }}{%- endif %}
{{- '<｜tool▁call▁begin｜>' + call['type'] + '<｜tool▁sep｜>' + call['function']['name'] + '\\n```json\\n' }}
{{- (call['function']['arguments'] | tojson) + '\\n```<｜tool▁call▁end｜>' }}
{%- endfor %}{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
{%- elif message['role'] == 'assistant' %}{{- '<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}"""
DEEPSEEK_V31 = """{{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<｜User｜>' + message.content }}
{%- elif message.tool_calls %}{{- '<｜Assistant｜></think><｜tool▁calls▁begin｜>' }}
{%- for call in message.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' }}
{{- (call.function.arguments | tojson) + '<｜tool▁call▁end｜>' }}
{%- endfor %}{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
{%- else %}{{- '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜></think>' }}{%- endif %}"""
GLM = """[gMASK]<sop>{%- for message in messages %}
{%- if message.role == 'user' %}<|user|>\n{{- message.content }}
{%- else %}<|assistant|>\n<think></think>
{%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls %}
{%- set call = call.function %}
{{- '\\n<tool_call>' + call.name }}
{%- for name, value in call.arguments.items() %}
<arg_key>{{ name }}</arg_key>
<arg_value>{{ value | tojson(ensure_ascii=False) if value is not string else value }}</arg_value>
{%- endfor %}
</tool_call>{%- endfor %}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|assistant|>{%- endif %}"""
KIMI = """{%- for message in messages %}
<|im_{{ message.role }}|>{{ message.role }}<|im_middle|>{{ message.content or '' }}
{%- if message.tool_calls %}<|tool_calls_section_begin|>
{%- for call in message.tool_calls %}
<|tool_call_begin|>{{ 'functions.' + call.function.name + ':' + (loop.index0 | string) -}}
<|tool_call_argument_begin|>
{%- if call.function.arguments is string %}{{ call.function.arguments }}
{%- else %}{{ call.function.arguments | tojson }}{%- endif %}<|tool_call_end|>
{%- endfor %}<|tool_calls_section_end|>{%- endif %}<|im_end|>{%- endfor %}
{%- if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{%- endif %}"""
GRANITE = """{%- for message in messages %}{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' }}
{%- if message.tool_calls %}{{- '<|tool_call|>[' }}{%- for call in message.tool_calls %}
{{- call.function | tojson }}{%- if not loop.last %},{%- endif %}{%- endfor %}{{- ']' }}
{%- else %}{{- message.content }}{%- endif %}{{- '<|end_of_text|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}"""
INTERNLM = chatml(
    "{{- '<|action_start|><|plugin|>\\n' + ({'name': call.name, 'parameters': call.arguments} | tojson) "
    "+ '<|action_end|>' }}"
)
PHI4 = """{%- for message in messages %}{{- '<|' + message.role + '|>' }}
{%- if message.tool_calls %}{{- 'functools[' }}{%- for call in message.tool_calls %}{{- call.function | tojson }}
{%- endfor %}{{- ']' }}{%- else %}{{- message.content }}{%- endif %}{{- '<|end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""
HARMONY = """{%- macro head(role) %}{{- '<|start|>' + role }}{%- endmacro %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{%- set call = message.tool_calls[0].function %}
{{- head('assistant') + ' to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
{{- call.arguments | tojson }}{{- '<|call|>' }}
{%- elif message.role == 'assistant' %}
{% generation %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}
{% endgeneration %}
{%- else %}{{- head(message.role) + '<|message|>' + message.content + '<|end|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- head('assistant') }}{%- endif %}"""
MINIMAX = chatml(
    "{{- '<minimax:tool_call>\\n<invoke name=\"' + call.name + '\">\\n' }}"
    "{%- for name, value in call.arguments.items() %}"
    "{{- '<parameter name=\"' + name + '\">' + value + '</parameter>\\n' }}{%- endfor %}"
    "{{- '</invoke>\\n</minimax:tool_call>' }}"
)
SEED = chatml(
    "{{- '<seed:tool_call>\\n<function=' + call.name + '>\\n' }}{%- for name, value in call.arguments.items() %}"
    "{{- '<parameter=' + name + '>' + value + '</parameter>\\n' }}{%- endfor %}"
    "{{- '</function>\\n</seed:tool_call>' }}"
)

STYLES = {
    "hermes": Style(HERMES, "Hermes JSON", "hermes", "hermes", "qwen3_coder"),
    "coder": Style(CODER, "Qwen3-Coder XML", "qwen3_coder", "qwen3_coder", "hermes"),
    "llama 3": Style(LLAMA3, "bare JSON", "llama3_json", "", "pythonic"),
    "pythonic": Style(PYTHONIC, "Python calls", "pythonic", "", "llama3_json"),
    "mistral, old": Style(MISTRAL_OLD, "Mistral", "mistral", "", "hermes"),
    "mistral, new": Style(MISTRAL_NEW, "Mistral", "mistral", "", "jamba"),
    "deepseek v3": Style(DEEPSEEK_V3, "DeepSeek V3", "deepseek_v3", "", "deepseek_v31"),
    "deepseek v3.1": Style(DEEPSEEK_V31, "DeepSeek V3.1", "deepseek_v31", "", "deepseek_v3"),
    "glm": Style(GLM, "GLM", "glm45", "glm", "hermes"),
    "kimi": Style(KIMI, "Kimi K2", "kimi_k2", "kimi", "hermes"),
    "granite": Style(GRANITE, "Granite 3.0", "granite", "", "granite4"),
    "internlm": Style(INTERNLM, "InternLM", "internlm", "", "hermes"),
    "phi 4": Style(PHI4, "Phi-4-mini", "phi4_mini_json", "", "llama3_json"),
    "harmony": Style(HARMONY, "Harmony", "openai", "gpt-oss", "qwen3_coder"),
    "minimax": Style(MINIMAX, "MiniMax M2", "minimax_m2", "minimax", "minimax_m3"),
    "seed": Style(SEED, "Seed-OSS XML", "seed_oss", "seed", "qwen3_coder"),
}

NO_CALLS = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
NO_ARGUMENTS = chatml("{{- '<tool_call>{\"name\": \"' + call.name + '\"}</tool_call>' }}")
IN_TEXT = chatml(
    '{{- \'<tool_call>\\n{"name": "\' + call.name + \'", "arguments": \' + (call.arguments | tojson | tojson) '
    "+ '}\\n</tool_call>' }}"
)
AS_PYTHON = chatml(
    "{{- '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' ~ call.arguments ~ '}\\n</tool_call>' }}"
)
ONLY_TEXT = chatml(
    "{{- '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' + call.arguments + '}\\n</tool_call>' }}"
)
UNKNOWN = chatml("{{- '@@' + call.name + '@@' + (call.arguments | tojson) }}")
HOSTILE = {
    "an endless loop": "{%- for a in range(99999) %}{%- for b in range(99999) %}{%- for c in range(99999) %}"
    "{%- endfor %}{%- endfor %}{%- endfor %}",
    "a huge output": "{%- for a in range(99999) %}{{- 'x' * 10000 }}{%- endfor %}",
    "a huge text": "{{- 'x' * 99999999999 }}",
    "a huge number": "{{- 9 ** (9 ** 9) }}",
    "an attribute of Python's": "{{- ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{- cycler.__init__.__globals__.os.popen('id').read() }}",
    "a format": "{{- '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "a change of the conversation": "{{- messages.clear() }}",
    "another file": "{%- include '/etc/passwd' %}",
    "no template": "{%- for %}",
    "deep": "{{- " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a refusal": "{{- raise_exception('no tools here') }}",
    "nothing": "  ",
}
