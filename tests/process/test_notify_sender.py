"""One delivery: the real sender process, against real servers and programs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from kit.receivers import TOKEN, Hook, keeper_of, kept, webhook
from kit.waiting import wait_until

from liverl.notify import delivery, sender
from liverl.notify.delivery import Outcome
from liverl.notify.message import About, Message, trial_message
from liverl.notify.target import request
from liverl.plan.spec import NotifyTarget
from liverl.procs import procfs

MESSAGE = trial_message(About("p/run", 1, "node1", "", ""), 0.0)
CERTIFICATE = Path(__file__).parents[1] / "data" / "notify" / "self-signed.pem"
ENV = {"PATH": os.environ["PATH"], "HOME": "/home/user", "SECRET_KEY": "x"}


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook() as hook:
        yield hook


def told(
    target: NotifyTarget,
    folder: Path,
    timeout: float = 60.0,
    env: dict[str, str] = ENV,
    message: Message = MESSAGE,
) -> Outcome:
    outcome = asyncio.run(delivery.deliver(target, message, env, timeout, folder / "claim"))
    assert TOKEN not in outcome.why
    return outcome


def shell(script: str) -> NotifyTarget:
    return NotifyTarget("command", words=("/bin/sh", "-c", script))


def test_a_webhook_gets_the_message_by_post(hook: Hook, tmp_path: Path) -> None:
    target = hook.target(tmp_path)
    assert told(target, tmp_path) == Outcome(True)
    assert hook.asked == [msgspec.to_builtins(MESSAGE)]
    assert target.title == f"webhook in {target.file}"


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (302, b"", "127.0.0.1 answered HTTP 302, a redirect, which is not followed"),
        (404, b"", "127.0.0.1 answered HTTP 404"),
        (
            500,
            f"no hook {TOKEN}\n\x1b[31m at /hook/{TOKEN}".encode(),
            "HTTP 500: no hook *** \\x1b[31m at ***",
        ),
        (500, b"x" * (1 << 20), "127.0.0.1 answered HTTP 500: " + "x" * sender.SHOWN),
        (401, b"bearer sk-abcdefghijkl", "HTTP 401: bearer ***"),
    ],
)
def test_an_answer_that_is_no_success(
    hook: Hook, tmp_path: Path, status: int, answer: bytes, why: str
) -> None:
    hook.status, hook.answer = status, answer
    hook.headers["Location"] = hook.address
    outcome = told(hook.target(tmp_path), tmp_path)
    assert not outcome.ok and why in outcome.why and len(outcome.why) < 300
    assert len(hook.asked) == 1, "a redirect is not followed"


def test_a_server_may_ask_for_a_pause(hook: Hook, tmp_path: Path) -> None:
    hook.status, hook.headers = 429, {"Retry-After": "7"}
    assert told(hook.target(tmp_path), tmp_path).pause == 7
    hook.headers["Retry-After"] = "99999"
    (tmp_path / "claim").unlink()
    assert told(hook.target(tmp_path), tmp_path).pause == sender.LONGEST_PAUSE


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    with webhook(certificate=CERTIFICATE) as hook:
        address = f"https://localhost:{hook.port}/hook/{TOKEN}"
        outcome = told(hook.target(tmp_path, address=address), tmp_path)
        assert outcome.why == "the certificate of localhost is not valid: self-signed certificate"
        (tmp_path / "claim").unlink()
        trusting = ENV | {"SSL_CERT_FILE": str(CERTIFICATE)}
        assert told(hook.target(tmp_path, address=address), tmp_path, env=trusting).ok
        assert len(hook.asked) == 1


def test_a_proxy_of_the_environment_is_used_but_not_for_this_host(hook: Hook, tmp_path: Path) -> None:
    env = ENV | {"http_proxy": f"http://127.0.0.1:{hook.port}"}
    far = hook.target(tmp_path, address=f"http://far.invalid/hook/{TOKEN}")
    assert told(far, tmp_path, env=env).ok and len(hook.asked) == 1
    (tmp_path / "claim").unlink()
    without = told(far, tmp_path, env=env | {"no_proxy": "far.invalid"})
    assert "cannot reach far.invalid" in without.why
    (tmp_path / "claim").unlink()
    assert told(hook.target(tmp_path), tmp_path, env=ENV | {"http_proxy": "http://127.0.0.1:1"}).ok
    (tmp_path / "claim").unlink()
    socks = told(far, tmp_path, env=ENV | {"http_proxy": "socks5://127.0.0.1:1"})
    assert "is not an http:// proxy" in socks.why


def test_a_server_that_does_not_answer(hook: Hook, tmp_path: Path) -> None:
    hook.delay = 5.0
    assert told(hook.target(tmp_path), tmp_path, 0.5).why == "127.0.0.1 did not answer within 0.5 s"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = hook.target(tmp_path, address=f"http://127.0.0.1:{free.getsockname()[1]}/hook/{TOKEN}")
        (tmp_path / "claim").unlink()
        assert told(closed, tmp_path).why == "cannot reach 127.0.0.1: Connection refused"


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("https://h/x", 0o644, "other users can read FILE (mode 0644): chmod 600 FILE"),
        ("https://h/x", 0o620, "other users can read FILE (mode 0620): chmod 600 FILE"),
        ("ftp://h/x", 0o600, "FILE does not hold an address: expected one line, https://..."),
        ("https://h/x\nhttps://h/y", 0o600, "FILE does not hold an address"),
        ("https://h/ü", 0o600, "FILE does not hold an address"),
        ("", 0o600, "FILE does not hold an address"),
        ("https://u:p@h/x", 0o600, "has a user name, which is not supported"),
        ("https://h:99999/x", 0o600, "has no valid host or port"),
        ("x" * (65 << 10), 0o600, "FILE is larger than 64 KiB"),
        (None, 0o600, "cannot read FILE: No such file or directory"),
    ],
)
def test_a_file_that_must_not_be_used(tmp_path: Path, content: str | None, mode: int, why: str) -> None:
    path = tmp_path / "hook"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    outcome = told(NotifyTarget("webhook", file=str(path)), tmp_path)
    assert why.replace("FILE", str(path)) in outcome.why and "h/x" not in outcome.why
    assert not (tmp_path / "claim").exists(), "nothing was started"


def test_what_is_no_file_and_what_is_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert (
        "not a regular file but a FIFO"
        in told(NotifyTarget("webhook", file=str(tmp_path / "fifo")), tmp_path).why
    )
    (tmp_path / "hook").write_text("https://h/x")
    (tmp_path / "hook").chmod(0o600)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    why = told(NotifyTarget("webhook", file=str(tmp_path / "hook")), tmp_path).why
    assert why.endswith(f"hook belongs to uid {me}, not to you (uid {me + 1})")


def test_a_command_gets_the_message_and_two_variables(tmp_path: Path) -> None:
    assert told(keeper_of(tmp_path / "got"), tmp_path) == Outcome(True)
    (got,) = kept(tmp_path / "got")
    assert got["body"] == msgspec.to_builtins(MESSAGE) and got["cwd"] == "/"
    assert set(got["env"]) - {"LC_CTYPE"} == {"PATH", "HOME"}  # Python itself may set that one


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo fine; echo api_key sk-abcdefghijkl >&2; exit 3", "exit 3: api_key ***"),
        ("exit 3", "exit 3"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; exit 1", "exit 1: " + "x" * sender.SHOWN),
        ("printf '\\033[31mred'; exit 1", "exit 1: \\x1b[31mred"),
        ("sleep 60", "it did not end in time, and was killed with all that it had started"),
        ("yes", "it did not end in time, and was killed with all that it had started"),
    ],
)
def test_a_command_that_fails(tmp_path: Path, script: str, why: str) -> None:
    assert told(shell(script), tmp_path, 1.0).why == why


def test_a_command_that_is_no_program(tmp_path: Path) -> None:
    for word in ("/no/such", "no-such-program", str(tmp_path)):
        assert told(NotifyTarget("command", words=(word,)), tmp_path).why.startswith(f"cannot start {word}: ")
        (tmp_path / "claim").unlink()


def test_nothing_of_a_command_outlives_its_time(tmp_path: Path) -> None:
    """What it leaves in the background goes on until then: a program may hand a message over and go."""
    note = f"echo $$ >> {tmp_path}/pids"
    script = f"(setsid sh -c '{note}; sleep 300' &) ; setsid sh -c '{note}; exec sleep 301' & {note}; exit 0"
    assert told(shell(script), tmp_path, 1.5) == Outcome(True)
    pids = wait_until(
        lambda: (found := (tmp_path / "pids").read_text().split())[2:] and found, what="three pids"
    )
    assert pids
    for pid in map(int, pids):
        wait_until(lambda pid=pid: not procfs.alive(pid, None), what="its end")


def test_apprise_hands_the_text_on(hook: Hook, tmp_path: Path) -> None:
    """Real apprise, where the extra is installed, with its own kind of webhook."""
    pytest.importorskip("apprise")
    configuration = tmp_path / "apprise"
    configuration.write_text(f"json://127.0.0.1:{hook.port}/hook/{TOKEN}\n")
    configuration.chmod(0o600)
    target = NotifyTarget("apprise", file=str(configuration))
    assert told(target, tmp_path, 30.0) == Outcome(True)
    assert [body["message"] for body in hook.asked] == [MESSAGE.text]
    hook.status = 500
    (tmp_path / "claim").unlink()
    assert told(target, tmp_path, 30.0).why.startswith("exit 1")


def test_without_apprise_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl.notify.target.find_spec", lambda name: None)
    (tmp_path / "apprise").touch(0o600)
    why = told(NotifyTarget("apprise", file=str(tmp_path / "apprise")), tmp_path).why
    assert why == "apprise is not installed: pip install 'liverl-tui[notify]'"


# --- who makes a delivery ---------------------------------------------------------------------------------------------


def start(target: NotifyTarget, claim: Path, timeout: float = 60.0) -> Callable[[], int]:
    """A sender as a backend starts it, which nobody reads."""
    data, env = request(target, MESSAGE, ENV, timeout, claim)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", sender.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()  # as if the backend had died
    process.stdin.write(data)
    process.stdin.close()
    return process.wait


def settled(claim: Path, timeout: float = 60.0) -> Outcome | None:
    return asyncio.run(delivery.settle(claim, timeout))


def test_a_delivery_is_made_by_one_process_only(hook: Hook, tmp_path: Path) -> None:
    target, claim = hook.target(tmp_path), tmp_path / "claim"
    hook.delay = 0.5
    first, second = start(target, claim), start(target, claim)
    assert sorted((first(), second())) == [0, 1]
    assert len(hook.asked) == 1 and settled(claim) == Outcome(True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("claim")] == ["claim"]


def test_one_that_goes_on_is_waited_for(hook: Hook, tmp_path: Path) -> None:
    hook.delay = 1.0
    claim = tmp_path / "claim"
    end = start(hook.target(tmp_path), claim)
    wait_until(lambda: hook.asked, what="the request")
    assert settled(claim) == Outcome(True) and end() == 0 and len(hook.asked) == 1


def test_one_that_was_never_made_cannot_begin_any_more(hook: Hook, tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    assert settled(claim) is None
    assert start(hook.target(tmp_path), claim)() == 1
    assert hook.asked == []


def test_one_whose_process_was_killed_is_made_again(tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.write_text(json.dumps({"pid": os.getpid(), "tick": 1}) + "\n")  # of a process that is no more
    assert settled(claim) is None
    claim.write_text("{}\n")
    assert settled(claim) is None


def test_a_full_disk_does_not_keep_people_from_learning_of_it(hook: Hook, tmp_path: Path) -> None:
    """Simulated: the directory of claims is missing, so that none can be written."""
    assert told(hook.target(tmp_path), tmp_path / "missing") == Outcome(True)
    assert len(hook.asked) == 1
