"""Signatures of accounts of cloud providers and of LiteLLM's own limits."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

_CLIENT = r"(?:openai|anthropic|litellm(?:\.exceptions)?)\."

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="litellm-budget",
            component="litellm",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Budget has been exceeded! (?P<why>[^\n]{0,160})",
            needle="Budget has been exceeded! ",
            title="LiteLLM refuses requests: the key's budget is used up",
            cause="The key, user or team has spent its max_budget. {why}",
            fix="Raise its max_budget or set a budget_duration, or use another key.",
            source="litellm/exceptions.py",
            fires="Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
            spares="INFO Budget has not been exceeded!",
        ),
        Text(
            "litellm-budget-exceeded",
            "ExceededBudget: ",
            r"ExceededBudget: (?P<why>[^\n]{1,160})",
            "Authentication Error, ExceededBudget: User=a over budget. Spend=10.2, Budget=10.0",
            "INFO no ExceededBudget",
        ),
    ),
    *family(
        Signature(
            id="litellm-own-limit",
            component="litellm",
            role="cause",
            alive=True,
            request=True,
            pattern=r"(?P<what>[Mm]ax parallel request) limit reached",
            needle="ax parallel request limit reached",
            title="LiteLLM's own rate limit refuses requests (429)",
            cause="The key, user, team or deployment has reached its limit of requests or tokens at a time ({what}).",
            fix="Raise rpm, tpm or max_parallel_requests of the key or the model, or send fewer requests at once.",
            source="litellm/proxy/hooks/parallel_request_limiter.py",
            fires="LiteLLM Rate Limit Handler for rate limit type = key. Max parallel request limit reached",
            spares="INFO Max parallel request limit is 10",
        ),
        Text(
            "litellm-own-limit-crossed",
            "Crossed TPM / RPM",
            r"(?P<what>Crossed TPM / RPM)",
            "Crossed TPM / RPM / Max Parallel Request Limit. Hit limit for api_key: 88dc",
            "INFO not crossed: TPM / RPM",
        ),
    ),
    *family(
        Signature(
            id="cloud-login-expired",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"\((?P<why>ExpiredToken(?:Exception)?)\)",
            needle="(ExpiredToken",
            title="AWS refuses the credentials: {why}",
            cause="They have expired, are wrong, or do not belong to this region.",
            fix="Log in again (aws sso login) or set new keys, and restart the process that holds the old ones.",
            command="aws sts get-caller-identity",
            source="botocore",
            fires=(
                "botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the GetObject "
                "operation"
            ),
            spares="INFO no ExpiredToken",
        ),
        Text(
            "cloud-login-client",
            "(UnrecognizedClientException)",
            r"\((?P<why>UnrecognizedClientException)\)",
            "An error occurred (UnrecognizedClientException) when calling the X operation",
            "INFO no UnrecognizedClientException",
        ),
        Text(
            "cloud-login-token",
            "(InvalidClientTokenId)",
            r"\((?P<why>InvalidClientTokenId)\)",
            "An error occurred (InvalidClientTokenId) when calling the X operation",
            "INFO no InvalidClientTokenId",
        ),
        Text(
            "cloud-login-key",
            "(InvalidAccessKeyId)",
            r"\((?P<why>InvalidAccessKeyId)\)",
            "An error occurred (InvalidAccessKeyId) when calling the X operation",
            "INFO no InvalidAccessKeyId",
        ),
        Text(
            "cloud-login-signature",
            "(SignatureDoesNotMatch)",
            r"\((?P<why>SignatureDoesNotMatch)\)",
            "An error occurred (SignatureDoesNotMatch) when calling the X operation",
            "INFO no SignatureDoesNotMatch",
        ),
    ),
    *family(
        Signature(
            id="cloud-login-missing",
            component="host",
            role="cause",
            pattern=r"NoCredentialsError: Unable to locate credentials",
            needle="NoCredentialsError: Unable to locate credentials",
            title="There are no AWS credentials here",
            cause="Neither variables, a file, nor a role of the host gives any.",
            fix="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, mount ~/.aws, or give the host a role.",
            command="aws sts get-caller-identity",
            source="botocore",
            fires="botocore.exceptions.NoCredentialsError: Unable to locate credentials",
            spares="INFO no NoCredentialsError: able to locate credentials",
        ),
        Text(
            "cloud-login-missing-google",
            "DefaultCredentialsError: ",
            r"DefaultCredentialsError: ",
            "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
            "INFO no DefaultCredentialsError",
            "google-auth",
        ),
    ),
    *family(
        Signature(
            id="cloud-access-denied",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=(
                r"An error occurred \((?P<why>AccessDenied(?:Exception)?|403|NoSuchBucket|NoSuchKey|404)\) when "
                r"calling the (?P<call>\w{1,60}) operation"
            ),
            needle="An error occurred (",
            title="AWS refused {call}: {why}",
            cause="The credentials may not do that, or the bucket, key or model does not exist there.",
            fix="Check the name and region, and give the account the permission.",
            command="aws sts get-caller-identity",
            source="botocore",
            fires="An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
            spares="An error occurred (ThrottlingException) when calling the InvokeModel operation",
        ),
    ),
    *family(
        Signature(
            id="cloud-quota",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"\(ThrottlingException\)",
            needle="(ThrottlingException)",
            title="A cloud provider limits the rate of requests",
            cause="More requests or tokens per minute were sent than the account's quota allows.",
            fix="Send fewer at once, retry with growing pauses, or ask for a higher quota.",
            source="botocore",
            fires="An error occurred (ThrottlingException) when calling the InvokeModel operation",
            spares="INFO no ThrottlingException",
        ),
        Text(
            "cloud-quota-slow",
            "(SlowDown)",
            r"\(SlowDown\)",
            "An error occurred (SlowDown) when calling the PutObject operation",
            "INFO no SlowDown",
        ),
        Text(
            "cloud-quota-google",
            "RESOURCE_EXHAUSTED",
            r"(?<!StatusCode\.)RESOURCE_EXHAUSTED",
            "429 RESOURCE_EXHAUSTED. {'error': {'code': 429}}",
            "StatusCode.RESOURCE_EXHAUSTED: Received message larger than max",
        ),
    ),
    *family(
        Signature(
            id="provider-unavailable",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"litellm\.(?:exceptions\.)?(?P<kind>ServiceUnavailableError): (?P<why>[^\n]{1,200})",
            needle="ServiceUnavailableError: ",
            title="A model server behind LiteLLM failed ({kind})",
            cause="It answered with an error of its own (5xx), or with something that is no answer.",
            fix="Look in the log of that server for the same time.",
            source="litellm/exceptions.py",
            fires="litellm.ServiceUnavailableError: VertexAIException - overloaded",
            spares="INFO no ServiceUnavailableError",
        ),
        Text(
            "provider-bad-gateway",
            "BadGatewayError: ",
            r"litellm\.(?:exceptions\.)?(?P<kind>BadGatewayError): (?P<why>[^\n]{1,200})",
            "litellm.BadGatewayError: OpenAIException - 502",
            "INFO no BadGatewayError",
        ),
        Text(
            "provider-api-error",
            "APIError: ",
            r"litellm\.(?:exceptions\.)?(?P<kind>APIError): (?P<why>[^\n]{1,200})",
            "litellm.APIError: OpenAIException - Connection error.",
            "INFO no APIError",
        ),
    ),
    *family(
        Signature(
            id="api-parameter",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"(?P<why>Unsupported (?:parameter|value): '[^'\n]{1,80}')",
            needle="Unsupported ",
            title="The model does not take a parameter of the request",
            cause="{why}: the API of this model has another name for it, or does not have it.",
            fix="Leave the parameter out or rename it; with LiteLLM set drop_params: true.",
            source="OpenAI's API",
            fires=(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead."
            ),
            spares="INFO no Unsupported parameter",
        ),
    ),
)
