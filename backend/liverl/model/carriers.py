"""What carries the trials: LiteLLM, the sessions, or sessions in verl's workers."""

from typing import Literal, NamedTuple

import msgspec

from liverl.model.times import UnixTime

# What carries the trials: a service of this kind and name, which is LiteLLM (``proxy``) or the sessions, or sessions
# inside verl's agent-loop workers, which are no service (topology in_process).
Carrier = Literal["proxy", "sessions", "workers"]


class CarrierWords(NamedTuple):
    """What carries the trials, in sentences. ``name``: ``the proxy``; ``whose``: ``the proxy's``."""

    name: str
    whose: str
    has: str
    is_: str
    ending: str  # of a verb behind the name
    keeps_list: bool = True  # new trials use the replicas of a list of its own; else verl chooses among all

    def does(self, verb: str) -> str:
        """``the proxy routes``, ``the sessions route``. ``verb``: without an ending."""
        return f"{self.name} {verb}{self.ending}"


CARRIER_WORDS: dict[Carrier, CarrierWords] = {
    "proxy": CarrierWords("the proxy", "the proxy's", "has", "is", "s"),
    "sessions": CarrierWords("the sessions", "the sessions'", "have", "are", ""),
    "workers": CarrierWords(
        "verl's agent-loop workers", "verl's agent-loop workers'", "have", "are", "", keeps_list=False
    ),
}
# Why nothing in front of the replicas can be restarted where verl's workers carry the trials.
IN_WORKERS = "the sessions run inside verl's agent-loop workers; restart the trainer to restart them"


class Clients(msgspec.Struct, frozen=True):
    """The connections to a port that agents use, as its process counts them. ``without_key``: those on which no valid
    key was sent; ``peer``: the address with most of these, ``of_peer`` of them; ``dropped``: closed so far, of which
    ``dropped_of_peer`` came from ``dropped_peer`` without a key; ``turned_away``: that found no room;
    ``descriptors``: files and connections that the process has open, of ``descriptor_limit``."""

    connections: int = 0
    without_key: int = 0
    peer: str = ""
    of_peer: int = 0
    dropped: int = 0
    dropped_peer: str = ""
    dropped_of_peer: int = 0
    turned_away: int = 0
    descriptors: int = 0
    descriptor_limit: int = 0


class ProxyStatus(msgspec.Struct, frozen=True):
    """The proxy as its clients see it: one address for the whole run, whichever process serves there."""

    address: str | None = None
    backends: tuple[str, ...] = ()  # API bases to which the serving generation routes
    config: str | None = None  # path of the generated LiteLLM config, relative to the run directory
    generation: int = 0
    requests: int | None = None  # request records read so far
    failures: int | None = None
    unattributed: int = 0  # requests that named no trial
    refused: int = 0  # requests without a valid key
    unknown: int = 0  # requests for models that the proxy does not have
    unknown_models: tuple[str, ...] = ()  # names of those models, as living proxy processes report them
    cooled_down: tuple[str, ...] = ()  # API bases in cooldown after failures
    too_large: int = 0  # requests with more than proxy.max_body_bytes
    unrecorded: int = 0  # requests whose record could not be written to their trial
    turned_away: int = 0  # connections and requests that failed because no descriptor was left for them
    dropped: int = 0  # connections closed because their client sent no request, or did not read its response
    descriptors: int | None = None  # files and connections that the serving process has open ...
    descriptor_limit: int | None = None  # ... and may have open
    record_error: str | None = None  # why the last record could not be written
    clients: Clients | None = None  # of the serving process


class SilentSession(msgspec.Struct, frozen=True):
    """An open session without a request. ``id``: the name of its trial; ``since``: Unix seconds of its last request or
    reply, or of its opening; ``begun``: it has had a reply."""

    id: str
    since: UnixTime
    begun: bool = True


class TokenRoute(msgspec.Struct, frozen=True):
    """Who makes the tokens of the prompts of a model that the sessions carry.

    ``route``: ``checking`` before the first comparison: the replicas make them; ``sessions``; ``replicas``, and
    ``why``. ``differs``: the sessions' tokens were other ones than the replica's: where, and the first such token.
    ``prompts``: made by the sessions and not compared; ``compared``: made by both. Of the turns that were in question
    at a difference ``doubted`` are of trials that went on: they are not trained; ``ended`` of trials that had ended:
    the trainer has their rows."""

    model: str
    route: Literal["checking", "sessions", "replicas"] = "checking"
    why: str = ""
    differs: str = ""
    prompts: int = 0
    compared: int = 0
    doubted: int = 0
    ended: int = 0


class SessionProcessEnd(msgspec.Struct, frozen=True):
    """One of several processes of the sessions has ended by itself, and is started again. ``process``: its number, from
    1, of ``of``; ``how``: a signal's name or an exit code; ``since``: Unix seconds of its end; ``sessions``: open ones
    that it had, as it last said; ``reopened``: that its successor has found in the journals, None until then."""

    process: int
    of: int
    how: str
    since: UnixTime
    sessions: int = 0
    reopened: int | None = None


class SessionsStatus(msgspec.Struct, frozen=True):
    """What records trials as tokens, as its agents see it: a service, or hosts in verl's agent-loop workers.
    ``counters``: sums over all sessions of the run (``liverl.sessions.counters``); one that is missing is 0."""

    address: str | None = None  # of the service, or of the only worker
    workers: tuple[str, ...] = ()  # URLs of the hosts in verl's workers
    generation: int = 0
    open: int = 0  # sessions that have not ended
    finished: int = 0
    waiting: int = 0  # requests whose replies are being sampled
    backends: tuple[str, ...] = ()  # URLs of the replicas that new sessions may use
    counters: dict[str, int | float] = {}
    silent: tuple[SilentSession, ...] = ()  # those that have been without a request for longest, at most 8
    error: str | None = None  # why it keeps an older list of replicas, or which of its processes is down
    clients: Clients | None = None  # of the agents' port; of several workers the one with most without a key
    tokenizers: tuple[TokenRoute, ...] = ()  # of each model; none where the replicas make all tokens
    # Of several processes those that ended by themselves in this generation, the newest last, at most 8
    process_ends: tuple[SessionProcessEnd, ...] = ()

    @property
    def requests(self) -> int:
        """Requests of agents so far: answered, answered together with an equal one, and failed."""
        return self._sum("num_calls", "num_joined", "num_failed")

    @property
    def limited(self) -> int:
        """Requests that were refused because their trial had all its turns, tokens or context: no failure."""
        return self._sum("refused_turns", "refused_no_tool", "context_overflow")

    @property
    def failed(self) -> int:
        """Requests that failed: no replica answered them, or they were refused for another reason than such a limit."""
        return max(0, self._sum("num_failed") - self.limited)

    def _sum(self, *names: str) -> int:
        return sum(int(self.counters.get(name, 0)) for name in names)


class Traffic(msgspec.Struct, frozen=True):
    """What the service that carries the trials says of itself. ``backends``: URLs of the replicas that new trials may
    use; ``requests`` and ``failures``: of agents so far, None if they are not counted."""

    address: str | None
    backends: tuple[str, ...]
    requests: int | None
    failures: int | None
