"""Whether a function of the user's takes the arguments that it will be called with, by its source. Pure.

The file is not run: it may need a GPU, or take minutes to import. What a source alone does not tell (a decorator, a
name that is bound by a call or an import) is said to be unknown, never good.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from liverl.util.plural import quantity

_BASES = {"BaseTool", "ABC"}  # what they define themselves takes what verl calls it with (tools/base_tool.py)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Node = TypeVar("_Node", bound=ast.AST)
# Decorators that leave the arguments of what they wrap as they are.
_TRANSPARENT = (
    "wraps",
    "no_type_check",
    "final",
    "override",
    "function_tool",
    "rollout_trace_op",
)


class Call(msgspec.Struct, frozen=True):
    """How something is called. ``positional``: the arguments that have no names, without ``self``; ``keywords``: those
    with names; ``expected``: the signature to write, as it is shown to the user."""

    positional: int = 0
    keywords: tuple[str, ...] = ()
    expected: str = ""


class Method(msgspec.Struct, frozen=True):
    """A method of the user's class, and how it is called. ``needed``: that the class has no other one to inherit."""

    name: str
    call: Call
    needed: bool = False
    is_async: bool = False


# verl 0.9 calls the reward function by these names (experimental/reward_loop/reward_manager/*.py) and adds
# reward_kwargs (trainer/ppo/reward.py), and of a reward model two more.
REWARD = ("data_source", "solution_str", "ground_truth", "extra_info")
OF_REWARD_MODEL = ("reward_router_address", "reward_model_tokenizer")
REWARD_EXPECTED = "(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
# As ``verl_runtime.kinds.python`` calls it.
AGENT = (
    Method("__init__", Call(expected="(self)")),
    Method("run", Call(positional=3, expected="(self, task, chat, dir)"), needed=True, is_async=True),
)
# As verl makes a tool (tools/tool_registry.py), and as ``verl_runtime.verl_tools`` calls it.
TOOL = (
    Method("__init__", Call(keywords=("config", "tool_schema"), expected="(self, config, tool_schema)")),
    Method(
        "create",
        Call(keywords=("create_kwargs",), expected="(self, instance_id=None, **kwargs)"),
        is_async=True,
    ),
    Method(
        "execute",
        Call(positional=2, keywords=("agent_data",), expected="(self, instance_id, parameters, **kwargs)"),
        needed=True,
        is_async=True,
    ),
    Method("release", Call(positional=1, expected="(self, instance_id, **kwargs)"), is_async=True),
)


class Found(msgspec.Struct, frozen=True):
    """What the source tells. ``fault``: what is wrong, with the line; ``unknown``: why it cannot be told."""

    fault: str = ""
    unknown: str = ""


def reward_call(kwargs: Sequence[str], *, has_model: bool) -> Call:
    """How verl calls a reward function. ``kwargs``: names in ``reward.kwargs``; ``has_model``: of a reward model."""
    more = (*(OF_REWARD_MODEL if has_model else ()), *kwargs)
    return Call(keywords=tuple(dict.fromkeys((*REWARD, *more))), expected=REWARD_EXPECTED)


def function(tree: ast.Module, file: str, name: str, call: Call) -> Found:
    """Whether the function ``name`` of a module takes ``call``."""
    node = _bound_at_top(tree, name)
    if isinstance(node, ast.ClassDef):
        return Found(unknown=f"{name} is a class")
    if isinstance(node, _Several):
        return Found(unknown=f"which {name} of {file} holds is decided when it runs")
    if not isinstance(node, Function):
        return Found(unknown=f"{name} is no function that {file} defines itself")
    return _judged(node, file, name, call, 0)


def methods(tree: ast.Module, file: str, name: str, wanted: Sequence[Method]) -> Found:
    """Whether the methods of the class ``name`` take the calls of ``wanted``."""
    node = _bound_at_top(tree, name)
    if isinstance(node, Function):
        return Found(fault=f"{file}:{node.lineno}: {name} is a function, and a class is needed")
    if not isinstance(node, ast.ClassDef):
        return Found(unknown=f"{name} is no class that {file} defines itself")
    unknown = ""
    bases = {_name(one) for one in node.bases} - {"object"}
    changed = bool(node.keywords or node.decorator_list)
    for method in sorted(wanted, key=lambda one: not one.needed):
        own = _bound(node.body, method.name)
        if own is None:
            if method.needed and not bases and not changed:
                words = f"class {name} has no method {method.name}; expected: {_shown(method)}"
                return Found(fault=f"{file}:{node.lineno}: {words}")
            if changed or not bases <= _BASES:
                unknown = unknown or f"{name} may inherit {method.name}"
            continue
        if not isinstance(own, Function):
            unknown = unknown or f"{name}.{method.name} is no method that the class defines itself"
            continue
        if method.is_async and isinstance(own, ast.AsyncFunctionDef) and _own(own, ast.Yield):
            words = (
                f"{name}.{method.name} has a yield, so that it cannot be awaited; expected: {_shown(method)}"
            )
            return Found(fault=f"{file}:{own.lineno}: {words}")
        if method.is_async and isinstance(own, ast.FunctionDef) and not own.decorator_list:
            if any(not isinstance(one.value, _PLAIN) for one in _own(own, ast.Return)):
                unknown = unknown or f"what {name}.{method.name} returns may be awaited"
                continue
            words = f"{name}.{method.name} is not async; expected: {_shown(method)}"
            return Found(fault=f"{file}:{own.lineno}: {words}")
        static = any(_name(one) == "staticmethod" for one in _decorators(own))
        found = _judged(own, file, f"{name}.{method.name}", method.call, 0 if static else 1)
        if found.fault:
            return found
        unknown = unknown or found.unknown
    return Found(unknown=unknown)


def tool_functions(tree: ast.Module, file: str) -> Found:
    """Whether verl can make tools of a file's functions: it registers those with ``@function_tool``, and reads their
    parameters from annotations and from ``Args:`` of the docstring (verl tools/function_tool.py)."""
    if not any(_name(node) == "function_tool" for node in ast.walk(tree) if isinstance(node, ast.expr)):
        imported = {module for node in ast.walk(tree) for module in _modules(node)}
        if not imported <= sys.stdlib_module_names:
            return Found(unknown="what it imports may have its functions")
        words = "no function has the decorator @function_tool, so that there is no tool"
        return Found(fault=f"{file}: {words}; verl has it in its tools/function_tool.py")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (why := _no_tool(node)):
            return Found(fault=f"{file}:{node.lineno}: {node.name}{_signature(node)} {why}")
    return Found()


def _modules(node: ast.AST) -> Iterator[str]:
    """The first parts of the modules that a statement imports; "" for one beside the file."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "" if node.level else (node.module or "").partition(".")[0]


def _no_tool(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Why verl refuses a function with ``@function_tool``; "" for one that it takes, or that has none."""
    mine = [one for one in node.decorator_list if _name(one) == "function_tool"]
    if not mine or any(isinstance(one, ast.Call) and _gives_schema(one) for one in mine):
        return ""
    given = node.args
    if given.vararg or given.kwarg:
        return "has * or **, which no schema of a tool can say; name each parameter"
    names = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    bare = [one.arg for one in names if one.annotation is None]
    if bare:
        return f"has no type for {', '.join(bare)}; write for example {bare[0]}: str"
    text = ast.get_docstring(node) or ""
    if not text:
        return "has no docstring, which is what the model is told of the tool"
    untold = [one.arg for one in names if f"{one.arg}:" not in text and f"{one.arg} (" not in text]
    return f"has no line for {', '.join(untold)} below `Args:` of its docstring" if untold else ""


def _gives_schema(call: ast.Call) -> bool:
    return any(keyword.arg in ("schema", None) for keyword in call.keywords)


def _judged(node: Function, file: str, name: str, call: Call, own: int) -> Found:
    """``own``: arguments that Python gives by itself (``self``)."""
    odd = [
        _name(one)
        for one in _decorators(node)
        if _name(one) not in (*_TRANSPARENT, "staticmethod", "classmethod")
    ]
    if odd:
        return Found(unknown=f"the decorator {odd[0] or 'of it'} may change the arguments of {name}")
    why = _cannot_take(node.args, call, own)
    if not why:
        return Found()
    words = f"{name}{_signature(node)} {why}; expected: {call.expected}"
    return Found(fault=f"{file}:{node.lineno}: {words}")


def _cannot_take(given: ast.arguments, call: Call, own: int) -> str:
    """What Python would say when it binds the arguments, as ``inspect.Signature.bind``; "" if they fit."""
    positional = [*given.posonlyargs, *given.args]
    taken = own + call.positional
    if taken > len(positional) and given.vararg is None:
        return f"takes {_count(len(positional) - own)} without names, and gets {call.positional}"
    filled = {one.arg for one in positional[:taken]}
    by_name = {one.arg for one in (*given.args, *given.kwonlyargs)}
    for name in call.keywords:
        if name in filled and name in by_name:
            return f"gets {name} twice"
        if name not in by_name and given.kwarg is None:
            return f"has no argument {name}, which it is called with"
    needed = positional[taken : len(positional) - len(given.defaults)]
    needed += [
        one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None
    ]
    only = {one.arg for one in given.posonlyargs}
    missing = [one.arg for one in needed if one.arg in only or one.arg not in call.keywords]
    return f"needs {', '.join(missing)}, which nobody gives it" if missing else ""


def _count(number: int) -> str:
    return "no argument" if number <= 0 else quantity(number, "argument")


def _signature(node: Function) -> str:
    """As it is written, without the values of defaults: they may be secrets."""
    hidden = copy.deepcopy(node.args)
    hidden.defaults = [ast.Constant(...) for _ in hidden.defaults]
    hidden.kw_defaults = [default and ast.Constant(...) for default in hidden.kw_defaults]
    return f"({ast.unparse(hidden)})"


def _shown(method: Method) -> str:
    return f"{'async ' if method.is_async else ''}def {method.name}{method.call.expected}"


class _Several(ast.AST):
    """Stands for what binds a name where the source does not tell which of its bindings holds."""


def _bound_at_top(tree: ast.Module, name: str) -> ast.AST | None:
    return _bound(tree.body, name)


def _bound(body: Sequence[ast.stmt], name: str) -> ast.AST | None:
    """What binds a name last; None for nothing. Of an assignment of one name its value; ``_Several`` where a branch, a
    loop, another form of binding or a star import decides."""
    found: ast.AST | None = None
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = node if node.name == name else found
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found = node if not _imports(node).isdisjoint((name, "*")) else found
        elif not {name, "*"}.isdisjoint(_names_bound(node)):
            found = _value(node, name) or _Several()
    return found


def _value(node: ast.stmt, name: str) -> ast.expr | None:
    """The value of a plain assignment to one name; None for every other statement."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    if isinstance(node, ast.Assign | ast.AnnAssign) and all(isinstance(one, ast.Name) for one in targets):
        return node.value
    return None


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Every name that a statement may bind or remove in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imports(node)
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _names_bound(child)


def _imports(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


_PLAIN = (type(None), ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.JoinedStr)  # nobody can await these


def _own(function: ast.FunctionDef | ast.AsyncFunctionDef, kind: type[_Node]) -> list[_Node]:
    """The nodes of a kind in a function, without those of functions within it."""
    found, left = [], list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, kind):
            found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return found


def _decorators(node: Function) -> Sequence[ast.expr]:
    return () if isinstance(node, ast.Lambda) else node.decorator_list


def _name(node: ast.expr) -> str:
    """The last part of the name of a decorator, or of what it calls."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
