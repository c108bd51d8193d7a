"""The catalogue of causes as pages of the documentation site: one for each program, made when the site is built."""

from __future__ import annotations

from collections import defaultdict

from kit.command_pages import plain
from liverl.causes.catalogue import rows
from liverl.causes.signature import Signature

# What becomes of a line, for the reader of a page.
ROLES = {
    "cause": "a cause: it explains the end of its process",
    "waits": "its process waited for another one, which failed or was lost",
    "general": "what any program says; a more exact line beside it counts first",
    "consequence": "a consequence: look for the line before it",
}
FOLDER = "reference/causes"


def pages() -> dict[str, str]:
    """Place on the site -> text: the index, and a page for each program that prints lines."""
    by_program: dict[str, list[Signature]] = defaultdict(list)
    for row in rows():
        if row.role in ROLES:
            by_program[row.printer].append(row)
    return {
        f"{FOLDER}/index.md": _index(by_program),
        **{f"{FOLDER}/{name}.md": _page(name, found) for name, found in by_program.items()},
    }


def _index(by_program: dict[str, list[Signature]]) -> str:
    total = sum(map(len, by_program.values()))
    lines = [f"| [{name}]({name}.md) | {len(found)} |" for name, found in sorted(by_program.items())]
    return (
        "# Causes in logs\n\n"
        f"`liverl-tui doctor` and the alerts of a run explain {total} kinds of lines. A page lists those that one "
        "program prints, with what to do. `liverl-tui rules explain ID` shows one of them, and [rules of your "
        "own](../../diagnosis.md#rules-of-your-own) add to them.\n\n"
        "| program | kinds of lines |\n|---|---|\n" + "\n".join(lines) + "\n"
    )


def _page(program: str, found: list[Signature]) -> str:
    parts = [f"# Lines of {program}\n"]
    for row in sorted(found, key=lambda one: one.id):
        parts += [f"\n## {row.id}\n", f"**{plain(row.title)}**\n"]
        if row.cause:
            parts.append(f"{plain(row.cause)}\n")
        if row.fix:
            parts.append(f"*What to do:* {plain(row.fix)}\n")
        if row.command:
            parts.append(f"```text\n{row.command}\n```\n")
        parts.append(f"Such a line, {ROLES[row.role]}:\n\n```text\n{_example(row)}\n```\n")
    return "\n".join(parts)


def _example(row: Signature) -> str:
    """The line by which the row is tested; of a long one the beginning."""
    lines = (row.fires if isinstance(row.fires, str) else row.fires[0]).splitlines()
    shown = [line if len(line) <= 300 else line[:300] + " ..." for line in lines[:12]]
    return "\n".join(shown).replace("```", "'''")
