"""Recordings from strangers: what is damaged, too large, or leads out of its folder is refused with a reason."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.replay import archive
from liverl.replay.archive import About, RecordingError, read, write

ABOUT = About("first", begin=1_000_000_000.0, end=1_000_000_100.0, run="/srv/runs/demo/first")


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    return info, data


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive with a valid description and these members."""
    raw = io.BytesIO()
    about = b'{"name":"first","begin":1000000000,"end":1000000100,"run":"/srv/runs/demo/first"}'
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in (member("recording.json", about), *members):
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(lzma.compress(raw.getvalue()))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    growth = b'{"at":1000000001.0,"path":"events.jsonl","size":2}\n'
    tables = {"step": b'{"at":1.0,"value":3}\n'}
    size = write(tmp_path / "r.tar.xz", ABOUT, tables, growth, {"events.jsonl": b"{}"})
    recording = read(tmp_path / "r.tar.xz")
    assert size == (tmp_path / "r.tar.xz").stat().st_size
    assert recording.about == ABOUT
    assert recording.files == {"events.jsonl": b"{}"}
    assert recording.tables["step"].at(5.0) == 3
    assert [(row.path, row.size) for row in recording.growth] == [("events.jsonl", 2)]


@pytest.mark.parametrize(
    "hostile",
    [
        member("files/../../etc/passwd", b"x"),
        member("files//etc/passwd", b"x"),
        member("/etc/passwd", b"x"),
        member("files/a\n", b"x"),
        member("files/a/b/c/d/e/f/g/h/i", b"x"),
        member("elsewhere", b"x"),
        member("files/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("files/hard", kind=tarfile.LNKTYPE, link="recording.json"),
        member("files/fifo", kind=tarfile.FIFOTYPE),
        member("files/device", kind=tarfile.CHRTYPE),
        member("files/folder", kind=tarfile.DIRTYPE),
        member("recording.json", b"{}"),  # twice
        member("growth.jsonl", b'{"at":1,"path":"../x","text":"y"}\n'),
        member("growth.jsonl", b'{"at":1,"path":"not/there","size":3}\n'),
        member("growth.jsonl", b"{"),
        member("tables/step.jsonl", b'{"at":"now"}\n'),
    ],
    ids=lambda hostile: f"{hostile[0].name[:20]!r}-{hostile[0].type.decode()}-{hostile[1][:18].decode()!r}",
)
def test_a_member_that_no_recording_has_is_refused(
    tmp_path: Path, hostile: tuple[tarfile.TarInfo, bytes]
) -> None:
    with pytest.raises(RecordingError, match="is no recording that can be played"):
        read(packed(tmp_path / "r.tar.xz", hostile))


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="'files/a' is there twice"):
        read(packed(tmp_path / "r.tar.xz", member("files/a", b"x"), member("files/a", b"y")))


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="'a' is a file and a folder"):
        read(packed(tmp_path / "r.tar.xz", member("files/a", b"x"), member("files/a/b", b"y")))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_CONTENT", 4 << 20)
    path = packed(tmp_path / "r.tar.xz", member("files/zeros", bytes(8 << 20)))
    assert path.stat().st_size < 10_000
    with pytest.raises(RecordingError, match="larger than 4 MiB"):
        read(path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    with pytest.raises(RecordingError, match="more than 3 members"):
        read(packed(tmp_path / "r.tar.xz", *(member(f"files/{n}") for n in range(3))))


def test_a_large_or_missing_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read(tmp_path / "none.tar.xz")
    monkeypatch.setattr(archive, "LARGEST_ARCHIVE", 100)
    with pytest.raises(RecordingError):
        read(packed(tmp_path / "r.tar.xz"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    path = packed(tmp_path / "r.tar.xz", member("files/a", b"some text" * 1000))
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "cut": data[:middle],
            "flipped": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
            "text": b"not an archive",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(RecordingError, match=r"r\.tar\.xz is no recording that can be played"):
        read(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"name":"a","begin":1,"end":2,"run":"/r","format":9}', "format 9"),
        (b'{"name":"../a","begin":1,"end":2,"run":"/r"}', "no name of a run"),
        (b'{"name":"a","begin":2,"end":2,"run":"/r"}', "ends before it begins"),
        (b'{"name":"a"}', "missing required field"),
    ],
)
def test_a_description_that_cannot_be_played_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info, data = member("recording.json", text)
        tar.addfile(info, io.BytesIO(data))
    (tmp_path / "r.tar.xz").write_bytes(lzma.compress(raw.getvalue()))
    with pytest.raises(RecordingError, match=why):
        read(tmp_path / "r.tar.xz")


GROWTH = b'{"at":1000000001.0,"path":"a.log","size":2}\n'
TABLE = b'{"at":1.0,"value":3}\n'
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def with_growth(path: Path, growth: bytes, table: bytes = b"", log: bytes = b"x\n") -> Path:
    tables = member("tables/step.jsonl", table)
    return packed(path, member("growth.jsonl", growth), tables, member("files/a.log", log))


@pytest.mark.parametrize(
    ("growth", "table", "log", "why"),
    [
        (DEEP, b"", b"", "nested too deeply"),
        (
            b'{"at":1e9,"path":"a.log","size":2,"more":' + DEEP + b"}",
            b"",
            b"",
            "nested too deeply",
        ),
        (b"", b'{"at":1,"value":' + DEEP + b"}\n", b"", "nested more than 200 levels deep"),
        (b'{"at":1e308,"path":"a.log","size":2}\n', b"", b"", "grows at 1e\\+308, which is no time"),
        (b'{"at":-5,"path":"a.log","size":2}\n', b"", b"", "grows at -5, which is no time"),
        (b'{"at":NaN,"path":"a.log","size":2}\n', b"", b"", "malformed"),
        (b'{"at":1e9,"path":"a.log","size":' + b"1" * 10_000 + b"}\n", b"", b"", "out of range"),
        (b'{"at":1e9,"path":"\xff","size":2}\n', b"", b"", "not UTF-8"),
        (b"\xef\xbb\xbf" + GROWTH, b"", b"", "malformed"),
        (b"\0" + GROWTH, b"", b"", "malformed"),
        (GROWTH * 200_001, b"", b"", "more than 200000 rows of growth"),
        (GROWTH, TABLE * 200_001, b"", "more than 200000 rows"),
        (GROWTH, b"", b"\n" * 500_001, "more than 500000 lines"),
        (GROWTH, b"", b"\r" * 500_001, "more than 500000 lines"),
    ],
    ids=range(14),
)
def test_what_is_deep_huge_or_no_time_is_refused(
    tmp_path: Path, growth: bytes, table: bytes, log: bytes, why: str
) -> None:
    with pytest.raises(RecordingError, match=why):
        read(with_growth(tmp_path / "r.tar.xz", growth, table, log))


@pytest.mark.parametrize(
    "about",
    [
        DEEP,
        b'{"name":"a","begin":1,"end":2,"run":"/r","utc_offset":1e308}',
        b'{"name":"a","begin":1,"end":1e308,"run":"/r"}',
        b'{"name":"a","begin":1,"end":' + b"9" * 5000 + b',"run":"/r"}',
        b'{"name":"\xff","begin":1,"end":2,"run":"/r"}',
    ],
    ids=range(5),
)
def test_a_description_of_hostile_numbers_and_depth_is_refused(tmp_path: Path, about: bytes) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info, data = member("recording.json", about)
        tar.addfile(info, io.BytesIO(data))
    (tmp_path / "r.tar.xz").write_bytes(lzma.compress(raw.getvalue()))
    with pytest.raises(RecordingError, match="is no recording that can be played: "):
        read(tmp_path / "r.tar.xz")


@pytest.mark.parametrize("field", [b"\x80" + b"\x7f" * 11, b"\xff" * 12, b"\x80" + bytes(10) + b"\xff"])
def test_a_size_that_no_member_has_is_refused(tmp_path: Path, field: bytes) -> None:
    """2**90, less than nothing, and more than there is."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in (member("recording.json", b"{}"), member("files/n", b"abc")):
            tar.addfile(info, io.BytesIO(data))
    changed = bytearray(raw.getvalue())
    at = changed.find(b"files/n")
    changed[at + 124 : at + 136] = field
    changed[at + 148 : at + 156] = b" " * 8
    changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + 512])
    (tmp_path / "r.tar.xz").write_bytes(lzma.compress(bytes(changed)))
    with pytest.raises(RecordingError, match="is no recording that can be played: "):
        read(tmp_path / "r.tar.xz")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_recording_that_was_changed_anywhere(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    good = lzma.decompress(with_growth(folder / "r.tar.xz", GROWTH, TABLE).read_bytes())
    data = bytearray(good)
    for at, value in changes:
        data[at % len(data)] = value
    (folder / "r.tar.xz").write_bytes(lzma.compress(bytes(data), preset=0))
    try:
        read(folder / "r.tar.xz")
    except RecordingError as error:
        assert str(error)
