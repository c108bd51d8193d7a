"""What tasks of Harbor's need before the start: Harbor itself, the user's classes, sandboxes, and the tasks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import msgspec

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR
from liverl.environments import BuildError, default_cache_dir, resolve
from liverl.environments.interpreters import find
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python, module_path
from liverl.preflight.subject import trainer_variables
from liverl.procs.asking import NotEndedError, ask_program, last_words
from liverl.sandboxes.daemon_faults import told
from liverl.util.nearest import did_you_mean

NAME = "environment harbor"
SANDBOXES = "sandboxes"  # what an environment of Harbor's needs on this host
LOCAL, DOCKER = "local", "docker"  # the environment that is ours, and Harbor's default
# What the local environment starts; see ``agents.harbor.local_environment``.
PROGRAMS = (
    "unshare", "nsenter", "setpriv", "mount", "umount", "pivot_root", "chroot", "bash", "tar", "find", "realpath", "rm",
)  # fmt: skip
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"  # which the environment adds to PATH
_DAEMON_SECONDS = 15.0
_NAMESPACES = (
    "allow user namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container also its seccomp profile), or set "
    "harbor_agent.environment_type to docker"
)
# Runs in Harbor's environment. Importing a class executes the user's module, as Harbor does for each trial.
_ASK = r"""
import importlib, importlib.metadata, inspect, json, sys
classes, kind, path = json.loads(sys.argv[1])
untold = {}
def names(what, module, enum):
    try:
        return [member.value for member in getattr(importlib.import_module(module), enum)]
    except Exception as error:
        untold[what] = f"{type(error).__name__}: {error}"
        return []
def problem(path):
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except BaseException as error:
        return f"module {module} cannot be imported: {type(error).__name__}: {error}", []
    if inspect.isclass(getattr(found, name, None)):
        return "", []
    return f"{module} has no class {name}", [n for n, v in vars(found).items() if inspect.isclass(v)]
def tried():
    try:
        from harbor.environments.factory import EnvironmentFactory
        from harbor.models.environment_type import EnvironmentType
        run = EnvironmentFactory.run_preflight
    except (ImportError, AttributeError) as error:
        untold["preflight"] = f"{type(error).__name__}: {error}"
        return None
    known = set(sys.modules)
    try:
        run(EnvironmentType(kind) if kind else None, path or None)
    except (Exception, SystemExit) as error:
        return " ".join(str(error).split()) or type(error).__name__
    # A module of Harbor's notes whether the packages of its extra are there, and raises only when a sandbox starts.
    own = [vars(module) for name, module in sys.modules.items() if name not in known and "harbor." in name]
    missing = [name for names in own for name, there in names.items() if name[:5] == "_HAS_" and there is False]
    if kind and missing:
        return f"packages that it needs are not installed ({', '.join(missing)}): install harbor[{kind}] there"
    return ""
try:
    version = importlib.metadata.version("harbor")
except importlib.metadata.PackageNotFoundError:
    version = ""
answer = {"python": "%d.%d" % sys.version_info[:2], "harbor": version}
if version:
    answer["environments"] = names("environment", "harbor.models.environment_type", "EnvironmentType")
    answer["agents"] = names("agent", "harbor.models.agent.name", "AgentName")
    answer["untold"] = untold
    answer["problems"] = {key: problem(named) for key, named in classes.items()}
    module, _, name = path.partition(":")
    has_one = not path or hasattr(getattr(sys.modules.get(module), name, None), "preflight")
    if has_one and (path or kind in answer["environments"]):
        answer["preflight"] = tried()
print()
print(json.dumps(answer))
"""


class HarborAnswer(msgspec.Struct, frozen=True):
    """What an interpreter knows of Harbor. ``harbor``: its version, "" without it; ``environments`` and ``agents``: the
    names that it knows; ``untold``: why it does not tell those, by "environment" and "agent"; ``problems``: by
    configuration key, why a class cannot be used ("" if it can), and the classes of its module; ``preflight``: what the
    environment's own preflight misses, "" if nothing, None if it was not run, for the reason in ``untold``."""

    python: str
    harbor: str
    environments: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    untold: dict[str, str] = {}
    problems: dict[str, tuple[str, tuple[str, ...]]] = {}
    preflight: str | None = None


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """All checks but those of the rows; none if Harbor runs no rows. ``env``: of the caller; the sandboxes are tried
    with the variables that the trainer gets."""
    if not when.harbor(config):
        return
    spec = next((e for e in plan.environments if e.name == HARBOR), None)
    assert spec is not None, "the plan has the environment of each service"
    try:
        place = resolve(spec, default_cache_dir())
    except BuildError as error:
        yield Check(NAME, "fail", error.text)
        return
    variables = trainer_variables(plan, env)
    if place.published:
        yield from _environment(place.python, config, variables, env)
    elif place.kind == "built":
        yield to_build(spec.python or "")
    else:
        yield Check(NAME, "fail", f"{place.python} does not exist (environments.harbor.venv_path)")
    yield from _sandbox(config, variables)


def to_build(wanted: str) -> Check:
    """Whether the interpreter for an environment that has still to be built is on this machine. ``wanted``: a version,
    or a path."""
    python = Path(wanted) if os.sep in wanted else find(wanted)
    if python is not None:
        words = f"will be built with {python} at the start of the run, and looked at then"
        return Check(NAME, "skipped", words)
    words = (
        f"Harbor needs Python {wanted.removeprefix('>=')} or newer, and neither PATH, pyenv nor uv has one"
    )
    ways = "install one (uv python install 3.12), or set environments.harbor.venv_path to an environment with Harbor"
    return Check(NAME, "fail", f"{words}; {ways}")


def ask(
    python: Path,
    classes: Mapping[str, str],
    path: tuple[str, ...],
    sandboxes: tuple[str, str] = ("", ""),
    variables: Mapping[str, str] = os.environ,
) -> HarborAnswer:
    """Ask an interpreter about Harbor. ``classes``: ``module:Class`` by configuration key; ``path``: directories with
    the user's modules; ``sandboxes``: the type of environment and the class, of which the preflight is run with
    ``variables``; without either none is.

    Raises:
        ValueError: it cannot be asked; the text says why.
    """
    env = {**variables, "PYTHONPATH": module_path(path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    # What lies in the current directory is not found by Harbor either.
    return ask_python(python, _ASK, [json.dumps([dict(classes), *sandboxes])], HarborAnswer, env=env, cwd="/")


def _environment(
    python: Path, config: RunConfig, variables: Mapping[str, str], env: Mapping[str, str]
) -> Iterator[Check]:
    agent = config.harbor_agent
    named = {
        "harbor_agent.agent_import_path": agent.agent_import_path,
        "harbor_agent.environment_import_path": agent.environment_import_path,
    }
    kind = "" if _tried_by_us(config) else str(agent.environment_type)
    sandboxes = ("", agent.environment_import_path) if agent.environment_import_path else (kind, "")
    try:
        answer = ask(
            python,
            {key: path for key, path in named.items() if path},
            config.agent.path,
            sandboxes,
            variables,
        )
    except ValueError as error:
        yield Check(NAME, "fail", f"{python} cannot be asked for Harbor: {error}")
        return
    yield from judged(config, answer, python, env.keys() - variables.keys())


def _tried_by_us(config: RunConfig) -> bool:
    """Whether ``_sandbox`` tries the type of environment: those two it knows better than Harbor's preflight."""
    return config.harbor_agent.environment_type in (None, "", LOCAL, DOCKER)


def judged(
    config: RunConfig, answer: HarborAnswer, python: Path, kept_back: Set[str] = frozenset()
) -> Iterator[Check]:
    """What the interpreter's answer says about the configuration. ``kept_back``: variables of the caller that trials do
    not inherit. Pure."""
    if not answer.harbor:
        ways = "install harbor there, or name an environment with Harbor in environments.harbor.venv_path"
        yield Check(NAME, "fail", f"{python} (Python {answer.python}) has no package harbor; {ways}")
        return
    yield Check(NAME, "ok", f"harbor {answer.harbor}, Python {answer.python}")
    agent = config.harbor_agent
    if agent.agent_name and not agent.agent_import_path:
        yield _name("harbor_agent.agent_name", agent.agent_name, answer.agents, "agent", answer)
    if not _tried_by_us(config):
        known = (LOCAL, *answer.environments) if answer.environments else ()
        yield _name(
            "harbor_agent.environment_type", str(agent.environment_type), known, "environment", answer
        )
    for key, (why, classes) in answer.problems.items():
        yield _class(key, why, classes, config)
    what = str(agent.environment_import_path or agent.environment_type)
    if answer.preflight is not None:
        yield _preflight(what, answer.preflight, kept_back)
    elif "preflight" in answer.untold:
        why = answer.untold["preflight"]
        yield Check(SANDBOXES, "skipped", f"{what}: harbor {answer.harbor} has no preflight to ask: {why}")


def _preflight(what: str, missing: str, kept_back: Set[str]) -> Check:
    """What Harbor's own preflight of the environment says: programs, credentials, extras of its package."""
    if not missing:
        return Check(SANDBOXES, "ok", f"{what}: Harbor's own check finds what it needs on this host")
    set_here = sorted(name for name in {*re.findall(r"[A-Z][A-Z0-9_]+", missing)} if name in kept_back)
    words = f"{', '.join(set_here)} is set here, but trials do not inherit it: add it to supervise.pass_env"
    text = f"{what}: Harbor's own check says: {missing}"
    return Check(SANDBOXES, "fail", text, fix=words if set_here else "")


def _name(key: str, value: str, known: tuple[str, ...], what: str, answer: HarborAnswer) -> Check:
    if value in known or ":" in value:  # a class, or an agent of another registry
        return Check(key, "ok", value)
    if not known:
        why = answer.untold.get(what) or f"it has no {what}s"
        text = f"it is not known whether harbor {answer.harbor} has the {what} {value}: {why}"
        return Check(key, "warn", text)
    close = did_you_mean(value, known) or f"it has {', '.join(known)}"
    return Check(key, "fail", f"harbor {answer.harbor} has no {what} {value}; {close}")


def _class(key: str, why: str, classes: tuple[str, ...], config: RunConfig) -> Check:
    _, _, path = key.rpartition(".")
    named = str(getattr(config.harbor_agent, path))
    if not why:
        return Check(key, "ok", named)
    if classes:
        hint = did_you_mean(named.partition(":")[2], classes) or f"it has {', '.join(classes)}"
    else:
        hint = (
            "agent.path adds directories with modules, and environments.harbor.venv_path names an environment "
            "that has the module"
        )
    return Check(key, "fail", f"{why}; {hint}")


def _sandbox(config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    agent, key = config.harbor_agent, "harbor_agent.environment_type"
    if agent.environment_import_path:
        return
    if agent.environment_type == LOCAL:
        why = no_namespaces(env)
        words = "local: separates paths only; trials see this machine's files, network and memory"
        yield Check(key, "fail", f"local: {why}") if why else Check(key, "ok", words)
    elif (agent.environment_type or DOCKER) == DOCKER:
        why = no_docker(agent.docker_host, env)
        yield Check(key, "fail", f"docker: {why}") if why else Check(key, "ok", "docker: its daemon answers")


def no_namespaces(env: Mapping[str, str] = os.environ) -> str:
    """Why the local environment cannot run on this machine, and what to do; "" if it can."""
    path = f"{env.get('PATH', os.defpath)}:{_SYSTEM}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return (
            f"it needs the programs {', '.join(missing)}, which are not on PATH; install them (util-linux, coreutils, "
            "findutils, tar)"
        )
    words = [
        "unshare",
        "-rm",
        "unshare",
        "-rm",
        "true",
    ]  # the mounts are locked by a second pair of namespaces
    why = _failure(words, env)
    return f"it needs user namespaces, and `{shlex.join(words)}` fails: {why}; {_NAMESPACES}" if why else ""


def no_docker(host: str, env: Mapping[str, str] = os.environ) -> str:
    """Why Harbor could not use Docker, and what to do; "" if it can. ``host``: ``harbor_agent.docker_host``."""
    ways = (
        "set harbor_agent.docker_host, or harbor_agent.environment_type to local, which separates paths only"
    )
    if shutil.which("docker", path=env.get("PATH", os.defpath)) is None:
        return (
            f"there is no program docker on PATH; install it, or set harbor_agent.environment_type to {LOCAL}"
        )
    argv = ["docker", "version", "--format", "{{.Server.Version}}"]
    asked = {**env, **({"DOCKER_HOST": host} if host else {})}
    why = _failure(argv, asked)
    sentence = told(why, asked)
    if sentence != why:  # it answers, and not to this client
        return sentence
    return f"its daemon does not answer: {why}; start it, {ways}" if why else ""


def _failure(argv: list[str], env: Mapping[str, str]) -> str:
    """The last line of a command that fails; "" if it succeeds."""
    try:
        done = ask_program(argv, _DAEMON_SECONDS, env=env)
    except NotEndedError:
        return f"no answer within {_DAEMON_SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return last_words(done) if done.returncode else ""


def task_fault(folder: Path, verifier: bool) -> str:
    """Why a directory is no task of Harbor's that can be run, and scored if there is a verifier; "" if it is one."""
    if not folder.is_dir():
        return f"{folder} is not a directory" if folder.exists() else f"there is no directory {folder}"
    if (folder / "steps").is_dir():
        needed = ["task.toml"]  # a task of several steps has one instruction and one test for each
    else:
        needed = ["instruction.md", "task.toml", *(["tests/test.sh"] if verifier else [])]
    missing = [name for name in needed if not (folder / name).is_file()]
    return f"{folder} has no {' and no '.join(missing)}" if missing else ""
