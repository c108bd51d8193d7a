"""A daemon behind TLS, and one on another machine: preflight, the reader of the sandboxes, the sweep and ``clean
--sandboxes`` reach it by variables and by contexts; what keeps them from it is one sentence. ``LIVERL_TEST_DOCKERD=1``
starts real daemons, which needs root; openssl makes their certificates."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from kit.docker_kit import Sandboxes, make_image, of_project
from kit.net_hosts import Hosts
from kit.net_hosts import refused as no_hosts
from kit.runs import make_run, toy
from kit.second_daemon import Authority, program, second_daemon, started

from liverl.config import load_config
from liverl.plan import make_plan
from liverl.preflight import docker_daemon, harbor
from liverl.preflight.harbor import no_docker
from liverl.sandboxes.bridge import bridge_gateway
from liverl.sandboxes.docker import Docker, DockerError
from liverl.sandboxes.seen import SeenSandboxes
from liverl.sandboxes.sweep import look, sweep

TLS = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT")
SETS = (
    "agent.kind=harbor", "harbor_agent.agent_name=claude-code", "harbor_agent.environment_type=docker",
    f"supervise.pass_env={json.dumps(TLS)}",
)  # fmt: skip


class Remote:
    """A daemon at a TCP port with TLS. ``folder``: where its certificates are."""

    def __init__(self, folder: Path, authority: Authority, address: str, unix: str) -> None:
        self.folder, self.authority, self.address, self.unix = folder, authority, address, unix
        self.good = authority.shown(folder / "good")

    def variables(self, certificates: Path | None = None) -> dict[str, str]:
        """By which the docker program finds it."""
        return {
            "DOCKER_HOST": self.address,
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(certificates or self.good),
        }

    def context(self, folder: Path) -> dict[str, str]:
        """A configuration whose current context is the daemon's."""
        files = ",".join(f"{name}={self.good}/{name}.pem" for name in ("ca", "cert", "key"))
        env = {**os.environ, "DOCKER_CONFIG": str(folder)}
        env.pop("DOCKER_HOST", None)
        for words in (("create", "far", "--docker", f"host={self.address},{files}"), ("use", "far")):
            subprocess.run(["docker", "context", *words], env=env, check=True, capture_output=True)
        return {"DOCKER_CONFIG": str(folder)}


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        authority = Authority(folder / "authority")
        options = authority.options("IP:127.0.0.1,DNS:localhost")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "daemon").mkdir()
        with second_daemon(folder / "daemon", "-H", f"tcp://127.0.0.1:{port}", *options) as env:
            yield Remote(folder, authority, f"tcp://127.0.0.1:{port}", env["DOCKER_HOST"])


@pytest.fixture(params=["variables", "context"])
def chosen(
    remote: Remote, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The daemon as that of everything that this process starts; how it is named."""
    for name in ("DOCKER_HOST", *TLS):
        monkeypatch.delenv(name, raising=False)
    given = remote.variables() if request.param == "variables" else remote.context(tmp_path / "docker")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return str(request.param)


def checks_of(env: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What the checks of Docker say, with the variables that trials get."""
    given = {name: value for name, value in env.items() if name == "DOCKER_HOST"}
    loaded = load_config(profile="cpu-verl", sets=SETS, env=given)
    plan = make_plan(loaded, Path("/runs/p/n"))
    found = [*harbor.checks(plan, loaded.config, env), *docker_daemon.checks(plan, loaded.config, env)]
    return {check.name: (check.status, check.text) for check in found}


def test_everything_reaches_it(chosen: str, tmp_path: Path) -> None:
    tag, trial = f"liverl-test-{uuid.uuid4().hex[:8]}:local", f"t-{uuid.uuid4().hex[:8]}"
    make_image(tag)
    found = checks_of(dict(os.environ))
    assert found["harbor_agent.environment_type"] == ("ok", "docker: its daemon answers")
    assert found["docker compose"][0] == "ok" and found["docker networks"][0] == "ok", found
    assert "docker daemon" not in found, "trials get the same daemon"
    run = make_run(tmp_path, [toy("a", "sleep")])
    run.start()
    run.until("a", "ready")
    run.command("stop", now=False)
    assert run.result().exit_code == 0
    ours = Sandboxes(run.run_dir, tag)
    ours.up(trial)
    try:
        status = SeenSandboxes().look(ours.run_dir, time.time(), 30.0)
        assert status is not None and status.reachable, status
        (row,) = status.rows
        assert row.trial == trial and row.state == "running"
        # The line to copy works where none of the variables is set.
        bare = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        line = f"echo echo in-it | {row.exec.replace(' -it ', ' -i ')}; {status.docker} info --format '{{{{.Name}}}}'"
        shell = subprocess.run(
            ["sh", "-c", line], env=bare, capture_output=True, text=True, timeout=60, check=True
        )
        assert shell.stdout.split() == ["in-it", socket.gethostname()]
        if chosen == "context":  # another one is chosen while the run goes on
            subprocess.run(["docker", "context", "use", "default"], check=True, capture_output=True)
        before = look(ours.run_dir)
        assert before is not None and len(before.left) == 3 and not before.unknown
        words = [
            str(Path(sys.executable).with_name("liverl-tui")),
            "clean",
            "--sandboxes",
            "--yes",
            str(ours.run_dir),
        ]
        done = subprocess.run(words, env=bare, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 and "removed 3 things" in done.stdout, done.stdout + done.stderr
        left = look(ours.run_dir)
        assert left is not None and not left.left and not left.unknown
    finally:
        sweep(ours.run_dir, 30)
    if chosen == "context":
        subprocess.run(["docker", "context", "use", "far"], check=True, capture_output=True)
    assert of_project(trial) == {}


@contextlib.contextmanager
def forwarded(host: str, connect: Callable[[], socket.socket]) -> Iterator[str]:
    """A TCP port at ``host`` in front of what ``connect`` connects to; its address."""
    server = socket.create_server((host, 0))

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, daemon = server.accept()[0], connect()
                for pair in ((client, daemon), (daemon, client)):
                    Thread(target=pump, args=pair, daemon=True).start()

    Thread(target=serve, daemon=True).start()
    try:
        yield f"tcp://{host}:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def at_socket(unix: str) -> socket.socket:
    """A connection to a daemon at its socket."""
    daemon = socket.socket(socket.AF_UNIX)
    daemon.connect(unix.removeprefix("unix://"))
    return daemon


BAD = {
    "wrong CA": "is of another authority than the ca.pem of",
    "no client certificate": "put cert.pem and key.pem into",
    "expired certificate": "expired on 20",
    "client of a stranger": "authority that the daemon trusts",
    "no folder": "DOCKER_CERT_PATH has to name a folder",
    "key of another": "do not belong together",
    "without TLS": "wants TLS, and it was asked without: set DOCKER_TLS_VERIFY=1",
    "plain port": "is a port without TLS, and it was asked with TLS",
    "name that is not in it": "does not name 127.0.0.3",
    "no such context": "there is no docker context nowhere here",
    "context without certificates": "the docker context bare has no certificates",
}


@pytest.mark.parametrize("kind", BAD)
def test_what_keeps_from_it_is_one_sentence(
    remote: Remote, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_HOST", *TLS):
        monkeypatch.delenv(name, raising=False)
    other = Authority(tmp_path / "other", "other")
    folder = tmp_path / "shown"
    env, words = remote.variables(folder), BAD[kind]
    with contextlib.ExitStack() as stack:
        if kind == "wrong CA":
            remote.authority.shown(folder, ca=other.ca)
        elif kind == "no client certificate":
            remote.authority.shown(folder)
            (folder / "cert.pem").unlink()
            (folder / "key.pem").unlink()
        elif kind == "expired certificate":
            remote.authority.shown(folder, days=-1)
        elif kind == "client of a stranger":
            remote.authority.shown(folder, by=other)
        elif kind == "key of another":
            remote.authority.shown(folder)
            shutil.copy(other.certificate("x", "clientAuth")[1], folder / "key.pem")
        elif kind == "without TLS":
            env = {"DOCKER_HOST": remote.address}
        elif kind == "plain port":
            remote.authority.shown(folder)
            env["DOCKER_HOST"] = stack.enter_context(forwarded("127.0.0.1", lambda: at_socket(remote.unix)))
        elif kind == "name that is not in it":
            remote.authority.shown(folder)
            port = int(remote.address.rpartition(":")[2])
            connect = functools.partial(socket.create_connection, ("127.0.0.1", port))
            env["DOCKER_HOST"] = stack.enter_context(forwarded("127.0.0.3", connect))
        elif kind == "no such context":
            env = {"DOCKER_CONTEXT": "nowhere", "DOCKER_CONFIG": str(tmp_path)}
        elif kind == "context without certificates":
            env = {"DOCKER_CONTEXT": "bare", "DOCKER_CONFIG": str(tmp_path)}
            made = ["docker", "context", "create", "bare", "--docker", f"host={remote.address}"]
            subprocess.run(
                made, env={**os.environ, **env, "DOCKER_CONTEXT": ""}, check=True, capture_output=True
            )
        whole = {**os.environ, **env}
        with pytest.raises(DockerError) as raised:
            Docker(env, time.monotonic() + 20).root()
        told = [str(raised.value), no_docker("", whole), bridge_gateway(whole)[1]]
        told.append(checks_of(whole)["harbor_agent.environment_type"][1].removeprefix("docker: "))
    print(f"\n{kind}:", *told, sep="\n  ")
    assert all(words in one and one == told[0] for one in told), told
    assert "\n" not in told[0] and "x509: certificate signed" not in told[0]


ON_ANOTHER = """
import json, os, sys
from pathlib import Path
from liverl.config import load_config
from liverl.plan import make_plan
from liverl.preflight import docker_daemon, sandbox_address
from liverl.sandboxes.bridge import way
found = {"way": list(way(os.environ))}
for name, sets in json.loads(sys.argv[1]).items():
    loaded = load_config(profile="cpu-verl", sets=sets, env={"DOCKER_HOST": os.environ["DOCKER_HOST"]})
    plan = make_plan(loaded, Path("/runs/p/n"))
    told = [*sandbox_address.checks(plan, loaded.config, dict(os.environ))]
    told += docker_daemon.checks(plan, loaded.config, dict(os.environ))
    found[name] = {one.name: [one.status, one.text, one.patch] for one in told}
print(json.dumps(found))
"""
REACHES = """
import json, os, sys, time
from pathlib import Path
import socket
from liverl.sandboxes.probe import probe
with socket.create_server((sys.argv[3], 0)) as server:
    port = server.getsockname()[1]
    found = probe(Path(sys.argv[1]), "attempt_001", os.environ, sys.argv[2], sys.argv[3], port, time.monotonic() + 60)
print(json.dumps([found.reached, found.text]))
"""


@pytest.mark.slow
def test_a_daemon_on_another_host(tmp_path: Path) -> None:
    """Two hosts with a network each: on the second a daemon with TLS, on the first this program and a bridge with the
    very address that the daemon's has."""
    dockerd = program()
    if why := no_hosts():
        pytest.skip(f"this machine makes no hosts: {why}")
    hosts = Hosts(tmp_path, 2)
    here, there = hosts.address(0), hosts.address(1)
    try:
        for words in (
            "link add docker0 type bridge",
            "addr add 172.17.0.1/16 dev docker0",
            "link set docker0 up",
        ):
            subprocess.run([*hosts.on(0), "ip", *words.split()], check=True)
        authority, address = Authority(tmp_path / "authority"), f"tcp://{there}:2376"
        folder = tmp_path / "d"
        folder.mkdir()
        options = ("-H", address, "--bip", "172.17.0.1/16", *authority.options(f"IP:{there}"))
        with started([*hosts.on(1), dockerd], folder, *options):
            env = {**os.environ, **Remote(tmp_path, authority, address, "").variables()}

            def on_first(*words: str) -> subprocess.CompletedProcess[str]:
                done = subprocess.run(
                    [*hosts.on(0), *words], env=env, capture_output=True, text=True, timeout=300, check=False
                )
                assert not done.returncode, done.stderr
                return done

            sets = {
                "auto": SETS,
                "loopback": (*SETS, "proxy.host=127.0.0.1"),
                "bridge": (*SETS, "proxy.host=172.17.0.1"),
                "address": (*SETS, f"proxy.host={here}"),
            }
            found = json.loads(on_first(sys.executable, "-c", ON_ANOTHER, json.dumps(sets)).stdout)
            assert found["way"] == [here, "", there]
            told = {name: found[name]["address for sandboxes"] for name in sets}
            towards = f"this machine's address towards {there}, where Docker runs"
            assert told["auto"][:2] == ["ok", f"sandboxes get {here}, {towards} (proxy.host is auto)"]
            assert (
                told["loopback"][0] == "fail"
                and f"set proxy.host to {here}, {towards}" in told["loopback"][1]
            )
            assert told["bridge"][0] == "fail" and f"Docker runs on {there}" in told["bridge"][1]
            assert told["loopback"][2] == told["bridge"][2] == {"proxy.host": here}
            assert told["address"][0] == "ok"
            assert (
                found["auto"]["docker disk"][:2][0] == "skipped" and there in found["auto"]["docker disk"][1]
            )
            # And it is so: a container on the other host reaches that address, and not the bridge of this one.
            tag = f"liverl-test-{uuid.uuid4().hex[:8]}:local"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
                make_image(tag)
            for at, reached in ((here, True), ("172.17.0.1", False)):
                words = (sys.executable, "-c", REACHES, str(tmp_path / "run"), tag, at)
                assert json.loads(on_first(*words).stdout)[0] is reached, at
    finally:
        hosts.end()
