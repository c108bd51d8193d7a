"""Any text either loads or is refused with a ConfigError, and what was loaded survives being saved."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from liverl.config import ConfigError, dump_yaml, leaves, load_config
from liverl.config.coerce import to_plain
from liverl.config.dump import looks_secret
from liverl.config.errors import Where
from liverl.config.schema import flatten
from liverl.config.yaml_nodes import parse

pytestmark = pytest.mark.drill

RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS.filter(bool), inner, max_size=3),
    max_leaves=8,
)


def has_secret_name(value: Any) -> bool:
    if isinstance(value, dict):
        return any(looks_secret(k) or has_secret_name(v) for k, v in value.items())
    return isinstance(value, list) and any(map(has_secret_name, value))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def value_for(kind: types.Type) -> st.SearchStrategy[Any]:
    """Values that a key of this type takes (what holds between keys is left to the caller)."""
    while isinstance(kind, types.Metadata):
        kind = kind.type
    match kind:
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            low = kind.ge if kind.ge is not None else 0
            return st.integers(low, kind.le if kind.le is not None else low + 10**6)
        case types.FloatType():
            low = kind.ge if kind.ge is not None else kind.gt
            high = kind.le if kind.le is not None else 1e6
            return st.floats(low, high, exclude_min=kind.gt is not None, allow_subnormal=False)
        case types.LiteralType():
            return st.sampled_from(kind.values)
        case types.UnionType():
            return st.one_of(*map(value_for, kind.types))
        case types.NoneType():
            return st.none()
        case types.VarTupleType():
            return st.lists(value_for(kind.item_type), max_size=3)
        case _:
            return st.text(
                st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=9
            )


# Keys with rules between them, with a closed set of names or with a meaning of their own.
RULED = {
    key
    for key in leaves()
    if key.startswith(
        (
            "run.",
            "model.",
            "trainer.",
            "agent.",
            "reward.",
            "embedded.faults.",
            "diagnosis.",
            "notify.",
            "experiment.",
            "credentials.",
            "environments",
            "ui.keys",
        )
    )
    or key.rsplit(".", 1)[-1] in ("anthropic_api_key", "host_path_mounts", "train_batch_size", "total_steps")
    or key in ("training.train_prompt_mini_batch_size", "proxy.request_timeout", "algorithm.clip_ratio_low")
    or key in ("supervise.pass_env", "verl.wandb_proxy", "proxy.advertise", "session_proxy.rewrite")
    or key in ("batch.end_time", "network.interface")
    or key.endswith(("timeout_sec", "algorithm.temperature", "_port", "session_proxy.port"))
}
FREE = sorted(set(leaves()) - RULED)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(FREE), unique=True, max_size=8)):
        branch = out
        *parents, name = key.split(".")
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[name] = draw(value_for(leaves()[key]))
    return out


@RELAXED
@given(document=documents(), wrapped=st.booleans())
def test_loading_is_exact_and_saving_keeps_it(document: dict[str, Any], wrapped: bool, path: Path) -> None:
    whole = {"runtime_info": {"input": document}} if wrapped else document
    path.write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
    loaded = load_config(path, profile="embedded", env={})
    saved = dump_yaml(loaded.config)
    given_values, got = flatten(document), flatten(yaml.safe_load(saved))
    for key, value in given_values.items():
        if isinstance(value, float):
            assert math.isclose(got[key], value, rel_tol=1e-15)
        else:
            assert got[key] == value
    path.write_text(saved, encoding="utf-8")
    again = load_config(path, env={})
    assert again.config == loaded.config
    assert dump_yaml(again.config) == saved


@RELAXED
@given(overrides=st.dictionaries(WORDS.filter(bool), PLAIN, max_size=4))
def test_free_form_values_survive(overrides: dict[str, Any], path: Path) -> None:
    if has_secret_name(overrides):
        return
    path.write_text(
        yaml.safe_dump({"trainer": {"overrides": overrides}}, allow_unicode=True), encoding="utf-8"
    )
    config = load_config(path, profile="embedded", env={}).config
    path.write_text(dump_yaml(config), encoding="utf-8")
    assert load_config(path, env={}).config == config


@RELAXED
@given(
    section=st.sampled_from(["", "run", "training", "embedded.faults", "environments.proxy", "harbor_agent"]),
    name=st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20),
    above=st.integers(0, 5),
)
def test_an_unknown_key_is_named_with_its_line(section: str, name: str, above: int, path: Path) -> None:
    key = f"{section}.{name}" if section else name
    sections = {leaf.split(".")[0] for leaf in leaves()} | {"meta_info", "status", "evolving", "runtime_info"}
    known = {leaf.rsplit(".", 1)[-1] for leaf in leaves()} | {
        "requirements",
        "venv_path",
        "python",
        "late_replica",
        "faults",
    }
    if name in sections | known or name in ("null", "true", "false", "yes", "no", "on", "off"):
        return
    parts = key.split(".")
    lines = ["# comment"] * above + [f"{'  ' * depth}{part}:" for depth, part in enumerate(parts)]
    path.write_text("\n".join(lines) + " 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert problem.where == Where(str(path), above + len(parts), 2 * (len(parts) - 1) + 1)
    assert f"{path}:{above + len(parts)}" in str(caught.value)


YAMLISH = st.text(st.sampled_from(list("abrun:seed- \n\t[]{}&*!<>|'\"#,?%@0123.~\\é\x00\x85")), max_size=60)


@RELAXED
@given(
    data=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))
    | YAMLISH.map(str.encode)
)
def test_any_file_loads_or_is_refused(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    try:
        load_config(path, env={})
    except ConfigError as error:
        assert str(path) in str(error)


@RELAXED
@given(text=st.text(max_size=40) | YAMLISH, key=st.sampled_from(sorted(leaves())))
def test_any_set_and_variable_loads_or_is_refused(text: str, key: str) -> None:
    for options in (
        {"sets": [f"{key}={text}"], "env": {}},
        {"sets": [text], "env": {}},
        {"env": {"LIVERL_" + key.replace(".", "__").upper(): text}},
        {"env": {f"LIVERL_{text}": "1"}},
    ):
        try:
            load_config(None, **options)  # type: ignore[arg-type]
        except ConfigError as error:
            assert str(error)


@RELAXED
@given(value=PLAIN)
def test_nodes_of_saved_yaml_are_the_values(value: Any) -> None:
    text = yaml.safe_dump({"x": value}, allow_unicode=True)
    root, problems = parse(text, "x")
    assert problems == []
    assert root is not None
    read = to_plain(root)["x"]
    if not isinstance(value, str | dict | list):  # text such as 1e5 is a number to us and text to YAML 1.1
        assert read == value
