"""What looks like a secret on the screen is not in a picture of it."""

from __future__ import annotations

import html
import re

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

from liverl_tui.text.masked_svg import FONTS, masked, with_own_fonts

SECRET = "sk-ant-api03-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"


class Lines(App[None]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Static(self.text)


async def picture(text: str) -> tuple[str, str]:
    """The picture as Textual makes it, and without secrets."""
    app = Lines(text)
    async with app.run_test(size=(100, 10)) as pilot:
        await pilot.pause()
        whole = app.export_screenshot()
    return whole, masked(whole)


def words(svg: str) -> str:
    return html.unescape("".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg))).replace("\xa0", " ")


@pytest.mark.parametrize(
    "line",
    [
        f"ANTHROPIC_API_KEY={SECRET} was set",
        f"Authorization: Bearer {SECRET} & more",
        f"[bold]api_key[/]=[red]{SECRET[:20]}[/]{SECRET[20:]} in three colours",
        f"two: password={SECRET} and token={SECRET[::-1]}",
    ],
)
async def test_a_secret_is_stars_and_nothing_moves(line: str) -> None:
    whole, hidden = await picture(f"before\n{line}\nbehind <b>")
    assert SECRET in words(whole) and SECRET not in words(hidden) and SECRET[::-1] not in words(hidden)
    assert len(words(hidden)) == len(words(whole)) and "***" in words(hidden)
    assert "before" in words(hidden) and "behind <b>" in words(hidden)


async def test_a_picture_without_secrets_is_as_it_was() -> None:
    whole, hidden = await picture("step:5 - reward 0.25 <tag> & more")
    assert hidden == whole


async def test_a_picture_names_fonts_that_a_converter_finds() -> None:
    whole, _ = await picture("plain")
    families = set(re.findall(r"font-family:([^;}\n]+)", with_own_fonts(whole)))
    assert families == {f" {FONTS}"} and "DejaVu Sans Mono" in FONTS and FONTS.endswith(" monospace")
