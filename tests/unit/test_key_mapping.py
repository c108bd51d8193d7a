"""The mapping ``ui.keys`` as the interface reads it, against the parser of the configuration."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liverl.config import dump_yaml, load_config
from liverl.config.layers import from_text
from liverl_tui.app.key_mapping import UnreadableKeys, flow_mapping
from liverl_tui.app.settings import ui_section

IDS = st.sampled_from(["logs.access", "app.theme", "metrics.10_back", "ui", "theme"])
PIECES = st.lists(
    st.sampled_from(
        [
            *"aB0?/^!.,:;-#&*|>%@`'\"\\[]{}~=<_+$() \t",
            "logs.access",
            ": ",
            " #",
            "é",
            "\xa0",
            "\u2028",
            "null",
            "''",
        ]
    ),
    max_size=6,
).map("".join)
# A value as somebody may write it: any pieces, and well quoted ones.
WRITTEN = st.one_of(
    PIECES,
    PIECES.map(lambda text: "'" + text.replace("'", "''") + "'"),
    PIECES.map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'),
)
NAMES = st.one_of(IDS, IDS.map(lambda name: f'"{name}"'), PIECES)
COMMENTS = st.sampled_from(["", " ", " # x", "# x", "  #"])


def parsed(text: str) -> dict[str, str] | None:
    """``ui.keys`` as the parser of the configuration reads it; None where it refuses the text."""
    layer = from_text(text, "config.yaml", "file")
    if layer.problems:
        return None
    return {path[2]: setting.value for path, setting in layer.settings.items() if path[:2] == ("ui", "keys")}


def check(text: str) -> None:
    with contextlib.suppress(UnreadableKeys):
        values, keys = ui_section(text)
        assert keys == parsed(text), text
        assert "keys" not in values


@given(
    st.lists(
        st.tuples(st.sampled_from(["    ", "    ", "    ", "      ", "   \t"]), NAMES, WRITTEN, COMMENTS),
        max_size=4,
    ),
    st.sampled_from(
        ["  keys:", "  keys: ", "  keys: # x", "  keys: ~", "  keys: a", "  keys: &a", '  "keys":']
    ),
    st.sampled_from(["", "  theme: light\n", "  - a\n", "\n  # x\n  mouse: true\n", "  keys: {}\n"]),
)
@example([("    ", "logs.access", '"V"', ""), ("    ", "app.theme", "", "")], "  keys:", "  theme: light\n")
@example([], "  keys:", "  - a\n")
@example([("    ", "a", "", ""), ("   \t", "#", "", "")], "  keys:", "")
@example([("    ", " #", "\u2028", "")], "  keys:", "")
@example([], "  keys: # \u2028", "")
@settings(max_examples=300, deadline=None)
def test_lines_mean_what_they_mean_to_the_configuration(
    entries: list[tuple[str, str, str, str]], head: str, after: str
) -> None:
    lines = [f"{indent}{name}: {value}{comment}\n" for indent, name, value, comment in entries]
    check(f"ui:\n{head}\n{''.join(lines)}{after}")


@given(st.lists(st.tuples(NAMES, WRITTEN), max_size=4), st.sampled_from([", ", ",", " , "]), COMMENTS)
@example([("logs.access", "V"), ("app.theme", "''")], ", ", " # x")
@example([("logs.access", "} #")], ", ", "")
@settings(max_examples=300, deadline=None)
def test_one_line_means_what_it_means_to_the_configuration(
    entries: list[tuple[str, str]], comma: str, comment: str
) -> None:
    flow = "{" + comma.join(f"{name}: {value}" for name, value in entries) + "}"
    check(f"ui:\n  keys: {flow}{comment}\n")
    with contextlib.suppress(UnreadableKeys):
        assert flow_mapping(flow) == parsed(f"ui: {{keys: {flow}\n}}"), "as LIVERL_UI__KEYS"


@given(
    st.dictionaries(
        st.sampled_from(["logs.access", "app.theme", "a b", "x'", "0"]), PIECES.filter(str.isprintable)
    )
)
@example({"logs.access": "a :a"})
@example({"logs.access": "a ::a b"})
@settings(max_examples=60, deadline=None)
def test_every_saved_configuration_can_be_read(keys: dict[str, str]) -> None:
    loaded = load_config(None, sets=[f"ui.keys={json.dumps(keys)}"], env={})
    text = dump_yaml(loaded.config, loaded.kept)
    if all(name.replace(".", "").isalpha() for name in keys):
        assert ui_section(text)[1] == keys
    else:
        check(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            "  keys:\n    logs.access: V\n    # c\n\n    logs.wrap: ?,/  # x\n  theme: x",
            {"logs.access": "V", "logs.wrap": "?,/"},
        ),
        (
            "  keys: {logs.access: V, logs.wrap: '', a.b: }  # x",
            {"logs.access": "V", "logs.wrap": "", "a.b": ""},
        ),
        ("  keys:\n    a.b: \"\\\\\"\n    c.d: ''''\n    e.f: null", {"a.b": "\\", "c.d": "'", "e.f": ""}),
        ("  keys: {}", {}),
        ("  keys: null", {}),
        ("  theme: dark", {}),
    ],
)
def test_what_is_read(text: str, keys: dict[str, str]) -> None:
    assert ui_section(f"run:\n  keys: x\nui:\n{text}\n")[1] == keys == parsed(f"ui:\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "  keys: logs.access",
        "  keys: {logs.access: V",
        "  keys: {logs.access: V} x",
        "  keys:\n    {logs.access: V}",
        "  keys:\n    logs.access: V\n      W",
        "  keys:\n    logs.access: |\n      V",
        "  keys:\n    logs.access: !",
        "  keys:\n    logs.access: V\n    logs.access: W",
        "  keys:\n    logs.access: {a: b}",
        "  keys:\n  logs.access: V",
        "  keys:\n\tlogs.access: V",
        "  'keys':\n    logs.access: V",
        "  keys: {}\n  keys: {a.b: c}",
        "  keys:\n  - logs.access",
    ],
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(UnreadableKeys, match="write one line for each entry"):
        ui_section(f"ui:\n{text}\n")
