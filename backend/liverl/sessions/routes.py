"""The three token routes that sessions need of a replica, and the check that a replica has them.

vLLM has them open from 0.24 to 0.29. From 0.30 on they need ``--enable-scale-out``: without it 0.30 answers 404, later
versions 403 with that option in their text. Older versions and other servers answer 404.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"
DETOKENIZE = "/detokenize"  # not needed, but used where a replica has it: vLLM does

Post = Callable[[str, Mapping[str, Any]], Awaitable["tuple[int, str]"]]  # (path, body) -> (status, text)
T = TypeVar("T")

_MESSAGES = [{"role": "user", "content": "ping"}]
_LATER = (408, 425, 429)  # 4xx that say nothing about the route
_LONGEST = 300  # characters of an answer that are shown
_NEEDED = "the trials go through sessions (proxy.trials_through), which need this route"
_OTHERWISE = "or set proxy.trials_through to litellm"
_ENABLE = (
    "set enable_scale_out (vllm serve --enable-scale-out; under verl, in trainer.overrides, "
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.enable_scale_out: true)"
)


class RouteProblem(msgspec.Struct, frozen=True):
    """What a route answered instead. ``status``: of HTTP; ``answer``: the text of its body, or what is wrong with
    it."""

    route: str
    status: int
    answer: str

    @property
    def final(self) -> bool:
        """Whether the same process will answer so for ever. Not for 5xx and for statuses that ask to come later."""
        return self.status < 500 and self.status not in _LATER

    @property
    def words(self) -> str:
        """What happened, why it matters, and what to do."""
        answered = f"POST {self.route} answered {self.status}: {self.answer}"
        return f"{answered}; {_NEEDED}: {self._fix}, {_OTHERWISE}" if self.final else answered

    @property
    def _fix(self) -> str:
        if self.status == 403:
            return _ENABLE
        if self.status in (404, 405, 501):
            return f"vLLM before 0.24 does not have it; from 0.30 on {_ENABLE}"
        if self.status == 401:
            return "start the replica with the token of this run"
        return "use vLLM 0.24 or newer"


class Rendered(msgspec.Struct):
    """What ``render`` answers, as far as it is used."""

    token_ids: list[int]
    sampling_params: dict[str, Any] = {}


class _Entry(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Entry]


class _Choice(msgspec.Struct):
    token_ids: list[int]
    logprobs: _Logprobs


class _Generated(msgspec.Struct):
    choices: list[_Choice]


class _Parsed(msgspec.Struct):
    message: dict[str, Any]


class Derendered(msgspec.Struct):
    """What ``derender`` answers, as far as it is used."""

    choices: list[_Parsed]


class Detokenized(msgspec.Struct):
    """What ``detokenize`` answers."""

    prompt: str


class _Wrong(Exception):
    def __init__(self, problem: RouteProblem) -> None:
        super().__init__(problem.words)
        self.problem = problem


async def check_routes(post: Post, model: str, *, sample: bool) -> RouteProblem | None:
    """Render one message, sample one token, and turn it into a message again. Returns the first problem.

    ``model``: the served name. Without ``sample`` no token is sampled, which a replica without weights cannot do:
    ``generate`` then gets a body that it has to refuse with 400 or 422, and the last rendered id is turned into a
    message. Whatever ``post`` raises is passed on.
    """
    try:
        await _check(post, model, sample)
    except _Wrong as wrong:
        return wrong.problem
    return None


async def _check(post: Post, model: str, sample: bool) -> None:
    chat = {"model": model, "messages": _MESSAGES}
    prompt = (await _ask(post, RENDER, chat, Rendered)).token_ids
    if not prompt:
        raise _Wrong(RouteProblem(RENDER, 200, "no token_ids"))
    reply = await _sampled(post, model, prompt) if sample else prompt[-1:]
    if not sample:
        await _refuses(post, {"model": model})
    choice = {"index": 0, "token_ids": reply, "finish_reason": "length"}
    body = {
        "model": model,
        "generate_response": {"request_id": "check", "choices": [choice]},
        "chat_request": chat,
    }
    if not (await _ask(post, DERENDER, body, Derendered)).choices:
        raise _Wrong(RouteProblem(DERENDER, 200, "no choices"))


async def _sampled(post: Post, model: str, prompt: Sequence[int]) -> list[int]:
    parameters = {"max_tokens": 1, "temperature": 0.0, "logprobs": 0}
    body = {"model": model, "token_ids": prompt, "sampling_params": parameters, "stream": False}
    choices = (await _ask(post, GENERATE, body, _Generated)).choices
    if not choices or len(choices[0].token_ids) != 1 or len(choices[0].logprobs.content) != 1:
        raise _Wrong(RouteProblem(GENERATE, 200, "not one token_id with its log-probability"))
    return choices[0].token_ids


async def _refuses(post: Post, body: Mapping[str, Any]) -> None:
    status, text = await post(GENERATE, body)
    if status not in (400, 422):
        raise _Wrong(RouteProblem(GENERATE, status, _words(text)))


async def _ask(post: Post, route: str, body: Mapping[str, Any], kind: type[T]) -> T:
    status, text = await post(route, body)
    if status != 200:
        raise _Wrong(RouteProblem(route, status, _words(text)))
    try:
        return decode_json(text, type=kind)
    except BAD_JSON as error:
        raise _Wrong(RouteProblem(route, status, f"{error}: {_cut(text)}")) from None


def _words(text: str) -> str:
    """The message of an error's body, in OpenAI's or FastAPI's form."""
    try:
        body = decode_json(text)
        error = body.get("error", body.get("detail"))
        said = error.get("message") if isinstance(error, dict) else error
    except (AttributeError, *BAD_JSON):
        said = None
    return _cut(said if isinstance(said, str) and said else text)


def _cut(text: str) -> str:
    line = " ".join(text.split()).rstrip(".") or "nothing"
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
