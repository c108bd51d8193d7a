"""Answers of a program that is asked the same again and again: it is started for the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from liverl.preflight import chat_template
from liverl.preflight.chat_template import Template

_ANSWERS: dict[bytes, list[Any]] = {}
_render = chat_template._render


def templates_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a check starts the program that renders chat templates only for what no test of this process has
    asked it before. Errors are not kept. Who tests the program itself does not use this."""

    def rendered(template: Template, conversations: Sequence[Mapping[str, Any]]) -> list[Any]:
        asked = msgspec.json.encode((template.text, template.variables, conversations))
        if asked not in _ANSWERS:
            _ANSWERS[asked] = _render(template, conversations)
        return _ANSWERS[asked]

    monkeypatch.setattr(chat_template, "_render", rendered)
