"""The page that holds the terminal, and the files that it loads, which are textual-serve's. Nothing comes from another
host."""

from __future__ import annotations

import html
from importlib.util import find_spec
from pathlib import Path

# Path below the token -> file of textual-serve, and its type.
FILES = {
    "textual.js": ("js/textual.js", "text/javascript"),
    "xterm.css": ("css/xterm.css", "text/css"),
    "font.ttf": ("fonts/RobotoMono-VariableFont_wght.ttf", "font/ttf"),
    "italic.ttf": ("fonts/RobotoMono-Italic-VariableFont_wght.ttf", "font/ttf"),
}
FOCUS = "focus.js"
# Keys go to the terminal as soon as it is there, and again when the window comes back: without a click first. It opens
# behind its font: textual.js measures the letters when it opens, and a fallback font has lower ones, with which the
# first change of the window's size would put the last rows out of sight.
FOCUS_SCRIPT = """\
const open = window.onload;
window.onload = async (event) => {
  await Promise.allSettled([document.fonts.load("14px 'Roboto Mono'")]);
  open?.call(window, event);
};
const terminal = () => document.querySelector("textarea.xterm-helper-textarea");
const focus = () => terminal()?.focus();
const begins = new MutationObserver(() => { if (terminal()) { begins.disconnect(); focus(); } });
begins.observe(document.documentElement, {childList: true, subtree: true});
window.addEventListener("focus", focus);
"""
# The page runs the scripts of this server only, talks to this server only, and cannot be framed.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' {websocket}; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="xterm.css">
<style>
@font-face {{ font-family: 'Roboto Mono'; src: url(font.ttf); font-weight: 100 700; }}
@font-face {{ font-family: 'Roboto Mono'; src: url(italic.ttf); font-weight: 100 700; font-style: italic; }}
html, body {{ margin: 0; height: 100%; background: #121212; color: #e0e0e0; font-family: 'Roboto Mono', monospace; }}
#terminal {{ width: 100vw; height: 100vh; }}
#closed {{ display: none; position: absolute; inset: 0; background: #121212; padding: 3em; }}
body.-closed #closed {{ display: block; }}
#closed a {{ color: #7cb8ff; }}
</style>
<script src="textual.js"></script>
<script src="focus.js"></script>
</head>
<body>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{websocket}" data-font-size="{size}"></div>
<div id="closed"><p>The interface was closed, or its server has ended. The run goes on.</p>
<p><a href="./">Open it again</a></p></div>
</body>
</html>
"""


def static_folder() -> Path | None:
    """Where textual-serve keeps its files; None if it is not installed."""
    spec = find_spec("textual_serve")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "static"


def page(title: str, websocket: str, size: int) -> str:
    """The page. ``websocket``: its URL; ``size``: of the letters, in pixels."""
    return _PAGE.format(title=html.escape(title), websocket=html.escape(websocket), size=size)
