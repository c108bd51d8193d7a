"""The private names of Textual: each with the shape that is relied on, and all of them in one module."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import textual
from textual._compositor import Compositor, CompositorUpdate
from textual.app import App
from textual.binding import BindingsMap
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.notifications import Notification, Notifications
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkerFailed

import liverl_tui
from liverl_tui.term.private import HookedApp, key_bindings

ROOT = Path(liverl_tui.__file__).parent
HOME = "liverl_tui.term.private"


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


# -- what this version of Textual has

# Methods: by whom, which, with what arguments.
METHODS: dict[tuple[type, str], list[str]] = {
    (App, "_display"): ["self", "screen", "renderable"],
    (App, "_handle_exception"): ["self", "error"],
    (App, "_fatal_error"): ["self"],
    (App, "_dispatch_action"): ["self", "namespace", "action_name", "params"],
    (App, "_check_bindings"): ["self", "key", "priority"],
    (App, "_print_error_renderables"): ["self"],
    (App, "_unnotify"): ["self", "notification", "refresh"],
    (Screen, "_compositor_refresh"): ["self"],
    (Screen, "_on_idle"): ["self", "event"],
    (Screen, "_on_timer_update"): ["self"],
    (Widget, "_exchange_repaint_regions"): ["self"],
    (Widget, "_set_dirty"): ["self", "regions"],
    (Widget, "_on_focus"): ["self", "event"],
    (Widget, "_on_blur"): ["self", "event"],
    (Compositor, "_regions_to_spans"): ["regions"],
    (LinuxDriver, "_enable_mouse_support"): ["self"],
    (LinuxDriver, "_disable_mouse_support"): ["self"],
}
# Attributes of objects: how one gets there from a running app, and of what type it is.
ATTRIBUTES: dict[str, tuple[str, type]] = {
    "_driver": ("app", HeadlessDriver),
    "_batch_count": ("app", int),
    "_exit": ("app", bool),
    "_running": ("app", bool),
    "_notifications": ("app", Notifications),
    "_exit_renderables": ("app", list),
    "_bindings": ("screen", BindingsMap),
    "_pruning": ("screen", bool),
    "_closing": ("screen", bool),
    "_closed": ("screen", bool),
    "_compositor": ("screen", Compositor),
    "_dirty_widgets": ("screen", set),
    "_layout_required": ("screen", bool),
    "_scroll_required": ("screen", bool),
    "_recompose_required": ("screen", bool),
    "_dirty_regions": ("compositor", set),
    "_full_map": ("compositor", dict),
    "_full_map_invalidated": ("compositor", bool),
    "_mouse": ("driver", bool),
    "_file": ("linux driver", object),
}
MODULES = {"textual._compositor"}


@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_this_version_has_the_method(owner: type, name: str) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == METHODS[owner, name]


async def test_this_version_has_the_attributes() -> None:
    app: App[None] = App()
    async with app.run_test():
        compositor = app.screen._compositor
        linux = LinuxDriver(app, size=(80, 24))
        holders: dict[str, Any] = {
            "app": app,
            "screen": app.screen,
            "compositor": compositor,
            "driver": app._driver,
            "linux driver": linux,
        }
        for name, (holder, kind) in ATTRIBUTES.items():
            assert isinstance(getattr(holders[holder], name), kind), name
        assert app._running and not app._exit and app._batch_count == 0
        with app.batch_update():
            assert app._batch_count == 1
        assert callable(linux._file.isatty) and linux._mouse is True
        spans = list(compositor._regions_to_spans([Region(1, 2, 3, 2), Region(2, 2, 4, 1)]))
        assert spans == [(2, 1, 6), (3, 1, 4)]
        toast = Notification("told")
        app._notifications.add(toast)
        assert list(app._notifications) == [toast]
        app._unnotify(toast, refresh=False)
        assert list(app._notifications) == []
        assert app.screen._bindings.key_to_bindings["tab"][0].action == "app.focus_next"


def test_the_compositor_gives_what_is_painted() -> None:
    assert issubclass(CompositorUpdate, object) and hasattr(CompositorUpdate, "render_segments")
    assert isinstance(inspect.getattr_static(Compositor, "full_map"), property)


# -- what is made of them


@pytest.mark.parametrize("closes", [True, False])
async def test_only_of_a_screen_that_closes_a_widget_may_be_missing(closes: bool) -> None:
    """A worker of the app reads for a screen that is closed meanwhile, and its widgets are removed first."""
    app = HookedApp()
    read = asyncio.Event()

    async def worker(screen: Screen[Any]) -> None:
        await read.wait()
        screen.query_one("#gone")

    async def shown() -> None:
        async with app.run_test() as pilot:
            screen: Screen[Any] = Screen()
            await app.push_screen(screen)
            work = app.run_worker(worker(screen))
            if closes:
                await app.pop_screen()
            read.set()
            await pilot.pause()
            assert work.is_finished and app.is_running

    if closes:
        await shown()
    else:
        with pytest.raises(WorkerFailed):
            await shown()


async def test_an_app_that_may_not_paint_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Screen[Any]] = []
    monkeypatch.setattr(App, "_display", lambda _app, screen, _renderable: sent.append(screen))

    class Held(HookedApp):
        held = False

        def may_paint(self) -> bool:
            return not self.held

    app = Held()
    async with app.run_test():
        sent.clear()
        app.held = True
        app.paint_whole(app.screen)
        assert sent == []
        app.held = False
        app.paint_whole(app.screen)
        assert sent == [app.screen]


async def test_an_action_of_the_app_is_done_by_its_target() -> None:
    done: list[tuple[str, object]] = []

    class Part:
        def action_greet(self, name: str) -> None:
            done.append(("part", name))

    class Composed(HookedApp):
        def action_target(self, name: str) -> object:
            return Part() if name == "greet" else self

        def action_greet(self, name: str) -> None:
            done.append(("app", name))

        async def action_wait(self) -> None:
            done.append(("app", "waited"))

    class Own(Screen[None]):
        def action_greet(self, name: str) -> None:
            done.append(("screen", name))

    app = Composed()
    async with app.run_test():
        await app.push_screen(Own())
        assert await app.run_action("greet('Ada')")
        assert await app.run_action("app.greet('Bo')", app.screen)
        assert await app.run_action("greet('Cy')", app.screen), "the screen has an action of that name itself"
        assert await app.run_action("wait")
        assert not await app.run_action("fly")
    assert done == [("part", "Ada"), ("part", "Bo"), ("screen", "Cy"), ("app", "waited")]


async def test_an_app_knows_whether_it_batches_or_closes() -> None:
    app = HookedApp()
    assert app.is_closing, "it does not run yet"
    async with app.run_test():
        assert not app.is_closing and not app.is_batching
        with app.batch_update():
            assert app.is_batching
        app.exit()
        assert app.is_closing
    assert app.is_closing


async def test_bindings_are_those_of_the_node_itself() -> None:
    app = HookedApp()
    async with app.run_test():
        assert [binding.action for binding in key_bindings(app.screen, "tab")] == ["app.focus_next"]
        assert list(key_bindings(app.screen, "f12")) == []


# -- all of them, and in one module only


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        dotted = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        found[dotted] = ast.parse(path.read_text("utf-8"))
    return found


@cache
def classes_of_textual() -> dict[tuple[str, str], frozenset[str]]:
    """(module, class) -> the private names that its body defines: methods, class attributes, ``self._x = ...``."""
    folder, found = Path(textual.__file__).parent, {}
    for path in folder.rglob("*.py"):
        dotted = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[dotted, node.name] = frozenset(name for name in _defined(node) if private(name))
    return found


def _defined(body: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def of_textual(kind: type) -> frozenset[str]:
    """The private names that the classes of Textual below ``kind`` define."""
    known = classes_of_textual()
    return frozenset().union(
        *(known.get((base.__module__, base.__name__), frozenset()) for base in kind.__mro__)
    )


@cache
def of_any_textual() -> frozenset[str]:
    return frozenset().union(*classes_of_textual().values())


def used(tree: ast.Module, module: Any) -> Iterator[str]:
    """``line: name`` for each private name of Textual in a module of ours."""
    nodes = list(ast.walk(tree))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.ImportFrom | ast.Import):
            parts = [*(getattr(node, "module", None) or "").split("."), *(a.name for a in node.names)]
            if "textual" in (parts[0], *(a.name.partition(".")[0] for a in node.names)):
                words = [word for part in parts for word in part.split(".")]
                yield from (f"{node.lineno}: {word}" for word in words if private(word))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "attr" in node.func.id:
            yield from (
                f"{node.lineno}: {a.value}"
                for a in node.args[1:2]
                if isinstance(a, ast.Constant) and private(str(a.value))
            )
        elif isinstance(node, ast.Attribute) and node.attr in of_any_textual() and not _is_own(node):
            # Of some object. Which, only a type checker knows: no name that Textual has is allowed.
            of_module = isinstance(node.value, ast.Name) and node.value.id in imported
            yield from () if of_module else (f"{node.lineno}: {node.attr}",)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            kind = getattr(module, node.name, None)
            taken = of_textual(kind) if isinstance(kind, type) else frozenset()
            for inner in ast.walk(node):
                name = getattr(inner, "attr", None) if isinstance(inner, ast.Attribute) else None
                if isinstance(inner, ast.Attribute) and not _is_own(inner):
                    continue
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = inner.name
                elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    name = inner.id if inner in _class_level(node) else None
                if name is not None and private(name) and name in taken:
                    yield f"{inner.lineno}: {name}"


def _is_own(node: ast.Attribute) -> bool:
    """``self._x``, ``cls._x`` or ``super()._x``."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _class_level(node: ast.ClassDef) -> list[ast.AST]:
    found: list[ast.AST] = []
    for statement in node.body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        found += [target for target in targets if isinstance(target, ast.Name)]
    return found


def test_no_other_module_uses_a_private_name_of_textual() -> None:
    found = {
        name: list(used(tree, importlib.import_module(name)))
        for name, tree in modules().items()
        if name not in (HOME, "liverl_tui.__main__")
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_the_list_above_is_complete() -> None:
    """Each private name in the one module is looked at above, and each that is looked at is used there."""
    tree = modules()[HOME]
    found = {line.partition(": ")[2] for line in used(tree, importlib.import_module(HOME))}
    listed = {name for _, name in METHODS} | set(ATTRIBUTES) | {m.rpartition(".")[2] for m in MODULES}
    assert found == listed


def sample(source: str) -> ModuleType:
    """A module with the classes of ``source``."""
    module = ModuleType("sample")
    exec(source, module.__dict__)
    return module


@pytest.mark.parametrize(
    "code",
    [
        "from textual._compositor import Compositor",
        "import textual._compositor",
        "from textual.widget import _BorderTitle",
        "def f(app): app._exit = True",
        "def f(driver): return getattr(driver, '_file', None)",
        "class A(App):\n def f(self): return self._driver",
        "class A(App):\n def _display(self, screen, renderable): pass",
        "class A(App):\n def f(self): super()._fatal_error()",
        "class W(Widget):\n _size = None",
    ],
)
def test_each_way_to_use_one_is_noticed(code: str) -> None:
    source = f"from textual.app import App\nfrom textual.widget import Widget\n{code}\n"
    assert list(used(ast.parse(source), sample(source)))


def test_names_of_our_own_are_no_fault() -> None:
    source = "import os\nfrom textual.app import App\nclass A(App):\n def f(self): self._ours = os._exit\n"
    assert list(used(ast.parse(source), sample(source))) == []
