"""Signatures of answers of model servers, as the clients of OpenAI, Anthropic and LiteLLM print them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

_CLIENT = r"(?:openai|anthropic|litellm(?:\.exceptions)?)\."

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="api-prompt-long",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"prompt is too long: (?P<tokens>\d{1,12}) tokens > (?P<most>\d{1,12}) maximum",
            needle="prompt is too long: ",
            title="A prompt of {tokens} tokens is longer than the model takes ({most})",
            cause="The conversation of the agent grew beyond the model's context window.",
            fix="Let the agent drop or summarize old turns, limit the output of its tools and its number of turns.",
            source="Anthropic's API",
            fires="prompt is too long: 209303 tokens > 200000 maximum",
            spares="INFO the prompt is not too long: 2 tokens",
        ),
        Text(
            "api-prompt-long-llama",
            " exceeds the available context size (",
            r"request \((?P<tokens>\d{1,12}) tokens\) exceeds the available context size \((?P<most>\d{1,12}) tokens",
            "request (25837 tokens) exceeds the available context size (25088 tokens), try increasing it",
            "INFO no request exceeds the available context size (25088 tokens)",
            "llama.cpp",
        ),
        Text(
            "api-prompt-long-limit",
            "nput tokens exceed the configured limit of ",
            (
                r"nput tokens exceed the configured limit of (?P<most>\d{1,12}) tokens\. Your messages resulted "
                r"in (?P<tokens>\d{1,12})"
            ),
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
            "INFO input tokens do not exceed the configured limit of 272000 tokens",
            "OpenAI's API",
        ),
        Text(
            "api-prompt-long-router",
            "maximum context length is ",
            (
                r"endpoint's maximum context length is (?P<most>\d{1,12}) tokens\. However, you requested about "
                r"(?P<tokens>\d{1,12})"
            ),
            "This endpoint's maximum context length is 40960 tokens. However, you requested about 42988 tokens",
            "INFO the endpoint's maximum context length is 40960 tokens",
            "OpenRouter",
        ),
    ),
    Signature(
        id="api-prompt-long-litellm",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=(
            r"ContextWindowExceededError: (?![^\n]{0,600}?(?:prompt is too long: \d|exceeds the available "
            r"context|nput tokens "
            r"exceed|maximum context length is|maximum model length))"
        ),
        needle="ContextWindowExceededError: ",
        title="A prompt is longer than the model's context window",
        cause="The conversation of the agent grew beyond what the model takes.",
        fix="Let the agent drop or summarize old turns, limit the output of its tools and its number of turns.",
        source="litellm/exceptions.py",
        fires="litellm.ContextWindowExceededError: litellm.BadRequestError: XAIException - too long",
        spares=(
            "litellm.ContextWindowExceededError: AnthropicError - prompt is too long: 209303 tokens > 200000 "
            "maximum"
        ),
    ),
    *family(
        Signature(
            id="api-login-wrong",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"litellm(?:\.exceptions)?\.AuthenticationError: (?![^\n]{0,300}proxy server token)",
            needle=".AuthenticationError: ",
            title="A model provider refused the API key (401)",
            cause="The key that LiteLLM sends is missing, wrong, expired, or that of another provider or region.",
            fix="Set the right key in the environment of the process that calls the provider, then restart it.",
            source="litellm/exceptions.py",
            fires="litellm.AuthenticationError: AnthropicException - invalid x-api-key",
            spares="litellm.AuthenticationError: Litellm_proxyException - Invalid proxy server token passed",
        ),
        Text(
            "api-login-anthropic",
            "invalid x-api-key",
            r"\"authentication_error\", ?\"message\": ?\"invalid x-api-key\"",
            'API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
            "INFO no invalid x-api-key",
            "Anthropic's API",
        ),
        Text(
            "api-login-node",
            "Invalid API key",
            r"Invalid API key · ",
            "Invalid API key · Please run /login",
            "INFO no Invalid API key",
            "Claude Code",
        ),
    ),
    Signature(
        id="api-rate-limited",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=(
            r"(?:openai|anthropic)\.RateLimitError: (?![^\n]{0,300}?(?:exceeded your current "
            r"quota|insufficient_quota))"
        ),
        needle=".RateLimitError: ",
        title="A model server limits the rate of requests (429)",
        cause="More requests or tokens per minute were sent than the key, the proxy or the model server allows.",
        fix=(
            "Send fewer at once (a semaphore, fewer environments), let the client wait and retry, or raise "
            "the limit."
        ),
        source="openai-python",
        fires="openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached for gpt-4o'}}",
        spares="openai.RateLimitError: Error code: 429 - {'message': 'You exceeded your current quota'}",
    ),
    *family(
        Signature(
            id="api-forbidden",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=_CLIENT + r"PermissionDeniedError: (?P<why>[^\n]{1,200})",
            needle=".PermissionDeniedError: ",
            title="A model server forbids the request (403)",
            cause="The key is known, but may not use this model, region or network, or a proxy between blocks it.",
            fix="Give the key access to the model, or use another key or model.",
            source="openai-python",
            fires=(
                "openai.PermissionDeniedError: Error code: 403 - {'error': {'code': "
                "'unsupported_country_region_territory'}}"
            ),
            spares="INFO no openai.PermissionDeniedError",
        ),
        Text(
            "api-forbidden-model",
            "not allowed to access model",
            r"(?:[Kk]ey|[Tt]eam|User) not allowed to access model(?P<why>[^\n]{0,200})",
            "litellm.proxy: API Key not allowed to access model. This token can only access models=['a']",
            "INFO Key is allowed to access model",
            "litellm/proxy/auth",
        ),
    ),
    Signature(
        id="api-model-unknown",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=_CLIENT + r"NotFoundError: (?![^\n]{0,60}'detail': 'Not Found')(?P<why>[^\n]{1,200})",
        needle=".NotFoundError: ",
        title="A model server does not know the model or address asked for (404)",
        cause="The model's name is not one that it serves, or the key may not see it.",
        fix="Ask it for its models, and use one of these names; check the base URL.",
        command='curl -s -H "Authorization: Bearer $OPENAI_API_KEY" BASE_URL/models',
        source="openai-python",
        fires="openai.NotFoundError: Error code: 404 - {'error': {'message': 'The model `x` does not exist'}}",
        spares="openai.NotFoundError: Error code: 404 - {'detail': 'Not Found'}",
    ),
    *family(
        Signature(
            id="api-content-filtered",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"content management policy",
            needle="content management policy",
            title="A provider's content filter refused a prompt",
            cause="The text of the prompt was judged as forbidden.",
            fix="Leave this task out, or use a deployment with another filter; a retry gives the same answer.",
            source="Azure OpenAI",
            fires="The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            spares="INFO the policy of content management",
        ),
        Text(
            "api-content-filtered-litellm",
            "ContentPolicyViolationError: ",
            r"ContentPolicyViolationError: (?![^\n]{0,400}content management policy)",
            "litellm.ContentPolicyViolationError: OpenAIException - rejected by the safety system",
            "litellm.ContentPolicyViolationError: Azure's content management policy",
            "litellm/exceptions.py",
        ),
    ),
    *family(
        Signature(
            id="api-history-broken",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"essages with role '?\"?tool\\?'?\"? must be a response to a prece\w{3,6} message with",
            needle="essages with role ",
            title="The agent sent a conversation in which calls and results of tools do not pair",
            cause=(
                "A result of a tool stands without its call, or a call without its result: turns were cut or put "
                "in wrong order."
            ),
            fix="Cut old turns only before a user message, and answer each tool call with exactly one result.",
            source="OpenAI's API",
            fires=(
                "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                "'tool_calls'."
            ),
            spares="INFO messages with role 'tool' are a response",
        ),
        Text(
            "api-history-broken-results",
            " did not have response messages",
            r"tool_call_ids did not have response messages",
            "The following tool_call_ids did not have response messages: call_1",
            "INFO all calls did not have response messages missing",
        ),
        Text(
            "api-history-broken-anthropic",
            " ids were found without ",
            r"`tool_use` ids were found without `tool_result` blocks",
            "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01",
            "INFO no ids were found without results",
            "Anthropic's API",
        ),
        Text(
            "api-history-broken-result",
            "unexpected `tool_use_id` found in `tool_result` blocks",
            r"unexpected `tool_use_id` found in `tool_result` blocks",
            "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01",
            "INFO no `tool_use_id` found in `tool_result` blocks",
            "Anthropic's API",
        ),
    ),
)
