"""Where an environment is, which index uv is told, what its output says, and what of it is shown."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.config.trusted_roots import ROOTS_VARIABLE
from liverl.environments import BuildError, default_cache_dir, locking, resolve, uv
from liverl.environments.index import Redactor, pip_settings, uv_environment, uv_has_index
from liverl.environments.resolve import MARKER, normalise_requirement
from liverl.environments.uv import UvProgress
from liverl.plan.spec import EnvironmentSpec

CACHE = Path("/nowhere/cache")


def spec(*requirements: str, **options: str) -> EnvironmentSpec:
    return EnvironmentSpec(name="proxy", requirements=requirements, **options)  # type: ignore[arg-type]


def test_the_key_ignores_spelling_and_order() -> None:
    assert resolve(spec("LiteLLM[proxy] == 1.106.2", "a_b>=1"), CACHE) == resolve(
        spec("a-b>=1", "litellm[proxy]==1.106.2", "A.B >=1"), CACHE
    )


def test_the_key_tells_contents_and_interpreters_apart() -> None:
    keys = [
        resolve(each, CACHE).key
        for each in (spec("a==1"), spec("a==2"), spec("a==1", "b"), spec("a==1", python="3.12"))
    ]
    assert len(set(keys)) == 4


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,8}( ?(==|>=) ?[0-9]{1,2})?", fullmatch=True))
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise_requirement(normalise_requirement(text)) == normalise_requirement(text)


def test_markers_and_addresses_are_kept() -> None:
    assert normalise_requirement('A >= 1 ;  python_version < "3.12"') == 'a>=1; python_version < "3.12"'
    assert normalise_requirement("A @ file:///x y/a.whl") == "a @ file:///x y/a.whl"


@pytest.mark.parametrize("bad", ["-r file.txt", "--index-url=x", "", "  "])
def test_options_are_no_requirements(bad: str) -> None:
    with pytest.raises(BuildError):
        resolve(spec(bad), CACHE)


@pytest.mark.parametrize("name", ["../x", "", "a b"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(BuildError):
        resolve(EnvironmentSpec(name=name, requirements=("a",)), CACHE)


def test_nothing_asked_for_is_our_own_interpreter() -> None:
    plan = resolve(EnvironmentSpec(name="self"), CACHE)
    assert (plan.kind, plan.python, plan.published) == ("own", Path(sys.executable), True)


def test_the_interpreter_that_runs_us_may_be_named_self() -> None:
    plan = resolve(spec("tiny==1", venv_path="self"), CACHE)
    assert (plan.kind, plan.python, plan.published) == ("own", Path(sys.executable), True)


def test_an_existing_environment_may_be_given_by_folder_or_interpreter() -> None:
    assert resolve(spec(venv_path="/opt/venv"), CACHE).python == Path("/opt/venv/bin/python")
    assert resolve(spec(venv_path="/usr/bin/python3"), CACHE).python == Path("/usr/bin/python3")


def test_published_means_complete_with_an_interpreter_and_is_found_without_running_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_args, **_how: pytest.fail("a program is run"))
    plan = resolve(spec("a"), tmp_path)
    assert plan.folder is not None and not plan.published
    plan.python.parent.mkdir(parents=True)
    plan.python.symlink_to(sys.executable)
    assert not plan.published
    (plan.folder / MARKER).write_text("{}")
    assert resolve(spec("a"), tmp_path).published
    plan.python.unlink()
    plan.python.symlink_to(tmp_path / "gone")
    assert not plan.published


def test_the_default_cache() -> None:
    home = Path("~/.cache/liverl").expanduser()
    assert default_cache_dir({"LIVERL_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x"}) == Path("/c")
    assert default_cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/liverl")
    assert default_cache_dir({"XDG_CACHE_HOME": "relative"}) == home == default_cache_dir({})


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "etc"), "PATH": "/bin"}


def pip_conf(home: dict[str, str], text: str) -> None:
    (Path(home["HOME"]) / ".config" / "pip" / "pip.conf").write_text(text)


def test_pips_index_is_told_to_uv(home: dict[str, str]) -> None:
    pip_conf(
        home,
        "[global]\nindex-url = https://u:p@pkg.corp/simple\nextra-index-url =\n  https://a/s\n  https://b/s\n"
        "trusted-host = pkg.corp\n[install]\nfind-links = /wheels /more\n",
    )
    told = uv_environment(home, prefix="/nowhere")
    assert told["UV_INDEX"] == "https://u:p@pkg.corp/simple https://a/s"  # in order of preference
    assert told["UV_DEFAULT_INDEX"] == "https://b/s"  # uv asks this one last
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["UV_FIND_LINKS"] == "/wheels,/more"
    assert told["UV_INSECURE_HOST"] == "pkg.corp"
    assert told["UV_SYSTEM_CERTS"] == "1"


def test_a_single_index_is_uvs_default(home: dict[str, str]) -> None:
    pip_conf(home, "[global]\nindex-url = https://only/s\n")
    told = uv_environment(home, prefix="/nowhere")
    assert told["UV_DEFAULT_INDEX"] == "https://only/s" and "UV_INDEX" not in told


def test_pips_variables_win_over_its_files(home: dict[str, str]) -> None:
    pip_conf(home, "[global]\nindex-url = https://file/s\n")
    merged = pip_settings({**home, "PIP_INDEX_URL": "https://env/s"}, prefix="/nowhere")
    assert merged["index-url"] == "https://env/s"
    assert pip_settings({**home, "PIP_CONFIG_FILE": "/dev/null"}, prefix="/nowhere") == {}


def test_the_interpreters_own_pip_conf_wins_over_the_users(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(home, "[global]\nindex-url = https://user/s\n")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://venv/s\n")
    assert pip_settings(home, prefix=str(tmp_path))["index-url"] == "https://venv/s"


def test_an_index_that_uv_has_is_left_alone(home: dict[str, str]) -> None:
    pip_conf(home, "[global]\nindex-url = https://pip/s\n")
    assert "UV_DEFAULT_INDEX" not in uv_environment(
        {**home, "UV_INDEX_URL": "https://uv/s"}, prefix="/nowhere"
    )
    config = Path(home["HOME"]) / ".config" / "uv" / "uv.toml"
    config.parent.mkdir()
    config.write_text("native-tls = true\n")
    assert not uv_has_index(home)
    config.write_text('[[index]]\nurl = "https://uv/s"\n')
    assert uv_has_index(home)
    assert "UV_DEFAULT_INDEX" not in uv_environment(home, prefix="/nowhere")


def test_a_broken_pip_conf_is_pips_problem(home: dict[str, str]) -> None:
    pip_conf(home, "no section = here\n")
    assert "UV_DEFAULT_INDEX" not in uv_environment(home, prefix="/nowhere")


def test_our_own_environment_does_not_leak_into_builds(home: dict[str, str]) -> None:
    told = uv_environment({**home, "VIRTUAL_ENV": "/x", "PYTHONPATH": "/y"}, prefix="/nowhere")
    assert "VIRTUAL_ENV" not in told and "PYTHONPATH" not in told


@pytest.mark.parametrize(
    "line",
    [
        "error: Failed to fetch: `https://u:secret@pkg.corp.example/simple/litellm/`",
        "  Caused by: failed to lookup address information: pkg.corp.example: unknown",
        "because pkg.corp.example said 401",
        "https://files.other.example/a/b.whl?token=secret",
    ],
)
def test_no_index_host_or_credential_is_shown(line: str) -> None:
    redact = Redactor({"UV_DEFAULT_INDEX": "https://u:secret@pkg.corp.example/simple"})
    shown = redact(line)
    assert "corp" not in shown and "secret" not in shown and "other" not in shown
    assert shown != line


def test_named_indexes_are_known_too_and_other_text_stays() -> None:
    redact = Redactor({"UV_INDEX": "mine=https://pkg.corp/simple https://two.corp/s"})
    assert redact("pkg.corp and two.corp, not notpkg.corp.org") == "[index] and [index], not notpkg.corp.org"
    assert redact("Resolved 118 packages in 1.2s") == "Resolved 118 packages in 1.2s"


@given(st.text())
def test_redacting_takes_any_text(text: str) -> None:
    Redactor({"UV_INDEX": text})(text)


def test_uvs_lines_become_progress() -> None:
    parser = UvProgress()
    said = [
        "Using Python 3.11.7 environment at: /x",
        "Resolved 118 packages in 1.20s",
        "Downloading torch (500.0MiB)",
        " Downloaded torch",
        "   Building tiny @ file:///x",
        "Prepared 118 packages in 40ms",
        "Installed 118 packages in 300ms",
        " + aiohttp==3.9",
        "Bytecode compiled 9000 files in 20s",
    ]
    told = [found for found in map(parser.take, said) if found]
    assert [text for text, _ in told] == [
        "resolved 118 packages",
        "downloading torch (500.0MiB)",
        "downloaded torch",
        "building tiny",
        "prepared 118 packages",
        "installed 118 packages, compiling them",
        "compiled 9000 files",
    ]
    shares = [share for _, share in told]
    assert None not in shares and shares == sorted(shares, key=float) and shares[-1] == 1.0  # type: ignore[arg-type]


def test_nothing_is_built_where_another_user_could_put_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    lock = folder / ".verl.lock"
    locking._require_own("verl", folder, lock)
    folder.chmod(0o777)
    with pytest.raises(BuildError, match=r"every user can write it .*chmod o-w .*LIVERL_CACHE_DIR"):
        locking._require_own("verl", folder, lock)
    monkeypatch.setenv(ROOTS_VARIABLE, f"[{tmp_path}]")
    locking._require_own("verl", folder, lock)
    monkeypatch.setenv(ROOTS_VARIABLE, "{")
    with pytest.raises(BuildError, match="is not a list of directories"):
        locking._require_own("verl", folder, lock)


def test_compiled_files_are_counted(tmp_path: Path) -> None:
    assert uv.compiled(tmp_path) == (0, 0)
    package = tmp_path / "lib" / "python3.12" / "site-packages" / "p"
    (package / "__pycache__").mkdir(parents=True)
    for name in (
        "a.py",
        "b.py",
        "c.txt",
        "__pycache__/a.cpython-312.pyc",
        "__pycache__/a.cpython-312.pyc.tmp",
    ):
        (package / name).touch()
    assert uv.compiled(tmp_path) == (1, 2)
    for name in ("x", "y", "z"):  # of an earlier version of the package
        (package / "__pycache__" / f"{name}.pyc").touch()
    assert uv.compiled(tmp_path) == (2, 2)


async def test_while_uv_compiles_it_is_said_how_far(tmp_path: Path) -> None:
    """uv says nothing meanwhile, for minutes on a slow disk: the stage stood at 85 % without a sign of life."""
    folder = tmp_path / "env"
    (folder / "__pycache__").mkdir(parents=True)
    for name in ("a.py", "b.py", "__pycache__/a.pyc"):
        (folder / name).touch()
    told: list[tuple[str, float | None]] = []
    os.mkfifo(go_on := tmp_path / "go-on")
    script = f"echo Installed 2 packages in 1s; read -r _ < {go_on}; echo Bytecode compiled 2 files"
    pipe = os.open(go_on, os.O_RDWR)

    def progress(text: str, share: float | None) -> None:
        told.append((text, share))
        if text == "compiled 1 of 2 files":
            os.write(pipe, b"\n")

    try:
        async with asyncio.timeout(60):
            await uv.run_installer(["/bin/sh", "-c", script], {}, tmp_path, progress, compiles=folder)
    finally:
        os.close(pipe)
    assert told[0] == ("installed 2 packages, compiling them", 0.85)
    assert told[1:-1] and set(told[1:-1]) == {("compiled 1 of 2 files", 0.925)}
    assert told[-1] == ("compiled 2 files", 1.0)
