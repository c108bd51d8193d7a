"""The themes: the styles of our own drawing by name, and the same colours for Textual's widgets.

``liverl-colour-blind`` uses the colours of Okabe and Ito (https://jfly.uni-koeln.de/color/), the dark ones
lightened; they can be told apart with all common kinds of colour blindness. ``liverl-ansi`` uses the terminal's own
sixteen colours and sends the fewest bytes. Text has a contrast of at least 4.5 to its background, also under the
cursor (4 on a terminal with 256 colours, which shows the nearest ones).
"""

from __future__ import annotations

from msgspec import Struct
from rich.style import Style
from textual.theme import Theme

from liverl_tui.text.theme_names import ALIASES, AUTO

STYLES = (
    "text",
    "strong",
    "dim",
    "rule",  # lines and separators
    "title",
    "title_focus",  # the title of the focused pane
    "head",  # column heads
    "ok",
    "info",
    "warn",
    "bad",
    "alarm",  # what must not be overlooked
    "accent",
    "key",  # a key's name in the bar and in help
    "match",  # a match of a search
    "meter",  # the filled part of a bar
    "meter_off",
    "chart1",
    "chart2",
    "chart3",
    "chart4",
    "chart5",
    "chart6",
    "name1",  # of services in a merged log: hues that are no states
    "name2",
    "name3",
    "name4",
)


class Palette(Struct, frozen=True):
    """The styles of one theme: ``palette["warn"]``, and ``palette.under_cursor(style)`` in the row under the cursor."""

    name: str
    styles: dict[str, Style]
    cursor: Style
    background: Style

    def __getitem__(self, name: str) -> Style:
        return self.styles[name]

    def under_cursor(self, style: Style) -> Style:
        """``style`` with the cursor's background. A style with a background of its own keeps it, since its text colour
        is chosen for that."""
        if style.reverse or (style.bgcolor is not None and style.bgcolor != self.background.bgcolor):
            return style
        return style + self.cursor


def _palette(name: str, background: str, cursor: str, **styles: str) -> Palette:
    base = Style.parse(f"on {background}")
    missing = set(STYLES) ^ set(styles)
    if missing:
        raise ValueError(f"theme {name} lacks styles, or has unknown ones: {sorted(missing)}")
    return Palette(
        name, {key: base + Style.parse(text) for key, text in styles.items()}, Style.parse(cursor), base
    )


DARK = _palette(
    "liverl-dark",
    background="#15171b",
    cursor="on #2a3038",
    text="#d5dae1",
    strong="bold #ffffff",
    dim="#929cab",
    rule="#39424f",
    title="bold #9fb3c8",
    title_focus="bold #15171b on #6cb6ff",
    head="#929cab",
    ok="#57c97a",
    info="#6cb6ff",
    warn="#e8b64c",
    bad="#ff6b68",
    alarm="bold #15171b on #ff6b68",
    accent="#6cb6ff",
    key="bold #6cb6ff",
    match="#15171b on #e8b64c",
    meter="#4d9fe0",
    meter_off="#39424f",
    chart1="#6cb6ff",
    chart2="#57c97a",
    chart3="#e8b64c",
    chart4="#d490e0",
    chart5="#ff8f6b",
    chart6="#5fd0c5",
    name1="#6cb6ff",
    name2="#d490e0",
    name3="#5fd0c5",
    name4="#b7a6ff",
)
LIGHT = _palette(
    "liverl-light",
    background="#f6f7f9",
    cursor="on #dae7f8",
    text="#22262c",
    strong="bold #000000",
    dim="#525a64",
    rule="#c3c9d1",
    title="bold #3d4d5f",
    title_focus="bold #ffffff on #0b62b8",
    head="#525a64",
    ok="#12703a",
    info="#0b62b8",
    warn="#8a5a00",
    bad="#c01f2e",
    alarm="bold #ffffff on #c01f2e",
    accent="#0b62b8",
    key="bold #0b62b8",
    match="#000000 on #ffd566",
    meter="#1f6fbe",
    meter_off="#b9c2cd",
    chart1="#0b62b8",
    chart2="#12703a",
    chart3="#8a5a00",
    chart4="#8a2f9c",
    chart5="#a83c15",
    chart6="#0b6b63",
    name1="#0b62b8",
    name2="#8a2f9c",
    name3="#0b6b63",
    name4="#5b3fb0",
)
COLOUR_BLIND = _palette(
    "liverl-colour-blind",
    background="#131519",
    cursor="on #2a3038",
    text="#e4e4e4",
    strong="bold #ffffff",
    dim="#a4acb5",
    rule="#3b444d",
    title="bold #b5c4d1",
    title_focus="bold #131519 on #56b4e9",
    head="#a4acb5",
    ok="#56b4e9",
    info="#e4e4e4",
    warn="#f0e442",
    bad="bold #f07a30",
    alarm="bold #131519 on #f07a30",
    accent="#56b4e9",
    key="bold #56b4e9",
    match="#131519 on #f0e442",
    meter="#2b8fd0",
    meter_off="#3b444d",
    chart1="#56b4e9",
    chart2="#e69f00",
    chart3="#f0e442",
    chart4="#d98cb5",
    chart5="#19b286",
    chart6="#e8742a",
    name1="#d98cb5",
    name2="#19b286",
    name3="#b7a6ff",
    name4="#a8d8c9",
)
ANSI = _palette(
    "liverl-ansi",
    background="default",
    cursor="default reverse",
    text="default",
    strong="bold",
    dim="bright_black",
    rule="bright_black",
    title="bold",
    title_focus="bold reverse",
    head="bright_black",
    ok="green",
    info="cyan",
    warn="yellow",
    bad="bold red",
    alarm="bold reverse red",
    accent="blue",
    key="bold cyan",
    match="reverse yellow",
    meter="blue",
    meter_off="bright_black",
    chart1="blue",
    chart2="green",
    chart3="yellow",
    chart4="magenta",
    chart5="red",
    chart6="cyan",
    name1="blue",
    name2="magenta",
    name3="cyan",
    name4="bright_magenta",
)
# For NO_COLOR: attributes only.
MONOCHROME = _palette(
    "liverl-monochrome",
    background="default",
    cursor="default reverse",
    text="default",
    strong="bold",
    dim="dim",
    rule="dim",
    title="bold",
    title_focus="bold reverse",
    head="dim",
    ok="default",
    info="default",
    warn="bold",
    bad="bold underline",
    alarm="bold reverse",
    accent="bold",
    key="bold",
    match="reverse",
    meter="default",
    meter_off="dim",
    chart1="default",
    chart2="bold",
    chart3="dim",
    chart4="default",
    chart5="bold",
    chart6="dim",
    name1="default",
    name2="bold",
    name3="dim",
    name4="default",
)
PALETTES: dict[str, Palette] = {p.name: p for p in (DARK, LIGHT, COLOUR_BLIND, ANSI)}
DEFAULT = DARK.name


def resolve(name: str | None, color_system: str | None = "truecolor") -> str:
    """The full name of the theme that ``name`` means; None means the default one. ``auto`` chooses by Rich's
    ``color_system``: the default theme with 256 colours or more, otherwise ``liverl-ansi``.

    Raises:
        KeyError: ``name`` is no theme and no alias.
    """
    if name == AUTO:
        return DEFAULT if color_system in ("256", "truecolor") else ANSI.name
    return PALETTES[ALIASES.get(name, name) if name is not None else DEFAULT].name


def following(name: str) -> str:
    """The name of the theme after ``name``; after the last one comes the first."""
    names = list(PALETTES)
    return names[(names.index(name) + 1) % len(names)]


# Textual's own widgets need these variables in a theme of ANSI colours, and fail without them.
_ANSI_VARIABLES = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "border-blurred": "ansi_default",
    "block-cursor-foreground": "ansi_default",
    "block-cursor-background": "ansi_default",
    "block-cursor-text-style": "bold reverse",
    "input-cursor-background": "ansi_default",
    "input-cursor-foreground": "ansi_default",
    "input-cursor-text-style": "reverse",
    "input-selection-background": "ansi_blue",
    "input-selection-foreground": "ansi_default",
    "screen-selection-background": "ansi_blue",
    "screen-selection-foreground": "ansi_default",
}


def textual_themes() -> list[Theme]:
    """All themes as Textual's, for its own widgets: inputs, toasts and the command palette."""
    themes = []
    for palette in PALETTES.values():
        ansi = palette is ANSI

        def colour(name: str, palette: Palette = palette, ansi: bool = ansi) -> str:
            value = palette[name].color
            if value is None or value.is_default:
                return "ansi_default" if ansi else "#888888"
            return f"ansi_{value.name}" if ansi else value.get_truecolor().hex

        background = "ansi_default"
        surface = panel = background
        if not ansi:
            bg, cursor = palette.background.bgcolor, palette.cursor.bgcolor
            background = bg.get_truecolor().hex if bg is not None else "#000000"
            surface = panel = cursor.get_truecolor().hex if cursor is not None else background
        themes.append(
            Theme(
                name=palette.name,
                primary=colour("accent"),
                secondary=colour("info"),
                accent=colour("accent"),
                warning=colour("warn"),
                error=colour("bad"),
                success=colour("ok"),
                foreground=colour("text"),
                background=background,
                surface=surface,
                panel=panel,
                dark=palette is not LIGHT,
                ansi=ansi,
                boost="ansi_default" if ansi else None,
                variables=_ANSI_VARIABLES if ansi else {},
            )
        )
    return themes
