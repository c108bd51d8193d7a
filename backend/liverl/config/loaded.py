"""What a configuration is once it was read: its values, and where they come from."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from liverl.config.schema import RunConfig
from liverl.config.secrets import Secrets


class LoadedConfig(Struct, frozen=True):
    """A configuration and where its values come from.

    ``origins``: dotted key -> ``file:line``, ``--set`` or ``env NAME``, for values that differ from the default.
    ``user_origins``: the same for values that the user set and that differ from default and profile.
    ``source``: the layers, for the user. ``kept``: LiveRL's ``meta_info``, ``output`` and the like, which
    configure nothing (``dump_yaml`` writes them back). ``secrets`` are stored only here.
    """

    config: RunConfig
    origins: dict[str, str]
    user_origins: dict[str, str]
    warnings: tuple[str, ...]
    source: str
    profile: str
    kept: dict[str, Any]
    secrets: Secrets
    file: str = ""  # the path given to load_config; "" = none
    # Key of the schema -> where the user has given its value (file:line, --set, env NAME), also one equal to the
    # default. None: not known, as for runs of earlier versions.
    given: dict[str, str] | None = None
