"""The engine: continuous batching of a small model in one thread, with the states of vLLM's sleep mode.

Requests wait while the engine sleeps, is paused, or receives new weights; they never fail for that reason.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

import torch
from transformers import PreTrainedModel

from liverl.verl_runtime.cpuengine.kv import Block, Prefixes, Window
from liverl.verl_runtime.cpuengine.request import Request

logger = logging.getLogger(__name__)

MAX_ROWS = 32  # maximum concurrent requests; more would not be faster on one core
_KEPT_PREFIXES = 48


class EngineDeadError(RuntimeError):
    """The engine's thread ended with an error; nothing is generated any more."""


class Engine:
    """Generates with ``model``. ``seed`` is used for requests without a seed of their own."""

    def __init__(
        self, model: PreTrainedModel, stop_tokens: Iterable[int], *, max_length: int, max_rows: int, seed: int
    ) -> None:
        self.model = model.eval()
        self.max_length = max_length
        self.prefix_queries = self.prefix_hits = 0
        # Number and digest of the weights: None and "" before the trainer has sent any. Replaced together, so that no
        # reader sees one without the other.
        self.policy: tuple[int | None, str] = (None, "")
        self._stop = frozenset(stop_tokens)
        self._rng = random.Random(seed)
        self._max_rows = min(max_rows, MAX_ROWS)
        config = model.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._block = Block(
            config.num_hidden_layers, config.num_key_value_heads, width, self._max_rows, max_length
        )
        self._prefixes = Prefixes(_KEPT_PREFIXES)
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # the request at index i uses row i of the block
        self._aborted: set[str] = set()
        self._closed: set[str] = set()  # reasons why nothing is admitted: weights, kv_cache, paused, updating
        self._received: set[str] = set()
        self._failure = ""
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    # Requests

    def submit(self, request: Request) -> None:
        """Queue ``request``.

        Raises:
            EngineDeadError: the engine's thread has failed.
        """
        with self._changed:
            if self._failure:
                raise EngineDeadError(self._failure)
            request.rng = self._rng if request.seed is None else random.Random(request.seed)
            self._waiting.append(request)
            self._changed.notify_all()

    def abort(self, ids: Iterable[str] | None = None, *, waiting: bool = False) -> list[str]:
        """Abort the running requests in ``ids`` (None = all), with ``waiting`` also queued ones; return their
        ids."""
        wanted = None if ids is None else set(ids)
        with self._changed:
            ended = [r.id for r in self._running if wanted is None or r.id in wanted]
            self._aborted.update(ended)
            queued = [r for r in self._waiting if waiting and (wanted is None or r.id in wanted)]
            for request in queued:
                self._waiting.remove(request)
            self._changed.notify_all()
        for request in queued:
            request.finish = "abort"
            request.done(request)
        return ended + [r.id for r in queued]

    @property
    def running(self) -> int:
        """Number of running requests."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return len(self._waiting)

    @property
    def failure(self) -> str:
        """Why the engine is dead; "" while it is alive."""
        return self._failure

    @property
    def sleeping(self) -> bool:
        """Whether weights or KV cache are released."""
        return not self._closed.isdisjoint(("weights", "kv_cache"))

    @property
    def usage(self) -> float:
        """Share of the block's positions used by running requests, 0..1."""
        held = sum(len(r.prompt) + len(r.tokens) for r in list(self._running))
        return held / (self._max_rows * self.max_length)

    # States; each call returns when the state is reached

    def drain(self) -> None:
        """Wait until no request is running; queued ones stay queued.

        Raises:
            EngineDeadError: the engine's thread has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._running or self._failure)
            if self._failure:
                raise EngineDeadError(self._failure)

    def _close(self, *reasons: str) -> None:
        with self._changed:
            self._closed.update(reasons)

    def _open(self, *reasons: str) -> None:
        with self._changed:
            self._closed.difference_update(reasons)
            self._changed.notify_all()

    def sleep(self) -> None:
        """Finish the running requests and release keys, values and weights until the trainer sends new ones."""
        self._close("weights", "kv_cache")
        self.drain()
        self._prefixes.clear()

    def wake_up(self, tags: Iterable[str]) -> None:
        """Restore what sleep released; requests continue when both weights and KV cache are available."""
        self._open(*tags)

    def pause(self) -> list[str]:
        """Admit nothing and abort the running requests; return their ids."""
        self._close("paused")
        ended = self.abort()
        self.drain()
        return ended

    def resume(self) -> None:
        """Admit requests again after ``pause``."""
        self._open("paused")

    def reset_prefix_cache(self) -> None:
        """Drop the keys and values of finished requests."""
        self._prefixes.clear()

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model knows: their ids are 0 up to this number."""
        size: int = self.model.config.vocab_size
        return size

    @property
    def version(self) -> int | None:
        """The trainer's number of the weights; None before it has sent any."""
        return self.policy[0]

    def set_version(self, version: int) -> None:
        """Number the weights that were loaded last."""
        self.policy = version, self.policy[1]

    def load_weights(
        self, tensors: Mapping[str, torch.Tensor], *, last: bool, version: int | None = None
    ) -> None:
        """Load a part of the trainer's weights; nothing runs between the first part and the ``last``, after which they
        have the number ``version`` (None: the same as before) and a digest of their own.

        Raises:
            ValueError: a name is unknown, or at the last part a weight is missing.
        """
        self._close("updating")
        self.drain()
        own = self.model.state_dict()
        unknown = sorted(set(tensors) - set(own))
        if unknown:
            raise ValueError(f"the model has no weights named {', '.join(unknown[:3])}")
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)
        self._received |= set(tensors)
        if not last:
            return
        # A weight that shares memory with a received one counts as received (tied embeddings).
        sent = {own[name].data_ptr() for name in self._received}
        missing = sorted(name for name, tensor in own.items() if tensor.data_ptr() not in sent)
        self._received.clear()
        if missing:
            raise ValueError(f"no new value received for {', '.join(missing[:3])}")
        self.policy = self.version if version is None else version, digest_of(own)
        self._prefixes.clear()
        self._open("updating")

    # The thread

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while True:
                    fresh = self._next()
                    for request in fresh:
                        self._prefill(request)
                    if any(not request.finish for request in self._running):
                        self._decode()
                    self._finish()
        except Exception as error:
            logger.exception("EngineCore encountered a fatal error.")
            with self._changed:
                self._failure = f"{type(error).__name__}: {error}"
                failed = [*self._running, *self._waiting]
                self._running, self._waiting = [], deque()
                self._changed.notify_all()
            for request in failed:
                request.finish, request.error = "error", self._failure
                request.done(request)

    def _next(self) -> list[Request]:
        """Wait for work; return the requests that were just given a row."""
        with self._changed:
            self._changed.wait_for(lambda: self._running or (self._waiting and not self._closed))
            fresh: list[Request] = []
            while self._waiting and not self._closed and len(self._running) < self._max_rows:
                request = self._waiting.popleft()
                request.admitted = time.monotonic()
                self._running.append(request)
                fresh.append(request)
            return fresh

    def _prefill(self, request: Request) -> None:
        row = self._running.index(request)
        kept, shared = (None, 0) if request.scored else self._prefixes.find(request.prompt)
        if kept is not None:
            self._block.restore(row, kept, shared)
        request.cached = shared
        self.prefix_queries += len(request.prompt)
        self.prefix_hits += shared
        rest = torch.tensor([request.prompt[shared:]])
        window = Window(self._block, row, torch.tensor([shared]), rest.shape[1])
        logits = self._forward(rest, window, rest.shape[1] if request.scored else 1)
        if request.scored:
            request.scores = _scores(logits[0, :-1], rest[0, 1:])
        self._sample([request], logits[:, -1])
        request.first_token = time.monotonic()

    def _decode(self) -> None:
        # Rows that just ended are included, as the rows of a pass must be contiguous.
        batch = self._running
        last = torch.tensor([[request.tokens[-1]] for request in batch])
        starts = torch.tensor([len(request.prompt) + len(request.tokens) - 1 for request in batch])
        window = Window(self._block, 0, starts.clamp(max=self.max_length - 1), 1)
        self._sample(batch, self._forward(last, window)[:, -1])

    def _forward(self, ids: torch.Tensor, window: Window, positions: int = 1) -> torch.Tensor:
        """Logits of the last ``positions`` positions of each row."""
        out = self.model(
            input_ids=ids,
            attention_mask=window.mask,
            position_ids=window.positions,
            past_key_values=window,
            use_cache=True,
            logits_to_keep=positions,
        )
        logits: torch.Tensor = out.logits.float()
        return logits

    def _sample(self, batch: list[Request], logits: torch.Tensor) -> None:
        """Sample one token per row. Log-probabilities are those after the temperature, as verl requests from
        vLLM."""
        heat = torch.tensor([[request.temperature or 1.0] for request in batch])
        logprobs = torch.log_softmax(logits / heat, -1)
        sums = logprobs.exp().cumsum(-1)
        draws = torch.tensor([[0.0 if r.finish else r.rng.random()] for r in batch]) * sums[:, -1:]
        drawn = torch.searchsorted(sums, draws, right=True).clamp(max=sums.shape[1] - 1)[:, 0]
        chosen = torch.where(heat.new_tensor([r.temperature for r in batch]) > 0, drawn, logits.argmax(-1))
        picked = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        version = self.version
        for request, token, logprob in zip(batch, chosen.tolist(), picked, strict=True):
            if request.finish:
                continue
            request.add(token, logprob, version)
            if token in self._stop:
                request.finish = "stop"
            elif len(request.tokens) >= request.max_tokens:
                request.finish = "length"

    def _finish(self) -> None:
        """Remove ended requests from the batch and close the gaps."""
        with self._changed:
            for request in self._running:
                if request.id in self._aborted and not request.finish:
                    request.finish = "abort"
            self._aborted.clear()
            ended = [request for request in self._running if request.finish]
        for request in ended:
            row = self._running.index(request)
            # The last token was not fed back, so it has no keys.
            tokens = [*request.prompt, *request.tokens[:-1]]
            self._prefixes.add(self._block.keep(row, tokens))
            with self._changed:
                mover = self._running.pop()
                if mover is not request:
                    self._block.move(len(self._running), row, len(mover.prompt) + len(mover.tokens))
                    self._running[row] = mover
        if ended:
            with self._changed:
                self._changed.notify_all()
        for request in ended:
            request.done(request)


def _scores(logits: torch.Tensor, ids: torch.Tensor) -> list[float]:
    """The log-probability of each id, by the logits of the position before it."""
    scores: list[float] = torch.log_softmax(logits, -1).gather(1, ids[:, None])[:, 0].tolist()
    return scores


def digest_of(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a model's weights: of their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
