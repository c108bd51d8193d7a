"""The pages of the documentation site, laid out for MkDocs: ``python -m kit.site_tree FOLDER`` (in ``tests/``).

The pages are those of ``docs/`` and what they link to in the rest of the repository. Links are written anew, since
pages of other folders stand below ``project/``, ``examples/`` and ``files/``; ``docs/commands.md`` becomes a page for
each command and one of all options, and the catalogue of causes a page for each program. Nothing else is changed: what
a forge shows is what the site shows.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

from kit import cause_pages, command_pages
from kit.command_pages import ROOT
from kit.mentions import papers

LEFT_OUT = ("news/", "skills/")  # of the papers; these are no user's
COMMANDS = "docs/commands.md"
OWN = ("site/site.css", "site/site.js")  # style and script of the site, which no page links to
# How much a page counts in the search, by the beginning of its place (1 is usual): who asks comes for a guide, and
# 1,500 causes hold every word.
BOOST = {
    "guides/your-agent": 6.3,  # before others' agents, whose guides have the word as often
    "guides/": 6.0,
    "concepts/": 4.0,
    "start": 6.0,
    "install": 8.0,
    "interface": 2.0,
    "diagnosis": 6.0,
    "own-run": 2.0,
    "reference/exit-codes": 6.0,
    "reference/alerts": 1.5,
    "reference/commands/options": 0.02,  # for their names: its headings hold common words
    "reference/commands/": 2.0,
    "reference/configuration": 2.0,
    "reference/causes/": 0.02,
    "project/security": 6.0,  # before `project/`: who asks whether it is safe
    "project/": 0.2,
    "tests/": 0.02,
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.M | re.S)
_CODE = re.compile(r"`[^`]+`")
_SPAN = re.compile(r"(`[^`]+`)")  # as _CODE, kept by `split`
# The name of a page in a sentence: not in code, nor in a link
_NAMED = re.compile(r"(?<![\w/.(\[`])docs/[\w-]+\.md\b(?![`\]#)])|(?<=[^\]]\()docs/[\w-]+\.md(?=\)|, )")
_OPTION = re.compile(r"(?:^|(?<=[ ,/]))--?[a-z][\w-]*")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) ")


def place(path: str) -> str:
    """Where a file of the repository stands on the site: ``docs/start.md`` -> ``start.md``."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md") and "/" not in path:
        return f"project/{path.lower()}"
    if path.endswith("/README.md"):
        return path.removesuffix("README.md") + "index.md"
    return path if path.endswith(".md") else f"files/{path}"


def tree() -> dict[str, str | Path]:
    """Place on the site -> text of a page, or the file to copy."""
    found: dict[str, str | Path] = {}
    queue = [page for page in papers() if page != COMMANDS and not page.startswith(LEFT_OUT)]
    seen = set(queue)
    while queue:
        page = queue.pop()
        text, linked = moved(page, (ROOT / page).read_text("utf-8"))
        found[place(page)] = as_markdown(text)
        for other in sorted(linked - seen):
            seen.add(other)
            if other.endswith(".md"):
                queue.append(other)
            else:
                found[place(other)] = ROOT / other
    found |= {name: ROOT / "docs" / name for name in OWN}
    made = {**command_tree(), **cause_pages.pages()}
    found |= {name: as_markdown(text) for name, text in made.items()}
    return {name: boosted(name, content) for name, content in found.items()}


def boosted(name: str, content: str | Path) -> str | Path:
    """A page with how much it counts in the search; any other file as it is."""
    boost = next((value for start, value in BOOST.items() if name.startswith(start)), None)
    if boost is None or isinstance(content, Path):
        return content
    return f"---\nsearch:\n  boost: {boost:g}\n---\n{content}"


def write(folder: Path) -> None:
    """Write the tree to ``folder``, which is emptied first if it holds an earlier one.

    Raises:
        OSError: a file cannot be written.
        ValueError: the folder holds something else.
    """
    mark = folder / "index.md"
    if folder.exists() and any(folder.iterdir()) and not mark.is_file():
        raise ValueError(f"{folder} is not empty, and holds no site")
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in tree().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, target)
        else:
            target.write_text(content, "utf-8")


# -- links


def moved(page: str, source: str, at: str = "") -> tuple[str, set[str]]:
    """A page with its links as the site needs them, and the files of the repository that it links to. ``at``: its
    place, if that is not its own."""
    here = at or place(page)
    linked: set[str] = set()

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if target.startswith(("https://", "http://", "#")):
            return match[0]
        name, _, anchor = target.partition("#")
        goal = os.path.normpath(f"{PurePosixPath(page).parent}/{name}")
        if (ROOT / goal).is_dir():
            goal = f"{goal}/README.md"
        if not (ROOT / goal).is_file():
            return words  # a folder without a page
        words = titled(words)
        if goal == COMMANDS:
            return f"[{words}]({relative(here, _of_command(anchor))})"
        if goal.startswith(LEFT_OUT):
            return words
        linked.add(goal)
        return f"{picture}[{words}]({relative(here, place(goal))}{'#' + anchor if anchor else ''})"

    parts = _BLOCK.split(source)  # those at odd places are blocks of code
    shown = (part if at % 2 else _LINK.sub(link, named(part, page)) for at, part in enumerate(parts))
    return "".join(shown), linked


def named(text: str, page: str) -> str:
    """``text`` with a link where it names a page by its file: a reader of the site has no ``docs/own-run.md``."""
    up = "../" * page.count("/")
    return _NAMED.sub(lambda name: f"[{titled(name[0])}]({up}{name[0]})", text)


def titled(words: str) -> str:
    """The title of a page in place of the name of its file; anything else as it is."""
    if not _NAMED.fullmatch(words) or not (ROOT / words).is_file():
        return words
    return (ROOT / words).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def relative(page: str, target: str) -> str:
    """A link from one page of the site to a place on it."""
    name, found, anchor = target.partition("#")
    return os.path.relpath(name, PurePosixPath(page).parent) + found + anchor


def _of_command(anchor: str) -> str:
    """The place of a command by its anchor in ``docs/commands.md``: ``rules-test`` is on the page of ``rules``."""
    for one in command_pages.commands():
        if one.anchor == anchor:
            return _place_of(one)
    return f"{command_pages.FOLDER}/index.md"


def _place_of(one: command_pages.Command) -> str:
    top, inner, _ = one.words.partition(" ")
    return f"{command_pages.FOLDER}/{top}.md" + (f"#{one.anchor}" if inner else "")


# -- pages that are made here


def command_tree() -> dict[str, str]:
    """A page for each command, with those of its own below it, and a page that lists all."""
    found = command_pages.commands()
    index = f"{command_pages.FOLDER}/index.md"
    rows = [
        f"| [`{one.words}`]({relative(index, _place_of(one))}) | {command_pages.cell(one.short)} |"
        for one in found
    ]
    head, _ = moved(COMMANDS, command_pages.HEAD, index)
    made = {index: head + "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"}
    made[f"{command_pages.FOLDER}/options.md"] = options_page(found)
    for top in (one for one in found if " " not in one.words):
        own = [one for one in found if one.words.startswith(f"{top.words} ")]
        here = f"{command_pages.FOLDER}/{top.words}.md"
        first, *others = [moved(COMMANDS, command_pages.section(one), here)[0] for one in (top, *own)]
        made[f"{command_pages.FOLDER}/{top.words}.md"] = first.lstrip().removeprefix("#") + "".join(others)
    return made


def options_page(of: tuple[command_pages.Command, ...]) -> str:
    """All options by their names, each with its meanings and the commands that have it: who reads ``--since`` in a
    script does not know of which command it is."""
    here = f"{command_pages.FOLDER}/options.md"
    meanings: dict[str, dict[str, list[command_pages.Command]]] = {}
    for one in of:
        for term, text in one.terms:
            if names := _OPTION.findall(term):
                title = ", ".join(sorted(names, key=len, reverse=True))
                meanings.setdefault(title, {}).setdefault(text, []).append(one)
    parts = [
        "# Options\n\nEvery option, and the commands that have it. The page of a command lists its own: "
        f"[Commands]({relative(here, f'{command_pages.FOLDER}/index.md')}).\n"
    ]
    for title, texts in sorted(meanings.items(), key=lambda item: item[0].lstrip("-")):
        rows = [
            f"| {', '.join(f'[`{one.words}`]({relative(here, _place_of(one))})' for one in having)} "
            f"| {command_pages.cell(text)} |"
            for text, having in texts.items()
        ]
        parts.append("\n".join([f"\n## {title}\n", "| of | meaning |", "|---|---|", *rows]) + "\n")
    return "".join(parts)


# -- Markdown of forges, to that of MkDocs


def as_markdown(source: str) -> str:
    """The same page for Python-Markdown: an empty line before a list, no backslash before a bar within code, and an
    entity for ``\\<``, which it would show with its backslash."""
    parts = _BLOCK.split(source)
    return "".join(part if at % 2 else _lines(part) for at, part in enumerate(parts))


def _lines(text: str) -> str:
    made: list[str] = []
    for line in text.split("\n"):
        if _ITEM.match(line) and made and made[-1] and not _in_list(made):
            made.append("")
        line = "".join(
            part if at % 2 else part.replace("\\<", "&lt;") for at, part in enumerate(_SPAN.split(line))
        )
        made.append(
            _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        )
    return "\n".join(made)


def _in_list(made: list[str]) -> bool:
    """Whether the paragraph that the lines end with is an entry of a list."""
    for line in reversed(made):
        if not line:
            return False
        if _ITEM.match(line):
            return True
    return False


if __name__ == "__main__":
    write(Path(sys.argv[1]))
