"""Renders a chat template, as a program of its own: ``python -I template_program.py SECONDS < request > answer``.

A template is a program of whoever made the model. It is rendered in Jinja's ``ImmutableSandboxedEnvironment``, as
engines do, and in a process without variables that can be ended: it has so many seconds of CPU time, ``_MEMORY`` and
``_MOST`` characters, and writes no file. Request: ``{"template", "variables", "conversations"}``, JSON; answer: one
``{"text", "error", "kind"}`` for each conversation. Of ours it
imports the dialect of templates only (``util/jinja_dialect``), by its path.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
from datetime import datetime
from typing import Any

_MEMORY = 1 << 30  # bytes of address space
_MOST = 1 << 18  # characters of a rendered conversation


class Refused(Exception):
    """The template refuses a conversation (``raise_exception``)."""


class TooLong(Exception):
    """It writes more than ``_MOST`` characters."""


def _limit(cpu_seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _raise(message: object) -> None:
    raise Refused(str(message)[:300])


def _environment() -> Any:
    """That of ``util/jinja_dialect``, from its file: a process with ``-I`` may not find our package."""
    path = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "util", "jinja_dialect.py"
    )
    spec = importlib.util.spec_from_file_location("liverl_jinja_dialect", path)
    assert spec is not None and spec.loader is not None
    dialect = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dialect)
    return dialect.environment(_raise, lambda: datetime(2026, 1, 1))


def _rendered(template: Any, variables: dict[str, Any]) -> str:
    pieces, size = [], 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST:
            raise TooLong
    return "".join(pieces)


def answer(request: dict[str, Any]) -> list[dict[str, str]]:
    """One answer for each conversation of ``request``. ``kind``: "" if it was rendered; ``unsafe``, ``too long``,
    ``syntax``, ``refused``, ``failed``."""
    from jinja2.exceptions import SecurityError, TemplateSyntaxError

    conversations = request["conversations"]
    try:
        template = _environment().from_string(request["template"])
    except TemplateSyntaxError as error:
        return [_failure(f"line {error.lineno}: {error.message}", "syntax")] * len(conversations)
    except (RecursionError, MemoryError, OverflowError):
        return [_failure("", "too long")] * len(conversations)
    answers = []
    for conversation in conversations:
        try:
            text = _rendered(template, {**request["variables"], **conversation})
            answers.append({"text": text, "error": "", "kind": ""})
        except SecurityError as error:
            answers.append(_failure(str(error), "unsafe"))
        except (TooLong, MemoryError, RecursionError, OverflowError):
            answers.append(_failure("", "too long"))
        except Refused as error:
            answers.append(_failure(str(error), "refused"))
        except Exception as error:  # noqa: BLE001 - a template may raise anything, and it is told
            answers.append(_failure(f"{type(error).__name__}: {error}", "failed"))
    return answers


def _failure(error: str, kind: str) -> dict[str, str]:
    return {"text": "", "error": error[:300], "kind": kind}


if __name__ == "__main__":
    _limit(int(sys.argv[1]))
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin))))
