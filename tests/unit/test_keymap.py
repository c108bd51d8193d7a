"""The one table of keys, as data."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.binding import Binding

from liverl_tui.app.actions import action_name
from liverl_tui.app.app import LiverlApp
from liverl_tui.keys.bindings import KEYS, SCOPE_TITLES, Key, bindings, find, key_name, keys_of, reachable
from liverl_tui.keys.table import FIXED
from liverl_tui.screens.compare import CompareScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.dialogs import Dialog
from liverl_tui.screens.disk import DiskScreen
from liverl_tui.screens.gpu import GpuScreen
from liverl_tui.screens.help import HelpScreen
from liverl_tui.screens.metrics import MetricsScreen
from liverl_tui.screens.service import ServiceScreen
from liverl_tui.screens.timeline import TimelineScreen
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.dashboard.sandboxes import SandboxesPane
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.lists.alerts import AlertList
from liverl_tui.widgets.lists.events import EventList
from liverl_tui.widgets.lists.sandboxes import SandboxList
from liverl_tui.widgets.log.pane import LogsPane
from liverl_tui.widgets.pair.pane import PairPane
from liverl_tui.widgets.runs.list import RunsPane
from liverl_tui.widgets.tokens.pane import TokensPane

# The class that has the actions of a scope; those of "app" are found by liverl_tui.app.actions, see test_app_actions.
SCOPED = {
    "dashboard": Dashboard,
    "list": RowsPane,
    "gpus": GpusPane,
    "replicas": ReplicasPane,
    "logs": LogsPane,
    "trials": TrialsPane,
    "trajectory": TrajectoryScreen,
    "tokens": TokensPane,
    "metrics": MetricsScreen,
    "service": ServiceScreen,
    "gpu": GpuScreen,
    "events": EventList,
    "alerts": AlertList,
    "sandboxes": SandboxList,
    "containers": SandboxesPane,
    "runs": RunsPane,
    "compare": CompareScreen,
    "pair": PairPane,
    "timeline": TimelineScreen,
    "disk": DiskScreen,
    "help": HelpScreen,
    "dialog": Dialog,
}


def test_every_scope_has_its_actions_somewhere() -> None:
    assert {*SCOPED, "app", "moving"} == set(SCOPE_TITLES)


def test_no_key_means_two_things_in_one_scope() -> None:
    for scope in SCOPE_TITLES:
        counted = Counter(name for key in keys_of(scope) for name in key.keys.split(","))
        assert not [name for name, count in counted.items() if count > 1], scope


def test_every_entry_is_whole() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    for key in KEYS:
        assert key.scope in SCOPE_TITLES
        assert all(name and name == name.strip() for name in key.keys.split(",")), key
        assert 0 < len(key.label) <= 18, key
        assert key.help[0].isupper() and not key.help.removesuffix("...").endswith("."), key


@pytest.mark.parametrize("scope", SCOPED)
def test_every_entry_has_its_action(scope: str) -> None:
    for key in keys_of(scope):  # type: ignore[arg-type]
        assert callable(getattr(SCOPED[scope], f"action_{action_name(key.action)}", None)), key


def test_some_keys_mean_the_same_wherever_one_is() -> None:
    """Without these one could be caught on a screen: nothing takes them away, dialogs apart."""
    for key in KEYS:
        if key.scope not in ("app", "dialog"):
            assert not {"ctrl+c", "ctrl+q", "ctrl+p", "ctrl+z"} & set(key.keys.split(",")), key


def test_keys_that_change_the_run_are_marked_and_keys_that_only_show_it_are_not() -> None:
    changing = {key.action for key in KEYS if key.changes}
    assert changing >= {
        "restart_carrier",
        "add_replica",
        "remove_replica",
        "restart_service",
        "stop_service",
        "start_service",
        "stop_run",
        "revive",
        "apply",
    }
    assert not changing & {"help", "leave", "detach", "copy", "picture", "theme", "logs", "alerts", "find"}


def test_bindings_are_the_table() -> None:
    made = bindings("app")
    assert [(b.key, b.action, b.id) for b in made] == [(k.keys, k.action, k.id) for k in keys_of("app")]
    assert all(isinstance(b, Binding) and not b.show for b in made)
    bound = LiverlApp._merged_bindings
    assert bound is not None
    for key in keys_of("app"):
        for name in key.keys.split(","):
            assert [b.action for b in bound.key_to_bindings[name]] == [key.action], "not Textual's own"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("slash", "/"),
        ("ctrl+p", "^p"),
        ("shift+left", "⇧←"),
        ("shift+tab", "⇧Tab"),
        ("f1", "F1"),
        ("G", "G"),
        ("equals_sign", "="),
    ],
)
def test_keys_as_people_write_them(key: str, name: str) -> None:
    assert key_name(key) == name


def test_no_name_of_a_key_is_textuals() -> None:
    for key in KEYS:
        for name in key.keys.split(","):
            assert "_" not in key_name(name) and "+" not in key_name(name).removesuffix("+"), key


def test_a_nearer_scope_takes_keys_away() -> None:
    help_keys = {name for key in keys_of("help") for name in key.keys.split(",")}
    found = reachable(("help", "app"))
    assert [k.scope for k in found] == sorted((k.scope for k in found), key=["help", "app"].index)
    left = {k.action: k for k in found if k.scope == "app"}
    assert left["leave"].keys == "ctrl+c,ctrl+q" and left["leave"].name == "^c"
    assert "help" not in left, "all of its keys close the help screen here"
    assert not help_keys & {name for k in left.values() for name in k.keys.split(",")}
    assert reachable(("app",)) == list(keys_of("app"))


def test_an_entry_is_found_by_its_action() -> None:
    assert find("app", "copy").name == "y"
    with pytest.raises(KeyError, match=r"app\.fly"):
        find("app", "fly")
    assert Key("app", "x", "space,b", "x", "X", shown="␣").name == "␣"


@pytest.mark.parametrize("scope", SCOPED)
def test_bindings_outside_of_the_table_are_known_to_the_check(scope: str) -> None:
    """Else a key of the user's could be lost to one of them."""
    fixed = {name for key in FIXED if key.scope in (scope, "app") for name in key.bound}
    merged = SCOPED[scope]._merged_bindings
    assert merged is not None
    own = {
        name
        for name, made in merged.key_to_bindings.items()
        if any(b.id is None and not b.action.startswith(("app.focus", "screen.copy")) for b in made)
    }
    assert own <= fixed
