"""One way to decode, and one error for all that can be wrong: of each decoder, and of everything that reads YAML."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl import snapshot_json
from liverl.config.edit import EditRefused, edited
from liverl.config.layers import from_text
from liverl.control import messages
from liverl.environments.index import uv_has_index
from liverl.external import model_list
from liverl.model import Event
from liverl.observe.trials.engine_parser import EngineParser, engine_parser
from liverl.observe.trials.script_sampling import script_sampling
from liverl.observe.trials.tools_offered import in_verl
from liverl.preflight.agents import _classes as tool_classes
from liverl.rundir.ledger import LedgerError, rows
from liverl.util.decode import (
    DEEPEST,
    FIRST,
    JsonDecoder,
    Undecodable,
    decode_json,
    decode_loose_json,
    decode_toml,
    decode_yaml,
    holds_anything,
)

ROOT = Path(__file__).parents[2]


class Shallow(msgspec.Struct):
    a: int = 0


class Typed(msgspec.Struct):
    a: int = 0
    more: dict[str, Any] = {}


JSON: dict[str, Callable[[bytes], Any]] = {
    "any": decode_json,
    "typed": lambda data: decode_json(data, Typed),
    "decoder": JsonDecoder(dict[str, Any]).decode,
    "raw": JsonDecoder(dict[str, msgspec.Raw]).decode,
    "loose": decode_loose_json,
    "loose without NaN": lambda data: decode_loose_json(data, none_for_nan=True),
}
WRONG_JSON = {
    "nothing": b"",
    "cut": b'{"a": [1, 2',
    "cut in a letter": '{"a": "é'.encode()[:-1],
    "nested 100,000 deep": b"[" * 100_000,
    "nested 100,000 deep, and closed": b"[" * 100_000 + b"]" * 100_000,
    "objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "not UTF-8": b'{"a": "\xff"}x',
    "NUL": b'{"a": 1}\0',
    "noise": bytes(range(256)),
    "a number of 10,000 digits": b'{"a": ' + b"9" * 10_000 + b", }",
    "half an escape": b'{"a": "\\ud8',
}


@pytest.mark.parametrize("name", WRONG_JSON)
@pytest.mark.parametrize("decoder", JSON)
def test_what_is_no_json_is_one_error_with_words(decoder: str, name: str) -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        JSON[decoder](WRONG_JSON[name])
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize("decoder", ["any", "decoder", "loose", "loose without NaN"])
def test_the_depth_is_bounded_where_a_type_does_not_bound_it(decoder: str) -> None:
    decode = JSON[decoder]

    def nested(levels: int, inside: bytes = b"1") -> bytes:
        return b'{"a":[' * (levels // 2) + inside + b"]}" * (levels // 2)

    assert decode(nested(DEEPEST))
    with pytest.raises(Undecodable, match="it is nested more than 200 levels deep"):
        decode(nested(DEEPEST + 2))
    text = json.dumps("[{" * 300 + '\\"' + "\\" * 3 + "]" * 900).encode()
    assert decode(nested(DEEPEST, text)), "brackets in a text are no levels"
    wide = json.dumps({"a": [[{}] * 3] * 500}).encode()
    assert decode(wide) == json.loads(wide), "many brackets beside each other are no levels"


def test_a_field_of_any_form_is_bounded_within_a_type_too() -> None:
    deep = b'{"a":1,"more":{"x":' + b"[" * 300 + b"]" * 300 + b"}}"
    with pytest.raises(Undecodable, match="nested"):
        decode_json(deep, Typed)
    with pytest.raises(Undecodable, match="nested"):
        JsonDecoder(Event).decode(
            b'{"seq":1,"at":1.0,"kind":"x","text":"","data":{"x":' + b"[" * 300 + b"]" * 300 + b"}}"
        )


def test_the_depth_is_bounded_before_and_after_the_type_was_looked_at() -> None:
    """For the first values the brackets are counted, as to look at the type takes milliseconds."""
    deep = b"[" * 300 + b"]" * 300
    own, any_form = JsonDecoder(list[int]), JsonDecoder(Typed)
    for _ in range(FIRST + 3):
        assert own.decode(b"[1]") == [1]
        assert any_form.decode(b'{"a":1}') == Typed(1)
        with pytest.raises(msgspec.DecodeError):
            own.decode(deep)
        with pytest.raises(Undecodable, match="nested"):
            any_form.decode(b'{"a":1,"more":{"x":' + deep + b"}}")


@pytest.mark.parametrize("levels", [DEEPEST + 5, 100_000])
def test_what_is_refused_does_not_depend_on_how_many_came_before(levels: int) -> None:
    """A field that the type does not name is passed over, however deep, as far as the decoder itself goes."""
    more = b'{"a":1,"unknown":' + b"[" * levels + b"]" * levels + b"}"
    told = set()
    for before in (0, FIRST - 1, FIRST + 1):
        decoder = JsonDecoder(Shallow)
        for _ in range(before):
            decoder.decode(b'{"a":1}')
        try:
            told.add(str(decoder.decode(more)))
        except msgspec.DecodeError as error:
            told.add(str(error))
    assert len(told) == 1, told


@pytest.mark.parametrize("decoder", [snapshot_json._decoder, messages._incoming])
def test_what_is_said_of_a_type_beforehand_is_so(decoder: JsonDecoder[Any]) -> None:
    assert decoder._bounded == (not holds_anything(decoder._type))


def test_good_json_is_read_as_before() -> None:
    assert decode_json(b'{"a": 3}', Typed) == Typed(3)
    assert decode_loose_json('{"a": NaN, "b": Infinity, "c": 1180591620717411303424}')["c"] == 1 << 70
    assert decode_loose_json("[NaN]", none_for_nan=True) == [None]
    assert decode_loose_json(b"\xef\xbb\xbf{}") == {}
    assert decode_json(memoryview(b"[1]")) == decode_json(bytearray(b"[1]")) == decode_json("[1]") == [1]
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$\.a`"):
        decode_json(b'{"a": "x"}', Typed)


WRONG_YAML: dict[str, str | bytes] = {
    "cut": "a: [1, 2",
    "nested 100,000 deep": "[" * 100_000,
    "nested 100,000 deep, and closed": "[" * 100_000 + "]" * 100_000,
    "block nested 3,000 deep": "\n".join(" " * n + "a:" for n in range(3000)),
    "keys nested deep": "{" * 2000,
    "a day that is none": "a: 2001-13-45",
    "an integer without digits": 'a: !!int ""',
    "a number of letters": "a: !!float x",
    "no moment": "a: !!timestamp x",
    "neither true nor false": "a: !!bool x",
    "10,000 digits": "a: " + "1" * 10_000,
    "base 60": "a: 1" + ":1" * 5000,
    "in itself": "a: &a [*a]",
    "in itself, deeper": "a: &a {b: [{c: *a}]}",
    "a billion": "a0: &a0 [1, 1]\n"
    + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
    "a billion, merged": "m0: &m0 {x: 1}\n"
    + "\n".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 12)),
    "a key that is a list": "? [a]\n: b",
    "an object of Python's": "a: !!python/object/apply:os.system [true]",
    "not UTF-8": b"a: \xff",
    "NUL": "a: \0",
    "a lone surrogate": "a: \ud800",
    "no alias": "a: *b",
    "two documents": "a: 1\n---\nb: 2",
    "a tab": "a:\n\t- b",
}


@pytest.mark.parametrize("name", WRONG_YAML)
def test_what_is_no_yaml_is_one_error_with_words(name: str) -> None:
    with pytest.raises(Undecodable) as raised:
        decode_yaml(WRONG_YAML[name])
    assert len(str(raised.value)) > 10


def test_an_error_in_yaml_has_its_line() -> None:
    with pytest.raises(Undecodable, match=r"^line 3: did not find") as raised:
        decode_yaml("a: 1\nb: 2\nc: [1\n")
    assert raised.value.line == 3 and raised.value.problem


def test_good_yaml_is_read_as_before() -> None:
    text = "a: &x {b: [1, 2.5, ~, yes, 2026-11-27]}\nc: *x\nd:\n  <<: *x\n  e: text\n"
    assert decode_yaml(text) == yaml.safe_load(text) and decode_yaml("") is None
    assert decode_yaml(text.encode("utf-16")) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "data",
    [
        b"a=" + b"[" * 100_000,
        b"a = 1" + b"1" * 10_000,
        b"a = \xff",
        b"\0",
        b"a = ",
        b"\xef\xbb\xbfa=1",
        b".".join([b"a"] * 5000),
    ],
)
def test_what_is_no_toml_is_one_error(data: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_toml(data)


# --- everything that reads YAML or TOML ---


def of_run(read: Callable[[Path], object], otherwise: object) -> Callable[[Path, str | bytes], None]:
    def check(folder: Path, text: str | bytes) -> None:
        (folder / "config.yaml").write_bytes(raw(text))
        assert read(folder) == otherwise

    return check


def refuses(
    read: Callable[[Path, str], object], error: type[Exception]
) -> Callable[[Path, str | bytes], None]:
    def check(folder: Path, text: str | bytes) -> None:
        decoded = raw(text).decode("utf-8", "surrogateescape")
        with pytest.raises(error) as raised:
            read(folder, decoded)
        assert type(raised.value) is error and str(raised.value)

    return check


def raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def tools(folder: Path, text: str | bytes) -> None:
    (folder / "tools.yaml").write_bytes(raw(text))
    with pytest.raises(ValueError, match=r"tools\.yaml") as raised:
        tool_classes(folder / "tools.yaml")
    assert type(raised.value) is ValueError


def layer(_folder: Path, text: str | bytes) -> None:
    decoded = raw(text).decode("utf-8", "surrogateescape")
    found = from_text(decoded, "the file", "file")  # takes what only YAML's own types make wrong as text
    assert found.problems or found.settings is not None


READERS: dict[str, Callable[[Path, str | bytes], None]] = {
    "parser of a run": of_run(engine_parser, EngineParser()),
    "sampling of a script": of_run(script_sampling, None),
    "tools of a run": of_run(in_verl, False),
    "ledger": refuses(lambda _, text: rows(text), LedgerError),
    "LiteLLM's models": refuses(lambda _, text: model_list.read(text), model_list.ListingError),
    "verl's tools": tools,
    "a configuration": layer,
}


@pytest.mark.parametrize("name", WRONG_YAML)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_yaml_takes_it_as_it_takes_other_errors(
    tmp_path: Path, reader: str, name: str
) -> None:
    READERS[reader](tmp_path, WRONG_YAML[name])


def test_a_file_of_uv_that_is_nested_deeply_counts_as_one(tmp_path: Path) -> None:
    file = tmp_path / "uv.toml"
    file.write_bytes(b"a=" + b"[" * 100_000)
    assert uv_has_index(
        {"UV_CONFIG_FILE": str(file), "HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}
    )


@pytest.mark.parametrize(
    "name", ["nested 100,000 deep", "block nested 3,000 deep", "in itself", "a billion", "cut", "NUL"]
)
def test_a_file_that_cannot_be_read_is_not_edited(name: str) -> None:
    text = WRONG_YAML[name]
    assert isinstance(text, str)
    with pytest.raises(EditRefused):
        edited(f"own:\n  - {text}\n" if "\n" not in text else text, {"run.steps": "3"})


@pytest.mark.parametrize(
    "value", ["[" * 5000, "2001-13-45", "{" * 3000, "!!int", "1" * 5000, "1:1" * 2000, "*a", "&a [*a]"]
)
def test_a_value_that_is_typed_ends_in_words(value: str) -> None:
    try:
        edited('run:\n  name: "x"\n', {"run.name": value})
    except EditRefused as error:
        assert str(error)


# --- no other way to decode ---

# In other interpreters, without msgspec and liverl.util, or without the time to import them: each has its own handlers,
# which the test below looks at.
GUESTS = (
    "agents/harbor/runner.py",
    "notify/sender.py",
    "preflight/rows_program.py",
    "proxy/runtime/",
    "supervise/keeper/process/",
    "verl_runtime/addresses.py",
)
WHERE_IT_IS_SAFE = {
    "preflight/template_program.py": "what its own parent wrote, in a process of its own",
    "util/decode.py": "the helper itself",
    "config/yaml_nodes.py": "takes one event after another, and counts levels",
    "config/edit.py": "after check_yaml",
    "rundir/ledger.py": "after decode_yaml",
    "observe/config_dump.py": "a dict as Python prints it; all four errors of its parser are caught",
}
RAW = {
    "json.loads", "json.load", "json.JSONDecoder", "msgspec.json.decode", "msgspec.json.Decoder", "tomllib.load",
    "tomllib.loads", "pickle.loads", "pickle.load", "marshal.loads", "yaml.safe_load", "yaml.load", "yaml.full_load",
    "yaml.unsafe_load", "yaml.load_all", "yaml.safe_load_all", "yaml.compose", "yaml.compose_all", "yaml.parse",
    "msgspec.yaml.decode", "msgspec.toml.decode", "msgspec.msgpack.decode", "msgspec.msgpack.Decoder",
    "ast.literal_eval",
}  # fmt: skip


def raw_calls_of(source: str) -> list[ast.Call]:
    """Those of a module. One that names none is not parsed."""
    return raw_calls(ast.parse(source)) if any(call in source for call in RAW) else []


def raw_calls(tree: ast.AST) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).partition("[")[0] in RAW
    ]


def test_everything_is_decoded_by_the_helper() -> None:
    found: list[str] = []
    for file in [*ROOT.glob("backend/liverl/**/*.py"), *ROOT.glob("liverl_tui/**/*.py")]:
        name = str(file.relative_to(ROOT)).removeprefix("backend/liverl/")
        if name in WHERE_IT_IS_SAFE or name.startswith(GUESTS):
            continue
        found += [f"{name}:{call.lineno}" for call in raw_calls_of(file.read_text())]
    assert found == [], (
        "use liverl.util.decode: libraries raise many errors, and one of them ends the process"
    )


def test_the_guests_catch_what_decoding_raises() -> None:
    """Each raw call stands in a ``try`` that names both kinds, or in a function whose text says that it raises them."""
    missing = []
    for file in ROOT.glob("backend/liverl/**/*.py"):
        name = str(file.relative_to(ROOT / "backend" / "liverl"))
        if not name.startswith(GUESTS):
            continue
        tree = ast.parse(file.read_text())
        tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
        functions = [
            node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        for call in raw_calls(tree):
            caught = " ".join(
                ast.unparse(handler.type)
                for one in tries
                if any(call in ast.walk(part) for part in one.body)
                for handler in one.handlers
                if handler.type is not None
            )
            said = " ".join(ast.get_docstring(one) or "" for one in functions if call in ast.walk(one))
            if "Exception" not in caught and "RecursionError" not in caught + said and name not in OF_US:
                missing.append(f"{name}:{call.lineno}")
    assert missing == []


def test_guests_import_nothing_of_ours() -> None:
    """They are run by path, in interpreters that do not have this package. The proxy's runner loads its own copy."""
    wrong = []
    for file in ROOT.glob("backend/liverl/**/*.py"):
        name = str(file.relative_to(ROOT / "backend" / "liverl"))
        if name.startswith(GUESTS) and not name.startswith("proxy/runtime/"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                wrong += [f"{name}:{each}" for each in names if each.partition(".")[0] == "liverl"]
    assert wrong == []


OF_US = ("notify/sender.py", "preflight/rows_program.py")  # they read only what this program has written


# --- anything at all ---


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.binary(max_size=200), st.text(alphabet='[]{}":,\\ntfu0123e.-', max_size=200).map(str.encode))
)
def test_anything_is_decoded_or_refused_as_json(data: bytes) -> None:
    for decode in JSON.values():
        try:
            decode(data)
        except msgspec.DecodeError as error:
            assert str(error)
    try:
        expected = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return
    assert decode_json(data) == expected


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.text(alphabet="[]{}:,-?&*!|>'\"#%@ \n\tabi0159.<~", max_size=80)))
def test_anything_is_decoded_or_refused_as_yaml_and_toml(data: str | bytes) -> None:
    try:
        decode_yaml(data)
    except Undecodable as error:
        assert str(error)
    try:
        decode_toml(raw(data))
    except Undecodable as error:
        assert str(error)
