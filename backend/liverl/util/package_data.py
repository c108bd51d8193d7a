"""Reads files that are part of an installed package: whoever can change them can change the program."""

from __future__ import annotations

from importlib import resources


def package_text(package: str, *parts: str) -> str:
    """Return the text of a file of ``package``, such as ``package_text("liverl.config", "profiles", "toy.yaml")``.

    Raises:
        FileNotFoundError: the package has no such file.
    """
    return resources.files(package).joinpath(*parts).read_text("utf-8")
