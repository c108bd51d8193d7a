"""Inference replicas, and what their engines say of themselves."""

import functools
from typing import Annotated

import msgspec

from liverl.model.services import ServiceState
from liverl.model.times import UnixTime

_MOMENTARY = msgspec.Meta(extra={"momentary": True})  # valid only at the time of the scrape
_INSIDE = msgspec.Meta(extra={"json": False})  # used by the backend only: not in the JSON of a replica
Gauge = Annotated[float | None, _MOMENTARY]
Inside = Annotated[float | None, _INSIDE]
InsideCount = Annotated[int | None, _INSIDE]
InsideGauge = Annotated[float | None, _MOMENTARY, _INSIDE]


class EngineFacts(msgspec.Struct, frozen=True):
    """The values of an engine's ``/metrics`` at one scrape. Counters (``*_total``) count from the engine's start.

    With several engines behind one server, values are sums; ``kv_cache_usage`` (0..1) is the mean, ``policy_version``
    the smallest. ``sleep_state``: ``awake``, ``weights_offloaded``, ``discard_all`` or ``asleep``.

    ``tool_calls_total`` only shows whether any answer contained a tool call: a streamed answer is counted once per
    chunk, and an answer on which the parser raised an exception is not counted.
    """

    running: Gauge = None  # requests
    waiting: Gauge = None  # requests
    kv_cache_usage: Gauge = None  # 0..1
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_cache_queries_total: Inside = None
    prefix_cache_hits_total: Inside = None
    request_success_total: float | None = None
    policy_version: Annotated[int | None, _MOMENTARY] = None  # the trainer changes it
    policy_digest: Annotated[str | None, _INSIDE] = None  # of the weights; engines of ours only
    # Of `vllm serve`: requests that can have changed its weights, by route, and the Unix time of the last one.
    weight_requests: Annotated[str | None, _INSIDE] = None
    weight_request_at: Inside = None
    sleep_state: Annotated[str | None, _MOMENTARY, _INSIDE] = None
    preemptions_total: Inside = None
    aborted_total: Inside = None
    errors_total: Inside = None
    admission_rejections_total: Inside = None
    corrupted_requests_total: Inside = None
    tool_calls_total: float | None = None  # answers in which the engine's parser found a tool call
    no_tool_calls_total: Inside = None
    updates_in_flight: InsideGauge = None  # weight updates
    sleeps_in_flight: InsideGauge = None  # transitions to sleep or back that are in progress
    # Of finished answers: seconds from the request to its last token, how many answers, and their tokens.
    answer_seconds_total: Inside = None
    answers_total: Inside = None
    answer_tokens_total: Inside = None
    actor_generate_total: Inside = None  # answers that did not come over HTTP; embedded replicas only
    kv_blocks: InsideCount = None
    kv_block_size: InsideCount = None  # tokens
    kv_tokens: InsideCount = None
    max_concurrency: float | None = None  # requests of maximum length in the KV cache; the least of engines
    # Rates over the last seconds, computed from the counters above.
    tokens_per_s: Gauge = None  # generated
    prefix_cache_hit_rate: Gauge = None  # 0..1: cached prompt tokens / prompt tokens looked up
    # Of the answers that were finished in the last minute: their number, and mean times from the request to the last
    # token, in seconds. None without such answers.
    answers: Gauge = None
    seconds_per_answer: Gauge = None
    seconds_per_token: Gauge = None

    def lasting(self) -> "EngineFacts":
        """Return these facts without gauges, rates and the policy version. Totals and sizes stay: they remain valid."""
        return msgspec.structs.replace(self, **dict.fromkeys(_marked(_MOMENTARY)))


@functools.cache
def _marked(mark: msgspec.Meta) -> tuple[str, ...]:
    fields = msgspec.structs.fields(EngineFacts)
    return tuple(field.name for field in fields if mark in getattr(field.type, "__metadata__", ()))


def published_facts() -> tuple[str, ...]:
    """The names of the engine facts that appear in the JSON of a replica: all but those that only the backend uses."""
    inside = _marked(_INSIDE)
    return tuple(name for name in EngineFacts.__struct_fields__ if name not in inside)


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One inference replica. In JSON the fields of ``engine`` are on the same level as the others (see
    ``snapshot_json``)."""

    name: str
    state: ServiceState
    address: str | None
    listed: bool  # the proxy routes new trials to it
    generation: int = 0
    restarts: int = 0
    gpus: tuple[str, ...] = ()
    engine: EngineFacts = EngineFacts()  # all None while it does not serve
    since: UnixTime | None = None
    stage: str | None = None
    progress: float | None = None
    kind: str = "managed"  # how it is started: managed, embedded, hybrid or standalone
    idle_for: float | None = None  # seconds for which it has been loaded but idle while there was work
    leaving: bool = False  # it gets no new trials, finishes the present ones and then exits
    why: str = ""  # a sentence for the user: why it is in this state
    pid: int | None = None  # of its Ray actor; None for a replica that is a service
    # asleep, waking, updating, serving or idle; only for a replica that the trainer puts to sleep
    activity: str | None = None
    activity_since: float | None = None
    # Digest of the weights that it reported instead of the trainer's, under the same version; until it is restarted.
    policy_changed: str | None = None
    node: str = ""  # its host, as in ``NodeStatus.name``; "" in a run on one host, or while it is on none


class ReplicaSet(msgspec.Struct, frozen=True):
    """The replicas of a run and how many of them are expected, ready, and listed at the proxy."""

    expected: int = 0
    ready: int = 0
    listed: int = 0
    items: tuple[ReplicaStatus, ...] = ()
