"""Keys of the user's own: names of keys, the table with them in it, and what is refused."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.keys import _character_to_key

from liverl_tui.cli.main import run
from liverl_tui.keys import in_force
from liverl_tui.keys.bindings import find, offered, reachable
from liverl_tui.keys.key import Key
from liverl_tui.keys.names import BadKey, key_name, parse_key
from liverl_tui.keys.rebind import ALWAYS, BadKeys, clashes, free_keys, rebound
from liverl_tui.keys.table import ACTIVE_TOGETHER, FIXED, KEYS, SCOPE_TITLES

BY_ID = {key.id: key for key in KEYS}


def keys_after(**chosen: str) -> dict[str, str]:
    mapping = {name.replace("__", "."): text for name, text in chosen.items()}
    return {key.id: key.keys for key in rebound(KEYS, mapping) if key.id in mapping}


def refused(**chosen: str) -> list[str]:
    with pytest.raises(BadKeys) as error:
        keys_after(**chosen)
    return [f"{problem.id}: {problem.text}" for problem in error.value.problems]


# -- names of keys


@pytest.mark.parametrize("character", string.punctuation + "aZ0éÄ")
def test_a_character_is_the_key_that_textual_reads(character: str) -> None:
    assert parse_key(character) == _character_to_key(character)
    assert key_name(parse_key(character)) == character


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("slash", "slash"),
        ("PgUp", "pageup"),
        ("page_up", "pageup"),
        ("ESC", "escape"),
        ("Del", "delete"),
        ("F5", "f5"),
        ("↑", "up"),
        ("space", "space"),
        ("^r", "ctrl+r"),
        ("ctrl+R", "ctrl+r"),
        ("Ctrl-r", "ctrl+r"),
        ("ctrl+up", "ctrl+up"),
        ("⇧Tab", "shift+tab"),
        ("shift+left", "shift+left"),
        ("alt+x", "alt+x"),
        ("^", "circumflex_accent"),
        ("comma", "comma"),
    ],
)
def test_keys_are_read_as_people_write_them(text: str, key: str) -> None:
    assert parse_key(text) == key


def test_every_key_of_the_table_is_read_in_both_ways() -> None:
    for key in KEYS:
        for name in key.bound:
            assert parse_key(name) == name == parse_key(key_name(name))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ctrl+i", "terminals send Tab for it"),
        ("^m", "terminals send Enter for it"),
        ("ctrl+[", "terminals send Esc for it"),
        ("ctrl+left_square_bracket", "terminals send Esc for it"),
        ("ctrl+h", "terminals send Backspace for it"),
        ("ctrl+1", "ctrl works with the letters"),
        ("shift+f2", "shift works with Tab"),
        ("shift+a", "write a letter with Shift as A"),
        ("alt+up", "alt works with letters and digits"),
        ("alt+ctrl+a", "no key with this name"),
        ("PgUpp", "did you mean PgUp?"),
        ("slahs", "did you mean slash?"),
        ("§", "no key with this name"),
        ("\t", "no key with this name"),
    ],
)
def test_keys_that_no_terminal_sends_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadKey, match=re.escape(why)):
        parse_key(text)


@given(st.text(max_size=8))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        key = parse_key(text)
    except BadKey:
        return
    assert parse_key(key) == key and "," not in key


# -- the table


def test_ids_are_plain_and_those_of_labels_stay() -> None:
    """They stand in users' configurations."""
    assert len(BY_ID) == len(KEYS)
    assert not [name for name in BY_ID if not re.fullmatch(r"[a-z]+\.[a-z0-9_]*[a-z0-9]", name)]
    of_labels = {key.id for key in KEYS if "(" in key.action}
    assert of_labels >= {
        *(f"dashboard.{name}" for name in ("gpus", "replicas", "logs", "trajectories")),
        *(f"logs.{name}" for name in ("search", "next_hit", "previous_hit", "filter", "filter_out", "time")),
        *(f"logs.{name}" for name in ("next_log", "previous_log", "left", "right")),
        *(f"trajectory.{name}" for name in ("system", "user", "reasoning", "calls", "results")),
        *(
            f"trajectory.{way}_{what}"
            for way in ("next", "previous")
            for what in ("hit", "turn", "trial", "flagged")
        ),
        *(f"dialog.{name}" for name in ("yes", "no", "detach", "stop")),
        *(f"metrics.{name}" for name in ("left", "right", "up", "down", "10_back", "10_forward")),
        *("metrics.fewer_steps", "metrics.more_steps", "gpu.shorter_past", "gpu.longer_past"),
        *("service.previous", "service.next", "gpu.previous", "gpu.next"),
    }


def test_every_scope_is_active_with_others_somewhere() -> None:
    assert {scope for chain in ACTIVE_TOGETHER for scope in chain} == set(SCOPE_TITLES)
    assert {chain[-1] for chain in ACTIVE_TOGETHER} == {"app", "dialog"}, "dialogs hide all others"


def test_keys_are_replaced_where_they_were_chosen_and_nowhere_else() -> None:
    table = rebound(
        KEYS, {"logs.access": "B, ^x", "logs.filter_out": "i", "app.theme": "", "trials.steps": " "}
    )
    changed = {key.id: key.keys for key, before in zip(table, KEYS, strict=True) if key != before}
    assert changed == {"logs.access": "B,ctrl+x", "logs.filter_out": "i", "app.theme": "", "trials.steps": ""}
    assert rebound(KEYS, {}) == KEYS
    assert keys_after(app__alerts="A") == {"app.alerts": "A"}
    assert {k.id: k.name for k in rebound(KEYS, {"app.alerts": "A"})}["app.alerts"] == "A", "not its old name"


def test_two_entries_can_swap_their_keys() -> None:
    assert keys_after(logs__level="v", logs__access="l") == {"logs.level": "v", "logs.access": "l"}
    assert keys_after(app__theme="", logs__wrap="T") == {"app.theme": "", "logs.wrap": "T"}


def test_the_way_out_and_the_fields_of_dialogs_keep_their_keys() -> None:
    assert keys_after(app__leave="X", dialog__pick="z", dialog__cancel="b", dialog__interrupt="") == {
        "app.leave": "X,ctrl+c",
        "dialog.pick": "z,enter",
        "dialog.cancel": "b,escape",
        "dialog.interrupt": "ctrl+c",
    }
    assert keys_after(app__leave="") == {"app.leave": "ctrl+c"}
    assert refused(app__help="") == ["app.help: it must keep a key, since it shows all others"]
    assert refused(logs__wrap="^c") == ["logs.wrap: '^c' cannot be used: it always quits"]
    assert refused(logs__wrap="Esc") == ["logs.wrap: 'Esc' cannot be used: it always goes back"]
    assert keys_after(logs__clear="b, escape") == {"logs.clear": "b,escape"}, "it has that key anyway"


def together(scope: str) -> set[str]:
    return {other for chain in ACTIVE_TOGETHER if scope in chain for other in chain} | {scope}


@pytest.mark.parametrize("other", KEYS, ids=lambda key: key.id)
def test_a_key_of_the_user_wins_over_any_default_key(other: Key) -> None:
    """Each key of the table, given to an entry that is active with it: as if the default were new in this version."""
    hidden = {clash.place for clash in clashes(KEYS)}
    mine = next(
        k for k in KEYS if k.scope in together(other.scope) and k.id not in (other.id, *ALWAYS, "app.help")
    )
    for name in other.bound:
        if (name in ("ctrl+c", "escape") and name not in mine.bound) or ALWAYS.get(other.id) == name:
            continue
        same = [
            key for key in KEYS if name in key.bound and key.scope in together(mine.scope) and key is not mine
        ]
        fixed = any(name in key.bound and key.scope in together(mine.scope) for key in FIXED)
        if fixed or any(ALWAYS.get(key.id) == name for key in same):
            continue
        table = {key.id: key for key in rebound(KEYS, {mine.id: name})}
        assert table[mine.id].bound == tuple(dict.fromkeys((name, *filter(None, [ALWAYS.get(mine.id)]))))
        lost = table[other.id]
        place = {(mine.id, other.id, name), (other.id, mine.id, name)}
        if place & hidden:  # the default table has it so
            assert lost == other
            continue
        assert lost.bound == tuple(key for key in other.bound if key != name)
        assert lost.help == f"{other.help}; without its key {key_name(name)} (yours for {mine.id})"
        assert (lost.id, lost.label, lost.action) == (other.id, other.label, other.action)
        changed = {key for key, one in table.items() if one != BY_ID[key]}
        assert changed <= {mine.id, *(key.id for key in same)}, "no other entry changes"
        chains = [chain for chain in ACTIVE_TOGETHER if mine.scope in chain]
        new = {clash.place for clash in clashes(table.values())} - hidden
        assert chains and not [place for place in new if name in place], "nothing hides the user's key"


def test_what_can_be_done_without_a_key_is_still_there() -> None:
    table = rebound(KEYS, {"logs.access": "Z"})
    lost = next(
        key for key in table if key.id == "app.all_runs" or (key.scope == "app" and "Z" in BY_ID[key.id].keys)
    )
    assert lost.keys == "" and lost.press.startswith("use the command")


@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        (
            {"logs.access": "B", "logs.level": "B"},
            "logs.level: B is also the key of logs.access (Logs: routine lines)",
        ),
        ({"app.theme": "B", "logs.wrap": "B"}, "app.theme (Everywhere: theme)"),
        ({"dialog.yes": "^n"}, "dialog.move (Dialogs and lists to choose from: move)"),  # fixed there
        ({"dialog.yes": "enter"}, "dialog.pick"),  # always keeps it
        ({"logs.wrap": "?", "logs.level": "f1"}, "app.help"),  # must keep one
    ],
)
def test_a_key_that_cannot_be_had_is_refused_with_both_entries_and_free_keys(
    chosen: dict[str, str], other: str
) -> None:
    (told,) = refused(**{entry.replace(".", "__"): text for entry, text in chosen.items()})
    assert " is also the key of " in told and other in told
    assert len(told.rpartition("free here: ")[2].split()) == 6


def test_scopes_that_are_never_active_together_share_keys() -> None:
    assert keys_after(metrics__find="B", events__level="B", gpu__service="B") == {
        "metrics.find": "B",
        "events.level": "B",
        "gpu.service": "B",
    }


def test_what_the_default_table_hides_stays_allowed() -> None:
    hidden = {clash.place for clash in clashes(KEYS)}
    assert ("trials.flagged", "app.alerts", "exclamation_mark") in hidden
    assert ("help.back", "app.leave", "q") in hidden
    assert all(near.partition(".")[0] != far.partition(".")[0] for near, far, _ in hidden), "in one scope"
    assert keys_after(app__alerts="!") == {"app.alerts": "exclamation_mark"}
    (told,) = refused(app__alerts="B", trials__flagged="B")
    assert "B is also the key of app.alerts" in told


def test_all_problems_are_told_at_once() -> None:
    told = refused(logs__acces="B", app__theme="ctrl+i", logs__wrap="l", gpu__logs=",", logs__level="l")
    assert [line.partition(":")[0] for line in told] == ["logs.acces", "app.theme", "gpu.logs", "logs.level"]
    assert "did you mean logs.access? (liverl-tui keys lists them)" in told[0]
    assert "the key of a comma is written: comma" in told[2]


def test_any_scope_of_a_table_is_checked() -> None:
    table = (Key("list", "order", "o", "order", "X"), Key("list", "mark", "m", "mark", "X"))  # type: ignore[arg-type]
    with pytest.raises(BadKeys, match=r"list\.order: m is also the key of list\.mark"):
        rebound(table, {"list.order": "m", "list.mark": "m"})


def test_free_keys_begin_with_what_is_like_the_wanted_one() -> None:
    assert free_keys(KEYS, "help", "L")[:2] == ["l", "ctrl+l"]
    assert "f1" not in free_keys(KEYS, "app") and free_keys(KEYS, "app", "f5")


# -- queries


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"logs.access": "B", "app.revive": "", "app.metrics": ""}
    monkeypatch.setattr(in_force, "_table", rebound(KEYS, chosen))


@pytest.mark.usefixtures("installed")
def test_queries_follow_the_table_in_force() -> None:
    assert (find("logs", "access").name, find("logs", "access").press) == ("B", "press B")
    revive = find("app", "revive")
    assert (revive.name, revive.mention) == ("", 'command "restart backend"')
    assert revive.press == 'use the command "restart backend"'
    here = ("logs", "dashboard", "app")
    assert "app.metrics" in [key.id for key in reachable(here)], "the palette runs it"
    assert "app.metrics" not in [key.id for key in offered(here)], "the key bar has no key to show"


def test_a_table_is_not_replaced_once_widgets_have_it() -> None:
    in_force.install(in_force.table_for_bindings())
    with pytest.raises(RuntimeError, match="before widgets are imported"):
        in_force.install(rebound(KEYS, {"logs.access": "B"}))
    assert in_force.table() == KEYS


# -- the command


def test_the_command_prints_every_entry_and_what_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "--set", "ui.keys.logs.access=B", "--set", "ui.keys.app.theme="]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings == list(dict.fromkeys(SCOPE_TITLES[key.scope] for key in KEYS))
    rows = {line.split()[0]: line for line in lines if line.startswith(" ")}
    assert set(rows) == set(BY_ID)
    assert rows["logs.access"].split()[1] == "B" and rows["logs.access"].endswith("[default: v]")
    assert "no key" in rows["app.theme"] and rows["app.theme"].endswith("[default: T]")
    assert sum("[default" in line for line in lines) == 2
    assert run(["keys", "--json", "--set", "ui.keys.logs.access=B"]) == 0
    entries = {entry["id"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(entries) == list(BY_ID)
    assert entries["logs.access"]["keys"] == ["B"] and entries["logs.access"]["default"] == ["v"]
    assert entries["app.help"]["keys"] == ["question_mark", "f1"] and "default" not in entries["app.help"]


def test_wrong_keys_are_refused_before_a_run_is_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("keys", "up"):
        more = ["--run-root", str(tmp_path), "--yes"] if command == "up" else []
        chosen = ["--set", "ui.keys.logs.access=l", "--set", "ui.keys.logs.level=l"]
        assert run([command, *more, *chosen]) == 2
        told = capsys.readouterr().err
        assert "ui.keys.logs.level in --set: l is also the key of logs.access" in told
    assert not list(tmp_path.iterdir())
