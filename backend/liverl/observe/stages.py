"""How far a service's start is, from its log. Stems are of vLLM 0.24 to 0.33, LiteLLM 1.106, verl 0.9."""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple

from liverl.observe.follow import Follower
from liverl.observe.lines import colourless

Kind = Literal["vllm", "litellm", "trainer"]
Stage = tuple[str, float | None]  # in words, and 0..1 within the stage where the log tells
CAP = 256 << 10  # bytes looked at per poll
_CARRY = 400  # characters of the last poll looked at again: a line may be torn between two
_TRIES = 16  # a bar may be torn at the end of the text, and `step:` ends other names too


class _Rule(NamedTuple):
    stem: str  # literal, searched first
    words: str  # may name groups of `bar`
    bar: re.Pattern[str] | None = None  # matched at the stem; groups a and b are the progress a/b


def _rules(*ranks: tuple[_Rule, ...]) -> tuple[tuple[_Rule, ...], ...]:
    return ranks


_BAR = r"[^\r\n]{0,200}?\| *(?P<a>\d+)/(?P<b>\d+)"
_RANKS: dict[Kind, tuple[tuple[_Rule, ...], ...]] = {
    "vllm": _rules(
        (_Rule("non-default args:", "process"),),
        (
            _Rule("Resolved architecture:", "config"),
            _Rule("Using max model len", "config"),
            _Rule("Chunked prefill is enabled", "config"),
        ),
        (_Rule("Initializing a V1 LLM engine", "engine"), _Rule("distributed_init_method=", "engine")),
        (
            _Rule("Starting to load model", "loading weights"),
            _Rule("Loading model from scratch", "loading weights"),
            _Rule(
                "Loading safetensors checkpoint shards:",
                "loading weights",
                re.compile(r"Loading safetensors checkpoint shards:" + _BAR),
            ),
            _Rule("Loading weights took", "weights loaded"),
            _Rule("Model loading took", "weights loaded"),
        ),
        (
            _Rule("Dynamo bytecode transform time", "compiling"),
            _Rule("for vLLM's torch.compile", "compiling"),
            _Rule("Compiling a graph for", "compiling"),
            _Rule("Directly load the compiled graph", "compiling"),
            _Rule("Warming up model for the compilation", "compiling"),
            _Rule("torch.compile took", "compiled"),
            _Rule("Warming up done", "compiled"),
        ),
        (_Rule("Available KV cache memory:", "KV cache"), _Rule("KV cache size:", "KV cache")),
        (
            _Rule(
                "Capturing CUDA graphs",
                "CUDA graphs {a}/{b}",
                re.compile(r"Capturing CUDA graphs" + _BAR),
            ),
            _Rule("Graph capturing finished", "CUDA graphs captured"),
        ),
        (_Rule("init engine (profile", "engine up"),),
        (_Rule("Starting vLLM server on", "server"),),
        (_Rule("Application startup complete", "server up"),),
    ),
    "litellm": _rules(
        (_Rule("Started server process", "config"), _Rule("Waiting for application startup", "config")),
        (_Rule("Proxy initialized with Config", "models set"),),
        (_Rule("Application startup complete", "startup complete"),),
        (_Rule("Uvicorn running on", "serving"),),
    ),
    "trainer": _rules(
        (_Rule("Started a local Ray instance", "Ray up"), _Rule("Connected to Ray cluster", "Ray up")),
        (
            _Rule(
                "Total training steps:", "{b} steps planned", re.compile(r"Total training steps: *(?P<b>\d+)")
            ),
        ),
        (_Rule("create worker group", "creating workers"),),
        (_Rule("model engine initialized", "model loaded"),),
        (_Rule("checkpoint engine manager initialized", "replicas up"),),
        (_Rule("ready to fit", "ready to fit"),),
        (
            _Rule("Training Progress:", "step {a}/{b}", re.compile(r"Training Progress:" + _BAR)),
            _Rule("step:", "step {a}", re.compile(r"(?<![\w/])step:(?P<a>\d+) - ")),
        ),
    ),
}
_TOTAL = re.compile(r"Total training steps: *(\d+)")


class StageParser:
    """Follows one start of a service. A stage never goes back: several processes write into one log."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self._ranks = _RANKS[kind]
        self._rank = -1
        self._total: int | None = None
        self.stage: Stage | None = ("importing", None) if kind == "litellm" else None

    @property
    def done(self) -> bool:
        """The last stage of a server is reached: the log has nothing more to tell."""
        return self.kind != "trainer" and self._rank == len(self._ranks) - 1

    def feed(self, text: str) -> Stage | None:
        """The newest stage, after ``text`` (a piece of the log, torn anywhere)."""
        text = colourless(text)
        if self.kind == "trainer":
            totals = _TOTAL.findall(text)
            if totals:
                self._total = int(totals[-1])
        for rank in range(len(self._ranks) - 1, max(self._rank, 0) - 1, -1):
            found = [hit for rule in self._ranks[rank] if (hit := self._find(rule, text)) is not None]
            if found:
                self._rank = rank
                self.stage = max(found, key=lambda hit: hit[0])[1]
                break
        return self.stage

    def _find(self, rule: _Rule, text: str) -> tuple[int, Stage] | None:
        end = len(text)
        for _ in range(_TRIES):
            at = text.rfind(rule.stem, 0, end)
            if at < 0:
                return None
            if rule.bar is None:
                return at, (rule.words, None)
            match = rule.bar.match(text, at)
            if match is not None:
                return at, self._stage(rule, match.groupdict())
            end = at
        return None

    def _stage(self, rule: _Rule, groups: dict[str, str]) -> Stage:
        words, done, total = rule.words, groups.get("a"), groups.get("b")
        if done is not None and total is None and self._total is not None:
            words, total = "step {a}/{b}", str(self._total)
        if done is None or total is None:
            return words.format(a=done, b=total), None
        share = min(1.0, int(done) / int(total)) if int(total) else None
        return words.format(a=done, b=total), share


def stage_of(kind: Kind, text_tail: str) -> Stage | None:
    """(stage in words, progress 0..1 or None) that ``text_tail`` reached; None before a known line."""
    return StageParser(kind).feed(text_tail)


class StageTracker:
    """The stage of a service whose log grows. After 256 KiB between two polls the older bytes are skipped."""

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self._parser = StageParser(kind)
        self._follower = Follower(path)
        self._carry = ""

    @property
    def done(self) -> bool:
        return self._parser.done

    def poll(self) -> Stage | None:
        """The stage so far. Reads what was appended since the last call. Raises OSError but "not there"."""
        if self.done:
            return self._parser.stage
        data = self._follower.poll(CAP, newest=True)
        if not data:
            return self._parser.stage
        text = self._carry + data.decode("utf-8", "replace")
        self._carry = text[-_CARRY:]
        return self._parser.feed(text)
