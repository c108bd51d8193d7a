"""Converts records of a trajectory file to turns: messages, calls and results.

A record of LiteLLM's recorder contains the whole conversation so far, one of the sessions what is new in it, see
``sessions.joined_turns``. New messages of a request, the results of the last calls, belong to the previous turn.
Conversations of one trial (sub-agents have their own) are distinguished by their common messages.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from liverl.engines.tool_formats import resembling
from liverl.observe.trials.message_parts import Part, answer_message, loads, message_parts, same_message
from liverl.observe.trials.moments import number, whole
from liverl.observe.trials.record_forms import parse_record
from liverl.observe.trials.session_facts import SessionTally, TurnSession
from liverl.observe.trials.tools_offered import in_request
from liverl.sessions.joined_turns import JoinedTurns, reply_json
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder
from liverl.util.plural import quantity

_CONVERSATIONS = 8  # maximum conversations distinguished at a time
_LATE = "its request is not known: it could not be written at its time, and its reply was kept by the session"
_record = JsonDecoder(dict[str, msgspec.Raw])
_messages = JsonDecoder(list[msgspec.Raw])


class Turn(msgspec.Struct, frozen=True):
    """One call of the model. Times are Unix seconds, durations seconds; None if unknown."""

    number: int  # from 1
    success: bool = True
    abandoned: bool = False  # its client disconnected before the response
    before: tuple[Part, ...] = ()  # parts of the request not shown by an earlier turn
    answer: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()  # new parts of the next request: results, messages
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float | None = None
    started_at: float | None = None
    replica: str | None = None
    moved_from: str | None = None
    model: str | None = None
    judged: bool = True  # there is a response in which calls could be counted
    recorded: bool = True  # there is a response at all
    stream: bool = False
    offered: bool | None = None  # its request offers tools; None: not known
    follows: int | None = None  # number of the turn that it continues: what it adds is that one's ``after``
    note: str = ""  # irregularities of its conversation
    resembles: tuple[str, ...] = ()  # titles of similar tool-call formats, if no call was parsed
    offset: int = 0  # offset of its record in the file
    size: int = 0
    overridden: tuple[
        str, ...
    ] = ()  # sampling parameters of which it asked for another value than the trainer's
    kind: str = ""  # of its row: main, rewrite, sub or hidden; empty if it went through no session
    late: bool = False  # recorded at the session's end: it may stand behind turns that came after it
    opens: bool = False  # the first turn of its row
    # A prompt made of text would have broken its row: the text of the reply before has other ids
    healed: bool = False

    @property
    def calls(self) -> int:
        """Number of tool calls."""
        return sum(part.kind == "call" for part in self.answer)

    @property
    def raw(self) -> str:
        """The model's output, if it looks like a tool call but none was parsed; otherwise empty."""
        return self.written if self.resembles else ""

    @property
    def written(self) -> str:
        """Text and reasoning written by the model."""
        return "\n".join(part.text for part in self.answer if part.kind in ("text", "reasoning"))


class _Conversation:
    __slots__ = ("messages", "names", "turn")

    def __init__(self, messages: list[bytes], turn: int, names: dict[str, str]) -> None:
        self.messages = messages  # messages of its newest request
        self.turn = turn  # index of the newest turn
        self.names = names  # tool names by call id


_NO_ANSWER = "its answer is not recorded: what the model wrote, and whether it called a tool, is not known"


class TurnBuilder:
    """Takes records in the order of the file. ``turns``: the trajectory so far; ``session``: what they say of the
    trial's session; ``bad``: number of invalid records."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.session = SessionTally()
        self.bad = 0
        self._conversations: list[_Conversation] = []  # least recently used first
        self._joined = JoinedTurns()

    def add(self, line: bytes, offset: int) -> None:
        """Add one line of ``litellm-trajectory.jsonl``."""
        size = len(line)
        head, usual, _, _ = parse_record(line, 0, size)
        line = bytes(usual)
        record = _fields(line)
        if record is None or "success" not in record:
            self.bad += bool(line.strip())
            return
        success = loads(bytes(record["success"])) is True
        request = _fields(bytes(record.get("request_body", b"{}"))) or {}
        index = len(self.turns)
        response = _value(record, "response_body")
        message, finish = answer_message(response)
        session = head.session if head is not None else None
        messages, missing = self._whole(session, _request_messages(request), response, message)
        before: list[Part] = []
        follows: int | None = None
        if session is not None and session.late:
            conversation, note = _Conversation([], index, {}), _LATE
        else:
            conversation, before, note, follows = self._join(messages, index)
        if missing:
            note = f"{missing} earlier messages are not known: the record of an earlier turn is damaged or was removed"
        answer = message_parts(message, conversation.names)
        if success and message is None:
            note = "; ".join(filter(None, (note, _NO_ANSWER)))
        failure = _value(record, "failure")
        if failure is not None or not success:
            answer.append(Part("error", _failure_text(failure)))
        turn = Turn(
            number=index + 1,
            success=success,
            abandoned=head is not None and head.abandoned,
            before=tuple(before),
            answer=tuple(answer),
            finish_reason=finish,
            prompt_tokens=_prompt_tokens(record),
            completion_tokens=(head.completion_tokens if head is not None else None) if success else None,
            seconds=_seconds(record),
            started_at=head.started_at if head is not None else None,
            replica=head.replica if head is not None else None,
            moved_from=_text(_value(record, "moved_from")),
            model=_text(_value(request, "model")),
            judged=success and message is not None,
            recorded=not success or message is not None,
            stream=_value(record, "stream") is True,
            offered=_offered(line, session),
            follows=follows,
            note=note,
            offset=offset,
            size=size,
            overridden=overridden_names(_value(record, "overridden")),
            kind=session.kind if session is not None else "",
            late=session is not None and session.late,
            opens=session is not None and session.opens,
            healed=session is not None and self.session.healed_by(session),
        )
        self.session.add(session, turn.completion_tokens or 0)
        self.turns.append(_judged(turn))

    def _whole(
        self,
        session: TurnSession | None,
        messages: list[bytes],
        response: object,
        message: dict[str, Any] | None,
    ) -> tuple[list[bytes], int]:
        """Return (the messages of a request whose record has ``messages``, how many of them no record has)."""
        if session is None or session.shared is None:
            return messages, 0
        answer = response.get("id") if isinstance(response, dict) else None
        reply = None if message is None else reply_json(message)
        answer = answer if isinstance(answer, str) else ""
        joined = self._joined.add(answer, session.after, session.shared, messages, reply)
        if not joined.missing:
            return joined.messages, 0
        # In the place of those that are missing, so that the turns behind them continue each other.
        unknown = json.dumps({"role": "unknown", "lost": joined.lost, "messages": joined.missing}).encode()
        continued = any(each.messages[:1] == [unknown] for each in self._conversations)
        return [unknown, *joined.messages], 0 if continued else joined.missing

    def _join(self, messages: list[bytes], index: int) -> tuple[_Conversation, list[Part], str, int | None]:
        """Return (the conversation that a request continues, its parts not shown by a turn, irregularities, the number
        of the turn that it continues)."""
        best, shared = None, 0
        for conversation in reversed(self._conversations):
            count = _common(conversation.messages, messages)
            if count == len(conversation.messages) > 0:
                best, shared = conversation, count
                break
            if count > shared:
                best, shared = conversation, count
        if best is not None and shared == len(best.messages):
            self._follow(best, messages[shared:])
            follows = best.turn + 1
            self._conversations.remove(best)
            best.messages, best.turn = messages, index
            self._conversations.append(best)
            return best, [], "", follows
        names: dict[str, str] = dict(best.names) if best is not None else {}
        parts = [part for raw in messages[shared:] for part in message_parts(loads(raw), names)]
        note = ""
        if best is not None:
            kept = (
                f"the first {shared} of the {quantity(len(best.messages), 'message')} of turn {best.turn + 1}"
            )
            others = len(messages) - shared
            note = f"the agent has rewritten the conversation: it repeats {kept}, then has {quantity(others, 'other')}"
        elif self.turns:
            note = f"a separate conversation of {quantity(len(messages), 'message')}"
        conversation = _Conversation(messages, index, names)
        self._conversations = [*self._conversations, conversation][-_CONVERSATIONS:]
        return conversation, parts, note, None

    def _follow(self, conversation: _Conversation, messages: list[bytes]) -> None:
        """Add the new parts of a request to the turn before it."""
        turn = self.turns[conversation.turn]
        decoded = [loads(raw) for raw in messages]
        if decoded and turn.judged and isinstance(decoded[0], dict) and decoded[0].get("role") == "assistant":
            del decoded[0]  # its own reply, sent back
        if decoded:
            parts = [part for message in decoded for part in message_parts(message, conversation.names)]
            self.turns[conversation.turn] = msgspec.structs.replace(turn, after=(*turn.after, *parts))


def _offered(line: bytes, session: TurnSession | None) -> bool | None:
    if session is not None and (session.late or session.offered is not None):
        return session.offered
    return in_request(line, 0, len(line))


def overridden_names(value: object) -> tuple[str, ...]:
    """The parameters in the ``overridden`` of a record or of a result, with the values that were asked for."""
    return tuple(str(name) for name in value) if isinstance(value, dict) else ()


def turns_of_messages(messages: list[Any]) -> list[Turn]:
    """Return the turns of a plain conversation, as in ``proxy_trajectory.json``: only the messages are known."""
    turns: list[Turn] = []
    names: dict[str, str] = {}
    before: list[Part] = []
    for message in messages:
        parts = tuple(message_parts(message, names))
        if isinstance(message, dict) and message.get("role") == "assistant":
            turns.append(_judged(Turn(number=len(turns) + 1, before=tuple(before), answer=parts)))
            before = []
        elif turns:
            turns[-1] = msgspec.structs.replace(turns[-1], after=(*turns[-1].after, *parts))
        else:
            before += parts
    return turns or ([Turn(number=1, before=tuple(before), judged=False)] if before else [])


def _judged(turn: Turn) -> Turn:
    if turn.calls or not turn.judged:
        return turn
    return msgspec.structs.replace(turn, resembles=tuple(f.title for f in resembling(turn.written)))


def _request_messages(request: dict[str, msgspec.Raw]) -> list[bytes]:
    """Return the undecoded messages of a request; Anthropic's system prompt comes first."""
    try:
        messages = [bytes(raw) for raw in _messages.decode(bytes(request.get("messages", b"[]")))]
    except BAD_JSON:
        messages = []
    system = _value(request, "system")
    if system:
        messages.insert(0, json.dumps({"role": "system", "content": system}).encode())
    for key in ("prompt", "unparsed"):
        if not messages and isinstance(text := _value(request, key), str):
            messages = [json.dumps({"role": "user", "content": text}).encode()]
    return messages


def _common(a: list[bytes], b: list[bytes]) -> int:
    """Return the number of equal leading messages of two requests."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if not same_message(x, y):
            break
        count += 1
    return count


def _fields(data: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the undecoded values of a JSON object; None if it is not one."""
    try:
        return _record.decode(data)
    except BAD_JSON:
        decoded = loads(data)
        return _record.decode(msgspec.json.encode(decoded)) if isinstance(decoded, dict) else None


def _value(fields: dict[str, msgspec.Raw], key: str) -> Any:
    raw = fields.get(key)
    return None if raw is None else loads(bytes(raw))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _seconds(record: dict[str, msgspec.Raw]) -> float | None:
    took = number(_value(record, "duration_ms"))
    return None if took is None else took / 1000


def _prompt_tokens(record: dict[str, msgspec.Raw]) -> int | None:
    usage = _value(record, "usage")
    if not isinstance(usage, dict):
        response = _fields(bytes(record.get("response_body", b"null")))
        usage = _value(response, "usage") if response else None
    if not isinstance(usage, dict):
        return None
    if (count := whole(usage.get("prompt_tokens"))) is not None:
        return count
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [n for key in keys if (n := whole(usage.get(key))) is not None]
    return sum(counts) if counts else None


def _failure_text(failure: object) -> str:
    if not isinstance(failure, dict):
        return "the request failed" if failure is None else str(failure)
    kind, status = failure.get("error_type"), failure.get("status_code")
    head = " ".join(str(x) for x in (kind, f"HTTP {status}" if status else None) if x)
    return (
        f"{head}: {failure.get('message') or 'no message'}"
        if head
        else str(failure.get("message") or "failed")
    )
