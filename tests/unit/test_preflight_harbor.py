"""What tasks of Harbor's need is known before the start: Harbor, classes, names, sandboxes, and the tasks."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liverl.agents.harbor import local_environment_file
from liverl.config import load_config
from liverl.config.dump import dump_yaml
from liverl.config.resolve import resolved
from liverl.config.schema import RunConfig
from liverl.daemon.data_check import environment_checks
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import data_rows, harbor, verl
from liverl.preflight.data_rows import File, Task
from liverl_tui.cli import main as cli

HARBOR_PYTHON = os.environ.get("LIVERL_TEST_HARBOR_PYTHON", "")
VERL_PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
NAME = "environment harbor"
GOOD = ("agent.kind=harbor", "harbor_agent.agent_name=terminus-2", "harbor_agent.environment_type=local")
KEY = "data.train_index"
TYPE = "harbor_agent.environment_type"
MESSAGES = [{"role": "user", "content": "do it"}]


SMALL = ("training.train_batch_size=1", "training.train_prompt_mini_batch_size=1")  # of few rows


def config(*sets: str) -> RunConfig:
    return load_config(profile="cpu-verl", sets=[*SMALL, *sets], env={}).config


def checks(*sets: str) -> dict[str, Check]:
    loaded = load_config(profile="cpu-verl", sets=sets, env={})
    return {c.name: c for c in harbor.checks(make_plan(loaded, Path("/runs/p/n")), loaded.config)}


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory with a package that looks like Harbor, and with classes of a user's."""
    for name, text in {
        "harbor-0.24.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: harbor\nVersion: 0.24.0\n",
        "harbor/__init__.py": "",
        "harbor/models/__init__.py": "",
        "harbor/models/environment_type.py": "import enum\nclass EnvironmentType(enum.Enum):\n A='docker'\n B='gke'\n",
        "harbor/models/agent/__init__.py": "",
        "harbor/models/agent/name.py": "import enum\nclass AgentName(enum.Enum):\n A='terminus-2'\n B='claude-code'\n",
        "mine.py": "print('loaded')\nclass Agent: ...\nnumber = 1\n",
        "broken.py": "raise SystemExit('not today')\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def judged(package: Path, *sets: str) -> dict[str, tuple[str, str]]:
    given = (*GOOD, f"agent.path=[{package}]", f"environments.harbor.venv_path={sys.executable}", *sets)
    found = {name: (c.status, c.text) for name, c in checks(*given).items()}
    return {name: told for name, told in found.items() if not told[1].startswith("local: ")}


def test_nothing_is_checked_where_harbor_runs_no_rows() -> None:
    assert checks("agent.kind=chat", "harbor_agent.environment_type=local") == {}


def test_what_an_environment_with_harbor_knows_is_accepted(package: Path) -> None:
    version = f"harbor 0.24.0, Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert judged(package) == {NAME: ("ok", version), "harbor_agent.agent_name": ("ok", "terminus-2")}
    own = judged(package, "harbor_agent.agent_import_path=mine:Agent", "harbor_agent.agent_name=whatever")
    assert own == {NAME: ("ok", version), "harbor_agent.agent_import_path": ("ok", "mine:Agent")}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("agent_name", "terminus2", "harbor 0.24.0 has no agent terminus2; did you mean terminus-2?"),
        ("agent_name", "x", "harbor 0.24.0 has no agent x; it has terminus-2, claude-code"),
        ("environment_type", "dokcer", "harbor 0.24.0 has no environment dokcer; did you mean docker?"),
        ("environment_type", "locale", "harbor 0.24.0 has no environment locale; did you mean local?"),
        ("agent_import_path", "mine:Agnt", "mine has no class Agnt; did you mean Agent?"),
        ("agent_import_path", "mine:number", "mine has no class number; it has Agent"),
        (
            "agent_import_path",
            "gone.mine:Agent",
            "module gone.mine cannot be imported: ModuleNotFoundError: No module named 'gone'; agent.path adds "
            "directories with modules, and environments.harbor.venv_path names an environment that has the module",
        ),
        (
            "agent_import_path",
            "broken:A",
            "module broken cannot be imported: SystemExit: not today; agent.path",
        ),
    ],
)
def test_names_and_classes_that_harbor_does_not_have_are_refused(
    package: Path, key: str, value: str, words: str
) -> None:
    status, text = judged(package, f"harbor_agent.{key}={value}")[f"harbor_agent.{key}"]
    assert status == "fail" and text.startswith(words)


def test_a_class_for_sandboxes_is_looked_for_too(package: Path) -> None:
    sets = ("harbor_agent.environment_type=null", "harbor_agent.environment_import_path=mine:Pods")
    found = judged(package, *sets)
    assert found["harbor_agent.environment_import_path"] == ("fail", "mine has no class Pods; it has Agent")
    assert TYPE not in found, "such a class may use anything"


def test_a_name_is_unknown_where_harbor_does_not_tell_them(package: Path) -> None:
    assert judged(package, "harbor_agent.agent_name=acp:any")["harbor_agent.agent_name"][0] == "ok"
    (package / "harbor/models/agent/name.py").write_text("")
    (package / "harbor/models/environment_type.py").unlink()
    found = judged(package, "harbor_agent.agent_name=new", "harbor_agent.environment_type=gke")
    status, text = found["harbor_agent.agent_name"]
    assert status == "warn" and text.startswith("it is not known whether harbor ")
    assert text.endswith(
        " has the agent new: AttributeError: module 'harbor.models.agent.name' has no attribute 'AgentName'"
    )
    status, text = found[TYPE]
    assert status == "warn" and text.endswith(
        " has the environment gke: ModuleNotFoundError: No module named 'harbor.models.environment_type'"
    )


def test_an_environment_without_harbor_is_refused(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert found.keys() == {NAME}
    status, text = found[NAME]
    assert status == "fail" and text.startswith(f"{sys.executable} (Python ")
    assert text.endswith(
        "has no package harbor; install harbor there, or name an environment with Harbor in "
        "environments.harbor.venv_path"
    )


def test_an_environment_that_is_missing_or_broken_is_told(tmp_path: Path) -> None:
    def told(path: Path) -> tuple[str, str]:
        check = checks(*GOOD, f"environments.harbor.venv_path={path}")[NAME]
        return check.status, check.text

    missing = f"{tmp_path}/none/bin/python does not exist (environments.harbor.venv_path)"
    assert told(tmp_path / "none") == ("fail", missing)
    broken = program(tmp_path / "bin" / "python", "echo 'no libpython' >&2; exit 127")
    assert told(tmp_path) == ("fail", f"{broken} cannot be asked for Harbor: no libpython")


def test_an_environment_that_must_be_built_needs_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    program(tmp_path / "bin" / "python3", "echo 3.11")
    assert checks(*GOOD)[NAME] == Check(
        NAME,
        "fail",
        "Harbor needs Python 3.12 or newer, and neither PATH, pyenv nor uv has one; install one (uv python install "
        "3.12), or set environments.harbor.venv_path to an environment with Harbor",
    )
    newer = program(tmp_path / "bin" / "python3", "echo 3.13")
    words = "at the start of the run, and looked at then"
    assert checks(*GOOD)[NAME] == Check(NAME, "skipped", f"will be built with {newer} {words}")
    named = checks(*GOOD, "environments.harbor.python=/own/python3")[NAME]
    assert named.text == f"will be built with /own/python3 {words}"


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Programs that the local environment needs, each of which succeeds."""
    for name in harbor.PROGRAMS:
        program(tmp_path / name, "exit 0")
    yield {"PATH": str(tmp_path)}


def test_the_local_environment_needs_programs_and_user_namespaces(
    tmp_path: Path, tools: dict[str, str]
) -> None:
    assert harbor.no_namespaces(tools) == ""
    program(tmp_path / "unshare", "echo 'unshare: Operation not permitted' >&2; exit 1")
    why = harbor.no_namespaces(tools)
    assert why.startswith(
        "it needs user namespaces, and `unshare -rm unshare -rm true` fails: unshare: Operation not permitted; "
        "allow user "
    )
    assert why.endswith("or set harbor_agent.environment_type to docker")
    (tmp_path / "tar").unlink()
    (tmp_path / "nsenter").unlink()
    assert harbor.no_namespaces(tools) == (
        "it needs the programs nsenter, tar, which are not on PATH; "
        "install them (util-linux, coreutils, findutils, tar)"
    )


def test_user_namespaces_are_tried_as_the_environment_makes_them(
    tmp_path: Path, tools: dict[str, str]
) -> None:
    program(tmp_path / "unshare", '[ "$*" = "-rm unshare -rm true" ]')
    assert harbor.no_namespaces(tools) == ""


def test_the_programs_are_those_that_the_environment_itself_asks_for() -> None:
    tree = ast.parse(local_environment_file().with_name("environment.py").read_text("utf-8"))
    (needed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NEEDED"
    )
    assert needed == harbor.PROGRAMS


def test_dockers_daemon_is_asked(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    assert harbor.no_docker("", env) == (
        "there is no program docker on PATH; install it, or set harbor_agent.environment_type to local"
    )
    program(tmp_path / "docker", 'echo "first" >&2; echo "no daemon at $DOCKER_HOST" >&2; exit 1')
    assert harbor.no_docker("tcp://h:1", env).startswith(
        "its daemon does not answer: no daemon at tcp://h:1; start it, set harbor_agent.docker_host, or "
    )
    assert "no daemon at; start" in harbor.no_docker("", env)
    program(tmp_path / "docker", '[ "$1" = version ] && exit 0; exit 1')
    assert harbor.no_docker("", env) == ""


@pytest.mark.parametrize("kind", ["docker", "null"])
def test_docker_is_the_environment_unless_another_is_named(
    package: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "docker", "echo 'no daemon' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    status, text = judged(package, f"harbor_agent.environment_type={kind}")[TYPE]
    assert status == "fail" and text.startswith("docker: its daemon does not answer: no daemon; start it")


def test_other_environments_of_harbors_are_its_own_matter(package: Path) -> None:
    assert judged(package, "harbor_agent.environment_type=gke")[TYPE] == ("ok", "gke")


FACTORY = """
import importlib, os
class EnvironmentFactory:
    def run_preflight(kind, path=None):
        print("asked")
        if path:
            module, name = path.split(":")
            return getattr(importlib.import_module(module), name).preflight()
        if "GKE_TOKEN" not in os.environ:
            raise SystemExit("GKE requires\\nGKE_TOKEN to be set.")
        import harbor.environments.gke
"""
CLASSES = """
class With:
    def preflight():
        raise RuntimeError("no gateway")
class Without: ...
"""
GKE = ("harbor_agent.environment_type=gke",)
PASSED = "supervise.pass_env=[GKE_TOKEN]"
OWN = ("harbor_agent.environment_type=null", "harbor_agent.environment_import_path=sandboxes:")


@pytest.mark.parametrize(
    ("sets", "variables", "there", "told"),
    [
        (GKE, {}, True, ("fail", "gke: Harbor's own check says: GKE requires GKE_TOKEN to be set.")),
        (
            *((*GKE, PASSED), {"GKE_TOKEN": "x"}, False),
            (
                "fail",
                "gke: Harbor's own check says: packages that it needs are not installed (_HAS_KUBERNETES): install "
                "harbor[gke] there",
            ),
        ),
        (
            *((*GKE, PASSED), {"GKE_TOKEN": "x"}, True),
            ("ok", "gke: Harbor's own check finds what it needs on this host"),
        ),
        (
            (OWN[0], f"{OWN[1]}With"),
            {},
            True,
            ("fail", "sandboxes:With: Harbor's own check says: no gateway"),
        ),
        ((OWN[0], f"{OWN[1]}Without"), {}, True, None),
        ((OWN[0], f"{OWN[1]}Gone"), {}, True, None),  # told of its key
        (("harbor_agent.environment_type=gkee",), {}, True, None),
        (("harbor_agent.environment_type=local",), {}, True, None),
    ],
)
def test_an_environment_of_harbors_is_asked_for_what_it_needs(
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    sets: tuple[str, ...],
    variables: dict[str, str],
    there: bool,
    told: tuple[str, str] | None,
) -> None:
    folder = package / "harbor/environments"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "factory.py").write_text(FACTORY)
    (folder / "gke.py").write_text(f"_HAS_KUBERNETES = {there}\n")
    (package / "sandboxes.py").write_text(CLASSES)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert judged(package, *sets).get(harbor.SANDBOXES) == told


def test_a_variable_that_trials_do_not_inherit_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = package / "harbor/environments"
    folder.mkdir()
    (folder / "factory.py").write_text(FACTORY)
    monkeypatch.setenv("GKE_TOKEN", "x")
    given = (*GOOD, f"agent.path=[{package}]", f"environments.harbor.venv_path={sys.executable}", *GKE)
    told = checks(*given)[harbor.SANDBOXES]
    assert told.status == "fail" and "GKE requires GKE_TOKEN to be set" in told.text
    assert told.fix == "GKE_TOKEN is set here, but trials do not inherit it: add it to supervise.pass_env"


def test_a_harbor_without_a_check_of_its_environments_is_told(package: Path) -> None:
    status, text = judged(package, *GKE)[harbor.SANDBOXES]
    assert status == "skipped" and "harbor 0.24.0 has no preflight to ask: ModuleNotFoundError" in text


def test_local_is_told_with_what_it_does_not_separate() -> None:
    check = checks(*GOOD, "environments.harbor.venv_path=/none")[TYPE]
    if check.status == "ok":
        assert (
            check.text == "local: separates paths only; trials see this machine's files, network and memory"
        )
    else:
        assert check.text.startswith("local: it needs ")


# -- the tasks


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks" / "hello"
    (folder / "tests").mkdir(parents=True)
    for name in ("instruction.md", "task.toml", "tests/test.sh"):
        (folder / name).write_text("")
    return folder


def test_a_task_has_its_files(task: Path) -> None:
    assert harbor.task_fault(task, verifier=True) == ""
    assert harbor.task_fault(task.parent, verifier=True) == (
        f"{task.parent} has no instruction.md and no task.toml and no tests/test.sh"
    )
    assert harbor.task_fault(task / "none", verifier=True) == f"there is no directory {task}/none"
    assert harbor.task_fault(task / "task.toml", verifier=True) == f"{task}/task.toml is not a directory"
    (task / "tests" / "test.sh").unlink()
    assert harbor.task_fault(task, verifier=True) == f"{task} has no tests/test.sh"
    assert harbor.task_fault(task, verifier=False) == ""


def test_a_task_of_several_steps_has_files_of_its_own(task: Path) -> None:
    (task / "steps").mkdir()
    (task / "instruction.md").unlink()
    (task / "tests" / "test.sh").unlink()
    assert harbor.task_fault(task, verifier=True) == ""
    (task / "task.toml").unlink()
    assert harbor.task_fault(task, verifier=True) == f"{task} has no task.toml"


def row(path: str | None = "tasks/hello", **more: object) -> dict[str, object]:
    extra = {"split": "train"} if path is None else {"split": "train", "task_path": path}
    return {"data_source": "mine", "prompt": MESSAGES, "extra_info": extra, **more}


def told(found: File, *sets: str) -> tuple[str, str]:
    answer = data_rows.Answer(files={KEY: found})
    (check,) = data_rows.checks(config(*sets), answer, {KEY: "/d/t.parquet"})
    return check.status, check.text.removeprefix("/d/t.parquet: ")


COLUMNS = ("data_source", "prompt", "extra_info")


def test_rows_of_harbors_tasks_are_told_and_need_no_ground_truth() -> None:
    found = File(count=6, columns=COLUMNS, rows={0: row()}, tasks=(Task("tasks/hello", 0, 6),))
    assert told(found, *GOOD) == ("ok", "6 rows: harbor 6")
    environment = "environments.harbor.venv_path=/v"
    assert told(found, GOOD[1], environment) == ("ok", "6 rows: harbor 6")
    status, text = told(found, *GOOD, "harbor_agent.verifier_enabled=false")
    assert status == "fail" and text.startswith("row 0: has no reward_model.ground_truth")


def test_kinds_in_one_file_are_counted_one_by_one() -> None:
    found = File(
        count=10,
        columns=(*COLUMNS, "agent_name"),
        rows={
            0: row(agent_name="liverl_session"),
            4: row(None, agent_name="liverl_session"),
            7: row(agent_name="liverl_command"),
        },
        loops={"liverl_session": 7, "liverl_command": 3},
        tasks=(
            Task("tasks/hello", 0, 3, "liverl_session"),
            Task("tasks/b", 3, 1, "liverl_session"),
            Task("tasks/c", 7, 3, "liverl_command"),
        ),
    )
    sets = ("environments.harbor.venv_path=/v", GOOD[1], "agent.command=[a]")
    assert told(found, *sets) == ("ok", "10 rows: harbor 4, command 6")
    run = data_rows.harbor_tasks(config(*sets), found)
    assert [task.path for task in run] == ["tasks/hello", "tasks/b"]


def test_a_row_for_harbor_names_a_task() -> None:
    found = File(count=1, columns=COLUMNS, rows={0: row(None)})
    words = "row 0: has no extra_info.task_path, the directory of a task of Harbor's"
    assert told(found, *GOOD) == ("fail", words)
    named = File(
        count=1, columns=COLUMNS, rows={0: row(None, agent_name="liverl_harbor")}, loops={"liverl_harbor": 1}
    )
    assert told(named, "environments.harbor.venv_path=/v", GOOD[1]) == ("fail", words)


def test_tasks_that_nothing_runs_by_harbor_are_told() -> None:
    found = File(count=6, columns=COLUMNS, rows={0: row()}, tasks=(Task("tasks/hello", 0, 4),))
    assert told(found, "agent.command=[a]") == (
        "ok",
        "6 rows: command 6; 4 of them have extra_info.task_path, and Harbor runs none: set environments.harbor",
    )


@pytest.mark.skipif(not VERL_PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
@pytest.mark.parametrize("loops", [False, True])
def test_each_task_of_a_file_is_looked_at(tmp_path: Path, task: Path, loops: bool) -> None:
    rows = [row("tasks/hello")] * 6 + [row("tasks/gone")] * 4
    if loops:
        rows = [{**one, "agent_name": "liverl_session"} for one in rows]
    write = (
        "import pyarrow as pa, pyarrow.parquet as pq; "
        f"pq.write_table(pa.Table.from_pylist({rows!r}), {str(tmp_path / 't.parquet')!r})"
    )
    subprocess.run([VERL_PYTHON, "-c", write], check=True)
    sets = (*GOOD[1:], "environments.harbor.venv_path=/v", f"environments.verl.venv_path={VERL_PYTHON}")
    files = (f"data.train_index={tmp_path}/t.parquet", f"data.val_index={tmp_path}/t.parquet")
    loaded = load_config(profile="cpu-verl", sets=(*sets, *files), env={})

    def found() -> Check:
        plan = make_plan(loaded, Path("/runs/p/n"))
        return next(c for c in verl.data(plan, loaded.config) if c.name == KEY)

    where = f"{tmp_path}/t.parquet"
    words = f"{where}: row 6: extra_info.task_path tasks/gone: there is no directory {tmp_path}/tasks/gone"
    assert found() == Check(KEY, "fail", words)
    (tmp_path / "tasks" / "gone").symlink_to(task)
    assert found() == Check(KEY, "ok", f"{where}: 10 rows: harbor 10")


@pytest.mark.skipif(not HARBOR_PYTHON, reason="LIVERL_TEST_HARBOR_PYTHON names no Python with Harbor")
def test_harbor_tells_its_names() -> None:
    answer = harbor.ask(Path(HARBOR_PYTHON), {"k": "harbor.agents.oracle:OracleAgnt"}, ())
    assert answer.harbor.startswith("0.2") and tuple(map(int, answer.python.split("."))) >= (3, 12)
    assert {"docker", "ack"} <= set(answer.environments)
    assert {"terminus-2", "claude-code"} <= set(answer.agents)
    assert answer.problems["k"][0] == "harbor.agents.oracle has no class OracleAgnt"
    assert "OracleAgent" in answer.problems["k"][1] and answer.preflight is None
    bare = {"PATH": os.defpath, "HOME": "/nonexistent"}
    told = harbor.ask(Path(HARBOR_PYTHON), {}, (), ("e2b", ""), bare).preflight
    assert told is not None and "E2B_API_KEY" in told
    told = harbor.ask(Path(HARBOR_PYTHON), {}, (), ("e2b", ""), {**bare, "E2B_API_KEY": "x"}).preflight
    assert told in ("", "packages that it needs are not installed (_HAS_E2B): install harbor[e2b] there")


def test_relative_tasks_start_at_the_directory_of_the_training_data(tmp_path: Path) -> None:
    from liverl.plan.harbor import tasks_directory

    loaded = load_config(profile="cpu-verl", sets=(*GOOD, "data.train_index=rows/t.parquet"), env={})
    whole = resolved(loaded.config, env={}, cwd=tmp_path, now=0.0)
    assert tasks_directory(whole) == f"{tmp_path}/rows"


async def test_an_environment_that_was_built_is_asked_before_the_run_goes_on(
    package: Path, tmp_path: Path
) -> None:
    sets = ("agent.kind=harbor", f"agent.path=[{package}]", "harbor_agent.environment_type=local")
    sets = (*sets, f"environments.harbor.venv_path={sys.executable}")

    async def found(name: str) -> str:
        loaded = load_config(profile="cpu-verl", sets=(*sets, f"harbor_agent.agent_name={name}"), env={})
        saved = tmp_path / "config.yaml"
        saved.write_text(dump_yaml(loaded.config))
        checks = environment_checks(make_plan(loaded, Path("/runs/p/n")), saved)
        return await checks["harbor"](Path(sys.executable))

    assert "harbor_agent.agent_name: " not in await found("terminus-2")
    wrong = "harbor_agent.agent_name: harbor 0.24.0 has no agent terminus2; did you mean terminus-2?"
    assert wrong in await found("terminus2")


def test_plan_tells_what_is_found_of_data_agents_and_harbor(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    sets = [*GOOD, f"agent.path=[{package}]", f"environments.harbor.venv_path={sys.executable}"]
    sets += ["harbor_agent.agent_name=terminus2", f"data.train_index={tmp_path}/none.parquet"]
    told = [
        "plan",
        "--profile",
        "cpu-verl",
        "--name",
        "n",
        *(word for text in sets for word in ("--set", text)),
    ]
    assert cli.run(told) == 3
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    found = {" ".join(line[1].split()): line[0] for line in lines if len(line) > 1}
    assert found[f"{KEY} cannot read {tmp_path}/none.parquet: No such file or directory"] == "fail"
    wrong = "harbor 0.24.0 has no agent terminus2; did you mean terminus-2?"
    assert found[f"harbor_agent.agent_name {wrong}"] == "fail"
    assert [found[line] for line in found if line.startswith(f"{NAME} harbor 0.24.0, Python 3.")] == ["ok"]
    assert cli.run([*told, "--json"]) == 3
    (told_of,) = [
        one
        for one in json.loads(capsys.readouterr().out)["checks"]
        if one["name"] == "harbor_agent.agent_name"
    ]
    assert (told_of["status"], told_of["text"]) == ("fail", wrong)
    assert cli.run(["plan", "--name", "n", "--other-host"]) == 0
    assert "parquet" not in capsys.readouterr().out


def test_classes_in_the_current_directory_are_not_found(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    (here / "near.py").write_text("class Agent: ...\n")
    monkeypatch.chdir(here)
    found = judged(package, "harbor_agent.agent_import_path=near:Agent")["harbor_agent.agent_import_path"]
    assert found[0] == "fail" and found[1].startswith("module near cannot be imported: ModuleNotFoundError")
