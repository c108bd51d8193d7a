"""The report of an attempt as one HTML page that needs nothing else: no script, no file beside it, no network. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from liverl.model import StepTrials
from liverl.observe.trials.ending_words import counted_endings, endings_of
from liverl.util.visible import visible

MOST_STEPS = 500  # rows of the table of steps; the newest ones
_STYLE = (
    "body{font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;max-width:900px;margin:2em auto;"
    "padding:0 1em;color:#222;background:#fff}h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em}"
    "code{background:#f2f4f7;padding:0 .25em;overflow-wrap:anywhere}li{overflow-wrap:anywhere}"
    "pre{background:#f2f4f7;padding:.6em;overflow-x:auto}pre code{padding:0}svg{max-width:100%;height:auto}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td:last-child,th:last-child{text-align:left}"
)
_CODE = re.compile(r"(`[^`\n]+`)")
# No resource is loaded from anywhere, and no script runs, whatever the texts of logs hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: str, charts: str = "", steps: Sequence[StepTrials] = (), older: int = 0) -> str:
    """The page. ``report``: as ``diagnose.report`` writes it, Markdown of headings, lists, fences and code; ``charts``:
    an SVG, or empty; ``steps``: counts of the trials of each step, the newest first, without ``older`` ones."""
    title = report.partition("\n")[0].lstrip("# ")
    head, _, rest = report.partition("\n## ")
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
        *_blocks(head),
    ]
    if charts:
        parts += ["<h2>Metrics</h2>", charts]
    parts += _steps(steps, older)
    if rest:
        parts += _blocks(f"## {rest}")
    return "\n".join([*parts, "</body></html>\n"])


def _blocks(text: str) -> Iterator[str]:
    """The HTML of a piece of Markdown: what a report has of it."""
    depth = 0  # of the list that is open
    fence: list[str] | None = None
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith("```"):
            if fence is None:
                fence = []
            else:
                yield f"<pre><code>{_text(chr(10).join(fence), lines=True)}</code></pre>"
                fence = None
            continue
        if fence is not None:
            fence.append(line)
            continue
        item = bare.startswith("- ")
        wanted = (len(line) - len(line.lstrip(" "))) // 2 + 1 if item else 0
        while depth > wanted:
            yield "</ul>"
            depth -= 1
        while depth < wanted:
            yield "<ul>"
            depth += 1
        if item:
            yield f"<li>{_inline(bare[2:])}</li>"
        elif bare.startswith("#"):
            level = min(3, len(bare) - len(bare.lstrip("#")))
            yield f"<h{level}>{_inline(bare.lstrip('# '))}</h{level}>"
        elif bare:
            yield f"<p>{_inline(bare)}</p>"
    if fence:
        yield f"<pre><code>{_text(chr(10).join(fence), lines=True)}</code></pre>"
    yield from ["</ul>"] * depth


def _inline(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(f"<code>{_text(p[1:-1])}</code>" if i % 2 else _text(p) for i, p in enumerate(parts))


def _text(text: str, *, lines: bool = False) -> str:
    return escape(visible(text, lines=lines))


def _steps(steps: Sequence[StepTrials], older: int) -> Iterator[str]:
    if not steps:
        return
    yield "<h2>Trials</h2>"
    heads = ("step", "trials", "done", "call tools", "mean reward", "trained", "ended by")
    yield f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
    for step in steps[:MOST_STEPS]:
        reward = "-" if step.mean_reward is None else f"{step.mean_reward:.3f}"
        calling = f"{step.judged - step.zero_tool_calls}/{step.judged}" if step.judged else "-"
        words = counted_endings(endings_of(step)) or "-"
        trained = str(step.trained) if step.endings else "-"
        cells = (str(step.step), str(step.total), str(step.finished), calling, reward, trained, words)
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"
    listed = min(len(steps), MOST_STEPS)
    if (every := len(steps) + older) > listed:
        yield (
            f"<p>The newest {listed} of {every} steps. <code>liverl-tui trials steps --step N</code> sums up an "
            "older one.</p>"
        )
