"""config.yaml -> RunConfig: layers, checks, secrets, and which package uses which key. Reads only the files named by
the caller, by ``file:`` values and the packaged profiles.

The names below are imported when they are first used: the interface and short commands need one small module of this
package, and all of it (with the parser of YAML, the checks and the engines) would take a fifth of their start."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liverl.config.consumers import inert_keys
    from liverl.config.dump import dump_yaml, redacted, shown_yaml
    from liverl.config.env_vars import liverl_environment
    from liverl.config.errors import ConfigError, Problem, Where
    from liverl.config.load import load_config, packaged_defaults
    from liverl.config.loaded import LoadedConfig
    from liverl.config.profiles import list_profiles
    from liverl.config.resolve import resolved, run_directory, run_root
    from liverl.config.schema import RunConfig, leaves, value_of
    from liverl.config.secrets import Secrets
    from liverl.config.sections.run import EnvironmentEntry

__all__ = [
    "ConfigError",
    "EnvironmentEntry",
    "LoadedConfig",
    "Problem",
    "RunConfig",
    "Secrets",
    "Where",
    "dump_yaml",
    "inert_keys",
    "leaves",
    "list_profiles",
    "liverl_environment",
    "load_config",
    "packaged_defaults",
    "redacted",
    "resolved",
    "run_directory",
    "run_root",
    "shown_yaml",
    "value_of",
]

# Module of this package -> the names of ``__all__`` that it defines
_NAMES = {
    "consumers": ("inert_keys",),
    "dump": ("dump_yaml", "redacted", "shown_yaml"),
    "env_vars": ("liverl_environment",),
    "errors": ("ConfigError", "Problem", "Where"),
    "load": ("load_config", "packaged_defaults"),
    "loaded": ("LoadedConfig",),
    "profiles": ("list_profiles",),
    "resolve": ("resolved", "run_directory", "run_root"),
    "schema": ("RunConfig", "leaves", "value_of"),
    "secrets": ("Secrets",),
    "sections.run": ("EnvironmentEntry",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name of ``__all__``.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
