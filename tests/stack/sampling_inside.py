"""Imported at the start of every Python of an environment: the CPU engine writes down with which parameters each reply
is sampled, and samples by ``top_k`` and ``top_p``, too. As in vLLM, what a request over HTTP leaves out is taken from
the model's generation_config.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ENGINE = "liverl.verl_runtime.cpuengine"
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # that vLLM takes from the file
FILE = ""  # where each sample's parameters are appended as a line of JSON, set by the environment's .pth
_ASKED: ContextVar[dict[str, Any] | None] = ContextVar("asked", default=None)


class Finder(MetaPathFinder):
    """Changes the modules of the engine once they have been loaded."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own specification, with a loader that adds the change."""
        change = CHANGES.get(name)
        spec = PathFinder.find_spec(name, path) if change else None
        if spec is None or spec.loader is None or change is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def note(parameters: dict[str, Any]) -> None:
    """The next sample of this task is asked for with these, unless the prompt is only scored."""
    if parameters.get("prompt_logprobs") is None:
        _ASKED.set(dict(parameters))


def _http(module: Any) -> None:
    own = module.Api._generate

    async def generate(self: Any, http: Any) -> Any:
        wanted = json.loads(await http.read()).get("sampling_params")
        path = Path(self._settings.model) / "generation_config.json"
        chosen = json.loads(path.read_text()) if path.exists() else {}
        if wanted is not None:  # else it asks whether the route is there
            note({**{name: chosen[name] for name in DEFAULTS if chosen.get(name) is not None}, **wanted})
        return await own(self, http)

    module.Api._generate = generate


def _server(module: Any) -> None:
    own = module.vLLMHttpServer.generate

    async def generate(
        self: Any, prompt_ids: Any, sampling_params: dict[str, Any], request_id: str, **more: Any
    ) -> Any:
        import sampling_inside  # Ray copies this function, and with it what it names of this module

        sampling_inside.note(sampling_params)
        return await own(self, prompt_ids, sampling_params, request_id, **more)

    module.vLLMHttpServer.generate = generate


def _core(module: Any) -> None:
    own = module.Core.generate

    async def generate(self: Any, prompt: Any, *, temperature: float, **more: Any) -> Any:
        asked = _ASKED.get()
        if asked is not None:
            temperature = float(asked.get("temperature", temperature))
            with open(FILE, "a") as file:
                file.write(json.dumps({**asked, "temperature": temperature}) + "\n")
        return await own(self, prompt, temperature=temperature, **more)

    module.Core.generate = generate


def _engine(module: Any) -> None:
    submit, sample, torch = module.Engine.submit, module.Engine._sample, module.torch

    def submitted(self: Any, request: Any) -> None:
        request.asked = _ASKED.get() or {}
        submit(self, request)

    def sampled(self: Any, batch: Any, logits: Any) -> None:
        shaped = [_within(torch, row, request) for row, request in zip(logits, batch, strict=True)]
        sample(self, batch, torch.stack(shaped))

    module.Engine.submit, module.Engine._sample = submitted, sampled


def _within(torch: Any, logits: Any, request: Any) -> Any:
    """The logits of one position, those of tokens that ``top_k`` and ``top_p`` leave out at minus infinity."""
    top_k, top_p = int(request.asked.get("top_k") or -1), float(request.asked.get("top_p") or 1.0)
    if 0 < top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    if top_p < 1:
        ordered, at = torch.sort(logits, descending=True)
        shares = torch.softmax(ordered / (request.temperature or 1.0), -1)
        left_out = shares.cumsum(-1) - shares >= top_p  # what stands before it is enough
        logits = logits.masked_fill(left_out.new_empty(left_out.shape).scatter(0, at, left_out), -torch.inf)
    return logits


CHANGES: dict[str, Callable[[Any], None]] = {
    f"{ENGINE}.http": _http,
    f"{ENGINE}.server": _server,
    f"{ENGINE}.core": _core,
    f"{ENGINE}.engine": _engine,
}
sys.meta_path.insert(0, Finder())
