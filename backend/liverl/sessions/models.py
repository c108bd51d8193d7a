"""Which names of models in requests are the policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from liverl.sessions.wire import Refusal

PREFIXES = ("hosted_vllm/", "openai/")  # by which LiteLLM and agents built on it choose a client


def is_policy(model: str, served: Sequence[str], others: Iterable[str]) -> bool:
    """Whether a request for ``model`` is for the policy. ``served``: the names that the replicas serve it by; empty
    while none is listed: then every name is. ``others``: names, or patterns such as ``claude-*``, that are it, too."""
    if not model or not served or model in served:
        return True
    if any(model.startswith(prefix) and model[len(prefix) :] in served for prefix in PREFIXES):
        return True
    return any(fnmatchcase(model, pattern) for pattern in others)


def require_policy(model: str, served: Sequence[str], others: Iterable[str]) -> None:
    """Raises:
    Refusal: 404, the request is for another model: to be answered by the policy, its reply would be trained.
    """
    if not is_policy(model, served, others):
        shown = model if len(model) <= 100 else f"{model[:99]}…"
        words = f"the model `{shown}` is not served here: the policy is `{'`, `'.join(served)}`"
        hint = "list the name in session_proxy.models if the policy is meant"
        raise Refusal(404, f"{words}; {hint}", param="model", code="model_not_found")
