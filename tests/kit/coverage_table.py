"""What finds each known failure: ``python -m kit.coverage_table``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

FILE = Path(__file__).parents[1] / "data" / "known_failures.toml"
# B and R, T, V: LiveRL's documentation; P: vLLM and its peers; E: verl
KNOWN = {"B": 26, "R": 22, "T": 20, "V": 7, "P": 40, "E": 58}


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``by``: signatures, ``rule:`` of diagnose, ``check:`` of a module; ``line``: what is printed; ``unseen``: why
    nothing finds it."""

    symptom: str
    by: tuple[str, ...] = ()
    line: str = ""
    unseen: str = ""

    def named(self, kind: str) -> tuple[str, ...]:
        """The rules or checks of ``by`` without their prefix; for kind "" the signatures."""
        if not kind:
            return tuple(name for name in self.by if ":" not in name)
        return tuple(name.removeprefix(f"{kind}:") for name in self.by if name.startswith(f"{kind}:"))


def failures() -> dict[str, Failure]:
    """By id, in the order of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text()), dict[str, Failure])


def table() -> list[str]:
    """One line per failure: id, what finds it or why nothing does, symptom."""
    return [
        f"{name:4} {', '.join(one.by) or '- ' + one.unseen}  |  {one.symptom}"
        for name, one in failures().items()
    ]


if __name__ == "__main__":
    found = failures()
    unseen = sum(not one.by for one in found.values())
    print(*table(), f"{len(found)} failures, {len(found) - unseen} found, {unseen} excused", sep="\n")
