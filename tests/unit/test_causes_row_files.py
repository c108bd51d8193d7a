"""Files of rows and their packed copy: what is wrong with them is told at once, and a copy is never trusted blindly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.causes import catalogue
from liverl.causes.catalogue import ROWS, load, packed, row_files
from liverl.causes.match import Matcher
from liverl.causes.row_files import GENERAL, RowsError, read_rows
from liverl.causes.signature import Signature, outlines_of
from liverl.observe.live_logs.watched import watched

ROW = """\
[[row]]
id = "gone"
role = "cause"
needle = 'is gone'
pattern = 'disk \\w+ is gone'
title = "A disk is gone"
cause = "It was taken out."
fix = "Put it back."
source = "seen"
fires = 'disk sda is gone'
spares = 'disk sda is gone again'
"""
FAMILY = """\
[[row]]
role = "consequence"
title = "It ended"
fix = "Look for why."
source = "seen"

[[row.text]]
id = "ended"
needle = 'ended'
pattern = 'it ended'
fires = 'it ended'
spares = 'ended well'

[[row.text]]
id = "ended-otherwise"
needle = 'stopped'
pattern = 'it stopped'
source = "seen elsewhere"
recorded = true
fires = 'it stopped'
spares = 'stopped well'
"""


def read(**files: str) -> tuple[Signature, ...]:
    return read_rows({f"{name}.toml".replace("__", "/"): text.encode() for name, text in files.items()})


def faults(**files: str) -> list[str]:
    with pytest.raises(RowsError) as raised:
        read(**files)
    return str(raised.value).split("\n")


def test_a_row_has_the_fields_of_its_file_and_the_program_of_its_name() -> None:
    (row,) = read(linux=ROW)
    assert (row.id, row.printer, row.pattern) == ("gone", "linux", r"disk \w+ is gone")
    assert (row.severity, row.alive, row.of, row.live) == ("critical", False, (), None)


def test_a_row_of_several_texts_is_a_row_for_each() -> None:
    first, second = read(shell=FAMILY)
    assert (first.id, first.title, first.source, first.recorded) == ("ended", "It ended", "seen", False)
    assert (second.id, second.title, second.source, second.recorded) == (
        "ended-otherwise",
        "It ended",
        "seen elsewhere",
        True,
    )


def test_rows_of_general_tools_come_after_others() -> None:
    found = read(general__apt=ROW.replace('"gone"', '"a"'), zfs=ROW)
    assert [(row.id, row.printer, row.last) for row in found] == [("a", "apt", True), ("gone", "zfs", False)]
    names = list(row_files(ROWS))
    general = {Path(name).stem for name in names if name.startswith(GENERAL)}
    assert general == {row.printer for row in catalogue.rows() if row.last}
    assert len({Path(name).stem for name in names}) == len(names), "a program has one file"


# One change to ROW or FAMILY each, and what is said of it.
WRONG: dict[str, tuple[str, str, str]] = {
    "a wrong key": ('title = "A', 'titel = "A', "x.toml:6: gone: titel: there is no such key; did you mean title?"),
    "a key of nothing": ("fix =", "zzzzz =", "x.toml:8: gone: zzzzz: there is no such key"),
    "a wrong role": (
        '"cause"\nneedle',
        '"caus"\nneedle',
        "x.toml:3: gone: role: found 'caus', expected one of cause, waits, general, consequence, noise; "
        "did you mean cause?",
    ),
    "a number for a text": ('"seen"', "7", "x.toml:9: gone: source: found 7: Expected `str`, got `int`"),
    "a text for a switch": (
        'source = "seen"',
        'source = "seen"\neffect = "yes"',
        "x.toml:10: gone: effect: found 'yes': Expected `bool`, got `str`",
    ),
    "a missing key": ('source = "seen"\n', "", "x.toml:1: gone: source: it is missing"),
    "no needle": (
        "needle = 'is gone'\n",
        "",
        "x.toml:1: gone: needle: it is missing: a text that every match contains",
    ),
    "a row of nothing": (
        'source = "seen"',
        'source = "seen"\nbefore = ["gon"]',
        "x.toml:10: gone: before: there is no row gon; did you mean gone?",
    ),
    "before itself": (
        'source = "seen"',
        'source = "seen"\nbefore = ["gone"]',
        "x.toml:10: gone: before: a circle: gone before gone",
    ),
    "comes of nothing": (
        'source = "seen"',
        'source = "seen"\nof = ["gone"]',
        "x.toml:10: gone: of: only a consequence comes of other rows, and this is a row of role cause",
    ),
    "supposes what is not certain": (
        'source = "seen"',
        'source = "seen"\nsupposes = ["gone"]',
        "x.toml:10: gone: supposes: gone supposes something itself; expected rows that are certain",
    ),
    "gives way to nobody": (
        'source = "seen"',
        'source = "seen"\neffect = true',
        "x.toml:1: gone: gives_way_to: rows with effect = true have it, unless their role is general, and only those",
    ),
    "gives way to a file that is none": (
        'source = "seen"',
        'source = "seen"\neffect = true\ngives_way_to = ["y"]',
        "x.toml:11: gone: gives_way_to: there is no file y.toml",
    ),
    "slips of a process that ends": (
        'source = "seen"',
        'source = "seen"\nslips = 4',
        "x.toml:10: gone: slips: only rows whose process goes on have it (fails: part, command or request)",
    ),
    "a cause that sums up": (
        'source = "seen"',
        'source = "seen"\nfails = "batch"',
        "x.toml:10: gone: fails: only a consequence sums up a batch, and this is a row of role cause",
    ),
    "another thing that fails": (
        'source = "seen"',
        'source = "seen"\nfails = "requests"',
        "x.toml:10: gone: fails: found 'requests', expected one of process, part, command, request, batch; "
        "did you mean request?",
    ),
    "limits below its slips": (
        'source = "seen"',
        'source = "seen"\nfails = "part"\nslips = 4\nlive = { least = 4, within = 60.0 }',
        "x.toml:12: gone: live: least is 4, and slips says that 4 are no symptom",
    ),
    "a wrong limit": (
        'source = "seen"',
        'source = "seen"\nlive = { lest = 4, within = 60.0 }',
        "x.toml:10: gone: live: found {'lest': 4, 'within': 60.0}: Object contains unknown field `lest`",
    ),
    "another alert": (
        'source = "seen"',
        'source = "seen"\ntold_by = "zero_tool_cals"',
        "x.toml:10: gone: told_by: found 'zero_tool_cals', expected one of trials_failed, responses_*, model_unknown, "
        "zero_tool_calls, ray-too-few-resources, metrics_not_finite; did you mean zero_tool_calls?",
    ),
    "no TOML": ('"seen"', "seen", "x.toml:9: no TOML: Invalid value"),
    "another table": ("[[row]]", "[[rows]]", "x.toml:1: rows: there is no such key; did you mean row?"),
    "no table": ("[[row]]", "row = 3\n[x]", "x.toml: row: expected tables that begin with [[row]]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_told_with_its_place_and_what_was_expected(name: str) -> None:
    before, after, said = WRONG[name]
    assert ROW.count(before) == 1
    assert said in faults(x=ROW.replace(before, after))


def test_all_faults_are_told_at_once() -> None:
    text = ROW.replace('"cause"\n', '"caus"\n').replace("fix =", "fixx =") + FAMILY.replace(
        "'it ended'\nf", "3\nf"
    )
    said = faults(x=text, y=ROW, z="a = ", w=ROW)
    assert [line.split(": ")[0] for line in said] == [
        "x.toml:8",
        "x.toml:3",
        "x.toml:21",
        "z.toml",
        "y.toml:2",
    ]


def test_wrong_values_are_told_beside_wrong_keys() -> None:
    told = faults(x=ROW.replace('"cause"\n', '"caus"\n').replace("fix =", "repair ="))
    keys = {line.split(": ")[2] for line in told}
    assert keys == {"role", "repair"}, told


def test_faults_of_families() -> None:
    assert faults(
        x=FAMILY.replace('[[row.text]]\nid = "ended"', '[[row.text]]\nid = "ended"\nfix = "a"', 1)
    ) == ["x.toml:9: ended: fix: it belongs into [[row]]: there is no such key"]
    assert faults(x=FAMILY.replace('role = "con', "needle = 'a'\nrole = \"con")) == [
        "x.toml:2: row 1: needle: it belongs into each [[row.text]]"
    ]
    assert faults(x="[[row]]\ntext = 3\n") == [
        "x.toml:1: row 1: text: expected tables that begin with [[row.text]]"
    ]


def test_lines_are_left_out_where_a_text_looks_like_a_row() -> None:
    text = ROW.replace("'disk sda is gone'\n", "'''\ndisk sda is gone\n[[row]]\n'''\n").replace(
        "fix =", "fixx ="
    )
    assert "x.toml: gone: fixx: there is no such key; did you mean fix?" in faults(x=text)


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_is_one_error(data: bytes) -> None:
    try:
        read_rows({"x.toml": data, "y.toml": ROW.encode() + data})
    except RowsError as error:
        assert str(error).startswith(("x.toml", "y.toml"))


@given(st.data())
def test_whatever_values_rows_have_is_one_error(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([*Signature.__struct_fields__, "text", "[row.text]"]))
    value = data.draw(
        st.sampled_from(["3", "-1.5", "true", "'a'", "[]", "[1]", "{}", "{a=1}", "['a']", "[{}]", "[[]]"])
    )
    try:
        read(x=f"[[row]]\n{key} = {value}\n{ROW.removeprefix('[[row]]')}")
    except RowsError as error:
        assert str(error).startswith("x.toml")


# --- the packed copy ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows" / "general").mkdir(parents=True)
    (tmp_path / "rows" / "linux.toml").write_text(ROW)
    (tmp_path / "rows" / "general" / "apt.toml").write_text(FAMILY)
    return tmp_path / "rows"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many files of rows were read anew, for each time."""
    times: list[int] = []

    def counting(files: dict[str, bytes]) -> tuple[Signature, ...]:
        times.append(len(files))
        return read_rows(files)

    monkeypatch.setattr(catalogue, "read_rows", counting)
    yield times


def test_a_packed_copy_is_the_same_until_a_file_changes(
    folder: Path, tmp_path: Path, reads: list[int]
) -> None:
    cache = tmp_path / "cache"
    first = load(folder, cache)
    (pack,) = cache.iterdir()
    assert (pack.stat().st_mode & 0o777, cache.stat().st_mode & 0o777) == (0o600, 0o700)
    assert load(folder, cache) == first and [row.id for row in first] == ["ended", "ended-otherwise", "gone"]
    assert reads == [2], "it was read once"
    (folder / "linux.toml").write_text(ROW.replace("A disk is gone", "A disk was lost"))
    assert load(folder, cache)[-1].title == "A disk was lost" and reads == [2, 2]
    (folder / "linux.toml").unlink()
    assert [row.id for row in load(folder, cache)] == ["ended", "ended-otherwise"]
    assert [one.name for one in cache.iterdir()] == [pack.name], "one for an installation"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "changed in a row": lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:],
    "changed at its end": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "of another form": lambda data: b"liverl rows 0\n" + data.partition(b"\n")[2],
    "noise": lambda data: bytes(range(256)),
    "its head alone": lambda data: data[: len(b"liverl rows 3\n") + 64],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_made_anew(folder: Path, tmp_path: Path, reads: list[int], damage: str) -> None:
    first = load(folder, tmp_path / "cache")
    (pack,) = (tmp_path / "cache").iterdir()
    good = pack.read_bytes()
    pack.write_bytes(DAMAGES[damage](good))
    assert load(folder, tmp_path / "cache") == first and reads == [2, 2]
    assert pack.read_bytes() == good


def test_a_copy_that_others_can_write_or_own_is_not_used(
    folder: Path, tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(folder, tmp_path / "cache")
    (pack,) = (tmp_path / "cache").iterdir()
    for mode in (0o620, 0o602):
        pack.chmod(mode)
        assert load(folder, tmp_path / "cache") == first
        assert pack.stat().st_mode & 0o777 == 0o600, "it was replaced"
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    load(folder, tmp_path / "cache")
    assert reads == [2] * 4


@pytest.mark.parametrize("what", ["a folder", "a FIFO", "a link", "no folder for it"])
def test_what_stands_in_the_place_of_the_copy_hurts_nobody(folder: Path, tmp_path: Path, what: str) -> None:
    cache = tmp_path / "cache"
    first = load(folder, cache)
    (pack,) = cache.iterdir()
    pack.unlink()
    if what == "a folder":
        pack.mkdir()
    elif what == "a FIFO":
        os.mkfifo(pack)
    elif what == "a link":
        pack.symlink_to("/dev/zero")
    else:
        cache.rmdir()
        cache.write_text("a file")
    assert load(folder, cache) == first


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path) -> None:
    assert [row.id for row in load(folder, Path("/proc/1/none"))] == ["ended", "ended-otherwise", "gone"]


def test_a_user_without_a_home_has_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(catalogue, "default_cache_dir", without)
    assert catalogue.rows.__wrapped__() == catalogue.rows()


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_held_outlives_its_files(
    folder: Path, tmp_path: Path, reads: list[int], copied: bool
) -> None:
    """A backend that judges its first log after an upgrade would read files that it does not understand."""
    first = load(folder, tmp_path / "cache") if copied else ()
    held = packed(folder, tmp_path / "cache")
    for path in (*folder.rglob("*.toml"), *(tmp_path / "cache").iterdir()):
        path.write_text("[new-form]\n")
    assert held.rows() == first or not copied
    assert [row.id for row in held.rows()] == ["ended", "ended-otherwise", "gone"] and reads == [2]


def test_outlines_are_read_without_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = packed(ROWS, tmp_path / "cache")
    expected = outlines_of(held.rows())
    monkeypatch.setattr(catalogue, "_unpack", lambda body: pytest.fail("rows were unpacked"))
    assert held.outlines() == expected and len(expected) > 100
    assert packed(ROWS, tmp_path / "cache").outlines() == expected


def test_the_outlines_of_our_rows_are_those_of_the_rows() -> None:
    assert catalogue.outlines() == outlines_of(catalogue.rows())
    assert {row.outline for row in watched(catalogue.rows())} == {*watched(catalogue.outlines())}
    assert len(catalogue.outlines()) > 100


def test_a_matcher_gets_its_rows_when_it_is_asked(folder: Path, tmp_path: Path) -> None:
    times: list[int] = []

    def rows() -> tuple[Signature, ...]:
        times.append(1)
        return load(folder, tmp_path / "cache")

    matcher = Matcher(rows)
    assert times == []
    assert "gone" in matcher.by_id and len(matcher.rows) == 3 and times == [1]


def test_processes_that_pack_at_once_do_not_hurt_each_other(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from liverl.causes.catalogue import load\n"
        "for _ in range(30):\n"
        "    [one.unlink(missing_ok=True) for one in Path(sys.argv[2]).glob('*.pack')]\n"
        "    assert len(load(Path(sys.argv[1]), Path(sys.argv[2]))) == 3\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(tmp_path / "cache")]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        ended = [process.communicate(timeout=60)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert ended == ["", "", ""]
    (pack,) = (tmp_path / "cache").iterdir()
    assert load(folder, tmp_path / "cache") and pack.suffix == ".pack"


def test_our_own_rows_are_what_their_files_say(tmp_path: Path) -> None:
    assert load(ROWS, tmp_path) == read_rows(row_files(ROWS)) == load(ROWS, tmp_path) == catalogue.rows()


def test_the_interface_starts_without_the_catalogue() -> None:
    program = "import sys, liverl_tui.cli.main, liverl_tui.app.app\n"
    program += "print([name for name in sys.modules if 'liverl.causes' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
