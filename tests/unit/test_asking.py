"""Programs that are asked something: their text, their end in time with all they have started, and that no other
module of the backend reads a program's text by itself."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest
from kit.waiting import wait_until

import liverl
from liverl.procs import procfs
from liverl.procs.asking import NotEndedError, ask_program, last_words

BACKEND = Path(liverl.__file__).parent
# By fork, output to a file or exact bytes: not what ``ask_program`` does.
SLEEP = f"sleep 47{os.getpid()}"  # no other test's
OTHERS = {
    "embedded/leak.py": "leaves a worker behind on purpose",
    "preflight/chat_template.py": "bytes in and out",
    "procs/stacks.py": "the output is limited by a file",
}


def sh(words: str, seconds: float = 60.0, **more: object) -> tuple[int, str, str]:
    done = ask_program(["/bin/sh", "-c", words], seconds, **more)  # type: ignore[arg-type]
    return done.returncode, done.stdout, done.stderr


def test_what_a_program_prints_and_is_given(tmp_path: Path) -> None:
    assert sh("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert sh("pwd; echo $A", cwd=tmp_path, env={"A": "b"}) == (0, f"{tmp_path}\nb\n", "")
    assert sh("cat", stdin="zwölf") == (0, "zwölf", "")
    assert sh("cat") == (0, "", "")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "de_DE.ISO-8859-1"])
def test_bytes_that_are_not_utf_8_are_shown_as_such(locale: str) -> None:
    code = """from liverl.procs.asking import ask_program
done = ask_program(["/bin/sh", "-c", r"printf 'a\\377b'; printf '\\303\\274\\300' >&2"], 20.0)
print(ascii((done.stdout, done.stderr)))"""
    env = {"LC_ALL": locale, "PYTHONPATH": str(BACKEND.parent), "PYTHONUTF8": "0", "PATH": os.environ["PATH"]}
    done = ask_program([sys.executable, "-c", code], 60.0, env=env)
    assert done.stdout == ascii(("a\ufffdb", "ü\ufffd")) + "\n", done.stderr


@pytest.mark.parametrize("words", ["exec SLEEP", "SLEEP & wait", "(SLEEP &); echo done", "SLEEP; :"])
def test_an_end_in_time_with_all_that_was_started(words: str) -> None:
    with pytest.raises(NotEndedError) as caught:
        sh(words.replace("SLEEP", SLEEP), 0.5)
    assert caught.value.waits_for == ("" if words.startswith("exec") else SLEEP)
    wait_until(lambda: not sleeping(), what="the end of what it has started")


def sleeping() -> list[int]:
    return [pid for pid in procfs.scan() if procfs.command_line(pid) == SLEEP]


def test_why_there_is_no_answer() -> None:
    with pytest.raises(OSError, match="No such file"):
        ask_program(["/nowhere/program"], 5.0)
    assert last_words(ask_program(["/bin/sh", "-c", "echo a >&2; echo b >&2; exit 4"], 20.0)) == "b"
    assert last_words(ask_program(["/bin/sh", "-c", "exit 4"], 20.0)) == "exit 4"


ASKS = ("subprocess.run", "subprocess.check_output")


def test_no_other_module_reads_the_text_of_a_program() -> None:
    found = set()
    for file in BACKEND.rglob("*.py"):
        source = file.read_text()
        nodes = ast.walk(ast.parse(source)) if any(call in source for call in ASKS) else ()
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ASKS:
                found.add(str(file.relative_to(BACKEND)))
    assert found == set(OTHERS)
