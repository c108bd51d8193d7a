"""What comes out of an environment of Harbor's is a stream that its trial may have written."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.local_environments import load

load()
import liverl_local_environment.copies as copies  # type: ignore[import-not-found]  # noqa: E402


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **more: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    for key, value in more.items():
        setattr(found, key, value)
    return found


def stream(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for one, content in members:
            if content:
                one.size = len(content)
            archive.addfile(one, io.BytesIO(content))
    return b"/app\0" + data.getvalue()


def receive(folder: Path, data: bytes) -> list[str]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return list(copies.receive_tree(io.BytesIO(data), descriptor))
    finally:
        os.close(descriptor)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Where to copy to, and a folder beside it that must stay as it is."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "f").write_text("kept")
    return inside, outside


HOSTILE = {
    "above": [(member("../outside/f"), b"no")],
    "above, later": [(member("a/../../outside/f"), b"no")],
    "absolute": [(member("/etc/passwd"), b"no")],
    "through a link": [(member("x", tarfile.SYMTYPE, "../outside"), b""), (member("x/f"), b"no")],
    "through an absolute link": [
        (member("x", tarfile.SYMTYPE, "/app/../outside"), b""),
        (member("x/f"), b"no"),
    ],
    "through a link to a link": [
        (member("d", tarfile.DIRTYPE), b""),
        (member("dot", tarfile.SYMTYPE, "."), b""),
        (member("x", tarfile.SYMTYPE, "dot/../outside"), b""),
        (member("x/f"), b"no"),
    ],
    "a hard link to the outside": [(member("x", tarfile.LNKTYPE, "../outside/f"), b""), (member("x"), b"no")],
    "a device": [(member("x", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")],
    "a pipe": [(member("x", tarfile.FIFOTYPE), b"")],
    "a file over a directory": [(member("x/y"), b"1"), (member("x"), b"2")],
    "a directory over a file": [(member("x"), b"1"), (member("x/y"), b"2"), (member("x/y/z"), b"3")],
    "a name that is none": [(member("."), b"no"), (member("a/."), b"no"), (member("/"), b"no")],
    "a name that is too long": [(member("n" * 5000), b"no"), (member("d/" * 1000 + "f"), b"no")],
    "a mode": [
        (member("x", mode=0o7777), b"1"),
        (member("y", tarfile.DIRTYPE, mode=0), b""),
        (member("y/z"), b"1"),
    ],
    "an odd name": [(member("a\nb\x1b[31m"), b"1"), (member("c", tarfile.SYMTYPE, ""), b"")],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_nothing_is_written_outside(folders: tuple[Path, Path], name: str, form: int) -> None:
    inside, outside = folders
    receive(inside, stream(*HOSTILE[name], form=form))
    kept_inside(inside, outside)


def kept_inside(inside: Path, outside: Path) -> None:
    assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("f", "kept")]
    assert sorted(one.name for one in inside.parent.iterdir()) == ["inside", "outside"]
    for one in inside.rglob("*"):
        mode = one.lstat().st_mode
        assert one.is_symlink() or one.is_dir() or one.is_file()
        assert one.is_symlink() or mode & 0o7022 == 0, "neither set-uid nor writable by others"
        assert one.resolve().is_relative_to(inside), f"{one} leads out"


def test_what_was_left_out_is_named_and_bounded(folders: tuple[Path, Path]) -> None:
    inside, _ = folders
    told = receive(
        inside, stream(*((member(f"p{n}", tarfile.FIFOTYPE), b"") for n in range(100)), (member("f"), b"1"))
    )
    assert (
        told[0] == "'p0' (neither a file nor a directory nor a link)"
        and told[-1] == "80 more"
        and len(told) == 21
    )
    assert (inside / "f").read_text() == "1"


DAMAGED = {
    "empty": b"",
    "no path": b"/app",
    "a path without end": b"/" * 100_000,
    "noise": b"/app\0" + random.Random(1).randbytes(20_000),
    "cut in a file": stream((member("f"), b"x" * 5000))[:2000],
    "a name of 8 GB": b"/app\0" + member("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=8 << 30).tobuf(),
    "an extension of 8 GB": b"/app\0" + member("x", tarfile.XHDTYPE, size=8 << 30).tobuf(),
    "a negative size": b"/app\0" + member("x", size=-5).tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024,
    "a size of 2^90": b"/app\0" + member("x", size=(1 << 80)).tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_stream_is_refused_with_words(folders: tuple[Path, Path], name: str) -> None:
    inside, outside = folders
    with pytest.raises(copies.CopyFailed, match=r"^(what came out of the environment is damaged: |its path)"):
        receive(inside, DAMAGED[name])
    kept_inside(inside, outside)


GOOD = stream(
    (member("d", tarfile.DIRTYPE), b""),
    (member("d/" + "long" * 40), b"1" * 700),
    (member("d/l", tarfile.SYMTYPE, "../f"), b""),
    (member("f"), b"2"),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(5, len(GOOD) - 1), st.integers(0, 255)), max_size=6),
    st.integers(600, len(GOOD)),
)
def test_a_stream_that_was_changed_anywhere(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], end: int
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "f").write_text("kept")
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    for header in range(5, len(data) - 511, 512):  # with the right sum, so that the change is not found by it
        sum_of_it = sum(data[header : header + 148]) + 256 + sum(data[header + 156 : header + 512])
        if data[header + 257 : header + 262] == b"ustar":
            data[header + 148 : header + 156] = b"%06o\0 " % sum_of_it
    try:
        receive(inside, bytes(data[:end]))
    except (copies.CopyFailed, OSError):
        pass
    kept_inside(inside, outside)
