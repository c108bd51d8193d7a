"""Updates the model list of a running LiteLLM router from the generated file."""

from __future__ import annotations

from typing import Any

from .settings import ModelConfig, SettingsError


def apply_models(router: Any, models: ModelConfig) -> None:
    """Add and delete deployments until the router serves exactly ``models``.

    Open requests keep their deployment. No await happens here, so no request sees a partial list. Deployments
    are compared by id, which the generator derives from all their fields.

    Raises:
        SettingsError: the router rejects the list; it then serves the deployments common to both
            lists, plus those it did accept.
    """
    from litellm.types.router import Deployment, LiteLLM_Params

    wanted = {model["model_info"]["id"]: model for model in models.models}
    present = set(router.get_model_ids())
    try:
        additions = [
            Deployment(
                model_name=model["model_name"],
                litellm_params=LiteLLM_Params(**model["litellm_params"]),
                model_info=model["model_info"],
            )
            for identity, model in wanted.items()
            if identity not in present
        ]
    except (TypeError, ValueError) as error:
        raise SettingsError(f"LiteLLM rejected a model: {' '.join(str(error).split())[:300]}") from None
    for deployment in additions:
        router.add_deployment(deployment)
    for identity in present - wanted.keys():
        router.delete_deployment(identity)
    left = set(router.get_model_ids())
    if left != wanted.keys():
        raise SettingsError(
            f"LiteLLM's router loaded {len(left & wanted.keys())} of {len(wanted)} deployments"
        )
