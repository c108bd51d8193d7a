"""Harbor's tasks as trials: its settings, and the process in Harbor's own environment that runs them."""

from pathlib import Path


def runner_file() -> Path:
    """The program for Harbor's interpreter."""
    return Path(__file__).with_name("runner.py")


def local_environment_file() -> Path:
    """The package with our environment, for Harbor's interpreter, which imports it by this file."""
    return Path(__file__).with_name("local_environment") / "__init__.py"
