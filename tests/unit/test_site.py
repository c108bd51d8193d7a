"""The documentation site: its pages are laid out as they link to each other, and it is built without a warning."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from kit import command_pages, site_links, site_search, site_tree
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


def titles() -> dict[str, str]:
    """Place of each page of the site -> its heading."""
    pages = {name: text for name, text in site_tree.tree().items() if isinstance(text, str)}
    heads = {name: re.search(r"^# (.+)$", text, re.MULTILINE) for name, text in pages.items()}
    return {name: head[1] for name, head in heads.items() if head}


def in_navigation() -> list[tuple[str, str]]:
    """(title, page) of each entry that names both."""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    return re.findall(r"^ *- (?:\"(?=.*\":))?(.+?)\"?: ([\w/-]+\.md)$", nav, re.MULTILINE)


def test_the_navigation_names_each_page_by_its_title() -> None:
    entries = in_navigation()
    assert len(entries) > 40 and ("It failed: what now", "guides/it-failed.md") in entries
    heads = titles()
    assert [(title, heads[page]) for title, page in entries if heads[page] != title] == []


def test_every_option_has_an_entry_by_its_name() -> None:
    page = site_tree.command_tree()["reference/commands/options.md"]
    heads = " ".join(re.findall(r"^## (.+)$", page, re.MULTILINE)).replace(",", "").split()
    assert {"--like", "--since", "--all", "--resume-or-start", "-n"} <= set(heads)
    shown = {
        name
        for one in command_pages.commands()
        for term, _ in one.terms
        for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", term)
    }
    assert len(shown) > 80 and shown <= set(heads)


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


# What newcomers asked -> the page, or the part of one, that must come first.
ASKED = {
    "which verl version do I need": "install/#which-version",
    "my own agent": "guides/your-agent/",
    "bring your own agent": "guides/your-agent/",
    "custom agent": "guides/your-agent/",
    "how do I plug in my own agent": "guides/your-agent/",
    "step is slow": "guides/throughput/",
    "why is my step slow": "guides/throughput/",
    "slow from its first step": "guides/throughput/#the-run-was-slow",
    "reward jump": "guides/it-failed/#if-the-reward-rises-suddenly",
    "reward spike": "guides/it-failed/#if-the-reward-rises-suddenly",
    "reward hacking": "guides/it-failed/#if-the-reward-rises-suddenly",
    "api key judge": "guides/your-agent/#a-key-of-your-own",
    "host lost reboot": "guides/several-hosts/",
    "NCCL timeout": "guides/it-failed/#if-it-stops-with-an-nccl-timeout",
    "Watchdog caught collective operation timeout": "guides/it-failed/#if-it-stops-with-an-nccl-timeout",
    "no space left on device": "guides/it-failed/#if-the-disk-is-full",
    "agent_name": "own-run/#which-agent-runs-a-row",
    "diagnosis.mute": "reference/configuration/#diagnosismute",
    "launch script": "guides/verl-script/",
    "train.sh": "guides/verl-script/",
    "mute an alert": "diagnosis/#mute-an-alert",
    "image column": "guides/your-rows/",
    "overhead": "limits/",
    "license": "limits/#licence-license",
    "limitations": "limits/#limits",
    "alternatives": "limits/",
    "what was tested": "tested/",
    "is it safe": "project/security/#is-it-safe",
    "can others stop my run": "project/security/#another-user-of-the-host",
    "who can read my run": "project/security/#another-user-of-the-host",
    "phone home": "project/security/#what-leaves-the-machine",
    "are my keys written": "project/security/#secrets",
    "api keys written": "project/security/#secrets",
    "checkpoint size": "guides/slurm/#how-large-is-a-checkpoint",
    "how large is a checkpoint": "guides/slurm/#how-large-is-a-checkpoint",
    "checkpoint bytes per parameter": "guides/slurm/#how-large-is-a-checkpoint",
}
QUESTION = "how do I resume a run after it failed?"
# The search of a site as a browser does it: its own worker, asked through its own site.js. The best of each page first.
ASK = """
const fs = require("fs"), [site, ...queries] = process.argv.slice(1);
let asked, answer, listener;
globalThis.Worker = class {};
Worker.prototype.postMessage = (message) => { asked = message; };
globalThis.document = {addEventListener() {}};
globalThis.self = globalThis;
globalThis.addEventListener = (name, call) => { listener = call; };
globalThis.postMessage = (message) => { answer(message); };
const run = (file) => (0, eval)(fs.readFileSync(file, "utf8"));
run(`${site}/site/site.js`);
const folder = `${site}/assets/javascripts/workers`;
run(`${folder}/${fs.readdirSync(folder).find((name) => /^search\\..*\\.js$/.test(name))}`);
const ask = (data) => new Promise((done) => { answer = done; listener({data}); });
(async () => {
  const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf8"));
  await ask({type: 0, data: {...index, options: {suggest: false}}});
  const found = [];
  for (const query of queries) {
    Worker.prototype.postMessage({type: 2, data: query});
    const {data} = await ask(asked);
    found.push(data.items.flat().sort((a, b) => b.score - a.score).map((one) => one.location));
  }
  console.log(JSON.stringify(found));
})();
"""


def searched(node: str, site: Path, queries: list[str]) -> list[list[str]]:
    """The places that the search of a built site finds for each of the queries, the best first."""
    done = subprocess.run(
        [node, "-e", ASK, "--", str(site), *queries], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


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
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the search was not tried")
    found = searched(
        node, tmp_path / "site", ["--like", "--since", "--all", "--resume-or-start", "-n", QUESTION]
    )
    options = "reference/commands/options/"
    assert [places[0] for places in found] == [
        f"{options}#--like",
        f"{options}#--since",
        f"{options}#--all",
        f"{options}#--resume-or-start",
        f"{options}#--lines--n",
        "guides/it-failed/#4-go-on-resume-the-run-with-another-learning-rate-or-as-it-was",
    ]
    assert "guides/compare/#start-a-fair-second-run" in found[0], "a page that only names the option"
    first = {
        query: places[0]
        for query, places in zip(ASKED, searched(node, tmp_path / "site", [*ASKED]), strict=True)
    }
    assert {query: place for query, place in first.items() if not place.startswith(ASKED[query])} == {}
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


def test_words_that_are_not_found_weigh_in_the_search_or_the_build_fails() -> None:
    share = "let g=+!c.parent+Object.values(f).filter(l=>l).length/Object.keys(f).length;"
    source = share + "s.push(B({score:a*(1+K(g,2)),terms:f}))"
    assert f"score:a*(1+K(g,2))*K(g-!c.parent,{site_search.WEIGHT})," in site_search.all_words_first(source)
    with pytest.raises(ValueError, match="expected 1"):
        site_search.all_words_first("score:a*2")


@pytest.mark.parametrize(
    "source", ["", "e.push(new lunr.Token(g.slice(l,m).toLowerCase(),{position:o<<20}))"]
)
def test_a_search_that_cuts_words_otherwise_fails_the_build(source: str) -> None:
    with pytest.raises(ValueError, match="expected 1"):
        site_search.with_options(source)
