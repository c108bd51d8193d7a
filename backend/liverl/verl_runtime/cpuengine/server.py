"""The Ray actor of a replica, with the methods of verl's ``vLLMHttpServer``.

The class has the same name because Ray prefixes an actor's output with it; its first log line says what it
is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import Any

import torch

from liverl.verl_runtime.cpuengine.core import Core
from liverl.verl_runtime.cpuengine.http import Api
from liverl.verl_runtime.cpuengine.log_lines import LikeVllm
from liverl.verl_runtime.cpuengine.settings import Settings, required_token

logger = logging.getLogger(__name__)

_DEAD_EXIT = 17  # exit status of the fault "dead"


def _log_to_stdout() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LikeVllm())
    root = logging.getLogger("liverl")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(logging.INFO)


class vLLMHttpServer:
    """One replica; ``host`` is the address it listens on."""

    def __init__(self, settings: Settings, host: str) -> None:
        _log_to_stdout()
        self._settings, self._host = settings, host
        self._port: int | None = None
        self._core: Core | None = None
        self._api: Api | None = None
        self._admitting = asyncio.Event()
        self._admitting.set()
        self._rejecting = False
        logger.info(
            "Replica %d: LiveRL's CPU engine, not vLLM: it generates with the trainer's model on this host's "
            "CPU and names its stages as vLLM does.",
            settings.rank,
        )

    # Queries

    def get_server_address(self) -> tuple[str, int]:
        """Return host and port.

        Raises:
            AssertionError: it does not listen yet, as in verl's class.
        """
        if self._port is None:
            raise AssertionError("http server is not launched, port is None")
        return self._host, self._port

    def get_master_address(self) -> tuple[str, None, None]:
        """Return the host; this engine has no torch master port."""
        return self._host, None, None

    def get_rollout_config(self) -> Settings:
        """Return the settings of this replica."""
        return self._settings

    # Launch

    async def launch_server(self) -> None:
        """Load, then listen. Loading blocks this actor: address queries wait, as with vLLM."""
        settings = self._settings
        if settings.dead:
            logger.error("fault: this replica exits during its launch")
            sys.stdout.flush()
            os._exit(_DEAD_EXIT)
        self._core = Core(settings)
        if settings.listen_delay:
            logger.warning("fault: this replica listens %.0f s late", settings.listen_delay)
            time.sleep(settings.listen_delay)
        if settings.mute:
            logger.warning("fault: this replica never listens")
            await asyncio.Event().wait()
        self._api = Api(self._core, required_token(settings))
        self._port = await self._api.listen(self._host)
        logger.info("Starting vLLM server on http://%s:%d (LiveRL's CPU engine)", self._host, self._port)
        logger.info("Application startup complete.")

    @property
    def _ready(self) -> Core:
        if self._core is None:
            raise RuntimeError("the engine is not launched")
        return self._core

    # Generation by actor call

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **unused: Any
    ) -> Any:
        """verl's token-in-token-out call; returns its ``TokenOutput``.

        Raises:
            ValueError: the prompt leaves no room for a token, or a sampling parameter is not
                supported (only the temperature is).
        """
        from verl.workers.rollout.replica import TokenOutput

        core, settings = self._ready, self._settings
        core.metrics.actor_generate += 1
        while not self._admitting.is_set():
            if self._rejecting:
                return TokenOutput(
                    token_ids=[], stop_reason="aborted", extra_fields={"global_steps": core.engine.version}
                )
            await self._admitting.wait()
        _check_sampling(sampling_params)
        prompt = [int(token) for token in prompt_ids]
        room = settings.max_model_len - len(prompt)
        if room < 1:
            raise ValueError(
                f"Prompt length ({len(prompt)}) leaves no room to generate within the model's maximum context "
                f"length ({settings.max_model_len}); need at least 1 token of headroom."
            )
        total = settings.prompt_length + settings.response_length
        limit = sampling_params.get("max_tokens", sampling_params.get("max_new_tokens"))
        if limit is None:
            limit = min(settings.response_length, total - len(prompt))
        result = await core.generate(
            prompt,
            max_tokens=max(1, min(int(limit), room)),
            temperature=float(sampling_params.get("temperature", 1.0)),
            seed=sampling_params.get("seed"),
            request_id=request_id,
            scored=sampling_params.get("prompt_logprobs") is not None,
        )
        # The weights are not replaced while a request runs, so one version has sampled all of its tokens.
        version = result.versions[-1].version if result.versions else core.engine.version
        return TokenOutput(
            token_ids=result.tokens,
            log_probs=result.logprobs if sampling_params.get("logprobs") else None,
            stop_reason="aborted" if result.finish == "abort" else "completed",
            num_preempted=0,
            extra_fields={
                "global_steps": version,
                "num_cached_tokens": result.cached,
                **({} if result.scores is None else _prompt_scores(result.prompt, result.scores)),
            },
        )

    # Sleep, weights, pause: calls of the trainer

    async def sleep(self) -> None:
        """Release weights and cache, if this replica shares its device with the trainer."""
        if not self._settings.hybrid or not self._settings.free_cache_engine:
            return
        started = time.monotonic()
        await asyncio.to_thread(self._ready.engine.sleep)
        logger.info("It took %.6f seconds to fall asleep.", time.monotonic() - started)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Restore ``tags`` (default: weights and KV cache) after ``sleep``."""
        if not self._settings.hybrid:
            return
        started, tags = time.monotonic(), tags or ["weights", "kv_cache"]
        self._ready.engine.wake_up(tags)
        logger.info("It took %.6f seconds to wake up tags %s.", time.monotonic() - started, tags)

    async def load_weights(
        self, tensors: dict[str, torch.Tensor], last: bool, version: int | None = None
    ) -> None:
        """Load a part of the trainer's weights; after the last one they have the number ``version``.

        Raises:
            ValueError: they do not fit this model.
        """
        started = time.monotonic()
        await asyncio.to_thread(self._ready.engine.load_weights, tensors, last=last, version=version)
        if last:
            logger.info("Loading weights took %.2f seconds (from the trainer)", time.monotonic() - started)

    async def set_global_steps(self, global_steps: int) -> None:
        """Set the version of the weights, after an update."""
        self._ready.engine.set_version(global_steps)
        digest = self._ready.engine.policy[1]
        logger.info(
            "Weights updated to version %d; successfully reset prefix cache; digest %.12s",
            global_steps,
            digest or "unknown",
        )

    async def clear_kv_cache(self) -> None:
        """Drop the keys and values of finished requests."""
        self._ready.engine.reset_prefix_cache()

    async def release_kv_cache(self) -> None:
        """Release the KV cache but keep the weights."""
        if self._settings.free_cache_engine:
            await asyncio.to_thread(self._ready.engine.sleep)
            self._ready.engine.wake_up(["weights"])

    async def resume_kv_cache(self) -> None:
        """Restore the KV cache after ``release_kv_cache``."""
        if self._settings.free_cache_engine:
            self._ready.engine.wake_up(["kv_cache"])

    async def wait_for_requests_to_drain(self) -> None:
        """Wait until no request is running."""
        await asyncio.to_thread(self._ready.engine.drain)

    async def abort_all_requests(
        self, reset_prefix_cache: bool = True, reject_request: bool = False
    ) -> dict[str, Any]:
        """Abort the running requests and admit none until ``resume_generation``."""
        self._admitting.clear()
        self._rejecting = reject_request
        ended = await asyncio.to_thread(self._ready.engine.pause)
        if reset_prefix_cache:
            self._ready.engine.reset_prefix_cache()
        logger.info("Aborted %d requests: %s", len(ended), ended)
        return {"aborted_count": len(ended), "request_ids": ended}

    async def resume_generation(self) -> None:
        """Admit requests again after ``abort_all_requests``."""
        self._rejecting = False
        self._ready.engine.resume()
        self._admitting.set()

    async def abort_request(self, request_id: str, reset_prefix_cache: bool = True) -> dict[str, Any]:
        """Abort one request, running or queued; the result says whether it existed."""
        ended = self._ready.engine.abort([request_id], waiting=True)
        if not ended:
            return {"aborted": False, "error": f"Request {request_id} not found"}
        return {"aborted": True, "request_id": request_id}

    async def start_profile(self, **unused: Any) -> None:
        """Do nothing: verl calls it on every replica, and this engine has no profiler."""

    async def stop_profile(self) -> None:
        """Do nothing: verl calls it on every replica, and this engine has no profiler."""


def _prompt_scores(prompt: list[int], scores: list[float]) -> dict[str, Any]:
    """As verl hands on ``prompt_logprobs``: at each position the next id and its log-probability; zeros at the last.
    ``scores``: of the ids behind the first one."""
    return {
        "prompt_ids": [[token] for token in [*prompt[1:], 0]],
        "prompt_logprobs": [[score] for score in [*scores, 0.0]],
    }


def _check_sampling(parameters: dict[str, Any]) -> None:
    neutral = {"top_p": (None, 1, 1.0), "top_k": (None, 0, -1), "repetition_penalty": (None, 1, 1.0)}
    for name, values in neutral.items():
        if parameters.get(name) not in values:
            raise ValueError(f"the CPU engine samples by temperature alone: {name}={parameters[name]}")
    if parameters.get("prompt_logprobs") not in (None, 0):
        words = "the CPU engine scores the prompt's own tokens only"
        raise ValueError(f"{words}: prompt_logprobs={parameters['prompt_logprobs']}")
