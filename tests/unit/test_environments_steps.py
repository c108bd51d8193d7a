"""Installers, indexes and ordered steps of an environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.environments import BuildError, resolve
from liverl.environments.index import Redactor, pip_environment, with_index
from liverl.environments.uv import PipProgress
from liverl.plan.spec import EnvironmentSpec, InstallStep

CACHE = Path("/c")


def key(**values: object) -> str:
    return resolve(EnvironmentSpec("x", ("a", "b"), **values), CACHE).key  # type: ignore[arg-type]


def test_where_packages_come_from_is_part_of_the_key() -> None:
    torch = InstallStep(("torch==2.13.0+cpu",), "pip")
    keys = [
        key(),
        key(installer="pip"),
        key(index_url="https://h/s"),
        key(find_links=("/w",)),
        key(first=torch),
        key(first=InstallStep(torch.requirements, "uv")),
        key(first=InstallStep(torch.requirements, "pip", "https://h/s")),
    ]
    assert len(set(keys)) == len(keys)
    assert key(first=InstallStep((), "pip")) == keys[0]
    plan = resolve(EnvironmentSpec("x", first=torch), CACHE)
    assert (plan.kind, plan.first, plan.requirements) == ("built", ("torch==2.13.0+cpu",), ())


def test_an_index_of_its_own_takes_the_place_of_the_configured_ones() -> None:
    env = {
        "UV_INDEX": "https://a",
        "UV_EXTRA_INDEX_URL": "https://b",
        "UV_NO_INDEX": "1",
        "T": "t0ken",
        "X": "x",
    }
    told = with_index(env, "https://u:${T}@h/s", ())
    assert (told["UV_DEFAULT_INDEX"], told["PIP_INDEX_URL"]) == ("https://u:t0ken@h/s",) * 2
    assert not {"UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX"} & told.keys()
    assert (told["PIP_EXTRA_INDEX_URL"], told["X"]) == ("", "x")
    assert with_index(env, "", ()) == env


def test_links_are_added() -> None:
    told = with_index({"UV_FIND_LINKS": "/a,/b", "PIP_FIND_LINKS": "/c"}, "", ("/mine", "https://h/w"))
    assert told == {"UV_FIND_LINKS": "/mine,https://h/w,/a,/b", "PIP_FIND_LINKS": "/mine https://h/w /c"}


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(BuildError, match="the environment variable T, used in an index URL, is not set"):
        with_index({}, "https://${T}@h/s", ())


def test_pip_elsewhere_is_configured_as_pip_here(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://h/s\nfind-links = /w\n")
    env = {"HOME": "/nowhere", "XDG_CONFIG_DIRS": "/nowhere", "PIP_FIND_LINKS": "/v", "PYTHONPATH": "/p"}
    told = pip_environment(env, prefix=str(tmp_path))
    assert (told["PIP_INDEX_URL"], told["PIP_FIND_LINKS"]) == ("https://h/s", "/v")
    assert "PYTHONPATH" not in told


def test_pips_addresses_are_redacted_too() -> None:
    redact = Redactor({"PIP_INDEX_URL": "https://u:hunter2@pkg.corp.example/simple"})
    text = redact("Looking in indexes: https://u:hunter2@pkg.corp.example/simple, pkg.corp.example")
    assert "hunter2" not in text
    assert "corp" not in text


def test_what_pip_says() -> None:
    parser = PipProgress()
    told = [
        parser.take("Collecting torch==2.13.0+cpu"),
        parser.take("  Downloading https://h/x/torch-2.13.0-cp311.whl (200.1 MB)"),
        parser.take("Requirement already satisfied: a"),
        parser.take("Installing collected packages: a, torch"),
    ]
    assert told == [
        ("collecting torch==2.13.0+cpu", None),
        ("downloading torch-2.13.0-cp311.whl (200.1 MB)", None),
        None,
        ("installing 2 packages", None),
    ]
