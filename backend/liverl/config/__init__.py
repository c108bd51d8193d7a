"""config.yaml -> RunConfig: layers, checks, secrets, and which package uses which key. Reads only the files named by
the caller, by ``file:`` values and the packaged profiles."""

from liverl.config.consumers import consumers, inert_keys
from liverl.config.dump import dump_yaml, redacted, shown_yaml
from liverl.config.env_vars import liverl_environment
from liverl.config.errors import ConfigError, Problem, Where
from liverl.config.load import load_config
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
    "consumers",
    "dump_yaml",
    "inert_keys",
    "leaves",
    "list_profiles",
    "liverl_environment",
    "load_config",
    "redacted",
    "resolved",
    "run_directory",
    "run_root",
    "shown_yaml",
    "value_of",
]
