"""``environment_type: local`` with real namespaces, mounts and copies, against what a trial can do in it. Simulated:
the base class of Harbor's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.local_environments import load, refused

WHY = refused()
pytestmark = pytest.mark.skipif(bool(WHY), reason=f"this machine refuses namespaces: {WHY}")
Make = Callable[..., Awaitable[Any]]


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that is seen in an environment, unlike those below /tmp."""
    # 10,000 directories take a disk ten seconds
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"
    folder = Path(tempfile.mkdtemp(prefix="liverl-local-", dir=place))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def make(base: Path) -> AsyncIterator[Make]:
    """Starts the environment of a trial."""
    made: list[Any] = []

    async def start(*mounts: dict[str, Any], name: str = "trial") -> Any:
        trial = base / name
        for folder in ("agent", "verifier", "artifacts"):
            (trial / folder).mkdir(parents=True)
        (base / "files").mkdir(exist_ok=True)
        own = [bind(trial / one, f"/logs/{one}") for one in ("agent", "verifier", "artifacts")]
        environment = load().LocalEnvironment(trial, f"{name}__s1", base / "files", [*own, *mounts])
        made.append(environment)
        await environment.start(False)
        return environment

    yield start
    for environment in made:
        await environment.stop(True)


def bind(source: Path, target: str, **more: Any) -> dict[str, Any]:
    return {"type": "bind", "source": str(source), "target": target, **more}


async def sh(environment: Any, command: str) -> str:
    """What a command prints that succeeds."""
    result = await environment.exec(command, timeout_sec=60)
    assert result.return_code == 0, result.stdout + result.stderr
    return str(result.stdout)


async def test_the_files_beside_the_dockerfile_are_in_the_working_directory(base: Path, make: Make) -> None:
    (base / "files" / "sub").mkdir(parents=True)
    (base / "files" / "Dockerfile").write_text("FROM x")
    (base / "files" / "sub" / "run.sh").write_text("echo it runs")
    (base / "files" / "sub" / "run.sh").chmod(0o755)
    (base / "files" / "link").symlink_to("sub/run.sh")
    environment = await make()
    assert await sh(environment, "pwd; ls; ./link") == "/app\nlink\nsub\nit runs\n"


async def test_what_is_mounted_read_only_is_read_only_under_every_name(base: Path, make: Make) -> None:
    kept = base / "all" / "kept"
    kept.mkdir(parents=True)
    (kept / "f").write_text("kept")
    environment = await make(
        bind(kept, "/mnt/kept", read_only=True),
        bind(base / "all", "/mnt/all"),
        bind(kept / "f", "/mnt/one", read_only=True),
    )
    for path in ("/mnt/kept", str(kept), "/mnt/all/kept"):
        await environment.exec(
            f"mount -o remount,bind,rw {path}; umount {path}; umount -l {path}; echo no > {path}/f"
        )
        await environment.exec(f"mv {path} {path}2; rm -rf {path}; mkdir -p {path}; echo no > {path}/f")
        inner = (
            f"mount -o remount,bind,rw {path}; umount -l {path}; mkdir /mnt/x; mount --bind {base} /mnt/x; "
        )
        await environment.exec(
            f"unshare -rm bash -c '{inner} echo no > /mnt/x/all/kept/f; echo no > {path}/f'"
        )
        assert await sh(environment, f"cat {path}/f") == "kept"
    await environment.exec("mount -o remount,bind,rw /mnt/one; echo no > /mnt/one")
    assert (kept / "f").read_text() == "kept"
    assert await sh(environment, "echo yes > /mnt/all/new; cat /mnt/all/new") == "yes\n", (
        "the rest is writable"
    )


async def test_the_mounts_are_locked_even_for_all_capabilities(
    base: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a command that took them from the process which starts another one."""
    kept = base / "kept"
    kept.mkdir()
    (kept / "f").write_text("kept")
    environment = await make(bind(kept, "/mnt/kept", read_only=True))
    monkeypatch.setattr("liverl_local_environment.environment.without_privileges", lambda words, _: words)
    assert await sh(environment, "mount -t tmpfs none /srv && umount /srv && echo all") == "all\n"
    for path in ("/mnt/kept", str(kept)):
        for command in ("mount -o remount,bind,rw", "umount", "umount -l"):
            assert (await environment.exec(f"{command} {path}")).return_code != 0, f"{command} {path}"
        await environment.exec(
            f"mkdir /x; mount --bind {path} /x; mount -o remount,bind,rw /x; echo no > /x/f"
        )
    assert (
        await environment.exec(f"umount {base}/trial || umount /tests || umount /logs/agent")
    ).return_code != 0
    assert (kept / "f").read_text() == "kept"


async def test_no_command_changes_what_is_mounted(base: Path, make: Make) -> None:
    environment = await make()
    for path in ("/tests", "/solution", "/logs", "/proc", "/logs/agent"):
        for command in ("rmdir", "umount", "umount -l", "mount -t tmpfs none", "mount --bind /app", "rm -r"):
            assert (await environment.exec(f"{command} {path}")).return_code != 0, f"{command} {path}"
    assert (await environment.exec("nsenter -t 1 -m -U mount -t tmpfs none /tests")).return_code != 0
    assert (await environment.exec("mv /tests /x || mv /logs /x")).return_code != 0
    # In namespaces of its own a command may mount what it likes; nobody else sees it.
    await sh(
        environment,
        "unshare -rm bash -c 'mount -t tmpfs none /tests && touch /tests/x && mount -t tmpfs none /proc'",
    )
    assert await sh(environment, "ls /tests; test -e /proc/1/stat && echo there") == "there\n"


async def test_the_directory_of_the_trial_is_not_seen(base: Path, make: Make) -> None:
    environment = await make()
    trial = base / "trial"
    (trial / "result.json").write_text("{}")
    assert await sh(environment, f"ls -A {trial}") == ""
    attack = (
        f"echo no > {trial}/result.json; umount -l {trial}; mv {trial} {trial}2; "
        f"mkdir -p {trial}/root/s1; rmdir {trial}/root/s1/tests"
    )
    await environment.exec(attack)
    await environment.exec(f"unshare -rm bash -c '{attack}'")
    assert (trial / "result.json").read_text() == "{}" and (trial / "root" / "s1" / "tests").is_dir()
    assert (
        await sh(environment, "echo seen > /logs/agent/x") == ""
        and (trial / "agent" / "x").read_text() == "seen\n"
    )


IN_THE_WAY = {
    "a link in place of the directory": "rmdir /tests; ln -s /tmp/out /tests",
    "a link in place of a file": "ln -s /tmp/out/f /tests/test.sh",
    "a link in place of a directory below": "ln -s /tmp/out /tests/sub",
    "a link to the environment's own directory": "mkdir /app/evil; ln -s /app/evil /tests/sub",
    "a directory in place of a file": "mkdir -p /tests/test.sh/full; touch /tests/test.sh/full/x",
    "a file in place of a directory": "touch /tests/sub",
    "a pipe in place of a file": "mkfifo /tests/test.sh",
    "a directory without rights": "mkdir -p /tests/sub/deep; chmod 000 /tests/sub /tests",
    "a hard link": "touch /app/mine; ln /app/mine /tests/test.sh",
    "a file that cannot be written": "echo echo evil > /tests/test.sh; chmod 0 /tests/test.sh; chattr +i /tests/*",
    "mounted over": "mount -t tmpfs none /tests; mount --bind /app /tests",
    "mounted over in a namespace": "(unshare -rm bash -c 'mount --bind /app /tests; sleep 1000' & ) >/dev/null 2>&1",
}


async def test_the_files_of_the_verifier_are_those_of_the_task(base: Path, make: Make) -> None:
    outside = Path("/tmp/out")  # as an environment, too, has one
    outside_was = sorted(outside.iterdir()) if outside.is_dir() else None
    tests = base / "task"
    (tests / "sub").mkdir(parents=True)
    (tests / "test.sh").write_text("echo of the task")
    (tests / "sub" / "one").write_text("1")
    environment = await make()
    clean = "chmod 755 /tests; rm -rf /tests/* /app/*; mkdir -p /tmp/out"
    for name, attack in IN_THE_WAY.items():
        await environment.exec(f"{clean}; {attack}", timeout_sec=60)
        await environment.upload_dir(tests, "/tests")
        seen = "find /tmp/out /app/evil -type f 2>/dev/null; cat /app/mine 2>/dev/null; true"
        said = await sh(environment, f"bash /tests/test.sh; cat /tests/sub/one; {seen}")
        assert said == "of the task\n1", name
    for attack in (
        "rm /tests/test.sh; ln -s /tmp/out/f /tests/test.sh",
        IN_THE_WAY["a directory in place of a file"],
    ):
        await environment.exec(f"{clean}; {attack}", timeout_sec=60)
        await environment.upload_file(tests / "test.sh", "/tests/test.sh")
        assert await sh(environment, "bash /tests/test.sh; ls /tmp/out") in (
            "of the task\n",
            "of the task\nf\n",
        )
    assert (sorted(outside.iterdir()) if outside.is_dir() else None) == outside_was


async def test_a_path_leads_where_it_leads_in_the_environment(base: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "r").write_text("MACHINE")
    environment = await make()
    await sh(
        environment, f"mkdir -p {tmp_path}; echo -n ENVIRONMENT > {tmp_path}/r; ln -s {tmp_path} /app/out"
    )
    await environment.download_file("/app/out/r", base / "got")
    assert (base / "got").read_text() == "ENVIRONMENT"
    await environment.download_dir("/app/out", base / "folder")
    assert (base / "folder" / "r").read_text() == "ENVIRONMENT"
    (base / "mine").write_text("MINE")
    await environment.upload_file(base / "mine", "/app/out/r")
    await environment.upload_file(base / "mine", "/app/new/folder/x")
    await environment.upload_file(base / "mine", "/app/new")
    await environment.upload_dir(base / "folder", "/app/out/deeper")
    assert (
        await sh(environment, f"cat {tmp_path}/r /app/new/folder/x /app/new/mine {tmp_path}/deeper/r")
        == "MINEMINEMINEENVIRONMENT"
    )
    assert (tmp_path / "r").read_text() == "MACHINE" and not (tmp_path / "deeper").exists()
    with pytest.raises(FileNotFoundError):
        await environment.download_file("/app/none", base / "none")
    with pytest.raises(FileNotFoundError):
        await environment.download_dir("/app/out/r", base / "none")
    with pytest.raises(FileNotFoundError):
        await environment.download_file("/app", base / "none")
    assert not (base / "none").exists()


async def test_a_copy_of_anything_that_a_trial_can_make(
    base: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    environment = await make()
    await sh(
        environment,
        r"""mkdir -p /app/a/b /app/locked; cd /app; echo -n x > a/f; echo -n y > locked/f; ln a/f a/hard
        ln -s f a/near; ln -s ../f a/b/up; ln -s /app/a/f a/b/absolute; ln -s /app top
        ln -s /etc/passwd out; ln -s ../../../../etc/passwd up; ln -s top/../../etc/passwd through; ln -s . dot
        mkfifo pipe; truncate -s 1T big; echo -n end >> big; printf '%s' z > $'odd\nname\xff'; touch -- -rf
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/app/socket")'
        chmod 000 a/f locked/f locked; chmod 4777 a/f; chmod 0 a/f""",
    )
    with caplog.at_level(logging.WARNING):
        await environment.download_dir("/app", base / "trial" / "artifacts" / "app")
    got = base / "trial" / "artifacts" / "app"
    links = {str(one.relative_to(got)): os.readlink(one) for one in got.rglob("*") if one.is_symlink()}
    assert links == {"a/near": "f", "a/b/up": "../f", "a/b/absolute": "../../a/f", "top": ".", "dot": "."}
    assert (got / "a" / "b" / "absolute").read_text() == "x"
    assert [(got / name).read_text() for name in ("a/f", "a/hard", "locked/f")] == ["x", "x", "y"]
    assert (got / "a" / "f").stat().st_mode & 0o7777 == 0o600 and (
        got / "locked"
    ).stat().st_mode & 0o7777 == 0o700
    big = (got / "big").stat()
    assert big.st_size == (1 << 40) + 3 and big.st_blocks < 1000, "its holes stay holes"
    assert (Path(os.fsdecode(os.fsencode(got) + b"/odd\nname\xff"))).read_text() == "z" and (
        got / "-rf"
    ).exists()
    told = caplog.text
    assert all(f"'./{name}'" in told for name in ("out", "up", "through", "pipe")), told
    assert not any(os.path.lexists(got / name) for name in ("out", "up", "through", "pipe", "socket"))


async def test_a_link_on_the_way_to_the_target_is_not_followed(base: Path, make: Make) -> None:
    precious = base / "precious"
    precious.mkdir()
    (precious / "f").write_text("kept")
    environment = await make()
    await sh(
        environment,
        f"mkdir /app/x; echo no > /app/x/f; cd /logs/artifacts; ln -s {precious} x; ln -s {precious}/f f",
    )
    artifacts = base / "trial" / "artifacts"
    await environment.download_dir("/app/x", artifacts / "x")
    await environment.download_dir("/app/x", artifacts / "x" / "deeper")
    await environment.download_file("/app/x/f", artifacts / "f")
    assert sorted(one.name for one in precious.iterdir()) == ["f"] and (precious / "f").read_text() == "kept"
    assert [(artifacts / name).read_text() for name in ("x/f", "x/deeper/f", "f")] == ["no\n"] * 3


async def test_what_is_mounted_needs_no_copy(base: Path, make: Make) -> None:
    environment = await make()
    await sh(environment, "echo 1 > /logs/verifier/reward.txt")
    verifier = base / "trial" / "verifier"
    await environment.download_dir("/logs/verifier", verifier)
    await environment.download_file("/logs/verifier/reward.txt", verifier / "reward.txt")
    assert (verifier / "reward.txt").read_text() == "1\n" and len(list(verifier.iterdir())) == 1


async def test_links_that_are_swapped_during_a_copy(base: Path, make: Make, tmp_path: Path) -> None:
    precious = tmp_path / "precious"  # in an environment this path is another directory
    precious.mkdir()
    (precious / "f").write_text("kept")
    tests = base / "task"
    tests.mkdir()
    for number in range(20):
        (tests / f"d{number}").mkdir()
        (tests / f"d{number}" / "f").write_text("task")
    environment = await make()
    swap = f"ln -sfn {precious} $1 2>/dev/null; rm -f $1; mkdir $1 2>/dev/null; touch $1/f; rm -rf $1"
    await sh(
        environment,
        f"""for place in /app/d7 /logs/artifacts/x /tests/d7; do
        (while :; do set -- $place; {swap}; done) >/dev/null 2>&1 & done""",
    )
    for _ in range(3):
        for copy in (
            environment.upload_dir(tests, "/app"),
            environment.upload_dir(tests, "/tests"),
            environment.download_dir("/app", base / "trial" / "artifacts" / "x"),
        ):
            try:
                await copy
            except (RuntimeError, OSError):
                pass  # a copy that is worked against may fail, with words
    assert sorted(one.name for one in precious.iterdir()) == ["f"] and (precious / "f").read_text() == "kept"


async def test_a_copy_that_is_held_ends(make: Make, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = await make()
    await sh(environment, "head -c 8000000 /dev/urandom > /app/large")
    # Whatever is started as tar stands still at once; one that was quicker is tried again.
    stop = 'for p in /proc/[0-9]*; do read -r name < $p/comm && [ "$name" = tar ] && kill -STOP ${p#/proc/}; done'
    await sh(environment, f"(while :; do {stop}; done) >/dev/null 2>&1 &")

    async def held() -> asyncio.Future[Any]:
        async with asyncio.timeout(60):
            while True:
                copying = asyncio.ensure_future(environment.download_file("/app/large", base / "large"))
                await asyncio.wait({copying}, timeout=0.5)
                if not copying.done() or copying.exception() is not None:
                    return copying

    copying = await held()
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    monkeypatch.setattr("liverl_local_environment.environment.STALL_S", 0.5)
    with pytest.raises(RuntimeError, match=r"/app/large cannot be copied: nothing came or went for 0\.5 s"):
        await (await held())


async def test_10_000_nested_directories_are_copied_in_part_and_removed(
    base: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    environment = await make()
    nest = "import os\nfor n in range(10000): os.mkdir('d'); os.chdir('d')\nos.mkfifo('p'); os.chmod('.', 0)"
    await sh(
        environment,
        f'mkdir /app/deep; cd /app/deep; python3 -c "{nest}"; echo x > /app/deep/f; chmod 0 /app/deep/d',
    )
    await environment.download_dir("/app/deep", base / "deep")
    assert "more than 200 directories deep" in caplog.text
    assert (base / "deep" / "f").read_text() == "x\n"
    await environment.stop(True)
    assert not (base / "trial" / "root").exists() and len(caplog.records) == 1


async def test_nothing_is_left_of_what_a_trial_has_filled_its_directories_with(
    base: Path, make: Make
) -> None:
    environment = await make()
    await sh(
        environment,
        """cd /app; for i in $(seq 60); do mkfifo p$i; ln -s p$i l$i; touch f$i; ln f$i h$i; truncate -s 1T s$i; done
        mknod dev c 1 3; mkdir -p locked/in; touch locked/in/f; chmod 000 locked/in locked
        (trap '' TERM HUP INT; sleep 1000) >/dev/null 2>&1 & rm -rf /tests/* /solution /logs 2>/dev/null; true""",
    )
    await environment.stop(True)
    assert not (base / "trial" / "root").exists()


async def test_a_source_that_is_a_link_and_a_target_below_one(base: Path, make: Make) -> None:
    (base / "real").mkdir()
    (base / "real" / "f").write_text("1")
    (base / "name").symlink_to("real")
    (base / "there").symlink_to("/tmp/liverl-not-on-the-machine")
    environment = await make(
        bind(base / "name", "/mnt/x y/a", read_only=True), bind(base / "real", "/mnt/new/b")
    )
    assert await sh(environment, "cat '/mnt/x y/a/f' /mnt/new/b/f") == "11"
    assert (await environment.exec("echo 2 > '/mnt/x y/a/f'")).return_code != 0
    assert not Path("/mnt/new").exists() and not Path("/tmp/liverl-not-on-the-machine").exists()


@pytest.mark.parametrize("root", ["replaced", "covered"])
def test_an_ordinary_user_has_the_same(base: Path, root: str) -> None:
    """As root this process has privileges that nobody else has: so another one, without any."""
    as_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []
    script = Path(__file__).with_name("local_environment_inside.py")
    env = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    words = [*as_user, sys.executable, str(script), str(base / "mine"), root]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("uid") > 0
    assert found == {
        "capabilities": ["0000000000000000"],
        "refused": "kept",
        "uploaded": "kept",
        "downloaded": "kept",
        "seen outside of a jail": "['mine']\n",
        "left": False,
    }
