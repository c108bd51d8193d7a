"""Signatures of clients of model servers: the SDKs of OpenAI and Anthropic, and what they are refused for."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="api-key-missing",
        component="host",
        role="cause",
        pattern=r"OpenAIError: (?:Missing credentials|The api_key client option must be set)",
        needle="OpenAIError: ",
        title="A client of OpenAI's API has no API key",
        cause="Neither its argument api_key nor the environment variable for it is set.",
        fix="Set OPENAI_API_KEY in the environment of that process; for a server of your own any text will do.",
        source="openai SDK",
        fires=(
            "openai.OpenAIError: Missing credentials. Please pass an `api_key`, or set the `OPENAI_API_KEY` "
            "environment "
            "variable."
        ),
        spares="OpenAIError caught: no missing credentials, api_key from OPENAI_API_KEY",
    ),
    Signature(
        id="api-key-missing-anthropic",
        component="host",
        role="cause",
        pattern=r"Could not resolve authentication method\. Expected ",
        needle="Could not resolve authentication method. Expected ",
        title="A client of Anthropic's API has no API key",
        cause="Neither its argument api_key or auth_token nor the environment variable for it is set.",
        fix="Set ANTHROPIC_API_KEY in the environment of that process; for a proxy of your own its key.",
        source="anthropic SDK",
        fires=(
            'TypeError: "Could not resolve authentication method. Expected one of api_key, auth_token, or '
            "credentials to be "
            'set."'
        ),
        spares="anthropic client: authentication method: api_key",
    ),
    *family(
        Signature(
            id="api-key-not-in-proxy",
            component="litellm",
            role="cause",
            pattern="Invalid proxy server token passed",
            needle="Invalid proxy server token passed",
            title="The LiteLLM proxy does not know the key of a request",
            cause="The key was never made at this proxy, or deleted; without a database it knows only its master key.",
            fix=(
                "Give agents the key of this run (infrastructure.anthropic_api_key), or the proxy's master key, or "
                "make one "
                "with /key/generate."
            ),
            alive=True,
            request=True,
            source="LiteLLM user_api_key_auth; OpenHands issue 11140",
            fires=(
                "litellm.AuthenticationError: AuthenticationError: Litellm_proxyException - Authentication Error, "
                "Invalid "
                "proxy server token passed. Received API Key = sk-...4f48"
            ),
            spares="Authentication: proxy server token passed all checks",
        ),
        Text(
            id="api-key-no-db",
            pattern=r"Error code: 400 - (?:\{'error': \{'message': ')?No connected db",
            needle="No connected db",
            fires="openai.BadRequestError: Error code: 400 - No connected db.",
            spares="openai.BadRequestError: Error code: 400 - the database is connected",
        ),
    ),
    Signature(
        id="api-key-wrong",
        component="host",
        role="cause",
        pattern=r"(?:openai|anthropic)\.AuthenticationError: Error code: 401 - (?![^\n]{0,200}proxy server token)",
        needle=".AuthenticationError: Error code: 401 - ",
        title="The provider does not accept the API key (401)",
        cause="The key is wrong, revoked, or belongs to another provider than the address that is asked.",
        fix="Set the right key, or point the client (OPENAI_BASE_URL, ANTHROPIC_BASE_URL) to your own proxy.",
        alive=True,
        request=True,
        source="OpenAI and Anthropic API",
        fires=(
            "openai.AuthenticationError: Error code: 401 - {'error': {'message': 'Incorrect API key provided: "
            "sk-ab***yz.'}}"
        ),
        spares="openai.AuthenticationError: Error code: 401 - Invalid proxy server token passed",
    ),
    Signature(
        id="api-quota-used-up",
        component="host",
        role="cause",
        pattern=r"(?:You exceeded|Your credit balance is too low to access) (?:your current quota|the \w{1,40} API)",
        needle="You",
        title="The provider's account has no credit left",
        cause="Requests are refused because the account's quota or credit balance is used up; waiting does not help.",
        fix="Buy credit or raise the limit at the provider, or use another account or model.",
        alive=True,
        request=True,
        source="OpenAI and Anthropic API",
        fires=(
            "openai.RateLimitError: Error code: 429 - {'error': {'message': 'You exceeded your current quota, "
            "please check "
            "your plan and billing details.', 'type': 'insufficient_quota'}}"
        ),
        spares="quota: your current balance is 20 USD",
    ),
    Signature(
        id="api-overloaded",
        component="host",
        role="cause",
        pattern=r"(?:Error code: 529 -|[\"']type[\"']: ?[\"'])[^\n]{0,100}?overloaded_error",
        needle="overloaded_error",
        title="The provider is overloaded (529)",
        cause="Anthropic's API had no capacity and refused the request.",
        fix="Retry with longer waits, and send fewer requests at once.",
        severity="warning",
        alive=True,
        request=True,
        source="Anthropic API",
        fires="anthropic.APIStatusError: Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error'}}",
        spares="Error code: 404 - {'type': 'error'}; not overloaded",
    ),
    Signature(
        id="api-server-error",
        component="host",
        role="cause",
        pattern=r"(?:openai|anthropic|litellm)\.InternalServerError: (?![^\n]{0,200}Cannot connect to host)",
        needle=".InternalServerError: ",
        title="A model server answered a request with a server error (5xx)",
        cause="The server failed at the request; why stands in the server's own log at that time.",
        fix="Read the log of the server or replica that answered; give its folder to doctor together with this log.",
        severity="warning",
        alive=True,
        request=True,
        source="openai, anthropic and litellm packages",
        fires=(
            "litellm.InternalServerError: InternalServerError: Hosted_vllmException - "
            '{"error":{"message":"Internal server error","type":"server_error"}}'
        ),
        spares="openai: retried an InternalServerError, 200 OK",
    ),
    Signature(
        id="api-timeout",
        component="host",
        role="cause",
        where="exception",
        pattern=r"^(?:openai|anthropic)\.APITimeoutError: Request timed out",
        needle=".APITimeoutError: Request timed out",
        title="A model server did not answer within the client's time limit",
        cause="The answer took longer than the timeout of the client, also after its retries.",
        fix=(
            "Raise the client's timeout, or ask for fewer tokens; if the server is full, add replicas "
            "(run.replicas)."
        ),
        severity="warning",
        alive=True,
        request=True,
        source="openai and anthropic SDKs",
        fires="openai.APITimeoutError: Request timed out.",
        spares="openai.APITimeoutError: none in 40 requests",
    ),
    Signature(
        id="api-wrong-address",
        component="host",
        role="cause",
        where="exception",
        pattern=r"^(?:openai|anthropic)\.NotFoundError: Error code: 404 - \{'detail': 'Not Found'\}",
        needle=".NotFoundError: Error code: 404 - {'detail': 'Not Found'}",
        title="The server that a client asks has no such path (404)",
        cause="The client's base URL points to a server that speaks another API, or its path (/v1) is wrong.",
        fix="OPENAI_BASE_URL ends in /v1, ANTHROPIC_BASE_URL does not; see that the server offers that API.",
        alive=True,
        request=True,
        source="FastAPI's answer, in the openai and anthropic SDKs",
        fires="anthropic.NotFoundError: Error code: 404 - {'detail': 'Not Found'}",
        spares="openai.NotFoundError: Error code: 404 - {'detail': 'The model `m` does not exist.'}",
    ),
    Signature(
        id="harbor-setup-timeout",
        component="host",
        role="cause",
        pattern=r"(?:Agent|Environment)(?P<what>Setup|Start)TimeoutError: (?P<why>[^\n]{1,160})",
        needle="TimeoutError: ",
        title="A trial's sandbox or agent took too long to set up",
        cause="Harbor gave the trial up: {why}.",
        fix="Bake what the agent installs into the task's image; look at the sandbox's network and disk.",
        severity="warning",
        alive=True,
        request=True,
        source="harbor/trial/trial.py",
        fires="harbor.trial.trial.AgentSetupTimeoutError: Agent setup timed out after 360.0 seconds",
        spares="TimeoutError: none; agent setup took 12 seconds",
    ),
    Signature(
        id="api-unreachable",
        component="host",
        role="cause",
        where="exception",
        pattern=(
            r"^http(?:x|core)2?\.ConnectError: (?:\[Errno 111\] Connection refused|All connection attempts "
            r"failed)"
        ),
        needle=".ConnectError: ",
        title="A client cannot connect to its server: nothing listens there",
        cause=(
            "Nothing listens at the address that the client asks: the server is down, or its address or port is "
            "wrong."
        ),
        fix="See that the server runs and which port it has, and compare it with the client's base URL.",
        command="ss -ltnp; env | grep -E '_BASE_URL|_API_BASE'",
        severity="warning",
        alive=True,
        request=True,
        source="httpx; printed by the openai SDK",
        fires="httpx.ConnectError: [Errno 111] Connection refused",
        spares="httpx.ConnectError: [Errno -2] Name or service not known",
        recorded=True,
    ),
    Signature(
        id="api-connection-error",
        component="host",
        role="consequence",
        pattern=r"(?:openai|anthropic)\.APIConnectionError: Connection error\.",
        needle=".APIConnectionError: Connection error.",
        title="A client lost or never had a connection to its model server",
        fix="Look for the reason in the exception before it, and whether the server runs at the client's base URL.",
        severity="warning",
        of=("api-unreachable", "tls-not-trusted", "tls-clock", "name-resolution", "http-proxy-refuses"),
        source="openai and anthropic SDKs",
        fires="openai.APIConnectionError: Connection error.",
        spares="openai: connection error handled",
    ),
    Signature(
        id="litellm-backend-answer",
        component="litellm",
        role="consequence",
        pattern=r"MaskedHTTPStatusError: (?:Client|Server) error '(?P<status>\d{3})[^'\n]{0,60}' for url",
        needle="MaskedHTTPStatusError: ",
        title="A backend of the proxy answered {status}",
        fix="Read the exception that LiteLLM raised from it, or the log of that backend.",
        severity="warning",
        of=("vllm-context-exceeded", "litellm-rate-limit", "api-server-error", "vllm-unknown-model-asked"),
        source="LiteLLM 1.108, printed by it",
        fires=(
            "litellm.llms.custom_httpx.http_handler.MaskedHTTPStatusError: Client error '400 Bad Request' for url "
            "'http://127.0.0.1:8000/v1/chat/completions'"
        ),
        spares="MaskedHTTPStatusError: handled, asked another backend",
        recorded=True,
    ),
    Signature(
        id="litellm-no-provider",
        component="litellm",
        role="cause",
        pattern=r"LLM Provider NOT provided\.[^\n]{0,100}? You passed model=(?P<model>\S{1,120})",
        needle="LLM Provider NOT provided.",
        title="LiteLLM does not know which provider the model {model} belongs to",
        cause="The model's name has no provider before a slash, and LiteLLM knows no provider for {model}.",
        fix="Write the provider before the name: hosted_vllm/{model} for a vLLM of your own, with api_base.",
        alive=True,
        request=True,
        source="LiteLLM get_llm_provider; OpenHands issue 786",
        fires=(
            "litellm.exceptions.BadRequestError: LLM Provider NOT provided. Pass in the LLM provider you are "
            "trying to call. You passed model=llama2"
        ),
        spares="LLM Provider provided: hosted_vllm. You passed model=hosted_vllm/llama2",
    ),
    Signature(
        id="litellm-parameter-unsupported",
        component="litellm",
        role="cause",
        pattern=(
            r"UnsupportedParamsError: (?P<provider>\w{1,60}) does not support parameters: "
            r"(?P<names>[^\n]{1,160}?), for model="
        ),
        needle=" does not support parameters: ",
        title="A request has parameters that {provider} does not take: {names}",
        cause="LiteLLM refuses the request since {provider} has no {names}.",
        fix="Leave them out in the agent, or set litellm_settings.drop_params: true at the proxy.",
        alive=True,
        request=True,
        source="litellm/utils.py",
        fires=(
            "litellm.exceptions.UnsupportedParamsError: litellm.UnsupportedParamsError: hosted_vllm does not "
            "support parameters: ['parallel_tool_calls'], for model=qwen."
        ),
        spares="hosted_vllm does support parameters: ['tools'], for model=qwen",
    ),
    Signature(
        id="redis-unreachable",
        component="litellm",
        role="cause",
        pattern=(
            r"redis\.exceptions\.(?:ConnectionError|TimeoutError): [^\n]{0,60}?connecting to "
            r"(?P<address>[^\s,]{1,120}?:\d{1,5})"
        ),
        needle="redis.exceptions.",
        title="Redis at {address} cannot be reached",
        cause="The proxy's router or cache is configured to use Redis at {address}, and nothing answers there.",
        fix="Start Redis or correct its host and port; a single proxy process needs none.",
        alive=True,
        source="redis-py",
        fires="redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
        spares="redis.exceptions: none; connecting to localhost:6379 done",
    ),
)
