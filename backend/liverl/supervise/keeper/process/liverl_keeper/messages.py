"""Requests and their values, each checked before it is used; answers."""

import json

TYPE_CHECKING = False  # to type checkers it is that of typing, which takes 0.6 MiB
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]
else:
    Record = dict

MAX_NAME = 200  # characters of a token or of a listening socket's name
MAX_ERROR = 1000  # characters of an error in an answer


def request_in(line: bytes) -> Record:
    """The request in a line. Raises ValueError, TypeError or RecursionError if there is none."""
    request = json.loads(line)
    if not isinstance(request, dict):
        raise TypeError(f"expected a JSON object, found {type(request).__name__}")
    return request


def line_of(message: Record) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"


def refusal(error: Exception) -> Record:
    """The answer to a request that has caused an error."""
    text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
    return {"error": text, "errno": getattr(error, "errno", None)}


def found(value: object) -> str:
    """What a value is, for an error."""
    return "nothing" if value is None else type(value).__name__


def text_in(request: Record, key: str) -> str:
    """A text of a request. Raises ValueError if it is something else."""
    value = request.get(key)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{key}: expected a text without null characters, found {found(value)}")
    return value


def name_in(request: Record, key: str) -> str:
    """A token, or the name of a listening socket: also the name of a file. Raises ValueError if it cannot be one."""
    value = text_in(request, key)
    if not 0 < len(value) <= MAX_NAME or not value.isascii() or not value.isprintable():
        raise ValueError(
            f"{key}: expected 1 to {MAX_NAME} printable ASCII characters, found {value[:MAX_NAME]!r}"
        )
    if "/" in value or value.startswith("."):
        raise ValueError(f"{key}: expected a name without '/' that does not begin with '.', found {value!r}")
    return value


def texts_in(request: Record, key: str) -> dict[str, str]:
    """A copy of an object of texts; empty if it is missing. Raises ValueError if it is something else."""
    value = request.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, found {found(value)}")
    return {name: text_in(value, name) for name in value}


def argv_in(request: Record) -> list[str]:
    """The command of a request. Raises ValueError if it is none."""
    value = request.get("argv")
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError("argv: expected a list of at least one text")
    return value


def umask_in(request: Record) -> int | None:
    """The umask of a request; None if there is none: older backends send none. Raises ValueError if it is no mode."""
    value = request.get("umask")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777):
        return value
    raise ValueError(f"umask: expected a number from 0 to {0o777}, found {value!r}"[:200])
