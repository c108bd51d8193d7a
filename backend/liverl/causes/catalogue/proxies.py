"""Signatures of LiteLLM and agents' requests."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="litellm-yaml",
        component="litellm",
        role="cause",
        pattern=(
            r"while parsing a (?P<what>flow mapping|flow sequence|block mapping)\s{1,4}in "
            r'"(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7}), column '
            r"\d{1,7}\s{1,4}(?P<problem>expected [^\n]{1,120})"
        ),
        needle="while parsing a",
        title="Line {line} of {file} is not valid YAML",
        cause=(
            "{file}, line {line}: {problem}. A bracket opened there is not closed, such as a missing }} or ]."
        ),
        fix="Close it in line {line}, and start again.",
        source="recordings/cases/61-made-litellm-unclosed-yaml.log",
        fires=(
            'yaml.parser.ParserError: while parsing a flow mapping\n  in "bad2.yaml", line 3, column '
            "21\nexpected ',' or '}', but got ':'\n  in \"bad2.yaml\", line 4, column 17"
        ),
        spares=(
            'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "bad2.yaml", line 4, '
            "column 17"
        ),
        recorded=True,
    ),
    Signature(
        id="yaml-scanner",
        component="litellm",
        role="cause",
        pattern=(
            r'yaml\.scanner\.ScannerError: (?P<problem>[^\n]{1,160})\s{1,4}in "(?P<file>[^"\n]{1,300})", '
            r"line (?P<line>\d{1,7})"
        ),
        needle="yaml.scanner.ScannerError:",
        title="Line {line} of {file} is not valid YAML",
        cause="{file}, line {line}: {problem}.",
        fix=(
            "Correct line {line} (indentation by spaces, a space after each colon, quotes closed), and "
            "start again."
        ),
        source="PyYAML scanner.py",
        fires=(
            'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "bad.yaml", line 4, '
            "column 17"
        ),
        spares='yaml.parser.ParserError: while parsing a flow mapping\n  in "bad2.yaml", line 3, column 21',
    ),
    Signature(
        id="litellm-no-config",
        component="litellm",
        role="cause",
        pattern=r"Exception: Config file not found: (?P<file>[^\n]{1,300})",
        needle="Exception: Config file not found:",
        title="LiteLLM's configuration file {file} does not exist",
        cause="LiteLLM was started with --config {file}, and there is no such file.",
        fix="Correct the path; it counts from LiteLLM's working directory.",
        source="recordings/litellm_fail_no_config.log",
        fires="Exception: Config file not found: lit/nofile.yaml",
        spares="INFO Config file found: lit/file.yaml",
        recorded=True,
    ),
    Signature(
        id="litellm-wrong-key",
        component="litellm",
        role="cause",
        pattern=r"user_api_key_auth\(\): Exception occured - No connected db",
        needle="user_api_key_auth(): Exception occured - No connected db",
        title="Requests carry a key that the proxy does not know",
        cause=(
            "The API key of the request is not the proxy's, and without a database the proxy knows no "
            "other one."
        ),
        fix=(
            "Give agents the key of this run: infrastructure.anthropic_api_key, or its "
            "ANTHROPIC_API_KEY_FILE; leave it empty for a random one."
        ),
        alive=True,
        request=True,
        source="recordings/cases/56-made-litellm-wrong-key.log",
        fires=(
            "06:53:25 - LiteLLM Proxy:ERROR: auth_exception_handler.py:197 - "
            "litellm.proxy.proxy_server.user_api_key_auth(): Exception occured - No connected db."
        ),
        spares="litellm.proxy.proxy_server.update_config(): Exception occured - No DB Connected",
        recorded=True,
    ),
    Signature(
        id="litellm-no-database",
        component="litellm",
        role="cause",
        pattern=r"Exception occured - (?:500: \{'error': .)?No DB Connected",
        needle="No DB Connected",
        title="The proxy was asked to change models or keys, which needs a database",
        cause=(
            "Something called LiteLLM's endpoints for models or configuration, and this proxy runs "
            "without a database."
        ),
        fix="Change the replicas through liverl-tui, which restarts the proxy with a new list.",
        severity="warning",
        alive=True,
        request=True,
        source="recordings/litellm_backend_down.log",
        fires=(
            "00:03:27 - LiteLLM Proxy:ERROR: proxy_server.py:18868 - "
            "litellm.proxy.proxy_server.update_config(): Exception occured - No DB Connected"
        ),
        spares="user_api_key_auth(): Exception occured - No connected db.",
        recorded=True,
    ),
    Signature(
        id="litellm-timeout",
        component="litellm",
        role="cause",
        pattern=(
            r"litellm\.Timeout: (?:Connection timed out|Timeout Error)[^\n]{0,200}?Timeout "
            r"passed=(?P<timeout>[\d.]{1,12}), time taken=(?P<taken>[\d.]{1,12}) seconds"
        ),
        needle="Timeout passed=",
        title="A replica took longer than the proxy's timeout of {timeout} s",
        cause=(
            "The backend was slower than the timeout of {timeout} seconds, so LiteLLM gave the request "
            "up after {taken} seconds."
        ),
        fix=(
            "Raise proxy.request_timeout, or add replicas (run.replicas) or lower harbor_runtime.num_workers."
        ),
        patch={"proxy.request_timeout": "2400"},
        alive=True,
        request=True,
        source="recordings/cases/58-made-litellm-timeout.log",
        fires=(
            "litellm.exceptions.Timeout: litellm.Timeout: Timeout Error: Hosted_vllmException - "
            "litellm.Timeout: Connection timed out. Timeout passed=2.0, time taken=2.034 seconds"
        ),
        spares="INFO request took 2.034 seconds",
        recorded=True,
    ),
    Signature(
        id="litellm-backend-down",
        component="litellm",
        role="cause",
        pattern=r"Hosted_vllmException - Cannot connect to host (?P<address>[\w.:\[\]-]{1,100})",
        needle="Hosted_vllmException - Cannot connect to host",
        title="The proxy cannot reach the replica at {address}",
        cause="Nothing answers at {address}: the replica died, has not started, or has another address.",
        fix="Look at that replica's log, restart it, or remove it from the proxy.",
        alive=True,
        request=True,
        source="recordings/litellm_backend_down.log",
        fires=(
            "litellm.exceptions.InternalServerError: litellm.InternalServerError: InternalServerError: "
            "Hosted_vllmException - Cannot connect to host 127.0.0.1:8398 ssl:<ssl.SSLContext object at "
            "0x7f32bb2a1e20> [Connect call failed ('127.0.0.1', 8398)]"
        ),
        spares="INFO connected to host 127.0.0.1:8398",
        recorded=True,
    ),
    Signature(
        id="litellm-no-deployments",
        component="litellm",
        role="cause",
        pattern="No deployments available for selected model",
        needle="No deployments available for selected model",
        title="The proxy has put all replicas of a model in cooldown and answers 429",
        cause=(
            "Every replica of the model failed requests lately, so LiteLLM sends them none for "
            "proxy.cooldown_time seconds."
        ),
        fix=(
            "Look at the replicas' logs and the errors before this one; a shorter proxy.cooldown_time "
            "brings them back sooner."
        ),
        alive=True,
        request=True,
        source="github.com/BerriAI/litellm/issues/20867",
        fires=(
            "litellm.types.router.RouterRateLimitErrorBasic: No deployments available for selected model."
        ),
        spares="INFO 2 deployments available",
    ),
    Signature(
        id="litellm-no-healthy",
        component="litellm",
        role="cause",
        pattern="There are no healthy deployments for this model",
        needle="There are no healthy deployments for this model",
        title="The proxy has no replica for the model that is asked for",
        cause="No replica of the requested name is listed or healthy.",
        fix="Check the model's name in the request and the proxy's list of replicas.",
        alive=True,
        request=True,
        source="litellm/router.py",
        fires=(
            "litellm.BadRequestError: You passed in model=nope. There are no healthy deployments for "
            "this model."
        ),
        spares="INFO healthy deployments: 2",
    ),
    Signature(
        id="litellm-unknown-model",
        component="litellm",
        role="cause",
        pattern=r"Invalid model name passed in model=(?P<model>\S{1,200}?)\. Call",
        needle="Invalid model name passed in model=",
        title="A request asks the proxy for the model {model}, which it does not have",
        cause="The agent uses the model name {model}, and the proxy has no model or alias of that name.",
        fix="Let it use claude-*, hosted_vllm/NAME or the name of model.served_model_name.",
        alive=True,
        request=True,
        source="litellm/proxy/route_llm_request.py",
        fires=(
            "{'error': '/chat/completions: Invalid model name passed in model=gpt-9. Call `/v1/models` "
            "to view available models for your key.'}"
        ),
        spares="INFO model=gpt-9",
    ),
    Signature(
        id="litellm-rate-limit",
        component="litellm",
        role="cause",
        pattern=r"litellm\.RateLimitError:",
        needle="litellm.RateLimitError:",
        title="A backend answers 429: too many requests",
        cause="The backend or its account allows fewer requests than the agents send.",
        fix="Lower harbor_runtime.num_workers, or add replicas (run.replicas).",
        severity="warning",
        alive=True,
        request=True,
        source="litellm/exceptions.py",
        fires=(
            "litellm.exceptions.RateLimitError: litellm.RateLimitError: RateLimitError: OpenAIException "
            "- Rate limit reached"
        ),
        spares="INFO litellm.RateLimit: tpm 100000, rpm 1000",
    ),
    Signature(
        id="connection-refused",
        component="host",
        role="consequence",
        pattern=r"ConnectionRefusedError: \[Errno 111\] [^\n]{1,160}",
        needle="ConnectionRefusedError: [Errno 111]",
        title="A connection was refused: the other side does not listen",
        fix="Look whether that service runs; its log says why not.",
        severity="warning",
        alive=True,
        source="recordings/litellm_backend_down.log",
        fires="ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 8399)",
        spares="ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    Signature(
        id="broken-pipe",
        component="host",
        role="consequence",
        pattern=r"BrokenPipeError: \[Errno 32\] Broken pipe",
        needle="BrokenPipeError: [Errno 32] Broken pipe",
        title="The other side of a connection had ended",
        fix="Look for the process that ended first.",
        source="errno 32 EPIPE, as Python prints it",
        fires="BrokenPipeError: [Errno 32] Broken pipe",
        spares="ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    Signature(
        id="connection-reset",
        component="host",
        role="consequence",
        pattern=r"ConnectionResetError: \[Errno 104\] Connection reset by peer",
        needle="ConnectionResetError: [Errno 104] Connection reset by peer",
        title="The other side closed a connection",
        fix="Look for the process that ended first.",
        source="errno 104 ECONNRESET, as Python prints it",
        fires="ConnectionResetError: [Errno 104] Connection reset by peer",
        spares="ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    Signature(
        id="litellm-no-master-key",
        component="litellm",
        role="cause",
        pattern="UnsafeMasterKeyError: ",
        needle="UnsafeMasterKeyError",
        title="LiteLLM refuses to start without a master key of its own",
        cause="LiteLLM 1.104 and newer do not start with an unset, empty or well-known master key.",
        fix="Set LITELLM_MASTER_KEY to a random key; a proxy of this program gets one for each run.",
        command="export LITELLM_MASTER_KEY=sk-$(openssl rand -hex 16)",
        source="litellm/proxy/proxy_server.py",
        fires=(
            "litellm.proxy.common_utils.UnsafeMasterKeyError: no master key is set, so every request would be "
            "accepted without authentication"
        ),
        spares="DEBUG imported UnsafeMasterKeyError from litellm.proxy",
    ),
)
