"""The packaged default file and profiles. A profile is a layer between the defaults and the user's own file."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from liverl.config.errors import ConfigError, Problem, Where
from liverl.util.nearest import did_you_mean

DEFAULT_FILE = "default.yaml"
LIVERL_PROFILE = "liverl-gen1"  # the profile for files with LiveRL's runtime_info.input


def _package() -> Traversable:
    return resources.files("liverl.config")


def list_profiles() -> tuple[str, ...]:
    """The names that ``--profile`` takes, sorted."""
    entries = (_package() / "profiles").iterdir()
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
    return (_package() / "profiles" / f"{name}.yaml").read_text("utf-8")


def default_text() -> str:
    """The YAML of ``default.yaml``, which has every key with its default and an explanation."""
    return (_package() / DEFAULT_FILE).read_text("utf-8")
