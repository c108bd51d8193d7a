"""What the program's texts mention - configuration keys, commands, options and keys of the keyboard - and which of it
does not exist.

Texts are collected mechanically: the string constants of both packages outside of docstrings (an f-string's values
become ``HOLE``, module constants in it their value), the help of every command, the papers (README.md and the other
pages of the repository) and the comments of the packaged YAML files.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import inspect as types
from msgspec.structs import replace

from liverl.config import leaves, list_profiles, load_config, resolved
from liverl.config.schema import fields, is_open, root_type
from liverl.importing.targets import VERL_VARIABLES
from liverl.plan import make_plan
from liverl_tui.cli.main import COMMANDS, PROGRAM, cli
from liverl_tui.keys.bindings import KEYS, key_name

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "backend" / "liverl", ROOT / "liverl_tui")
CONFIGURATION = ROOT / "backend" / "liverl" / "config"
# These quote other programs and their options. The catalogue's own test checks the keys that it names.
QUOTING = (
    PACKAGES[0] / "causes",
    PACKAGES[0] / "logs" / "continuation.py",
    PACKAGES[0] / "agents" / "harbor" / "local_environment",
)
HOLE = "\0"  # a value of an f-string that only the running program knows


class Text(NamedTuple):
    """One text and where it stands. ``anywhere``: its reader may be on any screen, so it may name only the keys that
    work on all of them. ``data``: one word alone, or words handed to another program: a value rather than a sentence.
    """

    where: str
    text: str
    anywhere: bool = False
    data: bool = False


# -- collecting


@cache
def texts() -> tuple[Text, ...]:
    """Every text that a user may read."""
    return tuple(_texts())


def _texts() -> Iterator[Text]:
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if any(path.is_relative_to(quoting) for quoting in QUOTING):
                continue
            name = str(path.relative_to(ROOT))
            yield from python_texts(name, path.read_text("utf-8"))
    yield from help_texts()
    for page in papers():
        yield from page_texts((ROOT / page).read_text("utf-8"), page)
    for path in sorted(CONFIGURATION.rglob("*.yaml")):
        yield from yaml_texts(str(path.relative_to(ROOT)), path.read_text("utf-8"))


def python_texts(name: str, source: str) -> Iterator[Text]:
    """The string constants of a module, without docstrings."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    known = _module_constants(tree)
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    anywhere = name.startswith("backend/")
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            if id(node) not in skipped:
                yield Text(f"{name}:{node.lineno}", _joined(node, known), anywhere)
        elif isinstance(node, ast.Tuple | ast.List | ast.Call):
            # What follows "-m" in a command line is a module of another program.
            words = node.args if isinstance(node, ast.Call) else node.elts
            for before, after in itertools.pairwise(words):
                if isinstance(before, ast.Constant) and before.value == "-m":
                    skipped.add(id(after))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield Text(f"{name}:{node.lineno}", node.value, anywhere, data=" " not in node.value.strip())


def _module_constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _joined(node: ast.JoinedStr, known: dict[str, str]) -> str:
    def part(value: ast.expr) -> str:
        if isinstance(value, ast.Constant):
            return str(value.value)
        inner = value.value if isinstance(value, ast.FormattedValue) else value
        return known.get(inner.id, HOLE) if isinstance(inner, ast.Name) else HOLE

    return "".join(map(part, node.values))


def help_texts() -> Iterator[Text]:
    """What ``--help`` says, of the program and of each command."""
    for name, command in {PROGRAM: cli, **commands()}.items():
        actions = command.commands.values() if command is not cli and isinstance(command, click.Group) else ()
        for one in (command, *actions):
            told = [one.help, one.epilog, *(getattr(p, "help", None) for p in one.params)]
            yield from (Text(f"help of {name}", text) for text in told if text)


def papers() -> list[str]:
    """The pages that are about the program or its development, by their path in the repository."""
    patterns = (
        "*.md",
        "docs/*.md",
        "docs/*/*.md",
        "examples/*.md",
        "examples/*/*.md",
        "skills/*/*.md",
        "news/README.md",
    )
    found = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def page_texts(source: str, name: str = "README.md") -> Iterator[Text]:
    """A page of Markdown line by line, a paragraph's lines joined. Blocks of Python are left out; of a shell's lines,
    those that run other programs name keys of the configuration only."""
    block, paragraph, began = "", "", 1
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            block = "" if block else line.removeprefix("```") or "text"
        elif block == "sh":
            yield Text(f"{name}:{number}", line, data=not line.startswith(PROGRAM))
        elif block == "text":
            yield Text(f"{name}:{number}", _without_tree(line))
        elif not block:
            if line and not line.startswith(("|", "#", "-")):
                began, paragraph = (began if paragraph else number), f"{paragraph} {line}"
                continue
            if paragraph:
                yield Text(f"{name}:{began}", _without_subject(paragraph))
            paragraph, began = line, number
    if paragraph:
        yield Text(f"{name}:{began}", _without_subject(paragraph))


def _without_subject(paragraph: str) -> str:
    """A paragraph without the program's name outside of code: ``liverl-tui starts a Ray`` names no command."""
    parts = paragraph.split("`")
    return "`".join(part if at % 2 else part.replace(PROGRAM, "it") for at, part in enumerate(parts))


def _without_tree(line: str) -> str:
    """A line of a listing of files, without the file's name."""
    return re.sub(r"^\s*[\w./]+\.\w+\s", "", line)


def yaml_texts(name: str, source: str) -> Iterator[Text]:
    """The comments of a YAML file, those on successive lines joined."""
    block, began = "", 1
    for number, line in enumerate([*source.splitlines(), ""], 1):
        found = re.search(r"(?:^|\s)#\s?(.*)", line)
        whole = bool(found) and line.lstrip().startswith("#")
        if found and block and whole:
            block += " " + found[1]
            continue
        if block:
            yield Text(f"{name}:{began}", block, anywhere=True)
        block, began = (found[1] if found else ""), number


# -- keys of the configuration


@cache
def sections() -> tuple[str, ...]:
    return tuple(fields(root_type()))


@cache
def known_elsewhere() -> frozenset[str]:
    """Dotted words of other programs' that begin like a section of ours, from the plans themselves: keys of verl's
    overrides, and the ports of services."""
    found = {"reward.custom_reward_function", *VERL_VARIABLES.values()}  # of launches that are imported
    for profile in list_profiles():
        sets = ["run.name=x"]
        if profile in ("cpu-verl", "h200-smoke", "liverl-gen1"):
            sets += ["verl.wandb_proxy=http://h:1", "data.train_index=/t", "data.val_index=/v"]
            sets += ["reward.function=/r.py:f", "reward.kwargs={a: 1}"]
        if profile == "h200-smoke":
            sets += ["verl.rollout_mode=standalone", "verl.rollout_gpus=1", "run.topology=verl"]
        loaded = load_config(profile=profile, sets=sets, env={})
        config = resolved(loaded.config, env={"HOME": "/h"}, cwd=Path("/w"), now=0.0)
        plan = make_plan(replace(loaded, config=config), Path("/r/p/x"))
        for service in plan.services:
            found.update(f"{service.name}.{port.name}" for port in service.ports)
            found.update(word.lstrip("+~").partition("=")[0] for word in service.argv if "=" in word)
    return frozenset(found)


OTHERS: dict[str, str] = {
    "ray.util.scheduling_strategies": "a module of Ray",
    "data.step": "seconds by which a clock was set, in an event",
    "data.suspended": "seconds for which a host was suspended, in an event",
    "proxy.clients": "the connections of the proxy, in status --json",
    "sandboxes.networks_free": "networks that the Docker daemon has left, in status --json",
    "sandboxes.address_gone": "the bridge that sandboxes reached is gone, in status --json",
    "sandboxes.pods": "what a run had in Kubernetes, in result.json and status --json",
    "sandboxes.docker": "how the docker program is called, in status --json",
    "trainer.max_critic_ckpt_to_keep": "how many checkpoints verl keeps of the critic, in its configuration",
    "data.filter_overlong_prompts": "whether rows with long prompts are left out, in verl's configuration",
    "data.gen_batch_size": "prompts that go to the replicas together, in verl's configuration",
    "async_training.require_batches": "of fully asynchronous training, in verl's configuration",
    "async_training.trigger_parameter_sync_step": "of fully asynchronous training, in verl's configuration",
    "async_training.concurrent_samples_per_replica": "of fully asynchronous training, in verl's configuration",
    "algorithm.rollout_correction.bypass_mode": "of importance weights, in verl's configuration",
    "verl.trainer.main_ppo": "a module of verl's",
    "verl.experimental.fully_async_policy.fully_async_main": "a module of verl's",
    "data.image_key": "the name of the column with pictures, in verl's configuration",
    "data.video_key": "the name of the column with videos, in verl's configuration",
    "data.audio_key": "the name of the column with sounds, in verl's configuration",
    "ray.kill": "Ray's function that ends an actor, in its words about one that has ended",
    "data.train_files": "the files with the rows to train, in verl's configuration",
    "data.val_files": "the files with the rows to validate, in verl's configuration",
    "data.prompt_key": "the name of the column with the messages, in verl's configuration",
    "trainer.default_local_dir": "the directory of the checkpoints, in verl's configuration",
    "data.pt": "the state of the data in a checkpoint of verl's",
    "trainer.max_actor_ckpt_to_keep": "how many checkpoints verl keeps, in verl's configuration",
    "trainer.logger": "where metrics are logged, in verl's configuration",
    "trainer.save_freq": "steps between two checkpoints, in verl's configuration",
    "trainer.resume_mode": "what to resume from, in verl's configuration",
    "trainer.resume_from_path": "the checkpoint to resume from, in verl's configuration",
    "trainer.use_v1": "whether verl's v1 trainers run, in verl's configuration",
    "trainer.esi_redundant_time": "seconds before the end of a capacity block, in verl's configuration",
    "verl.trainer.ppo.v1.trainer_base": "the module of verl's v1 trainers",
    "ray.io": "KubeRay's group of kinds, in Kubernetes",
    "verl.trainer.ppo.v1.trainer_separate_async": "the name of a logger of verl's",
    "reward.reward_model.enable": "whether a model rewards, in verl's configuration",
    "reward.reward_manager.module.path": "a reward manager of the user's, in verl's configuration",
    "verl.plugins": "verl's group of entry points, as package metadata name it",
}
_FILE = re.compile(r".*\.(json|jsonl|yaml|log|svg|py|toml|md|parquet|txt|sh)")
_BEFORE_KEY = r"(?<![\w./:@$-])"


@cache
def names_of_keys() -> frozenset[str]:
    """The keys without their sections."""
    return frozenset(key.rpartition(".")[2] for key in leaves())


def wrong_keys(text: Text) -> list[str]:
    """The dotted words of ``text`` that look like a configuration key and are none."""
    pattern = rf"{_BEFORE_KEY}(?:{'|'.join(sections())})(?:\.[\w{HOLE}*-]+)+"
    found = re.findall(pattern, text.text) + _wrong_variables(text.text) + _wrong_sections(text)
    return [word for word in found if not (is_key(word) or _is_other(word, text))]


def _wrong_sections(text: Text) -> list[str]:
    """Dotted words that end like a key of ours, in what is nearly a section: ``modle.tool_parser``. Other names are
    those of other programs (``fsdp_config.use_torch_compile`` of verl)."""
    found = re.findall(rf"{_BEFORE_KEY}([a-z]\w*)\.(\w+_\w+)(?![\w.(])", text.text)
    return [
        f"{head}.{name}"
        for head, name in found
        if name in names_of_keys() and head not in sections() and get_close_matches(head, sections(), 1, 0.7)
    ]


def _wrong_variables(text: str) -> list[str]:
    """``LIVERL_SECTION__KEY`` by its dotted key."""
    words = re.findall(r"\bLIVERL_([A-Z0-9_]*[A-Z0-9]__[A-Z0-9_]+)\b", text)
    return [word.lower().replace("__", ".") for word in words if word != "SECTION__KEY"]


def _is_other(word: str, text: Text) -> bool:
    if word in OTHERS or _FILE.fullmatch(word):
        return True
    if f"-m {word}" in text.text:
        return True  # a module, in a command line
    return text.data and text.text == word in known_elsewhere()


def is_key(word: str) -> bool:
    """Whether a dotted word names a key or a section; ``HOLE`` and ``*`` stand for any part."""
    section, _, entry = word.partition("ui.keys.")
    if entry and not section:
        return entry == HOLE or any(key.id == entry for key in KEYS)
    return _resolves(root_type(), word.split("."))


def _resolves(kind: types.Type, parts: list[str]) -> bool:
    if not parts:
        return True
    head, *rest = parts
    if isinstance(kind, types.StructType):
        form = re.compile(re.escape(head).replace(re.escape(HOLE), ".+").replace(re.escape("*"), ".+"))
        return any(_resolves(inner, rest) for name, inner in fields(kind).items() if form.fullmatch(name))
    if is_open(kind):
        assert isinstance(kind, types.DictType)
        return _resolves(kind.value_type, rest)
    return isinstance(kind, types.AnyType)  # of a leaf, nothing is below


# -- commands and their options


@cache
def commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


@cache
def options(command: str = "") -> frozenset[str]:
    """The options of one command, with those of its actions; of the program itself without a name."""
    where = commands()[command] if command else cli
    actions = where.commands.values() if command and isinstance(where, click.Group) else ()
    parameters = [p for one in (where, *actions) for p in one.params]
    names = {name for p in parameters if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
    return frozenset(names | {"-h", "--help"})


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of the program itself with their values, and what follows: a command with its own."""
    valued = {o for p in cli.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return words[:at], words[at:]


@cache
def any_option() -> frozenset[str]:
    return options().union(*(options(name) for name in COMMANDS))


# Programs of others that a text tells the user to run; the options behind their names are theirs.
_PROGRAMS = r"(?:py-spy|srun|kubectl|docker|pip|ray)\b[^;:,.()`]*"
# Packages that imitate or start another program: a sentence there may name that program's options (vLLM's).
_IMITATED = {
    "backend/liverl/daemon/main.py": "the backend has options of its own, for the programs that start it",
    "backend/liverl/agents/chat_api.py": "the embedded engine answers with vLLM's own error texts",
    "backend/liverl/embedded": "the embedded engine answers with vLLM's own error texts",
    "backend/liverl/sessions/routes.py": "a refusal names the option of vLLM that opens its routes",
    "backend/liverl/util/redact.py": "options of other programs, behind which a secret stands",
    "backend/liverl/verl_runtime": "the smoke model's program has options of its own",
}
_COMMAND = re.compile(rf"(?<![\w/-]){PROGRAM} ([^\n;`()]*)")
_OPTION = re.compile(r"(?<![\w/=-])--[a-z][\w-]*")
_PROFILE = re.compile(r"--profile ([a-z]\w*(?:-\w+)+|[a-z]\w*(?=[`);,]|$))")
OPTIONS_OF_OTHERS = {
    "--seconds": "of make-smoke in version 0.2.0, in CHANGELOG.md",
    "--num-gpus": "of ray start",
    "--shm-size": "of docker",
    "--tool-call-parser": "vLLM's, in advice for a foreign run",
    "--request-timeout": "of kubectl",
    "--cache-dir": "of kubectl",
    "--kubeconfig": "of kubectl",
    "--all-containers": "of kubectl",
    "--backend": "of verl's model_merger",
    "--tie-word-embedding": "of verl's model_merger",
    "--trust-remote-code": "of verl's model_merger",
    "--no-files": "of fish's complete",
    "--command": "of fish's complete",
    "--arguments": "of fish's complete",
    "--release": "of .ci/dist",
    **dict.fromkeys(("--quick", "--only", "--small"), "of the benchmarks"),
    "--draft": "of towncrier",
    "--prefix": "of npm",
    "--from": "of uvx",
    **dict.fromkeys(("--with", "--no-project"), "of uv run"),
    "--init": "of docker",
    **dict.fromkeys(
        (
            "--signal",
            "--requeue",
            "--open-mode",
            "--ntasks",
            "--gpus-per-node",
            "--account",
            "--qos",
            "--mail-type",
        ),
        "of Slurm's programs",
    ),
    "--update-documents": "of the tests",
    "--build-arg": "of docker",
    "--default-address-pool": "of dockerd",
    "--tlscacert": "of dockerd",
    "--data-root": "of dockerd",
    "--bridge": "of dockerd",
    "--bip": "of dockerd",
    "--connect-timeout": "of curl",
}
VERBS = {"has": "crash.py: `liverl-tui has crashed`, a sentence"}


def wrong_commands(text: Text) -> list[str]:
    """Commands, options and profiles that ``text`` names and that do not exist."""
    if text.data:
        return []
    wrong = []
    printed = text.where.startswith(("backend/", "liverl_tui/"))
    for match in _COMMAND.finditer(text.text):
        wrong += _wrong_line(match[1], printed)
    wrong += _wrong_options(text)
    for name in _PROFILE.findall(text.text):
        if name not in list_profiles():
            wrong.append(f"--profile {name}")
    return wrong


def _wrong_line(line: str, printed: bool) -> list[str]:
    """What is wrong in a command line; ``line`` is what stands behind the program's name, perhaps with prose.
    ``printed``: the program prints it, so that a user copies it; a page may name a command in a title."""
    top, words = _split(line.split())
    wrong = [
        f"{PROGRAM} {word}"
        for word in top
        if word.startswith("-") and word.partition("=")[0] not in options()
    ]
    if wrong:
        return wrong
    if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]) or words[0] in VERBS:
        return []
    name = words[0]
    if name not in COMMANDS:
        return [f"{PROGRAM} {name}"]
    unknown = [f"{name} {o}" for o in _OPTION.findall(line) if o not in options(name) | options()]
    return unknown or (_missing(words) if printed else [])


def _missing(words: list[str]) -> list[str]:
    """What a command line lacks that click requires: it fails as it is printed. A sentence that only names a command,
    such as ``liverl-tui checkpoints prune keeps the newest``, goes on with a word of prose and is no command line."""
    command, named = commands()[words[0]], 1
    while isinstance(command, click.Group) and len(words) > named and words[named] in command.commands:
        command, named = command.commands[words[named]], named + 1
    said = words[named:]
    if isinstance(command, click.Group) or (said and re.fullmatch(r"[a-z]+[,.:]?|[,.:]+", said[0])):
        return []
    if not said and named == 1:
        return []  # the name alone
    try:
        said = [word.replace(HOLE, "x") for word in said]
        command.make_context(words[named - 1], said, parent=click.Context(cli))
    except click.MissingParameter as error:
        return [f"{' '.join(words[:named])} without {error.param and error.param.human_readable_name}"]
    except click.UsageError:
        return []  # prose follows, or a value that only the running program knows
    return []


def _wrong_options(text: Text) -> list[str]:
    """Options outside of a whole command line; ``stop --now`` belongs to ``stop``."""
    rest = re.sub(_PROGRAMS, " ", text.text)
    wrong = []
    for match in _OPTION.finditer(rest):
        before = re.search(r"(?:([a-z][a-z-]*) )?([a-z][a-z-]*) $", rest[: match.start()])
        allowed = any_option()
        if before and before[2] in COMMANDS:
            allowed = options(before[2])
        if before and before[1] in COMMANDS and before[2] in getattr(commands()[before[1]], "commands", {}):
            allowed = options(before[1])  # "trials ls --step": of an action
        if match[0] in OPTIONS_OF_OTHERS:
            continue
        if match[0] not in allowed and not text.where.startswith(tuple(_IMITATED)):
            wrong.append(match[0])
    return wrong


def parse_command_line(line: str) -> None:
    """A whole line of a shell, through click: options, their values, the number of arguments.

    Raises:
        click.UsageError: the program would refuse it.
    """
    program, *arguments = shlex.split(line, comments=True)
    assert program == PROGRAM
    top, left = _split(arguments)
    context = cli.make_context(PROGRAM, top)
    group: click.Group = cli
    while left:  # a command of a group is one of its own: `trials ls`
        name, command, rest = group.resolve_command(context, left)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, click.Group):
            return
        group, left = command, [*context._protected_args, *context.args]


# -- keys of the keyboard

_LONE = r"[A-Za-z!?:/.,\[\]<>]"
_NAMED = r"Enter|Esc|Tab|Space|F\d{1,2}|Ctrl-[A-Z]"
_PRESSED = (
    rf"(?<![\w-])({_NAMED})(?![\w-])",
    rf"\b[Pp]ress ({_LONE})(?![\w'-])",
    rf"(?<![\w'-])({_LONE}) is pressed",
    rf"\bkeys? ({_LONE})(?![\w'-])",
    rf"\b[Pp]ress [^;.]* or ({_LONE}) for\b",
    r"(?<=\s)\(([A-Za-z!?])(?: [a-z]+s)?\)",  # `what happened (E)`, `(f follows)`
    r"\bas ([A-Z]) does\b",
    r"\buntil ([a-zA-Z])(?=,|$)",
    # `U starts it again`, `; q leaves`: a lone letter that does something. N stands for a number.
    r"(?<![\w'\"=.-])([B-HJ-MO-Z]) [a-z]+s\b",
    r"(?:^ ?|; )([a-zA-Z]) [a-z]+s\b",
)


@cache
def key_names(scope: str = "") -> frozenset[str]:
    """The names of the keys of one scope (of all: no name) as texts write them."""
    found = {key_name(k) for key in KEYS if scope in ("", key.scope) for k in key.keys.split(",")}
    return frozenset(found | {f"Ctrl-{name[1:].upper()}" for name in found if name.startswith("^")})


def wrong_bindings(text: Text) -> list[str]:
    """The keys of the keyboard that ``text`` names and that do nothing."""
    if text.data:
        return []
    named = [name for pattern in _PRESSED for name in re.findall(pattern, text.text)]
    if ".md:" in text.where:
        named += re.findall(rf"`(\S|{_NAMED})`", text.text)
    known = key_names("app" if text.anywhere else "")
    return [name for name in named if name not in known]


def problems(found: Iterator[Text]) -> list[str]:
    """``where: what`` for everything that a text names and that does not exist."""
    return [
        f"{text.where}: {wrong!r}"
        for text in found
        for check in (wrong_keys, wrong_commands, wrong_bindings)
        for wrong in check(text)
    ]
