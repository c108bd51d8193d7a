"""A model's chat template, rendered in this process as engines do: in Jinja's sandbox, in the dialect of transformers.

A template is a program of whoever made the model. The sandbox keeps it from files and attributes; nothing keeps it from
taking long, so that it is rendered here only after an engine has rendered it (``token_probes``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


class TemplateFailed(Exception):
    """The template cannot be read, or does not render a conversation here; the text says why."""


def _raise(message: object) -> None:
    raise TemplateFailed(f"it refuses the conversation: {str(message)[:300]}")


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` of transformers: marks what the model writes."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> list[nodes.Node]:
            """The statements within, as they are."""
            next(parser.stream)
            within: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return within

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


class ChatTemplate:
    """One template. ``variables``: the special tokens that it may use."""

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        """Raises:
        TemplateFailed: Jinja cannot read it, or is not installed.
        """
        self._variables = dict(variables)
        try:
            self._template = _environment().from_string(text)
        except ImportError as error:
            raise TemplateFailed(f"jinja2 is not installed in this environment: {error}") from None
        except Exception as error:  # noqa: BLE001 - a syntax that Jinja does not have, or too deep a nesting
            raise TemplateFailed(f"Jinja cannot read it: {type(error).__name__}: {error}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, generation: bool
    ) -> str:
        """The text of a conversation. ``generation``: up to where a reply begins.

        Raises:
            TemplateFailed: the template does not render it, such as one that includes another file.
        """
        try:
            text: str = self._template.render(
                messages=messages,
                tools=tools or None,
                documents=None,
                add_generation_prompt=generation,
                **self._variables,
            )
        except TemplateFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            raise TemplateFailed(f"{type(error).__name__}: {error}"[:400]) from None
        return text
