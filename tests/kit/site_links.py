"""Links of a built site: ``python -m kit.site_links FOLDER`` prints those that lead nowhere, and what a page would load
from another host, and exits with 1 if there are any."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself; links that a reader follows may lead to other hosts.
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        for name in ("href", "src", "data"):
            if (target := given.get(name)) and (name != "data" or tag == "object"):
                is_page = tag == "link" and given.get("rel") in ("canonical", "prev", "next")
                self.links.append((target, (tag, name) in LOADED and not is_page))


def problems(site: Path) -> Iterator[str]:
    """``page: link`` for each one that leads nowhere, or is loaded from another host."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site)
        for target, loaded in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    yield f"{where}: loads {target}"
                continue
            goal = path
            if parts.path:
                base = site if parts.path.startswith("/") else path.parent
                goal = (base / unquote(parts.path).lstrip("/")).resolve()
            if goal.is_dir():
                goal = goal / "index.html"
            if not goal.is_file():
                yield f"{where}: {target}"
            elif parts.fragment and goal in pages and unquote(parts.fragment) not in pages[goal].ids:
                yield f"{where}: {target} (no such heading)"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1]).resolve()))
    print(
        "\n".join(found)
        or f"{sum(1 for _ in Path(sys.argv[1]).rglob('*.html'))} pages, and every link leads somewhere"
    )
    sys.exit(bool(found))
