"""Signatures of what vLLM says of requests: tool calls, chat templates, names of models, lengths."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

# The exception of a record, behind the frames of its traceback
_RAISED = r"\n(?:[^\n]{0,400}\n){0,200}?(?P<why>[A-Za-z][\w.]{2,80}(?:Error|Exception): [^\n]{1,200})"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="vllm-parser-unknown",
        component="vllm",
        role="cause",
        pattern=r"invalid tool call parser: (?P<parser>\S{1,60}) \(chose from",
        needle="invalid tool call parser:",
        title="This vLLM has no tool parser {parser}",
        cause=(
            "model.tool_parser is {parser}, which this version of vLLM does not have; the message lists "
            "those it has."
        ),
        fix="Set model.tool_parser to one of the list: qwen3_coder for XML tool calls, hermes for JSON.",
        patch={"model.tool_parser": "qwen3_coder"},
        source="recordings/vllm_fail_bad_tool_parser.log",
        fires=(
            "KeyError: 'invalid tool call parser: qwen_coder (chose from { "
            "apertus,cohere_command3,hermes,qwen3_coder,xlam })'"
        ),
        spares='INFO "auto" tool choice has been enabled',
        recorded=True,
    ),
    Signature(
        id="vllm-parser-missing",
        component="vllm",
        role="cause",
        pattern="--enable-auto-tool-choice requires --tool-call-parser",
        needle="--enable-auto-tool-choice requires --tool-call-parser",
        title="vLLM was started for tool calls without a tool parser",
        cause="--enable-auto-tool-choice was given, and --tool-call-parser was not.",
        fix=(
            "Set model.tool_parser to the format that the model writes: qwen3_coder (XML) or hermes (JSON)."
        ),
        patch={"model.tool_parser": "qwen3_coder"},
        source="recordings/vllm_fail_no_parser.log",
        fires="TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",
        spares='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        recorded=True,
    ),
    Signature(
        id="vllm-auto-tools-off",
        component="vllm",
        role="cause",
        pattern=r'"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        needle='"auto" tool choice requires',
        title="vLLM refuses requests with tools: it was started without a tool parser",
        cause=(
            "The agent sends tools, and vLLM runs without --enable-auto-tool-choice and --tool-call-parser."
        ),
        fix="Start it with both; runs of ours do so with model.tool_parser.",
        patch={"model.tool_parser": "qwen3_coder"},
        alive=True,
        request=True,
        source="vllm/entrypoints/openai/chat_completion/serving.py",
        fires='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        spares="TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",
    ),
    Signature(
        id="vllm-tool-calls-unreadable",
        component="vllm",
        role="cause",
        pattern="Error in extracting tool call from response",
        needle="Error in extracting tool call from response",
        title="vLLM cannot read the model's tool calls: the parser does not fit the model",
        cause=(
            "The model writes tool calls in another format than model.tool_parser reads, so agents get "
            "no tool calls."
        ),
        fix=(
            "Set model.tool_parser to the model's format: qwen3_coder where it writes <function=, hermes "
            "where it writes JSON. Rare ones are slips of the model."
        ),
        patch={"model.tool_parser": "qwen3_coder"},
        alive=True,
        slips=4,
        request=True,
        source="recordings/vllm_enginecore_killed.log",
        fires=(
            "ERROR 11-20 23:54:03 [hermes_tool_parser.py:117] Error in extracting tool call from response."
        ),
        spares="INFO Extracted 1 tool call from response",
        recorded=True,
    ),
    Signature(
        id="vllm-no-chat-template",
        component="vllm",
        role="cause",
        pattern=(
            "default chat template is no longer allowed, so you must provide a chat template if the "
            "tokenizer does not define one"
        ),
        needle="default chat template is no longer allowed",
        title="The model has no chat template, so every chat request is refused",
        cause=(
            "The tokenizer of this model defines no chat template (usual for base models), and vLLM "
            "answers 400."
        ),
        fix=(
            "Use the instruct model instead of the base model (model.model_path), or start vLLM with "
            "--chat-template FILE."
        ),
        alive=True,
        request=True,
        source="recordings/cases/18-vllm-no-chat-template-but-alive.log",
        fires=(
            "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you "
            "must provide a chat template if the tokenizer does not define one."
        ),
        spares="INFO Using supplied chat template:",
    ),
    Signature(
        id="vllm-context-exceeded",
        component="vllm",
        role="cause",
        pattern=r"This model's maximum context length is (?P<most>\d{1,12}) tokens",
        needle="This model's maximum context length is",
        title="A request was longer than the context of {most} tokens",
        cause=(
            "The conversation grew past vllm.max_model_length; such a trial counts as overlong and the "
            "run goes on."
        ),
        fix="If most trials end so, raise vllm.max_model_length or lower harbor_agent.max_iterations.",
        severity="warning",
        alive=True,
        request=True,
        source="vllm/entrypoints/openai/serving_engine.py",
        fires=(
            "ValueError: This model's maximum context length is 131072 tokens. However, you requested "
            "133000 tokens in the messages"
        ),
        spares="INFO Using max model len 131072",
    ),
    Signature(
        id="vllm-arguments-not-mapping",
        component="vllm",
        role="cause",
        pattern="Can only get item pairs from a mapping",
        needle="Can only get item pairs from a mapping",
        title="The chat template wants tool arguments as a mapping, and got a string",
        cause=(
            "From the second turn on, the client sends the arguments of earlier tool calls as a JSON "
            "string, which this chat template cannot read."
        ),
        fix=(
            "Use a newer vLLM (environments.vllm.requirements), which converts them, or the model's "
            "newer chat template."
        ),
        alive=True,
        request=True,
        source="jinja2 filters.py do_items",
        fires="TypeError: Can only get item pairs from a mapping.",
        spares="KeyError: 'mapping'",
    ),
    Signature(
        id="vllm-arguments-no-json",
        component="vllm",
        role="cause",
        pattern=(
            r"in _postprocess_messages\n(?:[^\n]{0,400}\n){1,20}?[\w.]{0,40}JSONDecodeError: (?P<why>[^\n:]{1,60})"
        ),
        needle="in _postprocess_messages",
        title="vLLM refuses conversations with tool arguments that are no JSON",
        cause=(
            "A client sends the arguments of earlier tool calls back as text, and vLLM reads them as JSON ({why}). A "
            "call that was cut, or that the model wrote wrongly, makes all further requests of its trial fail."
        ),
        fix=(
            "Let the agent replace such a call before its next request. If calls are cut, raise "
            "training.max_response_length, or the agent's max_tokens."
        ),
        severity="warning",
        alive=True,
        request=True,
        slips=4,
        source="vllm/entrypoints/chat_utils.py, issue 47761",
        fires=(
            "Traceback (most recent call last):\n"
            '  File "/v/vllm/entrypoints/chat_utils.py", line 1857, in _postprocess_messages\n'
            "    parsed = json.loads(content)\n"
            "json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 13 (char 12)"
        ),
        spares=(
            "Traceback (most recent call last):\n"
            '  File "/v/vllm/entrypoints/chat_utils.py", line 1857, in _postprocess_messages\n'
            "    parsed = json.loads(content)\n"
            "TypeError: the JSON object must be str, bytes or bytearray, not int"
        ),
    ),
    *family(
        Signature(
            id="vllm-chat-refused",
            component="vllm",
            role="cause",
            pattern=rf"Error in preprocessing prompt inputs{_RAISED}",
            needle="Error in preprocessing prompt inputs",
            title="vLLM refuses chat requests: it can make no prompt of their messages",
            cause="Its check of the messages, or the model's chat template, raised: {why}",
            fix=(
                "Look at what the messages hold: a template may allow fewer roles, parts or tool calls than the API. "
                "Give vLLM the template that belongs to the model (--chat-template), or texts instead of lists "
                "(--chat-template-content-format)."
            ),
            alive=True,
            request=True,
            slips=4,
            effect=True,
            source="vllm/entrypoints/openai/serving_chat.py, issues 16245 and 25108",
            fires=(
                "ERROR 04-08 07:13:28 [serving_chat.py:198] Error in preprocessing prompt inputs\n"
                '  File "<template>", line 8, in top-level template code\n'
                'TypeError: can only concatenate str (not "list") to str'
            ),
            spares="ERROR 04-08 07:13:28 [serving_chat.py:198] Error in preprocessing prompt inputs",
        ),
        Text(
            id="vllm-chat-refused-template",
            pattern=rf"An error occurred in `\w{{1,40}}` while applying chat template{_RAISED}",
            needle="` while applying chat template",
            source="vllm/renderers/hf.py, issue 25108",
            fires=(
                "ERROR 09-17 22:28:40 [hf.py:475] An error occurred in `transformers` while applying chat template\n"
                "Traceback (most recent call last):\n"
                "ValueError: the assistant has no content"
            ),
            spares="ERROR 09-17 22:28:40 [hf.py:475] An error occurred in `transformers` while applying chat template",
        ),
        Text(
            id="vllm-chat-refused-old",
            pattern=r"Error in applying chat template from request: (?P<why>[^\n]{1,200})",
            needle="Error in applying chat template from request: ",
            source="vLLM 0.6, Qwen3-VL issue 142",
            fires=(
                "ERROR 09-07 08:26:00 serving_chat.py:134] Error in applying chat template from request: 1 validation "
                "error for ValidatorIterator"
            ),
            spares="INFO 09-07 08:26:00 serving_chat.py:134] Applying chat template from request: done",
        ),
    ),
    Signature(
        id="vllm-grammar-rejects",
        component="vllm",
        role="cause",
        pattern="Failed to advance FSM for request ",
        needle="Failed to advance FSM for request ",
        title="vLLM's grammar rejects tokens that the engine has made",
        cause=(
            "In a structured output or a strict tool call the engine and the grammar disagree: known of vLLM with "
            "speculative decoding, reasoning parsers and pipelines. Some versions end the request, others go on."
        ),
        fix=(
            "Use another vLLM (environments.vllm.requirements), or do without structured output, tool_choice required "
            "or speculative decoding. A few such lines do little harm."
        ),
        severity="warning",
        alive=True,
        request=True,
        slips=4,
        source="vllm/v1/structured_output/backend_xgrammar.py, issues 18780, 29379 and 44006",
        fires=(
            "ERROR 11-25 14:55:49 [backend_xgrammar.py:165] Failed to advance FSM for request cmpl-4eb6-0 for tokens "
            "4913. Please file an issue."
        ),
        spares="DEBUG 11-25 14:55:49 [backend_xgrammar.py:165] advanced FSM for request cmpl-4eb6-0",
    ),
    Signature(
        id="vllm-unknown-model-asked",
        component="vllm",
        role="cause",
        pattern=r"The model `(?P<model>[^`\n]{1,200})` does not exist\.",
        needle="The model `",
        title="A request asks for the model {model}, which is not served",
        cause="The client uses the model name {model}, and this server has no model of that name.",
        fix=(
            "Use a served name: that of model.served_model_name, or through the proxy claude-* or "
            "hosted_vllm/NAME."
        ),
        severity="warning",
        alive=True,
        request=True,
        source="recordings/vllm_enginecore_killed.log",
        fires=(
            "ERROR 11-20 23:39:37 [serving.py:274] Error with model error=ErrorInfo(message='The model "
            "`nope` does not exist. Valid aliases: policy.', type='NotFoundError', param='model', "
            "code=404)"
        ),
        spares="INFO Loaded model `policy`",
        recorded=True,
    ),
    Signature(
        id="vllm-reasoning-parser-unknown",
        component="vllm",
        role="cause",
        pattern=r"invalid reasoning parser: (?P<parser>\S{1,60}) \(chose from",
        needle="invalid reasoning parser:",
        title="This vLLM has no reasoning parser {parser}",
        cause=(
            "--reasoning-parser is {parser}, which this version of vLLM does not have; the message lists "
            "those it has."
        ),
        fix="Choose one of the list, or leave --reasoning-parser out.",
        command="vllm serve --help=reasoning-parser",
        source="vllm/entrypoints/openai/api_server.py",
        fires="KeyError: 'invalid reasoning parser: qwen9 (chose from { deepseek_r1,qwen3 })'",
        spares="INFO non-default args: {'reasoning_parser': 'qwen3'} (chose from { deepseek_r1,qwen3 })",
    ),
    Signature(
        id="vllm-streamed-tool-calls",
        component="vllm",
        role="cause",
        pattern=r"Error trying to handle streaming tool call\.",
        needle="Error trying to handle streaming tool call.",
        title="vLLM cannot read streamed tool calls: the parser does not fit the model",
        cause=(
            "The model writes tool calls in another format than model.tool_parser reads, so agents get "
            "no tool calls."
        ),
        fix=(
            "Set model.tool_parser to the model's format: qwen3_coder where it writes <function=, hermes where it "
            "writes JSON. Rare ones are slips of the model."
        ),
        patch={"model.tool_parser": "qwen3_coder"},
        alive=True,
        request=True,
        source="vllm/tool_parsers/hermes_tool_parser.py",
        fires=(
            "ERROR 11-20 23:54:03 [hermes_tool_parser.py:420] Error trying to handle streaming tool call."
        ),
        spares="DEBUG 11-20 23:54:03 [hermes_tool_parser.py:421] Skipping chunk of a streaming tool call.",
    ),
)
