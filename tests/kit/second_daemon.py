"""A Docker daemon of a test's own, which needs root and LIVERL_TEST_DOCKERD; certificates for its TLS, by openssl."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

KEYS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def program() -> str:
    """The program dockerd; without it, or without leave to start it, the test is skipped."""
    found = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None or os.geteuid() or not os.environ.get("LIVERL_TEST_DOCKERD"):
        pytest.skip("LIVERL_TEST_DOCKERD is not set, or dockerd cannot be started here")
    return found


@contextlib.contextmanager
def second_daemon(folder: Path, *more: str) -> Iterator[dict[str, str]]:
    """A daemon beside this machine's, without a bridge of its own: ``docker0`` is the other one's. ``more``: options.
    Yields the environment by which the docker program finds it, at its socket."""
    dockerd = program()
    bridge, number = f"lvt{uuid.uuid4().hex[:8]}", os.getpid() % 200
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", f"10.199.{number}.1/24", "dev", bridge], check=True)
        with started([dockerd], folder, "--bridge", bridge, "--iptables=false", *more) as env:
            yield env
    finally:
        subprocess.run(["ip", "link", "delete", bridge], check=True)


@contextlib.contextmanager
def started(dockerd: Sequence[str], folder: Path, *more: str) -> Iterator[dict[str, str]]:
    """A daemon that is started by these words, with its files in ``folder``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    env["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    words = [
        *dockerd, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid",
        "-H", env["DOCKER_HOST"], *more,
    ]  # fmt: skip
    with open(folder / "log", "wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as daemon:
        try:
            deadline = time.monotonic() + 60
            while subprocess.run(["docker", "version"], env=env, capture_output=True, check=False).returncode:
                told = (folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline and daemon.poll() is None, told
            yield env
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


class Authority:
    """One that makes certificates, with its files in ``folder``."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        folder.mkdir(parents=True)
        self.folder, self.ca = folder, folder / "ca.pem"
        _openssl("req", "-x509", *KEYS, "-keyout", f"{folder}/ca-key.pem", "-out", str(self.ca), "-days", "30",
                 "-subj", f"/CN={name}")  # fmt: skip

    def certificate(
        self, name: str, usage: str, names: str = "DNS:none", days: int = 30
    ) -> tuple[Path, Path]:
        """A certificate and its key. ``usage``: serverAuth or clientAuth; ``names``: its subjectAltName; ``days``:
        until it expires, negative for one that has."""
        cert, key = self.folder / f"{name}-cert.pem", self.folder / f"{name}-key.pem"
        asked, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        more.write_text(f"subjectAltName={names}\nextendedKeyUsage={usage}\n")
        _openssl("req", *KEYS, "-keyout", str(key), "-out", str(asked), "-subj", f"/CN={name}")
        _openssl("x509", "-req", "-in", str(asked), "-CA", str(self.ca), "-CAkey", f"{self.folder}/ca-key.pem",
                 "-CAcreateserial", "-out", str(cert), "-days", str(days), "-extfile", str(more))  # fmt: skip
        return cert, key

    def options(self, names: str) -> tuple[str, ...]:
        """The options of a dockerd that wants certificates of this authority."""
        cert, key = self.certificate("server", "serverAuth", names)
        return ("--tlsverify", f"--tlscacert={self.ca}", f"--tlscert={cert}", f"--tlskey={key}")

    def shown(
        self, folder: Path, *, ca: Path | None = None, days: int = 30, by: Authority | None = None
    ) -> Path:
        """A folder for DOCKER_CERT_PATH with a client's certificate. ``ca``: another ca.pem; ``by``: who made it."""
        folder.mkdir()
        cert, key = (by or self).certificate(f"client-{folder.name}", "clientAuth", days=days)
        shutil.copy(ca or self.ca, folder / "ca.pem")
        shutil.copy(cert, folder / "cert.pem")
        shutil.copy(key, folder / "key.pem")
        return folder


def _openssl(*words: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no program openssl: it makes the certificates")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
