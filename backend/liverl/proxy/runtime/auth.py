"""Authorization: the master key permits all routes, the run key the inference routes.

Checked before LiteLLM handles a request: some of its routes (documentation, sign-in) require no key at all.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .callers import Caller
from .calls import current
from .settings import Keys

TRIAL_HEADER = b"x-litellm-routing-key"
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STEP_FOLDER = re.compile(r"step_\d+")

# Calls of the policy: counted, attributed to a trial and recorded.
CALL_ROUTES = frozenset(
    {
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/completions",
        "/completions",
        "/v1/messages",
    }
)
# Other routes that coding agents use with their run key.
_RUN_KEY_ROUTES = CALL_ROUTES | {"/v1/messages/count_tokens", "/v1/models", "/models"}
_PUBLIC_ROUTES = frozenset({"/health/liveliness", "/health/liveness", "/health/readiness"})


@dataclass(frozen=True)
class Refusal:
    """HTTP status and message of a rejected request."""

    status: int
    message: str


def valid_trial(name: str | None) -> bool:
    """Whether ``name`` can be a trial: a plain directory name that is not a step directory."""
    return name is not None and bool(_TRIAL.fullmatch(name)) and not _STEP_FOLDER.fullmatch(name)


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(
        left.encode("utf-8", "surrogateescape"), right.encode("utf-8", "surrogateescape")
    )


def check_key(key: str, keys: Keys) -> Caller | None:
    """Return the caller identified by ``key``, or None. Its trial is the suffix of the key, not validated."""
    if _same(key, keys.master):
        return Caller("master")
    if _same(key, keys.run):
        return Caller("run")
    prefix = keys.run + "."
    if len(key) > len(prefix) and _same(key[: len(prefix)], prefix):
        return Caller("run", key[len(prefix) :])
    return None


def authorize(method: str, path: str, headers: Iterable[tuple[bytes, bytes]], keys: Keys) -> Caller | Refusal:
    """Authorize a request by its ASGI ``headers``. A trial named in a header takes precedence over that in
    the key."""
    if path in _PUBLIC_ROUTES and method in ("GET", "HEAD"):
        return Caller("public")
    given: list[str] = []
    named: str | None = None
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == b"authorization":
            scheme, _, rest = text.partition(" ")
            given.append(rest.strip() if scheme.lower() == "bearer" else text)
        elif name == b"x-api-key":
            given.append(text)
        elif name == TRIAL_HEADER:
            named = text
    caller = next(
        (candidate for candidate in (check_key(key, keys) for key in given if key) if candidate), None
    )
    if caller is None:
        return Refusal(401, "invalid API key: send the run key as a Bearer token or in the header x-api-key")
    if caller.role == "run" and path not in _RUN_KEY_ROUTES:
        return Refusal(403, f"the run key is valid on the inference routes only, not on {path}")
    trial = named if named is not None else caller.trial
    return Caller(caller.role, trial if valid_trial(trial) else None)


async def user_api_key_auth(request: Any, api_key: str) -> Any:
    """LiteLLM's custom-auth hook. The middleware has decided already; LiteLLM gets a name, never the key."""
    from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

    call = current.get()
    if call is None or call.caller.role == "public":
        raise PermissionError("this request was not checked by the middleware")
    role = LitellmUserRoles.PROXY_ADMIN if call.caller.role == "master" else LitellmUserRoles.INTERNAL_USER
    return UserAPIKeyAuth(api_key=f"liverl-{call.caller.role}", user_role=role)
