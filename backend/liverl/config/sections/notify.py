"""The section ``notify`` of config.yaml: notifications of a run, also while no interface is open.

``default.yaml`` contains every default and explains every key with its unit.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from liverl.config.sections.value_types import Name, NotifySeconds

NotifyEvent = Literal["failed", "stalled", "alert", "done", "stopped", "resumed"]
NotifyLevel = Literal["info", "warning", "critical"]


class NotifyTarget(Struct, frozen=True, kw_only=True):
    """Who is told: exactly one of the keys is set. ``command``: a program and its arguments. ``webhook`` and
    ``apprise``: ``file:`` and the path of a file with a secret: an address, or a configuration of apprise."""

    command: tuple[Name, ...] | None = None
    webhook: str = ""
    apprise: str = ""


class Notify(Struct, frozen=True, kw_only=True):
    """``notify``: the targets, of which events they are told, from which severity of an alert on, and the seconds that
    one delivery may take."""

    targets: tuple[NotifyTarget, ...]
    events: tuple[NotifyEvent, ...]
    min_level: NotifyLevel
    timeout: NotifySeconds
