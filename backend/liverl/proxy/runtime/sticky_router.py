"""LiteLLM router hook that reduces the possible deployments to the one chosen by ``routing``."""

from __future__ import annotations

from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from .calls import current


class StickyRouter(CustomLogger):  # type: ignore[misc]
    """Registered as a callback of LiteLLM."""

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        """Return only the deployment on the call's replica; all of them outside of a call."""
        call = current.get()
        by_replica = {
            deployment["model_info"]["liverl_backend"]: deployment for deployment in healthy_deployments
        }
        if call is None or not by_replica:
            return healthy_deployments
        return [by_replica[call.desk.route(call, list(by_replica))]]


handler = StickyRouter()
