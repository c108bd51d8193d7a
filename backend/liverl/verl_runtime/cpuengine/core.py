"""Model, tokenizer, engine and counters of one replica, shared by its HTTP server and actor calls."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from liverl.verl_runtime.cpuengine.engine import MAX_ROWS, Engine, EngineDeadError
from liverl.verl_runtime.cpuengine.metrics import ReplicaMetrics
from liverl.verl_runtime.cpuengine.request import Request
from liverl.verl_runtime.cpuengine.settings import Settings

logger = logging.getLogger(__name__)

_GIB = 2**30


class Core:
    """The constructor loads the model, which takes seconds and blocks, as in verl's vLLM actor.

    Raises:
        OSError, ValueError: the model directory is not readable, or its lengths do not fit.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        started = time.monotonic()
        torch.set_num_threads(1)  # replicas and trainers share the cores
        config = AutoConfig.from_pretrained(settings.model)
        logger.info("Resolved architecture: %s", (config.architectures or ["?"])[0])
        logger.info("Using max model len %d", settings.max_model_len)
        if settings.max_model_len > config.max_position_embeddings:
            raise ValueError(
                f"max_model_len ({settings.max_model_len}) should be less than or equal to "
                f"max_position_embeddings ({config.max_position_embeddings})"
            )
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        logger.info("Loading model from scratch...")
        loading = time.monotonic()
        if settings.load_weights:
            model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
            logger.info("Loading weights took %.2f seconds", time.monotonic() - loading)
        else:
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        size = sum(weights.nbytes for weights in model.parameters())
        logger.info("Model loading took %.2f GiB and %.6f seconds", size / _GIB, time.monotonic() - loading)
        ends = GenerationConfig.from_model_config(config).eos_token_id
        stop = {self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
        self.engine = Engine(
            model,
            stop,
            max_length=settings.max_model_len,
            max_rows=settings.max_num_seqs,
            seed=settings.seed + settings.rank,
        )
        rows = min(settings.max_num_seqs, MAX_ROWS)
        tokens = rows * settings.max_model_len
        logger.info("CPU KV cache size: %s tokens", f"{tokens:,}")
        logger.info(
            "Maximum concurrency for %s tokens per request: %.2fx", f"{settings.max_model_len:,}", float(rows)
        )
        logger.info("init engine (profile, create kv cache, warmup model) took %.2f s",
                    time.monotonic() - started)  # fmt: skip
        self.metrics = ReplicaMetrics(settings.served[0])
        self.metrics.cache_config = {
            "block_size": "1",
            "enable_prefix_caching": "True",
            "kv_cache_size_tokens": str(tokens),
            "num_gpu_blocks": "0",
            "num_cpu_blocks": str(tokens),
        }

    async def generate(
        self,
        prompt: list[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | None = None,
        request_id: str = "",
        scored: bool = False,
    ) -> Request:
        """Generate one reply; waits while the engine sleeps. ``scored``: see ``Request``.

        Raises:
            EngineDeadError: the engine's thread has failed.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Request] = loop.create_future()

        def settle(request: Request) -> None:
            """Set the result, in the event loop."""
            if not ended.done():
                ended.set_result(request)

        def done(request: Request) -> None:  # in the engine's thread
            """Hand the result to the event loop."""
            loop.call_soon_threadsafe(settle, request)

        request = Request(
            id=request_id or uuid.uuid4().hex,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            done=done,
            seed=seed,
            scored=scored,
        )
        self.engine.submit(request)
        try:
            await ended
        except asyncio.CancelledError:
            self.engine.abort([request.id], waiting=True)
            self.metrics.finished["abort"] += 1
            raise
        self.metrics.count(request, time.monotonic())
        if request.finish == "error":
            raise EngineDeadError(request.error)
        return request
