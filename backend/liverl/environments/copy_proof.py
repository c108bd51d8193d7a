"""Proves that a copied environment works by itself: its interpreter, a console script, and an editable package; and
measures what an import takes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from liverl.environments.errors import BuildError
from liverl.procs.asking import NotEndedError, ask_program, last_words
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import open_binary

SECONDS = 120.0  # for a program in an environment; from a cold network disk torch alone takes 10 s and more
# What is imported to measure: the first of these that the environment has. They take longest, in this order.
HEAVY = ("torch", "vllm", "litellm", "ray", "verl", "harbor", "numpy", "aiohttp")
# Scripts that answer --help without loading much; else the first in the alphabet.
_QUICK = ("pip", "uv", "wheel", "distro", "dotenv", "normalizer", "hf", "tqdm", "ray", "litellm")
_TRIED = 5  # scripts that are tried; some understand no --help

_PREFIX = "import json, os, sys; print(json.dumps(os.path.realpath(sys.prefix)))"
_EDITABLE = r"""
import importlib.metadata, importlib.util, json, os
found = {}
for one in importlib.metadata.distributions():
    text = one.read_text("direct_url.json")
    try:
        editable = json.loads(text or "{}").get("dir_info", {}).get("editable")
    except ValueError:
        continue
    if not editable:
        continue
    name = one.metadata["Name"]
    for module in (one.read_text("top_level.txt") or "").split() + [name.replace("-", "_"), name]:
        try:
            spec = importlib.util.find_spec(module) if module.isidentifier() else None
        except (ImportError, ValueError):
            spec = None
        if spec is not None:
            places = list(spec.submodule_search_locations or [])
            found[module] = spec.origin or (places[0] if places else "")
            break
    else:
        found[name] = ""
print(json.dumps(found))
"""
_IMPORT = (
    "import importlib, json, sys; m = importlib.import_module(sys.argv[1]);"
    " print('\\n' + json.dumps(getattr(m, '__file__', None) or ''))"
)
_TIME = (
    "import importlib, json, sys, time; t = time.perf_counter(); importlib.import_module(sys.argv[1]);"
    " print('\\n' + json.dumps(time.perf_counter() - t))"
)
_FIRST = (
    "import importlib.util, json, sys; "
    "print(json.dumps(next((m for m in sys.argv[1:] if importlib.util.find_spec(m)), '')))"
)


def prove(source: Path, copy: Path) -> str:
    """What was run in the copy, in words.

    Raises:
        BuildError: it does not work as its source does.
    """
    python = copy / "bin" / "python"
    prefix = _ask(python, _PREFIX)
    if prefix != os.path.realpath(copy):
        raise BuildError(
            f"the copy of {source} cannot be used: its interpreter says that it belongs to {prefix}"
        )
    told = [_script(copy), *_strangers(copy)]
    before = editable_packages(source / "bin" / "python")
    if before:
        told.append(_origins(source, copy, before))
    return "; ".join(told)


def python_version(python: Path) -> str:
    """The version of an interpreter, such as 3.12.4.

    Raises:
        BuildError: it does not answer.
    """
    return str(_ask(python, "import json, platform; print(json.dumps(platform.python_version()))"))


def editable_packages(python: Path) -> dict[str, str]:
    """The modules that an environment takes from a folder elsewhere (``pip install -e``), each with its file;
    "" where that folder is gone.

    Raises:
        BuildError: its interpreter does not answer.
    """
    found = _ask(python, _EDITABLE)
    return {str(name): str(place) for name, place in found.items()} if isinstance(found, dict) else {}


def import_seconds(python: Path, module: str = "") -> tuple[str, float] | None:
    """How long an import takes in a new process: (module, seconds); ``module``: which one, "" for the heaviest that is
    known. None if the environment has none, or the import fails."""
    try:
        name = module or _ask(python, _FIRST, *HEAVY)
        seconds = _ask(python, _TIME, str(name)) if name else None
    except BuildError:
        return None
    return (str(name), float(seconds)) if isinstance(seconds, (int, float)) else None


def _origins(source: Path, copy: Path, before: dict[str, str]) -> str:
    """Compare where editable packages come from, and import the first. ``before``: of the source."""
    editable = editable_packages(copy / "bin" / "python")
    for name, place in before.items():
        inside = Path(place).is_relative_to(source)
        wanted = str(copy / Path(place).relative_to(source)) if inside else place
        if editable.get(name) != wanted:
            raise BuildError(
                f"the copy of {source} cannot be used: {name} would come from {editable.get(name) or 'nowhere'}, "
                f"and came from {place}"
            )
    name, place = next(((n, p) for n, p in editable.items() if p), ("", ""))
    if not name:
        return f"the folders of its editable packages are gone: {', '.join(editable)}"
    try:
        came = _ask(copy / "bin" / "python", _IMPORT, name)
    except BuildError as error:
        return f"{name} is found at {place}, but importing it failed: {error.text}"
    return f"{name} was imported from {came or place}"


def _script(copy: Path) -> str:
    """Run one of the copy's console scripts."""
    own = os.fsencode(copy / "bin") + b"/python"
    scripts = {p.name: p for p in sorted((copy / "bin").iterdir()) if _is_script(p, own)}
    order = sorted(
        scripts, key=lambda name: (_QUICK.index(name) if name in _QUICK else len(_QUICK), len(name), name)
    )
    last = ""
    for name in order[:_TRIED]:
        try:
            process = ask_program([str(scripts[name]), "--help"], SECONDS, env=_environment(), cwd="/")
        except NotEndedError:
            last = f"{name} --help did not end within {SECONDS:g} s"
            continue
        except OSError as error:
            raise BuildError(f"{scripts[name]} of the copy cannot be started: {error.strerror}") from None
        if process.returncode == 0:
            return f"{name} --help was run"
        last = f"{name} --help ended with exit {process.returncode}"
    if not scripts:
        return "it has no console script"
    return f"no console script was proven ({last})"


def _strangers(copy: Path) -> list[str]:
    """Scripts that start the interpreter of another environment: of one that was moved after its installation."""
    found: dict[str, list[str]] = {}
    for path in sorted((copy / "bin").iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        with open_binary(path) as file:
            head = file.readline(1024)
        interpreter = os.fsdecode(head[2:].split()[0]) if head.startswith(b"#!/") and head[2:].split() else ""
        outside = not interpreter.startswith(f"{copy}/") and os.path.basename(interpreter).startswith(
            "python"
        )
        if outside and interpreter.endswith("/bin/" + os.path.basename(interpreter)):
            found.setdefault(interpreter, []).append(path.name)
    return [
        f"{quantity(len(names), 'script')} ({', '.join(names[:3])}) {plural(len(names), 'starts', 'start')} "
        f"{interpreter}, as in the source"
        for interpreter, names in found.items()
        if not interpreter.startswith(("/usr/bin/", "/bin/"))
    ]


def _is_script(path: Path, python: bytes) -> bool:
    """Whether a file in bin is started by the interpreter of the copy."""
    status = os.stat(path) if path.exists() else None
    if (
        path.is_symlink()
        or status is None
        or not stat.S_ISREG(status.st_mode)
        or not status.st_mode & stat.S_IXUSR
    ):
        return False
    with open_binary(path) as file:
        head = file.read(1024)
    return head.startswith(b"#!") and (python in head or b"$(dirname" in head or b"realpath" in head)


def _ask(python: Path, program: str, *arguments: str) -> object:
    """What a program prints as its last line, decoded.

    Raises:
        BuildError: it fails, or answers nothing.
    """
    try:
        process = ask_program([str(python), "-c", program, *arguments], SECONDS, env=_environment(), cwd="/")
    except NotEndedError:
        raise BuildError(f"{python} did not answer within {SECONDS:g} s") from None
    except OSError as error:
        raise BuildError(f"{python} cannot be started: {error.strerror}") from None
    lines = [line for line in process.stdout.splitlines() if line]
    if process.returncode or not lines:
        raise BuildError(f"{python} does not work: {last_words(process)}")
    try:
        return decode_json(lines[-1].encode(), type=object)
    except BAD_JSON as error:
        raise BuildError(f"{python} answered {lines[-1][:80]!r}") from error


def _environment() -> dict[str, str]:
    """Our variables without those that make an interpreter look elsewhere. No compiled file is written by a proof."""
    drop = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"}
