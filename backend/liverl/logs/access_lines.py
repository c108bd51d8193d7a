"""Recognizes access lines of HTTP servers about successful polls and model calls: the lines that nobody reads and that
a run writes by the thousand. Pure.

Failures (4xx, 5xx) and other requests, such as those that load weights, are no such lines: they are events, which views
show. Nor are they counted as traffic (``posts_in``).
"""

from __future__ import annotations

from functools import lru_cache

from liverl.util.late_pattern import late_pattern

# what health checks, scrapers and the list of models ask for, with sub-paths such as /health/liveliness
_POLLS = "health|healthz|ping|metrics|policy_version|version|load|v1/models|models|model/info|v1/model/info"
# what agents ask for, also behind a prefix such as /openai/deployments/NAME
# also those of the token routes that the sessions ask: text to tokens, and tokens to an answer
_CALLS = (
    r"chat/completions(?:/(?:de)?render)?|completions|messages|responses|embeddings|rerank|score|classify|tokenize"
    r"|detokenize|generate"
)
_LINE = late_pattern(
    r'"(?:GET|HEAD|POST|OPTIONS) '
    rf'(?:/(?:{_POLLS})(?:/[^\s?"]*)?|(?:/[^\s?"]*)?/(?:{_CALLS}))/?(?:\?[^\s"]*)?'
    r' HTTP/\d(?:\.\d)?" 2\d\d'
    # "OK", or size, referrer and client; what Ray appends to equal lines
    r"(?: [A-Z][A-Za-z -]{0,40}| [\d-]+(?: .{0,400})?)?(?: \[repeated \d+x across cluster\].*)?\s*$"
)
# Of the sessions (liverl.sessions): trials, and the trainer that opens and ends them. Any other request is an event.
_SESSIONS = late_pattern(
    r'"(?:GET|HEAD|POST|PUT) /(?:sess/[^\s?"]+|sessions(?:/[^\s?"]*)?|health|backends)/?(?:\?[^\s"]*)?'
    r' HTTP/\d(?:\.\d)?" 2\d\d, \d+\.\d+ s(?:; \d+ more succeeded before)?(?: \[repeated \d+x across cluster\].*)?\s*$'
)
_OF_SESSIONS = late_pattern(r"liverl-sessions: \S{1,80} $")
# With these a trainer moves weights, or puts an engine to sleep for it: they change a server, and no trial waits for an
# answer. As they begin: vllm/entrypoints/serve (0.24) and sglang/srt/entrypoints/http_server.py.
UPDATES = (
    *("/update_weight", "/init_weight", "/start_weight_update", "/finish_weight_update", "/destroy_weight"),
    *(
        "/sleep",
        "/wake_up",
        "/reset_",
        "/collective_rpc",
        "/flush_cache",
        "/pause",
        "/resume",
        "/continue_generation",
    ),
    *(
        "/release_memory_occupation",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/load_lora",
        "/unload_lora",
    ),
)
# By which a trainer opens and ends trials (liverl.sessions)
_TRAINERS = "/sessions"
_POST = b'"POST '
_UPDATES = tuple(_POST + route.encode() for route in (*UPDATES, _TRAINERS))
_DIGITS = b"0123456789"
_BARE_UPDATES = tuple((update.translate(None, _DIGITS), update) for update in _UPDATES)
_MARK = " HTTP/"
_HEAD = 400  # leading characters in which the request of every such line begins
_LONGEST = 600  # characters from there on


def may_have(text: str) -> bool:
    """Whether ``text``, of any number of lines, may hold a line about a request. Quick."""
    return _MARK in text


def lines_alike(block: bytes) -> set[bytes]:
    """The lines of a block without their digits: logs repeat few lines, but for their digits."""
    return {*block.translate(None, _DIGITS).split(b"\n")}


def line_kinds(block: bytes) -> bytes:
    """``lines_alike``, joined. What these lack, the block lacks; to ask them costs next to nothing."""
    return b"\n".join(lines_alike(block))


def posts_in(block: bytes, kinds: bytes) -> int:
    """How many requests of trials the access lines in these bytes tell of: all that POST, but for ``UPDATES`` and
    those of a trainer to sessions.
    ``kinds``: its ``line_kinds``."""
    if _POST not in kinds:
        return 0
    updates = sum(block.count(update) for bare, update in _BARE_UPDATES if bare in kinds)
    return block.count(_POST) - updates


def is_access_line(line: str) -> bool:
    """Whether a plain line is the access line of a poll or a model call that succeeded, in the format of uvicorn (vLLM,
    SGLang, LiteLLM), in the common log format, or in that of the sessions."""
    if _MARK not in line:
        return False
    quote = line.find('"', 0, _HEAD)
    if quote < 0 or len(line) - quote > _LONGEST:
        return False
    if line.endswith((" - ", "] "), 0, quote):
        return _succeeded(line[quote:])
    return bool(_OF_SESSIONS.search(line, 0, quote)) and _SESSIONS.match(line, quote) is not None


@lru_cache(maxsize=1024)
def _succeeded(request: str) -> bool:
    """Whether a line from its request on is that of a poll or model call that succeeded. Nearly all such lines are the
    same from there on."""
    return _LINE.match(request) is not None
