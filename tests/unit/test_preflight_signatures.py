"""Whether a user's function, class or tool takes what it is called with, by its source."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from liverl.preflight import signatures
from liverl.preflight.signatures import AGENT, TOOL, Call

FOUR = "data_source, solution_str, ground_truth, extra_info"
EXPECTED = "(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"


def reward(text: str, *kwargs: str, model: bool = False) -> signatures.Found:
    call = signatures.reward_call(kwargs, has_model=model)
    return signatures.function(ast.parse(text), "r.py", "f", call)


@pytest.mark.parametrize(
    ("arguments", "kwargs", "words"),
    [
        (FOUR, (), ""),
        (f"{FOUR}=None, **kwargs", ("k",), ""),
        ("**kwargs", (), ""),
        (f"*, {FOUR}", (), ""),
        (f"{FOUR}, k", ("k",), ""),
        (f"{FOUR}, k=1", (), ""),
        (f"{FOUR}, *rest", (), ""),
        ("answer, truth", (), "has no argument data_source, which it is called with"),
        ("solution_str, ground_truth", (), "has no argument data_source, which it is called with"),
        (
            "data_source, solution_str, ground_truth",
            (),
            "has no argument extra_info, which it is called with",
        ),
        ("", (), "has no argument data_source, which it is called with"),
        (f"{FOUR}", ("k",), "has no argument k, which it is called with"),
        (f"{FOUR}, k", (), "needs k, which nobody gives it"),
        (f"{FOUR}, *, k", (), "needs k, which nobody gives it"),
        (f"answer, {FOUR}, **kwargs", (), "needs answer, which nobody gives it"),
        (f"{FOUR}, /", (), "has no argument data_source, which it is called with"),
        ("data_source, /, **kwargs", (), "needs data_source, which nobody gives it"),
        ("*args", (), "has no argument data_source, which it is called with"),
    ],
)
@pytest.mark.parametrize("start", ["def f({}): ...", "async def f({}): ...", "f = lambda {}: 1"])
def test_a_reward_function_is_bound_as_python_would(
    start: str, arguments: str, kwargs: tuple[str, ...], words: str
) -> None:
    text = start.format(arguments)
    shown = ast.unparse(ast.parse(f"def f({arguments}): ...")).removeprefix("def f").partition(":")[0]
    expected = f"r.py:1: f{shown} {words}; expected: {EXPECTED}" if words else ""
    assert reward(text, *kwargs) == signatures.Found(fault=expected)
    made: dict[str, Any] = {}
    exec(text, made)
    names = dict.fromkeys((*signatures.REWARD, *kwargs))
    try:
        inspect.signature(made["f"]).bind(**names)
    except TypeError:
        assert words
    else:
        assert not words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@other\ndef f(x): ...", "the decorator other may change the arguments of f"),
        ("from other import f", "f is no function that r.py defines itself"),
        ("f = partial(g, 1)", "f is no function that r.py defines itself"),
        ("class f: ...", "f is a class"),
        ("import other", "f is no function that r.py defines itself"),
    ],
)
def test_what_a_source_does_not_tell_is_not_called_good(text: str, words: str) -> None:
    assert reward(text) == signatures.Found(unknown=words)


def test_the_last_definition_counts_and_the_line_is_its_own() -> None:
    assert reward(f"def f({FOUR}): ...\n\ndef f(x): ...\n").fault.startswith(
        "r.py:3: f(x) has no argument data_source"
    )
    assert not reward("def f(x): ...\ndef f(**k): ...").fault


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from fast import f\nexcept ImportError:\n    def f(solution_str): ...",
        "if X:\n    def f(bad): ...\nelse:\n    def f(**k): ...",
        "def f(bad): ...\nf, h = wrap(f)",
        "def f(**k): ...\ndel f",
        "def f(bad): ...\nfor f in g: ...",
        "def f(bad): ...\nwith g() as f: ...",
        "def f(bad): ...\nprint(f := g)",
        "def f(bad): ...\nfrom other import *",
        "def f(**k): ...\ntry: ...\nexcept E as f: ...",
        "def f(**k): ...\nmatch g:\n    case f: ...",
        "@lru_cache\ndef f(**k): ...",
        "import functools\n@functools.cache\ndef f(**k): ...",
    ],
)
def test_what_is_decided_when_the_file_runs_is_neither_good_nor_wrong(text: str) -> None:
    found = reward(text)
    assert found.unknown and not found.fault


def test_what_is_bound_in_another_scope_is_not_this_name() -> None:
    assert (
        reward("def f(**k): ...\nclass A:\n    def f(self): ...\ndef g():\n    f = 1\n[f for x in y]")
        == signatures.Found()
    )


def test_defaults_which_may_be_secrets_are_not_shown() -> None:
    fault = reward("def f(answer, key='hunter2', *, other='hunter3'): ...").fault
    assert "f(answer, key=..., *, other=...) has no argument" in fault and "hunter" not in fault


def test_a_reward_model_adds_its_address() -> None:
    assert reward(f"def f({FOUR}): ...", model=True).fault.startswith(
        f"r.py:1: f({FOUR}) has no argument reward_router_address"
    )
    assert reward(f"def f({FOUR}, **more): ...", model=True) == signatures.Found()


RUN = "    async def run(self, task, chat, dir): ..."
EXECUTE = "    async def execute(self, instance_id, parameters, **kwargs): ..."


@pytest.mark.parametrize(
    ("text", "wanted", "words"),
    [
        (f"class C:\n{RUN}", AGENT, ""),
        ("class C:\n    async def run(self, *given): ...", AGENT, ""),
        (f"class C:\n    def __init__(self, x=1): ...\n{RUN}", AGENT, ""),
        (
            f"class C:\n    def __init__(self, x): ...\n{RUN}",
            AGENT,
            "m.py:2: C.__init__(self, x) needs x, which",
        ),
        (
            "class C: ...",
            AGENT,
            "m.py:1: class C has no method run; expected: async def run(self, task, chat, dir)",
        ),
        (
            "class C:\n    def run(self, task, chat, dir): ...",
            AGENT,
            "m.py:2: C.run is not async; expected: async def",
        ),
        (
            "class C:\n    async def run(self, task): ...",
            AGENT,
            "m.py:2: C.run(self, task) takes 1 argument without",
        ),
        (
            "class C:\n    async def run(self): ...",
            AGENT,
            "m.py:2: C.run(self) takes no argument without names",
        ),
        (
            "class C:\n    async def run(self, a, b, c, d): ...",
            AGENT,
            "m.py:2: C.run(self, a, b, c, d) needs d, which nobody gives it; expected: (self, task, chat, dir)",
        ),
        ("class C:\n    @staticmethod\n    async def run(a, b, c): ...", AGENT, ""),
        ("async def C(task, chat, dir): ...", AGENT, "m.py:1: C is a function, and a class is needed"),
        (f"class C(BaseTool):\n{EXECUTE}", TOOL, ""),
        (
            "class C(BaseTool):\n    async def execute(self, instance_id, parameters): ...",
            TOOL,
            "m.py:2: C.execute(self, instance_id, parameters) has no argument agent_data",
        ),
        (
            "class C(BaseTool):\n    def __init__(self, config): ...",
            TOOL,
            "m.py:2: C.__init__(self, config) has no",
        ),
        (
            "class C(BaseTool):\n    async def create(self): ...",
            TOOL,
            "m.py:2: C.create(self) has no argument create",
        ),
        (
            "class C(BaseTool):\n    async def release(self): ...",
            TOOL,
            "m.py:2: C.release(self) takes no argument",
        ),
    ],
)
def test_the_methods_of_a_class_are_bound(
    text: str, wanted: tuple[signatures.Method, ...], words: str
) -> None:
    found = signatures.methods(ast.parse(text), "m.py", "C", wanted)
    assert found.fault.startswith(words) and bool(found.fault) == bool(words)
    assert not found.unknown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class C(Base): ...", "C may inherit run"),
        ("from other import C", "C is no class that m.py defines itself"),
        ("class C:\n    run = other", "C.run is no method that the class defines itself"),
    ],
)
def test_a_method_that_the_source_does_not_show_is_unknown(text: str, words: str) -> None:
    assert signatures.methods(ast.parse(text), "m.py", "C", AGENT) == signatures.Found(unknown=words)


@pytest.mark.parametrize(
    ("text", "fault", "unknown"),
    [
        ("class C:\n    def run(self, task, chat, dir): return 1", "is not async", ""),
        ("class C:\n    def run(self, task, chat, dir): return self.go()", "", "may be awaited"),
        ("class C:\n    async def run(self, task, chat, dir): yield 1", "has a yield", ""),
        (
            "@dataclass\nclass C:\n    x: int\n    async def run(self, *given): ...",
            "",
            "may inherit __init__",
        ),
        ("class C(Mine):\n    async def run(self, *given): ...", "", "may inherit __init__"),
    ],
)
def test_what_is_awaited_and_what_is_inherited(text: str, fault: str, unknown: str) -> None:
    found = signatures.methods(ast.parse(text), "m.py", "C", AGENT)
    assert fault in found.fault and bool(fault) == bool(found.fault)
    assert unknown in found.unknown and bool(unknown) == bool(found.unknown)


def test_a_tool_without_execute_is_none() -> None:
    assert "has no method execute" in signatures.methods(ast.parse("class C: ..."), "m.py", "C", TOOL).fault
    assert signatures.methods(ast.parse("class C(BaseTool): ..."), "m.py", "C", TOOL) == signatures.Found()


@pytest.mark.parametrize(
    "text",
    [
        "import mytools",
        "from mytools import search",
        "from .beside import x",
        "from verl.t import function_tool as t",
    ],
)
def test_tools_that_an_import_may_register_are_unknown(text: str) -> None:
    found = signatures.tool_functions(ast.parse(f"import os\n{text}\n{GOOD}"), "t.py")
    assert found.unknown and not found.fault
    assert signatures.tool_functions(ast.parse(f"import os\n{GOOD}"), "t.py").fault


GOOD = 'def f(a: str):\n    """Do it.\n\n    Args:\n        a: text\n    """\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"@function_tool\n{GOOD}", ""),
        (f"@verl.function_tool('x')\n{GOOD}", ""),
        ("@function_tool(schema=S)\ndef f(a): ...", ""),
        (f"{GOOD}\nfunction_tool(f)", ""),
        ("from mine import *", ""),
        (GOOD, "t.py: no function has the decorator @function_tool, so that there is no tool"),
        ("@function_tool\ndef f(a): ...", "t.py:2: f(a) has no type for a; write for example a: str"),
        ("@function_tool\ndef f(*a): ...", "t.py:2: f(*a) has * or **, which no schema of a tool can say"),
        ("@function_tool\ndef f(a: str): ...", "t.py:2: f(a: str) has no docstring"),
        (
            '@function_tool\ndef f(a: str):\n    """Do it."""',
            "t.py:2: f(a: str) has no line for a below `Args:` of its docstring",
        ),
    ],
)
def test_functions_that_verl_cannot_make_tools_of_are_told(text: str, words: str) -> None:
    found = signatures.tool_functions(ast.parse(text), "t.py")
    assert found.fault.startswith(words) and bool(found.fault) == bool(words)


def test_positional_arguments_fill_names_once() -> None:
    tree = ast.parse("def f(a, b=1): ...")
    assert signatures.function(tree, "r.py", "f", Call(2)) == signatures.Found()
    assert "gets a twice" in signatures.function(tree, "r.py", "f", Call(1, ("a",))).fault
