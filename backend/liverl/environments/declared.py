"""Whether a package of an environment knows an option, read from its source text.

A version would say it too, but not of builds between two releases, and not of an option that goes away again. The
package itself is not imported: for vLLM that takes 10 s and more.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from liverl.engines.adapter.argv import IfKnown
from liverl.procs.asking import ask_program, last_words

_SECONDS = 60.0  # a cold network disk is slow
_ASK = r"""
import importlib.util, pathlib, re, sys
package, file, field = sys.argv[1:]
spec = importlib.util.find_spec(package)
places = (spec.submodule_search_locations or ()) if spec is not None else ()
declared = re.compile(rf"^\s*{re.escape(field)}\s*:", re.MULTILINE)
files = (path for place in places for path in pathlib.Path(place).rglob(file))
print(int(any(declared.search(path.read_text("utf-8", "replace")) for path in files)))
"""


class CannotTell(Exception):
    """The interpreter could not be asked; the message says why."""


def declares(python: Path, option: IfKnown) -> bool:
    """Whether the package in the environment of the interpreter ``python`` declares the option. False without the
    package. Blocks, usually for less than a second.

    Raises:
        CannotTell: the interpreter cannot be started, fails, or takes longer than 60 s.
    """
    try:
        words = [str(python), "-I", "-c", _ASK, option.package, option.file, option.field]
        process = ask_program(words, _SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotTell(f"cannot ask {python} for the options of {option.package}: {error}") from error
    if process.returncode != 0:
        raise CannotTell(f"cannot ask {python} for the options of {option.package}: {last_words(process)}")
    return process.stdout.strip() == "1"
