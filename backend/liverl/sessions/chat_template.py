"""A model's chat template, rendered in this process as engines do: in Jinja's sandbox, in the dialect of transformers.

A template is a program of whoever made the model. The sandbox keeps it from files and attributes; nothing keeps it from
taking long, so that it is rendered here only after an engine has rendered it (``token_probes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from liverl.util.jinja_dialect import environment


class TemplateFailed(Exception):
    """The template cannot be read, or does not render a conversation here; the text says why."""


def _raise(message: object) -> None:
    raise TemplateFailed(f"it refuses the conversation: {str(message)[:300]}")


class ChatTemplate:
    """One template. ``variables``: the special tokens that it may use."""

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        """Raises:
        TemplateFailed: Jinja cannot read it, or is not installed.
        """
        self._variables = dict(variables)
        try:
            self._template = environment(_raise, datetime.now).from_string(text)
            # Jinja makes a copy of them in each rendering: of a ``ChainMap`` that takes several times as long.
            self._template.globals = dict(self._template.globals)
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
