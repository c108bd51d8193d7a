"""Locks of environments: what is read, for which requirements and machines one is used, and from which index."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from liverl.config.profiles import default_text
from liverl.environments import lock as locks
from liverl.environments import resolve
from liverl.environments.index import has_default_index
from liverl.environments.lock import LockError, choose, own_path, read
from liverl.environments.resolve import normalise_requirement
from liverl.environments.uv import _explain
from liverl.plan.spec import EnvironmentSpec, InstallStep
from liverl_tui.cli.envs import envs_command

HASH = "    --hash=sha256:" + "a1" * 32
HEAD = "\n".join(
    [
        locks.FORMAT,
        "# requirements: tiny==1.0",
        f"# python: 3.11 3.{sys.version_info.minor}",
        "# machine: x86_64 aarch64",
        "# glibc: 2.17",
        "# index: default",
    ]
)
GOOD = f"{HEAD}\ntiny==1.0 \\\n{HASH} \\\n{HASH}\nwin==2 ; sys_platform == 'win32' \\\n{HASH}\n"


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(locks, "glibc", lambda: (2, 36))


def spec(**values: object) -> EnvironmentSpec:
    return EnvironmentSpec("proxy", ("tiny==1.0",), **values)  # type: ignore[arg-type]


def written(cache: Path, text: str = GOOD) -> Path:
    path = own_path("proxy", cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_shipped_lock_is_that_of_the_default_configuration() -> None:
    import yaml

    entry = yaml.safe_load(default_text())["environments"]["proxy"]
    wanted = tuple(sorted(normalise_requirement(text) for text in entry["requirements"]))
    lock = read(locks.SHIPPED / "proxy.lock")
    assert lock.requirements == wanted, "run .ci/lock"
    assert (lock.index, lock.machines) == ("default", ("x86_64", "aarch64"))
    assert {11, 12, 13} <= set(lock.pythons) and len(lock.pins) > 100
    for requirement in wanted:
        name = requirement.partition("[")[0].partition(">")[0].partition("=")[0]
        assert any(pin.startswith(f"{name}==") for pin in lock.pins), name


def test_a_lock_is_read_with_its_markers(tmp_path: Path) -> None:
    lock = read(written(tmp_path))
    assert lock.pins == ("tiny==1.0", "win==2 ; sys_platform == 'win32'")
    assert lock.text == GOOD and len(lock.digest) == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: found 'nothing'"),
        ("tiny==1.0\n", ":1: found 'tiny==1.0'"),
        (GOOD.replace("--hash", "--index-url=https://h/ --hash", 1), ":8: found"),
        (GOOD + "--index-url https://h/simple\n", "found '--index-url https://h/simple'"),
        (GOOD + "-r other.txt\n", "found '-r other.txt'"),
        (GOOD + "loose>=1\n", "found 'loose>=1'"),
        (GOOD + "direct @ https://h/w.whl\n", "found 'direct @"),
        (GOOD + "bare==1 \\\n", "bare==1 has no hash"),
        (GOOD.replace(f"tiny==1.0 \\\n{HASH} \\\n{HASH}\n", "tiny==1.0\n"), "tiny==1.0 has no hash"),
        (GOOD.replace("a1" * 32, "a1" * 31, 1), ":8: found"),
        (GOOD.replace("sha256", "md5", 1), ":8: found"),
        (HEAD + "\n", "no package has no hash"),
        (GOOD.replace("# glibc: 2.17\n", ""), "its head is incomplete"),
        (GOOD.replace("2.17", "new"), "its head is incomplete"),
    ],
)
def test_a_damaged_lock_is_refused_by_line_and_not_used(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(LockError) as caught:
        read(path)
    assert words in str(caught.value)
    choice = choose(spec(), ("tiny==1.0",), tmp_path)
    assert choice.lock is None and "its lock cannot be used" in choice.why


def test_a_lock_that_is_no_text_or_no_file_is_refused_too(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(GOOD.encode() + b"\xff")
    assert "not UTF-8" in choose(spec(), ("tiny==1.0",), tmp_path).why
    path.unlink()
    path.mkdir()
    assert "not a regular file" in choose(spec(), ("tiny==1.0",), tmp_path).why


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"lock": False}, "environments.proxy.lock is false"),
        ({"index_url": "https://h/s"}, "environments.proxy.index_url names another source"),
        ({"find_links": ("/w",)}, "environments.proxy.find_links names another source"),
        ({"first": InstallStep(("a",))}, "environments.proxy.first installs packages before"),
        ({"python": "3.9"}, "not for Python 3.9"),
        ({"python": "/opt/python"}, "not for Python '/opt/python'"),
        ({"python": f"3.{sys.version_info.minor}"}, ""),
        ({"python": ">=3.11"}, ""),
        ({"installer": "pip"}, ""),
        ({}, ""),
    ],
)
def test_for_which_environments_a_lock_is_used(tmp_path: Path, values: dict[str, object], why: str) -> None:
    written(tmp_path)
    plan = resolve(spec(**values), tmp_path)
    assert (plan.lock is None) == bool(why)
    assert why in plan.why_no_lock


@pytest.mark.parametrize(
    ("machine", "libc", "fits"),
    [
        ("x86_64", (2, 17), True),
        ("aarch64", (2, 40), True),
        ("x86_64", (2, 12), False),
        ("x86_64", None, False),
        ("ppc64le", (2, 36), False),
    ],
)
def test_for_which_machines_a_lock_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, libc: tuple[int, int] | None, fits: bool
) -> None:
    written(tmp_path)
    monkeypatch.setattr(locks.platform, "machine", lambda: machine)
    monkeypatch.setattr(locks, "glibc", lambda: libc)
    plan = resolve(spec(), tmp_path)
    assert (plan.lock is not None) == fits
    assert fits or f"not for {machine} with" in plan.why_no_lock


def test_other_requirements_have_no_lock(tmp_path: Path) -> None:
    written(tmp_path)
    plan = resolve(EnvironmentSpec("proxy", ("tiny==1.1",)), tmp_path)
    assert plan.lock is None and "for other requirements: tiny==1.0" in plan.why_no_lock
    assert resolve(EnvironmentSpec("x", ("tiny==1.1",)), tmp_path).why_no_lock == "no lock is shipped for it"


def test_another_lock_is_another_environment(tmp_path: Path) -> None:
    keys = {resolve(spec(lock=False), tmp_path).key}
    written(tmp_path)
    keys.add(resolve(spec(), tmp_path).key)
    written(tmp_path, GOOD.replace("a1", "b2"))
    keys.add(resolve(spec(), tmp_path).key)
    assert len(keys) == 3


def test_the_users_own_lock_goes_first_and_a_stale_one_does_not_hide_the_shipped(tmp_path: Path) -> None:
    shipped = read(locks.SHIPPED / "proxy.lock")
    proxy = EnvironmentSpec("proxy", shipped.requirements)
    assert choose(proxy, shipped.requirements, tmp_path).lock == shipped
    written(tmp_path)  # of another version
    assert choose(proxy, shipped.requirements, tmp_path).lock == shipped
    own = written(tmp_path, shipped.text)
    found = choose(proxy, shipped.requirements, tmp_path).lock
    assert found is not None and found.own and found.path == own


PIP = "[global]\n{}\n"


@pytest.mark.parametrize(
    ("env", "pip", "default"),
    [
        ({}, "", True),
        ({}, "extra-index-url = https://corp/simple", True),
        ({}, "find-links = /wheels", True),
        ({}, "index-url = https://pypi.org/simple/", True),
        ({}, "index-url = https://mirror/simple", False),
        ({}, "index-url = https://mirror/simple\nextra-index-url = https://pypi.org/simple", True),
        ({}, "no-index = true", False),
        ({"UV_DEFAULT_INDEX": "https://mirror/simple"}, "", False),
        ({"UV_INDEX_URL": "https://mirror/simple"}, "", False),
        ({"UV_INDEX": "corp=https://corp/simple"}, "", True),
        ({"UV_DEFAULT_INDEX": "pypi=https://pypi.org/simple"}, "", True),
        ({"UV_NO_INDEX": "1"}, "", False),
        ({"PIP_INDEX_URL": "https://mirror/simple"}, "", False),
    ],
)
def test_when_packages_come_from_the_public_index(
    tmp_path: Path, env: dict[str, str], pip: str, default: bool
) -> None:
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(PIP.format(pip))
    here = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "etc"), **env}
    assert has_default_index(here, prefix="/nowhere") == default


def test_an_index_in_a_file_of_uv_is_not_the_public_one(tmp_path: Path) -> None:
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    (tmp_path / ".config" / "uv" / "uv.toml").write_text('index-url = "https://mirror/simple"\n')
    assert not has_default_index({"HOME": str(tmp_path), "XDG_CONFIG_DIRS": "/x"}, prefix="/nowhere")


def test_a_wrong_hash_and_a_missing_version_are_named() -> None:
    argv = ["uv", "pip", "install", "--require-hashes", "-r", "x"]
    assert "does not have the hash that the lock names" in _explain(
        argv, 1, "Hash mismatch for `tiny==1`", "uv"
    )
    assert "does not have the hash" in _explain(argv, 1, "THESE PACKAGES DO NOT MATCH THE HASHES FROM", "pip")
    unmet = "No solution found when resolving dependencies"
    assert "lock: false leaves it aside" in _explain(argv, 1, unmet, "uv")
    assert "lock" not in _explain(["uv", "pip", "install"], 1, unmet, "uv")


def test_envs_says_what_pins_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LIVERL_CACHE_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mirror/simple")
    sets = ["--set", "environments.vllm.venv_path=/opt/v", "--json"]
    assert envs_command.main(["proxy", "vllm", "verl", *sets], standalone_mode=False) == 0
    proxy, vllm, verl = json.loads(capsys.readouterr().out)
    assert (proxy["state"], proxy["hashes"]) == ("not built", False) and proxy["packages"] > 100
    assert "without hashes, since another package index" in proxy["pinned_by"]
    assert vllm["state"] == "existing" and "not installed by liverl-tui" in vllm["pinned_by"]
    assert verl["lock"] is None and "no lock is shipped" in verl["pinned_by"]
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert envs_command.main([], standalone_mode=False) == 0
    (line, pinned) = capsys.readouterr().out.splitlines()
    assert line.startswith("proxy") and "with hashes (shipped with liverl-tui)" in pinned
