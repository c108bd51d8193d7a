"""The themes can be read: by contrast, by people who see colours differently, and without any colour."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from kit.pilots import press
from kit.screens import FakeSource, settle, view
from rich.color import ColorSystem, ColorTriplet
from rich.style import Style
from textual.widgets import Input

from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dialogs import Quit, TypeName
from liverl_tui.text import themes
from liverl_tui.text.themes import (
    ANSI,
    COLOUR_BLIND,
    DARK,
    LIGHT,
    MONOCHROME,
    PALETTES,
    STYLES,
    Palette,
    resolve,
)
from liverl_tui.widgets.base.cells import Row, draw

DRAWN = (DARK, LIGHT, COLOUR_BLIND)  # those with colours of their own
NOT_TEXT = ("rule", "meter", "meter_off")
STATES = ("ok", "warn", "bad")


def linear(value: float) -> float:
    value /= 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour: ColorTriplet) -> float:
    return sum(w * linear(c) for w, c in zip((0.2126, 0.7152, 0.0722), colour, strict=True))


def contrast(a: ColorTriplet, b: ColorTriplet) -> float:
    """As WCAG 2 defines it: 1 to 21; 4.5 is wanted of text, 3 of signs."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def colours(style: Style, system: ColorSystem = ColorSystem.TRUECOLOR) -> tuple[ColorTriplet, ColorTriplet]:
    assert style.color is not None and style.bgcolor is not None
    return (
        style.color.downgrade(system).get_truecolor(),
        style.bgcolor.downgrade(system).get_truecolor(),
    )


@pytest.mark.parametrize("palette", DRAWN, ids=lambda p: p.name)
@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT], ids=["truecolor", "256"])
def test_everything_can_be_read_under_the_cursor_too(palette: Palette, system: ColorSystem) -> None:
    for name in STYLES:
        least = 4.5 if system is ColorSystem.TRUECOLOR else 4.0
        if name in NOT_TEXT or name.startswith("chart"):
            least = 1.1 if name in ("rule", "meter_off") else 3.0
        for style in (palette[name], palette.under_cursor(palette[name])):
            assert contrast(*colours(style, system)) >= least, (name, style)
    _, background = colours(palette["text"], system)
    _, cursor = colours(palette.under_cursor(palette["text"]), system)
    assert cursor != background, "the row under the cursor is seen"


# What people without one kind of cones see (Vienot, Brettel and Mollon 1999), on linear RGB.
BLINDNESS = {
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def lab(rgb: Sequence[float]) -> tuple[float, float, float]:
    """CIE L*a*b* of linear RGB: distances in it are distances to the eye."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)

    def f(t: float) -> float:
        return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116

    x, y, z = (
        f(max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True))) / w)
        for row, w in zip(matrix, white, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(style: Style, kind: str) -> tuple[float, float, float]:
    rgb = [linear(c) for c in colours(style)[0]]
    return lab([sum(m * c for m, c in zip(row, rgb, strict=True)) for row in BLINDNESS[kind]])


def apart(palette: Palette, kind: str) -> float:
    pairs = itertools.combinations((seen(palette[name], kind) for name in STATES), 2)
    return min(sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5 for pair in pairs)


@pytest.mark.parametrize("palette", DRAWN, ids=lambda p: p.name)
def test_names_of_services_are_in_no_colour_of_a_state(palette: Palette) -> None:
    """A green, amber or red name reads as a state."""
    for name in (name for name in STYLES if name.startswith("name")):
        for state in ("ok", "warn", "bad", "alarm"):
            one, other = (lab([linear(c) for c in colours(palette[style])[0]]) for style in (name, state))
            distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
            assert distance > 25 or state == "alarm", (name, state, distance)


@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_colour_blind_theme_keeps_states_apart(kind: str) -> None:
    assert apart(COLOUR_BLIND, kind) > 25
    assert apart(COLOUR_BLIND, kind) > 1.2 * apart(DARK, kind), "else there would be no need for it"


def test_the_terminals_colours_are_the_terminals() -> None:
    for name in STYLES:
        style = ANSI[name]
        for colour in (style.color, style.bgcolor):
            assert colour is None or colour.is_default or colour.number < 16, name
    assert ANSI.background.bgcolor is not None and ANSI.background.bgcolor.is_default


def test_without_colours_attributes_tell_what_must_be_told() -> None:
    for name in STYLES:
        style = MONOCHROME[name]
        assert all(c is None or c.is_default for c in (style.color, style.bgcolor)), name
    plain = MONOCHROME["text"]
    for name in ("strong", "title_focus", "warn", "bad", "alarm", "key", "match"):
        assert MONOCHROME[name] != plain, name
    assert MONOCHROME["warn"] != MONOCHROME["bad"]
    assert MONOCHROME.under_cursor(plain).reverse


@pytest.mark.parametrize("palette", [*DRAWN, ANSI, MONOCHROME], ids=lambda p: p.name)
def test_an_alarm_stays_an_alarm_under_the_cursor(palette: Palette) -> None:
    row = Row(("r0 ", "text"), ("not listed", "alarm"), cursor=True)
    _, alarm, rest = list(draw(row, 20, palette))
    assert alarm.style == palette["alarm"] and rest.style == palette.under_cursor(palette["text"])


def test_themes_by_name() -> None:
    assert resolve(None) == "liverl-dark" and resolve("light") == "liverl-light"
    assert resolve("textual-dark") == "liverl-dark" and resolve("liverl-ansi") == "liverl-ansi"
    assert [resolve("auto", system) for system in ("truecolor", "256", "standard", None)] == [
        "liverl-dark",
        "liverl-dark",
        "liverl-ansi",
        "liverl-ansi",
    ]
    with pytest.raises(KeyError):
        resolve("pink")
    names = [name := "liverl-dark", *(name := themes.following(name) for _ in range(4))]
    assert names[-1] == names[0] and set(names) == set(PALETTES)


@pytest.mark.parametrize("theme", [*PALETTES])
async def test_textuals_own_widgets_work_in_every_theme(theme: str) -> None:
    """Inputs, toasts and borders look things up in the theme."""
    app = LiverlApp(FakeSource(view=view()), theme=theme)
    async with app.run_test(notifications=True) as pilot:
        await settle(pilot)
        for severity in ("information", "warning", "error"):
            app.notifications.toast(f"a toast: {severity}", severity)  # type: ignore[arg-type]
        app.push_screen(Quit("liverl/first", "step 3/20"))
        await settle(pilot)
        await press(pilot, "escape")
        app.push_screen(TypeName("Stop?", "", "first"))
        await settle(pilot)
        await press(pilot, "x")
        assert app.screen.query_one(Input).value == "x"
        picture = app.export_screenshot()
        for words in ("a&#160;toast:&#160;error", "Stop?"):
            assert words in picture


async def test_no_color_is_obeyed_and_an_empty_one_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert LiverlApp(FakeSource(), theme="dark").palette is DARK
    monkeypatch.setenv("NO_COLOR", "1")
    app = LiverlApp(FakeSource(view=view()), theme="dark")
    assert app.palette is MONOCHROME
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "T")
        assert "NO_COLOR" in next(iter(app._notifications)).message
        used = {
            segment.style for y in range(24) for segment in app.screen.query_one("#header").render_line(y)
        }
        assert all(s is None or all(c is None or c.is_default for c in (s.color, s.bgcolor)) for s in used)
