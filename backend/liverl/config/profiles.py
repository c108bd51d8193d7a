"""The packaged files: the defaults, those that are others with one trainer, and profiles. A profile is a layer between
the defaults and the user's own file."""

from __future__ import annotations

from importlib import resources

from liverl.config.errors import ConfigError, Problem, Where
from liverl.util.nearest import did_you_mean
from liverl.util.package_data import package_text

DEFAULT_FILE = "default.yaml"
_PACKAGE = "liverl.config"
LIVERL_PROFILE = "liverl-gen1"  # the profile for files with LiveRL's runtime_info.input


def list_profiles() -> tuple[str, ...]:
    """The names that ``--profile`` takes, sorted."""
    entries = resources.files(_PACKAGE).joinpath("profiles").iterdir()
    return tuple(
        sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))
    )


def profile_text(name: str) -> str:
    """The YAML of a packaged profile.

    Raises:
        ConfigError: there is no profile of that name.
    """
    names = list_profiles()
    if name not in names:
        hint = did_you_mean(name, names)
        raise ConfigError(
            [Problem(Where("--profile"), name, "unknown profile", allowed=", ".join(names), hint=hint)]
        )
    return package_text(_PACKAGE, "profiles", f"{name}.yaml")


def trainer_text(kind: str) -> str:
    """The YAML with the defaults that are others where ``trainer.kind`` is ``kind``; "" if none is."""
    try:
        return package_text(_PACKAGE, "trainers", f"{kind}.yaml")
    except FileNotFoundError:
        return ""


def default_text() -> str:
    """The YAML of ``default.yaml``, which has every key with its default and an explanation."""
    return package_text(_PACKAGE, DEFAULT_FILE)
