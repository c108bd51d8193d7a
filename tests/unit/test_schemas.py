"""The published JSON Schemas are current, take all that the loader takes, and refuse what is plainly wrong.

Where they differ and should: ``pytest tests/unit/test_schemas.py --update-documents``.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from liverl.config import ConfigError, leaves, list_profiles, load_config
from liverl.config.coerce import plain_type, to_plain
from liverl.config.profiles import default_text, profile_text
from liverl.config.schema import fields, root_type
from liverl.config.yaml_nodes import parse
from liverl.model import SCHEMA
from liverl.schemas import SCHEMAS, schema_text
from liverl.schemas.config_file import comments
from liverl_tui.cli import main as cli

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "schemas"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_file_is_current(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.json"
    if request.config.getoption("--update-documents"):
        path.write_text(schema_text(name), "utf-8")
    assert path.read_text("utf-8") == schema_text(name), "if this is meant: --update-documents"


def test_nothing_else_is_published() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_a_schema(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.validators.validator_for(schema).check_schema(schema)
    assert schema["$id"].endswith(f":{SCHEMA}")


# -- configuration


@pytest.fixture(scope="module")
def config() -> Any:
    schema = json.loads(schema_text("config"))
    return jsonschema.validators.validator_for(schema)(schema)


def plain(text: str) -> Any:
    """A file as an editor reads it (YAML 1.2: ``off`` is text, 1e-6 a number)."""
    node, problems = parse(text, "test")
    assert problems == []
    return None if node is None else to_plain(node)


FILES = [
    pytest.param(default_text(), id="default.yaml"),
    *(pytest.param(profile_text(name), id=name) for name in list_profiles()),
    *(pytest.param(path.read_text(), id=path.parent.name) for path in ROOT.glob("examples/*/config.yaml")),
    pytest.param("", id="empty"),
    pytest.param(
        "runtime_info: {input: {run: {seed: 1}}, output: {a: 1}}\nmeta_info: {x: 1}\n", id="LiveRL's form"
    ),
]


@pytest.mark.parametrize("text", FILES)
def test_files_that_load_fit(text: str, config: Any) -> None:
    assert [error.message for error in config.iter_errors(plain(text))] == []


VALUES = (
    "1",
    "0",
    "-1",
    "7",
    "0.5",
    "1e-6",
    "1_000",
    "70000",
    "1e12",
    "true",
    "off",
    "Yes",
    "null",
    "~",
    "text",
    '""',
    "007",
    "[]",
    "[a, 1]",
    "{}",
    "{a: 1}",
    "INFO",
    "auto",
    "never",
    "sessions",
    "split",
    "[{command: [a]}]",
    "[{webhook: 'file:/x'}]",
    "[a=1, {b: 2}]",
    "[failed, done]",
    "[nothing]",
)


def refused_by_the_loader(keys: list[str], text: str, folder: Path) -> set[str]:
    """Of keys that all have this value, those of which the value itself is refused: conditions between keys are not a
    schema's."""
    file = folder / "config.yaml"
    tree: dict[str, Any] = {}
    for key in keys:
        *sections, name = key.split(".")
        reduce(lambda inner, section: inner.setdefault(section, {}), sections, tree)[name] = "VALUE"
    file.write_text(json.dumps(tree, indent=1).replace('"VALUE"', text))
    try:
        load_config(file, env={})
    except ConfigError as error:
        wrong = [f"{p.key}." for p in error.problems if p.message == "wrong value" and p.allowed]
        return {key for key in keys if any(one.startswith(f"{key}.") for one in wrong)}
    return set()


def nested(key: str, text: str) -> str:
    *sections, name = key.split(".")
    return "".join("  " * depth + f"{section}:\n" for depth, section in enumerate(sections)) + (
        "  " * len(sections) + f"{name}: {text}\n"
    )


@pytest.mark.parametrize("section", fields(root_type()))
def test_what_the_loader_takes_fits(section: str, config: Any, tmp_path: Path) -> None:
    """An editor must never mark a line that works."""
    keys = [key for key in leaves() if key.split(".")[0] == section]
    wrong = []
    for text in VALUES:
        marked = [key for key in keys if not config.is_valid(plain(nested(key, text)))]
        refused = refused_by_the_loader(marked, text, tmp_path) if marked else set()
        wrong += [(key, text) for key in marked if key not in refused]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("rnu: {}\n", []),
        ("run: {sed: 1}\n", ["run"]),
        ("run: {seed: -1}\n", ["run", "seed"]),
        ("run: {seed: many}\n", ["run", "seed"]),
        ("run: {topology: mesh}\n", ["run", "topology"]),
        ("run: {engine: vlm}\n", ["run", "engine"]),
        ("vllm: {gpu_memory_utilization: 1.5}\n", ["vllm", "gpu_memory_utilization"]),
        ("vllm: {enforce_eager: maybe}\n", ["vllm", "enforce_eager"]),
        ("infrastructure: {litellm_port: 70000}\n", ["infrastructure", "litellm_port"]),
        ("notify: {targets: [{comand: [a]}]}\n", ["notify", "targets", 0]),
        ("environments: {verl: {requirments: [a]}}\n", ["environments", "verl"]),
        ("runtime_info: {input: {run: {sed: 1}}}\n", ["runtime_info", "input", "run"]),
        ("training: [1]\n", ["training"]),
        ("model: {model_path: null}\n", ["model", "model_path"]),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(text: str, where: list[Any], config: Any) -> None:
    assert [list(error.absolute_path) for error in config.iter_errors(plain(text))] == [where]


def test_keys_have_their_default_and_what_they_mean(config: Any) -> None:
    sections = config.schema["definitions"]
    seed = sections["run"]["properties"]["seed"]
    assert (seed["default"], seed["minimum"]) == (0, 0)
    assert seed["description"] == "Seed of task order, sandboxes and sampling in the embedded run."
    assert seed["patternErrorMessage"] == "expected a whole number >= 0"
    roots = sections["supervise"]["properties"]["trusted_roots"]["description"]
    assert roots.startswith("directories whose") and roots.endswith("a run's own directory"), "further lines"
    assert "----" not in json.dumps(config.schema), "a ruler is no description"


def test_every_comment_is_read() -> None:
    told = comments(default_text())
    keys = set(leaves())
    said = {".".join(path) for path in told}
    assert {key for key in said if "." in key and key in keys} >= {
        key for key in keys if key.startswith("observe.")
    }
    text = "a:\n  # above\n  b: 1  # behind\n        # further\n\n  # lost\n\n  c: '# no comment'\n  d: {e: 1} # last\n"
    assert comments(text) == {("a", "b"): "above\nbehind\nfurther", ("a", "d"): "last"}


def test_every_type_of_the_configuration_has_a_schema() -> None:
    """A new type fails here and not in somebody's editor."""
    assert {type(plain_type(kind)).__name__ for kind in leaves().values()} <= {
        "StrType",
        "IntType",
        "FloatType",
        "BoolType",
        "LiteralType",
        "UnionType",
        "VarTupleType",
        "DictType",
        "AnyType",
    }


# -- outputs (those of a real run: tests/process/test_script_contract_run.py)


def test_doctor_says_what_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(schema_text("doctor"))
    log = tmp_path / "a.log"
    for text in ("ValueError: x\n", "all is well\n", ""):
        log.write_text(text)
        cli.run(["doctor", "--json", str(log)])
        document = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, schema)
    del document["files"]
    with pytest.raises(jsonschema.ValidationError, match="'files' is a required property"):
        jsonschema.validate(document, schema)


# -- the command


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = cli.run(["schema", *args])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys)
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == list(SCHEMAS)
    code, out, _ = printed(capsys, "status", "--version", str(SCHEMA))
    assert (code, json.loads(out)) == (0, json.loads(schema_text("status")))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("confg",), "no schema 'confg': did you mean config?"),
        (("xyz",), "no schema 'xyz': there are config, status,"),
        (("status", "--version", "99"), f"writes version {SCHEMA} of the JSON that scripts read, not 99"),
    ],
)
def test_what_there_is_not(args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = printed(capsys, *args)
    assert (code, out) == (2, "") and words in err
