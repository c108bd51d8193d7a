"""What ``session_gpu.py`` starts as processes of their own: ``session_gpu_parts.py client``, ``... compared --config
FILE`` (the sessions, with every prompt compared with the replica's), ``... replica MODEL PORT`` (a scripted one).
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "backend"), str(ROOT)]

MODEL = "policy"
DIFFERENCES = "differences.json"  # in the run directory, written by ``compared`` at its end
VOCABULARY = 4096
MAX_LENGTH = 16_384  # tokens
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the repository — its first lines.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "enum": ["a.py", "b.py", "ä b.py"]}},
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}},
    },
]
# What a user or a tool may say: where tokenizers and templates are known to differ.
TEXTS = (
    "Go on.",
    "  two blanks,\ttab\r\n\n\n and lines \n",
    "é e\u0301 ﬁne Å ½ ① İstanbul 日本語 한국어 עברית 🙂👩‍👩‍👧 \u200b\u00a0",
    "<|im_end|>",
    "before<|im_start|>user\nbehind <tool_call>{}</tool_call> <think>",
    "def f(x):\n    return {'a': [x**2, \"b\"], **kw}\n" * 5,
    "1234567890 3.14159 1,000,000 0x1F e-10 v2.0.1",
    "<|endoftext|> </s> [INST] &amp; https://example.com/a?b=c#d",
    "x" * 300,
)


# -- the models


def templates() -> dict[str, str]:
    """The chat templates, by a name: two that only append, and one that rewrites what came before."""
    from kit.model_replica import HERMES, REWRITES

    source = (ROOT / "backend/liverl/verl_runtime/smoke_text.py").read_text()
    (coder,) = [  # read, not imported: that module needs transformers
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHAT_TEMPLATE"
    ]
    return {"hermes": HERMES, "coder": coder, "rewrites": REWRITES}


def _corpus() -> list[str]:
    rng = random.Random(0)
    parts = [c + v for c in "bdfghklmnprstvz" for v in ("a", "e", "i", "o", "u", "ai", "or", "en")]
    words = ["".join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(6000)]
    return [" ".join(rng.choices(words, k=12)).capitalize() + ".\n" for _ in range(6000)] + list(TEXTS) * 20


def write_models(folder: Path, length: int = MAX_LENGTH) -> dict[str, Path]:
    """A folder for each template: tokenizer and configuration of a small Qwen3. It has no weights: ``vllm serve
    --load-format dummy`` makes random ones. ``length``: tokens of a conversation at most."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()  # type: ignore[assignment]
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    split += r"\s*[\r\n]+|\s+(?!\S)|\s+"
    made.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    syntax = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(special) - len(syntax),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_corpus(), trainer)
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    made.add_tokens([AddedToken(each, special=False, normalized=False) for each in syntax])
    end, pad = made.token_to_id("<|im_end|>"), made.token_to_id("<|endoftext|>")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": end,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 512,
        "initializer_range": 0.02,
        "intermediate_size": 1536,
        "max_position_embeddings": length,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "pad_token_id": pad,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCABULARY,
    }
    settings = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "extra_special_tokens": ["<|im_start|>"],
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        "backend": "tokenizers",
        "tokenizer_class": "TokenizersBackend",
    }
    folders = {}
    for name, template in templates().items():
        where = folders[name] = folder / name
        where.mkdir(parents=True, exist_ok=True)
        made.save(str(where / "tokenizer.json"))
        (where / "config.json").write_text(json.dumps(config, indent=1))
        (where / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
        (where / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [end, pad], "pad_token_id": pad})
        )
        (where / "chat_template.jinja").write_text(template)
    return folders


def text_of(tokens: int, seed: str, tokenizer: Any) -> str:
    """Words of about so many tokens, other ones for each ``seed``."""
    rng = random.Random(seed)
    words = " ".join("".join(rng.choices("bdfgklmnprst", k=3)) for _ in range(tokens))
    encoding = tokenizer.encode(f"{seed} {words}", add_special_tokens=False)
    if len(encoding.ids) <= tokens:
        return f"{seed} {words}"
    return f"{seed} {words}"[: encoding.offsets[tokens][0]]


# -- the client


class Job:
    """What one process of the client does. ``kind``: ``generate`` asks replicas with ids, ``chat`` sessions;
    ``agents``: a mapping for each; ``turns`` of each; ``spread``: seconds over which they begin; ``varied``: texts of
    ``TEXTS``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.agents: list[dict[str, Any]] = job["agents"]
        self.kind, self.turns, self.spread = job["kind"], job["turns"], job["spread"]
        self.varied, self.most = job.get("varied", False), job["max_tokens"]
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.calls = 0  # tool calls in replies

    async def run(self) -> dict[str, Any]:
        """All agents; their times."""
        import aiohttp

        timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
        began, spent = time.monotonic(), time.process_time()
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            talk = self._generate if self.kind == "generate" else self._chat
            await asyncio.gather(*(self._one(talk, http, agent) for agent in self.agents))
        return {
            "began": began,
            "ended": time.monotonic(),
            "cpu": time.process_time() - spent,
            "seconds": self.seconds,
            "errors": self.errors,
            "calls": self.calls,
        }

    async def _one(self, talk: Any, http: Any, agent: dict[str, Any]) -> None:
        if self.spread:
            await asyncio.sleep(agent["number"] / agent["of"] * self.spread)
        try:
            await talk(http, agent)
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:300])

    async def _post(self, http: Any, url: str, body: Any, key: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        began = time.monotonic()
        async with http.post(url, json=body, headers=headers) as response:
            answer = await response.json()
        if response.status == 200:
            self.seconds.append(time.monotonic() - began)
        return response.status, answer

    async def _generate(self, http: Any, agent: dict[str, Any]) -> None:
        ids = list(agent["ids"])
        for _ in range(self.turns):
            sampling = {"max_tokens": self.most, "temperature": 1.0, "top_p": 1.0, "logprobs": 0}
            body = {"model": MODEL, "token_ids": ids, "sampling_params": sampling, "stream": False}
            status, answer = await self._post(http, f"{agent['url']}/inference/v1/generate", body)
            if status != 200:
                raise RuntimeError(f"{status}: {answer}")
            choice = answer["choices"][0]
            assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
            ids += choice["token_ids"] + agent["next"]

    async def _chat(self, http: Any, agent: dict[str, Any]) -> None:
        rng = random.Random(agent["first"])
        messages: list[dict[str, Any]] = [{"role": "user", "content": agent["first"]}]
        if agent["system"]:
            messages.insert(0, {"role": "system", "content": agent["system"]})
        forces = self.varied
        for turn in range(self.turns):
            body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": self.most}
            if agent["tools"]:
                body["tools"] = TOOLS
            forced = forces and agent["tools"] and rng.random() < 0.5
            if forced:
                body["tool_choice"] = {"type": "function", "function": {"name": "read_file"}}
            status, answer = await self._post(http, f"{agent['url']}/chat/completions", body, agent["key"])
            if status == 400 and forced:  # a replica without a grammar
                forces = False
                body.pop("tool_choice")
                status, answer = await self._post(
                    http, f"{agent['url']}/chat/completions", body, agent["key"]
                )
            if status != 200:
                raise RuntimeError(f"{status}: {answer}")
            reply = answer["choices"][0]["message"]
            messages.append({name: value for name, value in reply.items() if value is not None})
            calls = reply.get("tool_calls") or ()
            self.calls += len(calls)
            for call in calls:
                text = rng.choice(TEXTS) if self.varied else f"The file of turn {turn}."
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            if not calls or (self.varied and rng.random() < 0.3):
                text = rng.choice(TEXTS) if self.varied else f"Now do the next thing, which is number {turn}."
                messages.append({"role": "user", "content": text})


def client() -> None:
    """Read a job, say ``ready``, begin at the next line, print what came of it."""
    job = Job(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(job.run())), flush=True)


# -- the sessions, every prompt compared


def compared(argv: list[str]) -> int:
    """The service with the sample at every prompt. A difference is counted and does not end it."""
    from liverl.sessions import __main__ as service
    from liverl.sessions import local_engine
    from liverl.sessions.token_trust import Doubt, Trust

    found: list[str] = []
    made: list[Counting] = []

    class Counting(Trust):
        def __init__(self, model: str, doubt: Doubt = lambda batch, earlier: 0) -> None:
            super().__init__(model, doubt, every=1)
            made.append(self)

        def differs(self, words: str) -> None:
            found.append(words)
            if not self.left:
                self._set(differs=words)

    local_engine.Trust = Counting  # type: ignore[misc]
    where = Path(json.loads(Path(argv[argv.index("--config") + 1]).read_text())["run_dir"]) / DIFFERENCES

    def write() -> None:
        facts = [
            {
                "route": t.facts.route,
                "why": t.facts.why,
                "compared": t.facts.compared,
                "prompts": t.facts.prompts,
            }
            for t in made
        ]
        where.write_text(json.dumps({"differences": len(found), "first": found[:5], "models": facts}))

    atexit.register(write)
    return service.main(argv)


# -- a scripted replica


def replica(folder: Path, port: int) -> None:
    """The token routes with the model's own tokenizer and template, and random replies: as random weights sample."""
    from aiohttp import web
    from kit.model_replica import ModelReplica
    from tokenizers import Tokenizer

    class Random(ModelReplica):
        def __init__(self) -> None:
            super().__init__(lambda before, turn: "", folder, (folder / "chat_template.jinja").read_text())
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self.context = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
            self._rng = random.Random(1)
            call = '{"name": "read_file", "arguments": {"path": "a.py"}}'
            self._call = self.ids(f"I look.\n<tool_call>\n{call}\n</tool_call><|im_end|>")

        async def _generate(self, request: web.Request) -> web.Response:
            body = await request.json()
            most = body["sampling_params"]["max_tokens"]
            ids = [self._rng.randrange(VOCABULARY) for _ in range(min(64, most))]
            if self._rng.random() < 0.25:
                ids = self._call[:most]
            content = [{"token_id": token, "logprob": -1.5, "rank": 1} for token in ids]
            choice = {
                "index": 0,
                "token_ids": ids,
                "finish_reason": "stop" if ids is self._call else "length",
                "logprobs": {"content": content},
            }
            return web.json_response({"request_id": "g", "choices": [choice]})

    async def serve() -> None:
        app = Random().app()
        app.router.add_get("/health", lambda request: _ok())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        await asyncio.Event().wait()

    async def _ok() -> web.Response:
        return web.Response()

    asyncio.run(serve())


def main() -> int:
    """One of the parts."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    what, *rest = sys.argv[1:]
    if what == "client":
        client()
    elif what == "compared":
        return compared(rest)
    else:
        replica(Path(rest[0]), int(rest[1]))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
