"""The documentation site: its pages are laid out as they link to each other, and it is built without a warning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from kit import site_links, site_search, site_tree
from kit.command_pages import ROOT
from kit.mentions import papers

PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
MADE = re.compile(r"studio\.save\(f?\"([\w-]+?)(?:-\{size[^\"]*)?\"")


def test_links_are_written_anew_for_other_folders() -> None:
    source = (
        "[a](../README.md#keys) [b](commands.md#rules-test) [c](../config.yaml) [d](interface.md#screens) "
        "![e](../screenshots/logs.svg) [f](../examples/gsm8k) [g](../schemas) [h](https://x.example/y)\n"
        "```sh\n[a](../README.md)\n```\n"
    )
    text, linked = site_tree.moved("docs/start.md", source)
    assert text == (
        "[a](project/readme.md#keys) [b](reference/commands/rules.md#rules-test) [c](files/config.yaml) "
        "[d](interface.md#screens) ![e](files/screenshots/logs.svg) [f](examples/gsm8k/index.md) g [h](https://x.example/y)\n"
        "```sh\n[a](../README.md)\n```\n"
    )
    assert linked == {
        "README.md",
        "config.yaml",
        "docs/interface.md",
        "screenshots/logs.svg",
        "examples/gsm8k/README.md",
    }


def test_a_forges_markdown_becomes_that_of_the_site() -> None:
    source = "Text:\n- one\n  two\n- three\n\n| a |\n|---|\n| `x\\|y` |\n```\nText:\n- kept\n```\n"
    assert site_tree.as_markdown(source) == source.replace(":\n- one", ":\n\n- one").replace("\\|", "|")


def test_every_picture_of_a_page_is_made_by_the_studio() -> None:
    names = set(MADE.findall((ROOT / "screenshots" / "make.py").read_text("utf-8")))
    shown = [
        (page, Path(target).stem)
        for page in papers()
        for target in PICTURE.findall((ROOT / page).read_text("utf-8"))
    ]
    assert len(shown) > 5
    made = {*names, *(f"{name}-{size}" for name in names for size in ("80x24", "120x40", "200x50"))}
    assert [(page, name) for page, name in shown if name not in made] == []


def test_every_weight_of_the_search_is_of_some_page() -> None:
    pages = [name for name, text in site_tree.tree().items() if isinstance(text, str)]
    assert [start for start in site_tree.BOOST if not any(name.startswith(start) for name in pages)] == []
    for guide, other in (
        ("guides/watch.md", "reference/causes/ray.md"),
        ("install.md", "project/changelog.md"),
    ):
        weights = [
            float(str(site_tree.boosted(name, "x")).split("boost: ")[1].split()[0]) for name in (guide, other)
        ]
        assert weights[0] > 10 * weights[1], "a guide comes before pages that hold every word"


def test_wrong_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h1 id="top"></h1>')
    (tmp_path / "index.html").write_text(
        '<a href="a/"></a><a href="a/#top"></a><a href="a/#under"></a><a href="b/"></a><a href="https://x.example/"></a>'
        '<script src="https://x.example/y.js"></script><link rel="canonical" href="https://x.example/">'
    )
    assert list(site_links.problems(tmp_path)) == [
        "index.html: a/#under (no such heading)",
        "index.html: b/",
        "index.html: loads https://x.example/y.js",
    ]


@pytest.mark.skipif(find_spec("material") is None, reason="the extra docs is not installed")
def test_it_is_built_without_a_warning_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """As ``.ci/docs`` does, and without a network: every name of a host is refused."""
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        config.replace("docs_dir: build/docs", "docs_dir: pages")
        .replace("site_dir: build/site", "site_dir: site")
        .replace("hooks: [", f"hooks: [{ROOT}/")
    )
    site_tree.write(tmp_path / "pages")
    offline = (
        "import socket\ndef refuse(*a, **k): raise OSError('no network here')\nsocket.getaddrinfo = refuse\n"
    )
    (tmp_path / "sitecustomize.py").write_text(offline)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(tmp_path / "mkdocs.yml")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr[-4000:]
    assert list(site_links.problems(tmp_path / "site")) == []
    assert (tmp_path / "site" / "search" / "search_index.json").is_file()
    (worker,) = (tmp_path / "site").glob("assets/javascripts/workers/search.*.js")
    assert '.id+","' in worker.read_text("utf-8"), "words with numbers are exchanged for others"
    page = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert all(f'"{name}"' in page and (tmp_path / "site" / name).is_file() for name in site_tree.OWN)
    shutil.rmtree(tmp_path / "site")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("docs/agents.md lists", "[Agents that watch a run](../agents.md) lists"),
        ("variables (docs/agents.md).", "variables ([Agents that watch a run](../agents.md))."),
        ("[docs/agents.md](../agents.md), b", "[Agents that watch a run](../agents.md), b"),
        ("[a](../agents.md), b", "[a](../agents.md), b"),
        ("`docs/agents.md`", "`docs/agents.md`"),
    ],
)
def test_a_page_that_is_named_by_its_file_is_a_link_with_its_title(source: str, shown: str) -> None:
    assert site_tree.moved("docs/guides/daily.md", source)[0] == shown


def test_an_angle_bracket_has_no_backslash_outside_of_code() -> None:
    assert site_tree.as_markdown("\\<run_root\\>/ `\\<`\n") == "&lt;run_root\\>/ `\\<`\n"


@pytest.mark.parametrize(
    ("source", "corrected"),
    [
        ("for(;i<n;i++){var s=r[i],o=this.edges[s];e=e+s+o.id}", 'e=e+s+","+o.id+","}'),
        ("e=e+s+o.id;f=f+s+o.id", None),
        ("e=e+s+o.name", None),
    ],
)
def test_states_of_the_search_are_told_apart_or_the_build_fails(source: str, corrected: str | None) -> None:
    if corrected is None:
        with pytest.raises(ValueError, match="expected 1"):
            site_search.told_apart(source)
    else:
        assert site_search.told_apart(source).endswith(corrected)
