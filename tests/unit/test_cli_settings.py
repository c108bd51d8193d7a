"""How a run is shown: the settings of the interface, and where there is one."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liverl.config import dump_yaml, load_config
from liverl_tui.app.settings import UiSettings, read_settings, ui_section
from liverl_tui.cli.mode import mode
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.target import load_target
from liverl_tui.keys.table import KEYS
from liverl_tui.text.errors import CliError


def settings(tmp_path: Path, text: str = "", **env: str) -> UiSettings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_settings(path, env)


def test_a_runs_own_configuration_is_read_as_it_is_written(tmp_path: Path) -> None:
    loaded = load_config(
        None, sets=["ui.theme=colour-blind", "ui.mouse=true", "ui.bell=off", "ui.refresh_interval=2"], env={}
    )
    chosen = settings(tmp_path, dump_yaml(loaded.config, loaded.kept))
    assert chosen == UiSettings("colour-blind", mouse=True, bell=False, interval=2.0)
    packaged = (Path(__file__).parents[2] / "config.yaml").read_text()
    assert settings(tmp_path, packaged) == UiSettings("auto", mouse=False, bell=True, interval=0.5)
    assert read_settings(tmp_path / "none.yaml", {}) == UiSettings()


@given(
    st.dictionaries(
        st.sampled_from(["theme", "mouse", "bell", "refresh_interval", "other"]),
        st.one_of(
            st.from_regex(r"[a-z]{2,8}-?[a-z]{2,8}", fullmatch=True),
            st.integers(0, 9),
            st.sampled_from(["a b", "#x", ""]),
        ),
        min_size=1,
    ),
    st.dictionaries(
        st.sampled_from(["run", "embedded"]),
        st.dictionaries(st.sampled_from(["theme", "ui"]), st.just("z"), min_size=1),
    ),
)
def test_the_section_is_found_as_yaml_finds_it(ui: dict[str, Any], rest: dict[str, Any]) -> None:
    text = yaml.safe_dump({**rest, "ui": ui}, sort_keys=False)
    read = yaml.safe_load(text)["ui"]
    assert ui_section(text)[0] == {key: "" if value is None else str(value) for key, value in read.items()}


def test_who_looks_goes_before_the_run(tmp_path: Path) -> None:
    text = "ui:\n  theme: light  # by day\n  mouse: true\n  refresh_interval: 0.5\nrun:\n  theme: no\n"
    assert settings(tmp_path, text) == UiSettings("light", mouse=True)
    chosen = settings(
        tmp_path, text, LIVERL_UI__THEME="ansi", LIVERL_UI__MOUSE="off", LIVERL_UI__REFRESH_INTERVAL="3"
    )
    assert chosen == UiSettings("ansi", mouse=False, interval=3.0)
    # tmux has the mouse; who wants it from there says so
    assert settings(tmp_path, text, TMUX="/tmp/tmux-0/default,1,0").mouse is False
    assert settings(tmp_path, text, TMUX="/tmp/tmux-0/default,1,0", LIVERL_UI__MOUSE="true").mouse is True
    # over a network half as often
    assert settings(tmp_path, text, SSH_CONNECTION="10.0.0.1 50000 10.0.0.2 22").interval == 1.0
    assert settings(tmp_path, text, SSH_TTY="/dev/pts/0", LIVERL_UI__REFRESH_INTERVAL="3").interval == 3.0


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LIVERL_UI__MOUSE": "maybe"}, "LIVERL_UI__MOUSE: 'maybe' is not true or false"),
        (
            {"LIVERL_UI__REFRESH_INTERVAL": "soon"},
            "LIVERL_UI__REFRESH_INTERVAL: 'soon' is not a number of seconds",
        ),
        ({"LIVERL_UI__REFRESH_INTERVAL": "0"}, "'0' is not a number of seconds of at least 0.05"),
        (
            {"LIVERL_UI__KEYS": "logs.access=B"},
            "LIVERL_UI__KEYS: 'logs.access=B' is not a mapping of entries",
        ),
        (
            {"LIVERL_UI__KEYS": "{logs.access: B, logs.wrap: B}"},
            "ui.keys.logs.access in LIVERL_UI__KEYS: B is also the key of logs.wrap",
        ),
        ({"LIVERL_UI__REFRESH_INTERVAL": "nan"}, "'nan' is not a number"),
        ({"LIVERL_UI__DESKTOP": "osc99"}, "LIVERL_UI__DESKTOP: 'osc99' is not one of .*; did you mean osc9"),
        (
            {"LIVERL_UI__THEME": "drak"},
            "LIVERL_UI__THEME: no theme 'drak'; did you mean dark.*; auto is used",
        ),
        ({"LIVERL_UI__BELL": "2"}, "LIVERL_UI__BELL: '2' is not true or false; true is used"),
    ],
)
def test_a_wrong_value_is_told_and_the_default_used(tmp_path: Path, env: dict[str, str], words: str) -> None:
    """A run can always be shown: what only the interface reads may come from an older version, or be a typo."""
    chosen = settings(tmp_path, **env)
    (problem,) = chosen.problems
    assert re.search(words, problem)
    assert replace(chosen, problems=(), theme=None) == UiSettings()


def test_keys_of_the_environment_go_over_those_of_the_run(tmp_path: Path) -> None:
    text = "ui:\n  theme: light\n  keys:\n    logs.access: B\n    logs.wrap: b\n"
    chosen = settings(tmp_path, text, LIVERL_UI__KEYS='{logs.access: C, app.theme: ""}')
    assert chosen.theme == "light"
    changed = {key.id: key.keys for key, default in zip(chosen.keys, KEYS, strict=True) if key != default}
    assert changed == {"logs.access": "C", "logs.wrap": "b", "app.theme": ""}
    taken = settings(tmp_path, text.replace("B", "b"))
    where = r"ui\.keys\.logs\.access in .*config\.yaml \(for one interface, LIVERL_UI__KEYS"
    assert re.match(where, taken.problems[0]) and taken.keys == KEYS and taken.theme == "light"
    unread = settings(tmp_path, text.replace("B", "!"))
    assert re.match(r"ui\.keys in .*config\.yaml: cannot read 'logs.access: !'", unread.problems[0])


def test_the_example_of_the_docs_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "interface.md").read_text("utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    keys = {key.id: key.keys for key in settings(tmp_path, example).keys}
    assert keys["logs.filter_out"] == "i,F" and keys["moving.page_down"] == "pagedown,ctrl+d"
    assert load_config(tmp_path / "config.yaml", env={}).config.ui.keys["logs.access"] == "B"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["ui.theme=drak"], "--set: ui.theme: no theme 'drak'; did you mean dark"),
        (
            ["ui.keys.app.metrix=x"],
            "ui.keys.app.metrix in --set: there is no such entry; did you mean app.metrics",
        ),
    ],
)
def test_what_only_the_interface_reads_is_checked_wherever_a_configuration_is(
    sets: list[str], words: str
) -> None:
    with pytest.raises(CliError, match=words) as error:
        load_target(UpOptions(sets=tuple(sets)))
    assert error.value.exit_code == 2


def test_the_names_of_the_themes_are_those_of_the_themes() -> None:
    from liverl_tui.text import theme_names, themes

    assert set(theme_names.FULL) == set(themes.PALETTES)
    assert set(theme_names.ALIASES.values()) <= set(themes.PALETTES)
    for name in (None, "auto", "dark", "textual-dark", "liverl-ansi", "colour-blind"):
        assert theme_names.theme_problem(name) == "" and themes.resolve(name) in themes.PALETTES


def test_what_textual_reads_at_its_import_is_set_before(tmp_path: Path) -> None:
    code = (
        "from liverl_tui.app.settings import before_textual; before_textual(); import textual.constants as c"
    )
    for ssh, frames in (("", 60), ("10.0.0.1 50000 10.0.0.2 22", 30)):
        argv = [sys.executable, "-c", f"{code}; print(c.MAX_FPS, c.TEXTUAL_ANIMATIONS)"]
        env = {**os.environ, "SSH_CONNECTION": ssh, "SSH_TTY": ""}
        env = {name: value for name, value in env.items() if not name.startswith("TEXTUAL")}
        out = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
        assert out.stdout == f"{frames} none\n"


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminals", "term", "asked", "expected"),
    [
        ("ioe", "xterm-256color", {}, "interface"),
        ("oe", "xterm-256color", {}, "plain"),
        ("ie", "xterm-256color", {}, "plain"),
        ("io", "xterm-256color", {}, "plain"),
        ("ioe", "dumb", {}, "plain"),
        ("ioe", None, {}, "plain"),
        ("ioe", "xterm", {"plain": True}, "plain"),
        ("ioe", "xterm", {"no_ui": True}, "lines"),
        ("", "xterm", {"no_ui": True}, "lines"),
        ("", "xterm", {"no_ui": True, "plain": True}, "plain"),
    ],
)
def test_where_there_is_an_interface(
    monkeypatch: pytest.MonkeyPatch, terminals: str, term: str | None, asked: dict[str, bool], expected: str
) -> None:
    for letter, name in (("i", "stdin"), ("o", "stdout"), ("e", "stderr")):
        monkeypatch.setattr(sys, name, Stream(letter in terminals))
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert mode(**{"no_ui": False, "plain": False, **asked}) == expected


PROBE = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from liverl.rundir.layout import RunDir
from liverl_tui.cli import main as cli; from liverl_tui.app import start as interface, settings
from liverl_tui.cli import attach, mode as showing
from liverl_tui.app.app import LiverlApp
from liverl_tui.cli import target
from liverl_tui.data.source import RunSource
settings.read_settings(Path("none.yaml"), {})
target.require_trusted(RunDir(Path(sys.argv[2])), ())
before = set(sys.modules)

async def main():
    app = LiverlApp(RunSource(RunDir(Path(sys.argv[2]))))
    async with app.run_test() as pilot:
        while app.view.link != "lost":
            await pilot.pause()

asyncio.run(main())
print(json.dumps(sorted(sys.modules)))
"""


def test_the_interface_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Its process shows a run; that it does not start one must be seen in how soon it is there."""
    (tmp_path / "p" / "r").mkdir(parents=True)
    argv = [sys.executable, "-c", PROBE, str(Path(__file__).parents[1]), str(tmp_path / "p" / "r")]
    out = subprocess.run(argv, capture_output=True, text=True, check=True)
    loaded = set(json.loads(out.stdout))
    heavy = (
        "aiohttp",
        "yaml",
        "uv",
        "watchfiles",
        "psutil",
        "litellm",
        "ray",
        "pynvml",
        "tree_sitter",
        "numpy",
    )
    assert not {name for name in loaded if name.partition(".")[0] in heavy}
    assert not {
        name for name in loaded if name.startswith(("liverl.config.", "liverl.plan.build", "liverl.embedded"))
    } - {"liverl.config.trusted_roots"}
    assert "liverl_tui.screens.dashboard" in loaded and "liverl.daemon.trusted_run" in loaded


def test_the_first_paint_imports_no_reader_of_trials() -> None:
    """Trials are read on demand: of a run without a backend, of an older step, of all that are filtered."""
    code = "import json, sys, liverl_tui.app.app; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    readers = ("trial", "index", "scanner", "files", "steps", "pairing", "dumps", "trajectory")
    assert not {f"liverl.observe.trials.{name}" for name in readers} & set(json.loads(out.stdout))


@pytest.mark.parametrize("value", ["osc9", "osc777", "off", "auto"])
def test_how_the_desktop_is_notified(tmp_path: Path, value: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"ui:\n  desktop: {value}\n")
    assert read_settings(config, {}).desktop == value
    assert read_settings(config, {"LIVERL_UI__DESKTOP": "off"}).desktop == "off"
    assert read_settings(tmp_path / "none", {}).desktop == "auto"
