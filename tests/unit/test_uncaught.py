"""An exception of own code that nobody caught is the cause; one that was caught, or is a library's, is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liverl.causes.finding import Exit, Explanation
from liverl.causes.read.last_words import last_tracebacks
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.logs.records import RecordReader

MAIN = '  File "/home/me/t.py", line 9, in <module>\n    main()\n'
OWN = '  File "/home/me/t.py", line 4, in step\n    raise Lopsided("31 for 32")\n'
KEY = '  File "/home/me/t.py", line 5, in step\n    return d["adv"]\n'
JSON = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError("Expecting")\n'
REQUESTS = (
    '  File "/opt/env/lib/python3.11/site-packages/requests/adapters.py", line 700, in send\n    raise E(e)\n'
)
HEAD = "Traceback (most recent call last):\n"
LOPSIDED = f"{HEAD}{MAIN}{OWN}Lopsided: 31 for 32\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
CALLED = (
    f"{HEAD}"
    '  File "/home/me/launch.py", line 2, in <module>\n    subprocess.run(["python", "t.py"], check=True)\n'
    '  File "/usr/lib/python3.11/subprocess.py", line 571, in run\n    raise CalledProcessError(retcode)\n'
    "subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 1.\n"
)
RAISED = "t.py:4 (step) raised Lopsided: 31 for 32"


def verdict(tmp_path: Path, text: str, *exits: Exit) -> Explanation | None:
    log = tmp_path / "train.log"
    log.write_text(text)
    return judge([read_log(log, str(log))], exits).cause


@pytest.mark.parametrize(
    ("text", "title"),
    [
        pytest.param(f"step 1\n{LOPSIDED}", RAISED, id="an exception of one's own"),
        pytest.param(
            f"{HEAD}{MAIN}{KEY}KeyError: 'adv'\n", "t.py:5 (step) raised KeyError: 'adv'", id="a lookup"
        ),
        pytest.param(
            f'{HEAD}{MAIN}  File "/home/me/t.py", line 2, in check\n    assert n == 32\nAssertionError\n',
            "t.py:2 (check) raised AssertionError (assert n == 32)",
            id="an assertion without words",
        ),
        pytest.param(
            f'{HEAD}  File "/home/me/t.py", line 3, in <module>\n    d["adv"]\nKeyError: \'adv\'\n',
            "t.py:3 raised KeyError: 'adv'",
            id="outside of any function",
        ),
        pytest.param(
            f"{HEAD}{KEY}KeyError: 'adv'\n{CAUSE}{LOPSIDED}", RAISED, id="raised from a lookup that failed"
        ),
        pytest.param(
            f"{HEAD}{KEY}KeyError: 'adv'\n{CONTEXT}{LOPSIDED}", RAISED, id="raised while a lookup was handled"
        ),
        pytest.param(f"{LOPSIDED}{CALLED}", RAISED, id="in a program that another one started"),
        pytest.param(
            f"{LOPSIDED}wandb: Find logs at: ./wandb\n", RAISED, id="before the last words of wandb"
        ),
        pytest.param(
            f"(Worker pid=7) sample 4\n{LOPSIDED}(Worker pid=7) sample 5\n",
            RAISED,
            id="beside a worker that goes on",
        ),
        pytest.param(
            f'{HEAD}{MAIN}  File "/opt/env/lib/python3.11/site-packages/ray/_private/worker.py", line 1, in get\n'
            f"    raise value\nray.exceptions.RayTaskError(Lopsided): ray::step() (pid=7, ip=192.0.2.2)\n{OWN}"
            "Lopsided: 31 for 32\n",
            RAISED,
            id="in a worker of Ray, raised again",
        ),
        pytest.param(
            f'{HEAD}  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker\n{OWN}'
            'm.Lopsided: 31 for 32\n"""\n'
            f'{CAUSE}{HEAD}{MAIN}  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get\n'
            "    raise self._value\nm.Lopsided: 31 for 32\n",
            "t.py:4 (step) raised m.Lopsided: 31 for 32",
            id="in a worker of a pool, raised again",
        ),
        pytest.param(
            f"{LOPSIDED.replace('31 for 32', '1')}{LOPSIDED.replace('31 for 32', '2')}"
            f'{HEAD}{MAIN}  File "/home/me/t.py", line 7, in end\n    raise Final("none left")\nFinal: none left\n',
            "t.py:7 (end) raised Final: none left",
            id="the last of several that a program printed",
        ),
        pytest.param(
            "".join(f"[rank1]: {line}\n" for line in LOPSIDED.splitlines())
            + "[rank0]: loss 0.1\n[rank0]: loss 0.2\n",
            RAISED,
            id="of a rank beside others",
        ),
        pytest.param(
            "Error executing job with overrides: ['a=1']\n"
            f"{HEAD}{OWN}Lopsided: 31 for 32\n\n"
            "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
            RAISED,
            id="below Hydra",
        ),
    ],
)
def test_what_nobody_caught_is_the_cause(text: str, title: str, tmp_path: Path) -> None:
    cause = verdict(tmp_path, text)
    assert cause is not None and (cause.id, cause.title) == ("uncaught", title)
    assert cause.evidence[0].text == title.partition(" raised ")[2].partition(" (assert")[0]
    assert verdict(tmp_path, text, Exit("trainer", str(tmp_path / "train.log"), 1)) is not None


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        pytest.param(f"ERROR:root:step failed\n{LOPSIDED}", "unknown", id="logged by a logger"),
        pytest.param(
            f"ERROR:root:step failed\n{HEAD}{MAIN}{KEY.replace('return d', 'raise ValueError')}ValueError: 31\n",
            "unknown",
            id="a plain one, logged",
        ),
        pytest.param(
            f"{LOPSIDED}skipping this sample\nno checkpoint\n", "unknown", id="printed, and went on"
        ),
        pytest.param(f"{HEAD}{OWN}Lopsided: 31 for 32\n", "unknown", id="printed inside of a function"),
        pytest.param(
            f"{HEAD}{KEY}ValueError: 31\n", "unknown", id="a plain one, printed inside of a function"
        ),
        pytest.param(f"{LOPSIDED}Killed\n", "unknown", id="of a helper, before SIGKILL ended the program"),
        pytest.param(
            f"{LOPSIDED}./run.sh: line 3:  4711 Killed                  python t.py\n",
            "unknown",
            id="of a helper, before bash reports SIGKILL",
        ),
        pytest.param(f"Exception in thread Thread-1:\n{LOPSIDED}went on\n", None, id="in a thread"),
        pytest.param(
            f"{HEAD}{MAIN}{REQUESTS}requests.exceptions.ConnectionError: Max retries exceeded\n",
            "unknown",
            id="raised in a library that own code calls",
        ),
        pytest.param(
            f'{HEAD}{MAIN}  File "/home/me/t.py", line 4, in step\n    loss.backward()\ntorch.AcceleratorError: no\n',
            "unknown",
            id="raised by native code of a library",
        ),
        pytest.param(
            f"{HEAD}{MAIN}{OWN}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a "
            "total capacity of 79.15 GiB of which 1.20 GiB is free.\n",
            "cuda-oom",
            id="a row with a cause knows better",
        ),
        pytest.param(
            f'{HEAD}{MAIN}  File "/home/me/t.py", line 4, in step\n    open(p)\n'
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n",
            "file-missing",
            id="a file that is missing",
        ),
        pytest.param(
            f'{HEAD}{MAIN}  File "/home/me/t.py", line 4, in step\n    raise RuntimeError("x")\n'
            "RuntimeError: job 7 failed, see the log\n",
            "unknown",
            id="words that point to another error",
        ),
        pytest.param(
            '  File "/home/me/t.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
            "syntax-error",
            id="a program that is not valid",
        ),
    ],
)
def test_what_was_caught_or_is_of_others_is_not(text: str, id_: str | None, tmp_path: Path) -> None:
    cause = verdict(tmp_path, text)
    assert (cause and cause.id) == id_


def test_a_row_of_python_explains_it_and_the_chain_is_told(tmp_path: Path) -> None:
    cause = verdict(tmp_path, f"{HEAD}{MAIN}{KEY}KeyError: 'adv'\n")
    assert cause is not None
    assert cause.cause.startswith(
        '/home/me/t.py, which is no installed package, raised this in line 5: return d["adv"].'
    )
    assert "A program looked up 'adv', which is not there" in cause.cause
    chained = verdict(tmp_path, f"{HEAD}{KEY}KeyError: 'adv'\n{CAUSE}{LOPSIDED}")
    assert chained is not None and chained.cause.endswith("Before it came KeyError: 'adv' (t.py:5 in step).")


def test_an_error_that_is_not_known_to_have_ended_anything_has_its_place_too(tmp_path: Path) -> None:
    cause = verdict(tmp_path, f"{LOPSIDED}skipping this sample\n")
    assert cause is not None and cause.title == f"cause unknown; the first error was: {RAISED}"


@pytest.mark.parametrize(("above", "caught"), [("", True), ("ERROR:root:failed\n", True), ("x\n", False)])
def test_of_an_exception_that_was_caught_nobody_says_that_it_ended_the_process(
    above: str, caught: bool, tmp_path: Path
) -> None:
    first = "" if caught else MAIN
    cause = verdict(tmp_path, f"{above}{HEAD}{first}{OWN}Lopsided: 31 for 32\nskipping this sample\n")
    assert cause is not None and ("did not survive" in cause.cause, "caught it" in cause.cause) == (
        not caught,
        caught,
    )


def test_a_process_that_a_signal_ended_did_not_end_by_an_exception(tmp_path: Path) -> None:
    cause = verdict(tmp_path, LOPSIDED, Exit("trainer", str(tmp_path / "train.log"), signal=9))
    assert cause is not None and cause.id == "unknown"


def test_an_end_that_a_complaint_of_a_living_process_would_hide(tmp_path: Path) -> None:
    """A refused connection is what a server complains of and goes on; a program that nobody caught it in has ended."""
    line = '  File "/home/me/t.py", line 4, in ask\n    socket.create_connection(a)\n'
    cause = verdict(tmp_path, f"{HEAD}{MAIN}{line}ConnectionRefusedError: [Errno 111] Connection refused\n")
    assert cause is not None and cause.title.startswith("cause unknown: A connection was refused")
    assert "The program ended at /home/me/t.py:4: socket.create_connection(a)." in cause.cause


@pytest.mark.parametrize(
    ("behind", "last"),
    [
        ("", 1),
        ("\n\n", 1),
        ("real\t0m3.2s\n", 1),
        ("UserWarning: leaked\n", 1),
        ("warning: leaked\n", 1),
        ("2026-11-30 06:48:13,261 WARNING train: leaked\nWARNING:root:leaked\n", 1),
        ("<frozen importlib._bootstrap>:241: DeprecationWarning: no module\n", 1),
        ("[rank1]: loss\n", 1),
        ("loss 3\n", 0),
    ],
)
def test_which_traceback_is_the_last_of_its_process(behind: str, last: int) -> None:
    reader = RecordReader()
    records = [*reader.feed((LOPSIDED + behind).encode()), *reader.end()]
    assert len(list(last_tracebacks(records, records))) == last
    assert list(last_tracebacks(records, ())) == []


INSIDE = f'{HEAD}  File "/home/me/t.py", line 8, in main\n    step()\n{OWN}Lopsided: 31 for 32\n'
NOW = "2026-11-30 06:48:16,294"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"step 1\nstep failed:\n{LOPSIDED}", id="print_exc at the level of the module"),
        pytest.param(f"step 1\n{INSIDE}", id="print_exc in a function"),
        pytest.param(f"{NOW} INFO train: failed\n{INSIDE}", id="logger.info with exc_info"),
        pytest.param(f"{NOW} ERROR train: failed\n{INSIDE}", id="logger.exception"),
        pytest.param(f"{INSIDE}{NOW} WARNING train: leaked\nwarning: leaked\n", id="warnings behind it"),
        pytest.param(f"{INSIDE}exit code 1\n", id="the exit code behind it"),
    ],
)
def test_the_last_word_of_a_process_that_failed_is_its_cause(text: str, tmp_path: Path) -> None:
    """The program has caught it, and ended for it: what it printed last and its exit code tell so together."""
    log = str(tmp_path / "train.log")
    cause = verdict(tmp_path, text, Exit("trainer", log, 1))
    assert cause is not None and (cause.id, cause.title) == ("uncaught", RAISED)
    assert cause.cause.endswith("The program caught it, printed it, and then ended with exit code 1.")


@pytest.mark.parametrize(
    ("behind", "exit_"),
    [
        pytest.param("", {}, id="nobody knows how it ended"),
        pytest.param("", {"signal": 9}, id="a signal ended it"),
        pytest.param("", {"code": 137}, id="a signal ended it, as a shell tells"),
        pytest.param("", {"code": 1, "oom_kills": 1}, id="perhaps killed for memory"),
        pytest.param("", {"code": 1, "log": "other.log"}, id="another process failed"),
        pytest.param("step 2\n", {"code": 1}, id="it went on"),
        pytest.param(f"{NOW} ERROR train: no space left\n", {"code": 1}, id="it failed of something else"),
        pytest.param(f"(Worker pid=7) {LOPSIDED}", {"code": 1}, id="somebody else failed later"),
    ],
)
def test_a_last_word_alone_is_no_cause(behind: str, exit_: dict[str, Any], tmp_path: Path) -> None:
    log = str(tmp_path / exit_.pop("log", "train.log"))
    exits = [Exit("trainer", log, **exit_)] if exit_ else []
    cause = verdict(tmp_path, f"step 1\n{INSIDE}{behind}", *exits)
    assert cause is None or "ended with exit code" not in cause.cause
