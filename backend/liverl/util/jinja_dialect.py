"""The dialect of chat templates: Jinja in its sandbox, as transformers sets it up (``utils/chat_template_utils.py``).

It imports nothing of ours, and Jinja only within: ``preflight/template_program.py`` loads it by its path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

_OF_DICT = frozenset(dir(dict))


def environment(refuse: Callable[[object], None], now: Callable[[], datetime]) -> Any:
    """A new environment of Jinja. ``refuse``: called with what a template says by ``raise_exception``; ``now``: for
    ``strftime_now``.

    Raises:
        ImportError: jinja2 is not installed.
    """
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` of transformers: marks what the model writes."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            """The statements within, as they are."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Environment(ImmutableSandboxedEnvironment):
        """Jinja looks for ``message.role`` among the attributes of a dict first, whose error takes ten times as long as
        the item. A plain dict has the attributes of its class, and no others."""

        def getattr(self, obj: Any, attribute: str) -> Any:
            """See the sandbox."""
            if type(obj) is dict and attribute not in _OF_DICT:
                try:
                    return obj[attribute]
                except KeyError:
                    return self.undefined(obj=obj, name=attribute)
            return super().getattr(obj, attribute)

    made = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: now().strftime(form)
    return made


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
