"""Characters that a terminal would obey, or that nobody would see, become escapes, everywhere by one function."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.hostile import EVERY, FORBIDDEN, infect
from kit.plans import plan_of
from kit.screens import NOW, event, gpu, replica, snapshot

import liverl_tui
from liverl.logs.ansi import coloured
from liverl.model import Cause, Evidence, ReplicaSet, Result, Symptom
from liverl.util.visible import visible, visible_json
from liverl_tui.app.crash import report
from liverl_tui.cli import main, status_table
from liverl_tui.cli.plain import EventLines
from liverl_tui.text.facts import plain_facts
from liverl_tui.text.words import one_line

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
ANY = st.text(st.characters(), max_size=60) | st.text(st.sampled_from(EVERY + "ab[m;31\\"), max_size=40)
LINE_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def test_every_hidden_character_of_unicode_is_shown() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        shown = visible(character)
        assert shown.startswith("\\") if category in HIDDEN else shown == character or category == "Cn", hex(
            code
        )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("\x00\x9b\x7f", "\\x00\\x9b\\x7f"),
        ("\t\r\n", "\\t\\r\\n"),
        ("\U000e0041\udc80", "\\U000e0041\\udc80"),
        ("äöü 漢字 🙂 é\xa0", "äöü 漢字 🙂 é\xa0"),
        ("a\\u202e", "a\\u202e"),
    ],
)
def test_escapes_are_pythons(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_keep_newlines_and_tabs() -> None:
    assert visible("a\tb\nc\rd", lines=True) == "a\tb\nc\\rd"


@given(ANY)
def test_nothing_hidden_is_left_and_twice_is_once(text: str) -> None:
    shown = visible(text)
    assert not FORBIDDEN.search(shown) and visible(shown) == shown
    assert not FORBIDDEN.search(visible(text, lines=True).replace("\n", "").replace("\t", ""))
    assert not FORBIDDEN.search(one_line(text))
    assert not FORBIDDEN.search(LINE_STYLES.sub("", coloured(text.replace("\n", ""))).replace("\t", ""))


@given(st.dictionaries(st.text(max_size=9), ANY))
def test_json_means_the_same_to_a_parser(data: dict[str, str]) -> None:
    document = json.dumps(data, ensure_ascii=False)
    shown = visible_json(document)
    assert json.loads(shown) == json.loads(document)
    assert not FORBIDDEN.search(shown)


def test_text_that_needs_nothing_is_the_same_object() -> None:
    text = "INFO step:7 é漢"
    assert visible(text) is text and visible_json(text) is not None


# -- plain text


def hostile() -> object:
    symptom = Symptom("a", "critical", "a title", "a cause", "a fix", (Evidence("evidence"),), since=NOW - 3)
    result = Result("failed", 1, Cause("r0", "the cause", NOW), 3, NOW - 9, NOW, summary="a summary")
    state = snapshot(
        gpus=(gpu(0), gpu(1, owner="foreign pid 1 (ada)")),
        symptoms=(symptom,),
        replicas=ReplicaSet(3, 2, 2, (replica(0), replica(1, "failed", why="it said"))),
    )
    return infect(msgspec.structs.replace(state, result=result), EVERY)


@pytest.mark.parametrize("width", [40, 80, 400])
@pytest.mark.parametrize("colour", [False, True])
def test_the_status_table_lets_nothing_through(width: int, colour: bool) -> None:
    table = status_table.render(hostile(), width=width, colour=colour)  # type: ignore[arg-type]
    assert not FORBIDDEN.search(LINE_STYLES.sub("", table).replace("\n", ""))
    assert "\\u202e" in table


def test_sentences_and_event_lines_let_nothing_through() -> None:
    out = io.StringIO()
    lines = EventLines(out)
    for level in ("info", "warning", "error"):
        lines.event(infect(event(1, "text", level, "r0"), EVERY))
    for sentence in plain_facts(hostile()):  # type: ignore[arg-type]
        lines.state(NOW, sentence)
    assert not FORBIDDEN.search(out.getvalue().replace("\n", ""))
    assert out.getvalue().count("\\u202e") > 3


def test_a_crash_report_lets_nothing_through(tmp_path: Path) -> None:
    from liverl.rundir.layout import RunDir

    text = report(ValueError(EVERY), RunDir(tmp_path), in_run=True)
    saved = (tmp_path / "interface-crash.log").read_text()
    assert "\\u202e" in saved and not FORBIDDEN.search((text + saved).replace("\n", ""))


# -- commands


def ended_run(folder: Path) -> Path:
    """An ended run whose files hold such text wherever text can be."""
    run = folder / "liverl" / "first"
    logs = run / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    name = "".join(c for c in EVERY if c not in "\0\n\x85")
    one = EVERY.replace("\n", "").replace("\r", "")
    for stem in ("trainer", f"{name}r0"):
        (logs / f"{stem}.1.log").write_bytes(f"{one}INFO a line {one}\n{one}".encode())
    result = Result("failed", 1, Cause("r0", "the cause", NOW), 3, NOW - 9, NOW, summary="a summary")
    write = msgspec.json.encode
    (run / "result.json").write_bytes(write(infect(result, EVERY)))
    state = infect(snapshot(), EVERY, but=("run_dir", "path", "log"))
    (run / "snapshot.json").write_bytes(write(msgspec.structs.replace(state, run_dir=str(run))))
    events = [infect(event(n, "text", level, "r0"), EVERY) for n, level in ((1, "info"), (2, "error"))]
    (run / "events.jsonl").write_bytes(b"".join(write(e) + b"\n" for e in events))
    (run / "config.yaml").write_text(f"# {one}\n")
    plan = infect(plan_of(profile="embedded"), EVERY, but=("run_dir", "path"))
    (run / "plan.json").write_bytes(write(msgspec.structs.replace(plan, run_dir=str(run))))
    return run


OF_A_RUN = ("status", "events", "logs", "attach", "restart")
STORED = (("plan",), ("plan", "--json"))  # what a run was started with
COMMANDS = [
    ("status",),
    ("status", "--json"),
    ("events",),
    ("events", "--json"),
    ("logs",),
    ("logs", "-n", "5", "trainer"),
    ("logs", f"{EVERY}x".replace("\0", "")),
    ("attach", "--plain"),
    *STORED,
    ("restart", f"{EVERY}x".replace("\0", "")),
    ("stop",),
    ("wait", "--for", "ready"),
    ("ls",),
    ("ls", "--json"),
    ("ls", EVERY.replace("\0", "")),
    ("config", "--set", f"{EVERY}.x=1".replace("\0", "")),
    ("config", "--set", f"run.name={EVERY}".replace("\0", "")),
    ("config", "--config", f"/nothing/{EVERY}".replace("\0", "")),
    ("up", "--name", f"{EVERY}x".replace("\0", "")),
    (f"{EVERY}x",),
    ("logs", "--grep", f"({EVERY}"),
    ("logs", "--since", EVERY),
    ("scale", EVERY),
    ("status", f"--{EVERY}"),
]


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command[:2]).encode("unicode_escape")
)
def test_no_command_lets_it_through(
    tmp_path: Path,
    command: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "".join(c for c in EVERY if c not in "\0/\n")
    run = ended_run(tmp_path / f"a{name}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    where = ["--run", str(run)] if command[0] in OF_A_RUN or command in STORED else []
    where = ["--run-root", str(run.parent.parent)] if command[0] in ("ls", "stop", "wait") else where
    main.run([*command[:1], *where, *command[1:]])
    out, err = capfd.readouterr()
    assert not FORBIDDEN.search((out + err).replace("\n", "").replace("\t", ""))
    assert out + err
    if "--json" in command:
        documents = [out] if command[0] != "events" else out.splitlines()
        assert any("\u202e" in json.dumps(json.loads(document), ensure_ascii=False) for document in documents)
    else:
        assert "\\u202e" in out + err


def test_json_on_stdout_has_its_own_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    from liverl_tui.cli import output

    output.echo_json('{"a": "\u202e\x9b"}')
    assert capfd.readouterr().out == '{"a": "\\u202e\\u009b"}\n'


def test_a_terminal_gets_escapes_where_a_script_gets_the_path(capfd: pytest.CaptureFixture[str]) -> None:
    from liverl_tui.cli import output

    output.echo_exact("/runs/a\u202eb")
    assert capfd.readouterr().out == "/runs/a\u202eb\n"
    master, slave = os.openpty()
    before, sys.stdout = sys.stdout, os.fdopen(slave, "w")
    try:
        output.echo_exact("/runs/a\u202eb")
        sys.stdout.flush()
        assert os.read(master, 100).decode() == "/runs/a\\u202eb\r\n"
    finally:
        sys.stdout.close()
        sys.stdout = before
        os.close(master)


# Who may write to a stream by itself: each makes visible what it writes, which the tests above show.
WRITERS = {
    "cli/output.py": {"echo"},
    "cli/plain.py": {"write"},
    "cli/logs.py": {"write"},
    "cli/live_text.py": {"write"},
    "cli/completion.py": {"echo"},
    "app/start.py": {"print"},
}


def test_commands_print_in_one_way() -> None:
    found: dict[str, set[str]] = {}
    root = Path(liverl_tui.__file__).parent
    for path in (*root.glob("cli/*.py"), *root.glob("app/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if re.fullmatch(r"click\.s?echo|print|.*(stdout|stderr|out|_out)\.write(lines)?", called):
                found.setdefault(str(path.relative_to(root)), set()).add(called.rpartition(".")[2])
    assert found == WRITERS
