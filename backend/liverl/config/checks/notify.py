"""Rules between configuration keys about notification targets. An address is a secret: it is never shown, and only a
file may hold it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from liverl.config.checks.ruleset import Finding, RuleSet
from liverl.config.schema import RunConfig
from liverl.config.secrets import FILE_SCHEME
from liverl.config.sections.notify import NotifyTarget
from liverl.util import redact

RULES = RuleSet()
_rule = RULES.rule

_KINDS = "one of command, webhook, apprise"
_FORM = "file:/path or file:~/path"


@_rule("notify.targets")
def _targets(c: RunConfig) -> Iterator[Finding]:
    for number, target in enumerate(c.notify.targets):
        key = f"notify.targets[{number}]"
        given = [name for name in NotifyTarget.__struct_fields__ if getattr(target, name) not in (None, "")]
        if len(given) != 1:
            yield Finding(
                key, "names no target" if not given else "names several targets", ", ".join(given), _KINDS
            )
        elif target.command is not None:
            yield from _command(f"{key}.command", target.command)
        else:
            yield from _file(f"{key}.{given[0]}", getattr(target, given[0]))
        if target in c.notify.targets[:number]:
            yield Finding(key, "given twice: it would get each message twice")


def _command(key: str, words: tuple[str, ...]) -> Iterator[Finding]:
    if not words:
        yield Finding(key, "names no program", "[]", "a program and its arguments")
        return
    addresses = [word for word in words if "://" in word and not word.startswith("file://")]
    if addresses or redact.command(words) != words:
        yield Finding(
            key,
            "an address or a key in it could be read in the process list, and would be saved with the run",
            "a value (not shown)",
            hint="let the program read it from a file; for an address that takes JSON: {webhook: file:/path}",
        )


def _file(key: str, value: str) -> Iterator[Finding]:
    if not value.startswith(FILE_SCHEME):
        hint = "put the address into a file that only you can read (chmod 600), and name that"
        yield Finding(
            key,
            "the address is a secret, and would be saved with the run",
            "a value (not shown)",
            _FORM,
            hint,
        )
    elif not (os.path.isabs(path := value.removeprefix(FILE_SCHEME)) or path.startswith("~/")):
        yield Finding(key, "the file must have an absolute path", f"'{value}'", _FORM)
