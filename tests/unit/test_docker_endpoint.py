"""Which daemon the docker program asks, and what its complaints about TLS and contexts mean (Docker 28.2 prints them).
With real daemons: ``tests/docker/test_remote_tls.py``."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from kit.second_daemon import Authority

from liverl.agents.harbor.docker_endpoint import SOCKET, Endpoint, daemon_variables, endpoint
from liverl.agents.harbor.owned import Entry, Ledger, read_ledgers
from liverl.sandboxes import bridge
from liverl.sandboxes.certificates import expires
from liverl.sandboxes.daemon_faults import told
from liverl.sandboxes.whose import docker_words, place_of
from liverl.util.primary_address import address_towards

FAR = "tcp://far.example:2376"


def context(
    folder: Path, name: str, host: str, *, tls: bool = False, current: bool = False
) -> dict[str, str]:
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if tls:
        files = folder / "contexts" / "tls" / key / "docker"
        files.mkdir(parents=True)
        (files / "ca.pem").touch()
    if current:
        (folder / "config.json").write_text(json.dumps({"auths": {}, "currentContext": name}))
    return {"DOCKER_CONFIG": str(folder)}


def test_host_before_context_before_the_current_one(tmp_path: Path) -> None:
    config = context(tmp_path / "c", "far", FAR, tls=True, current=True)
    context(tmp_path / "c", "near", "unix:///run/user/7/docker.sock")
    tls = str(tmp_path / "c" / "contexts" / "tls" / hashlib.sha256(b"far").hexdigest() / "docker")
    assert (
        endpoint({"HOME": str(tmp_path)}) == Endpoint(SOCKET) and endpoint({"HOME": str(tmp_path)}).is_local
    )
    assert endpoint(config) == Endpoint(FAR, "far", tls) and not endpoint(config).is_local
    assert endpoint({**config, "DOCKER_CONTEXT": "near"}) == Endpoint(
        "unix:///run/user/7/docker.sock", "near"
    )
    assert endpoint({**config, "DOCKER_CONTEXT": "default"}) == Endpoint(SOCKET)
    assert endpoint({**config, "DOCKER_CONTEXT": "none"}) == Endpoint("", "none")
    given = {**config, "DOCKER_HOST": "tcp://h:1", "DOCKER_CONTEXT": "near"}
    assert endpoint(given) == Endpoint("tcp://h:1")
    assert endpoint({**given, "DOCKER_TLS_VERIFY": "1"}).certificates == str(tmp_path / "c")
    assert endpoint({**given, "DOCKER_TLS": "1", "DOCKER_CERT_PATH": "/k"}).certificates == "/k"
    (tmp_path / "c" / "config.json").write_text('{"currentContext": 7')
    assert endpoint(config) == Endpoint(SOCKET), "the program itself says what is wrong with the file"


@pytest.mark.parametrize(
    ("address", "local", "host"),
    [
        (SOCKET, True, ""), ("npipe:////./pipe/docker_engine", True, ""), ("tcp://127.0.0.1:2376", True, "127.0.0.1"),
        ("tcp://localhost:2375", True, "localhost"), ("tcp://[::1]:2375", True, "::1"), (FAR, False, "far.example"),
        ("ssh://user@localhost", False, "localhost"), ("ssh://me@far", False, "far"), ("", False, ""),
        ("tcp://[", False, ""),
    ],
)  # fmt: skip
def test_whether_an_address_is_of_one_machine_only(address: str, local: bool, host: str) -> None:
    assert (Endpoint(address).is_local, Endpoint(address).host) == (local, host)


def test_the_ledger_has_the_context_that_is_current_now(tmp_path: Path) -> None:
    """It may be another one when the run is swept."""
    config = context(tmp_path / "c", "far", FAR, current=True)
    near = {**context(tmp_path / "n", "near", "unix:///run/user/7/docker.sock"), "DOCKER_CONTEXT": "near"}
    plain = {"HOME": str(tmp_path)}
    named = {
        **config,
        "DOCKER_HOST": "tcp://127.0.0.1:2376",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": "/a b",
    }
    assert daemon_variables(config) == {**config, "DOCKER_CONTEXT": "far"}
    assert daemon_variables(named) == named and daemon_variables(plain) == {}
    here, run = socket.gethostname(), tmp_path / "run"
    run.mkdir()
    for number, env in enumerate((config, near, plain, named)):
        Ledger(run, f"worker-{number}", "attempt_001", {**env, "PATH": "/bin"}).begin_probe(f"p{number}")
    entries = sorted(read_ledgers(run), key=lambda one: one.trial)
    assert [one.address for one in entries] == [
        FAR,
        "unix:///run/user/7/docker.sock",
        SOCKET,
        named["DOCKER_HOST"],
    ]
    assert [place_of(one).host for one in entries] == ["", here, here, here]
    assert [docker_words(place_of(one)) for one in entries] == [
        f"DOCKER_CONFIG={tmp_path}/c docker -c far", f"DOCKER_CONFIG={tmp_path}/n docker -c near", "docker",
        f"DOCKER_CERT_PATH='/a b' DOCKER_CONFIG={tmp_path}/c DOCKER_TLS_VERIFY=1 docker -H tcp://127.0.0.1:2376",
    ]  # fmt: skip
    old = [msgspec.structs.replace(one, address="") for one in entries]
    assert [place_of(one).host for one in old] == ["", "", here, here], "of an older version"
    assert place_of(Entry("begun", "t", host="h", daemon={"DOCKER_HOST": "unix:///x"})).host == "h"


GO = 'error during connect: Get "https://far.example:2376/v1.50/version": '
REFUSED = f"the server probably has client authentication (--tlsverify) enabled; {GO}remote error: tls: "


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        (f"{GO}tls: failed to verify certificate: x509: certificate signed by unknown authority",
         f"the daemon at {FAR} is of another authority than the ca.pem of CERTS"),
        (f"{GO}tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
         "2026-11-29T10:00:00Z is after 2026-11-01T00:00:00Z",
         "is not valid yet (current time 2026-11-29T10:00:00Z is after 2026-11-01T00:00:00Z): have a new one made"),
        (f"{GO}x509: certificate is valid for localhost, not far.example", "does not name far.example"),
        (f"{GO}x509: cannot validate certificate for 10.0.0.9 because it doesn't contain any IP SANs",
         "with far.example in its subjectAltName"),
        (f"{REFUSED}bad certificate", "put cert.pem and key.pem into CERTS (CERTS/cert.pem is missing)"),
        (f"{REFUSED}certificate required", "which has no certificate"),
        ("Failed to initialize: unable to resolve docker endpoint: open CERTS/ca.pem: no such file or directory",
         "there is no file CERTS/ca.pem: DOCKER_CERT_PATH has to name a folder"),
        ("unable to resolve docker endpoint: tls: private key does not match public key", "do not belong together"),
        ("Error response from daemon: Client sent an HTTP request to an HTTPS server.",
         "wants TLS, and it was asked without: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"),
        (f"{GO}http: server gave HTTP response to HTTPS client", f"{FAR} is a port without TLS, and it was asked with"),
        ('Failed to initialize: unable to resolve docker endpoint: context "x": context not found: open /root/m.json: '
         "no such file or directory", "there is no docker context x here"),
        ('Current context "x" is not found on the file system, please check your config file', "no docker context x"),
    ],
)  # fmt: skip
def test_what_a_complaint_means(tmp_path: Path, complaint: str, words: str) -> None:
    certs = str(tmp_path)
    env = {"DOCKER_HOST": FAR, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": certs}
    found = told(complaint.replace("CERTS", certs), env)
    assert words.replace("CERTS", certs) in found and "\n" not in found


@pytest.mark.parametrize(
    "complaint",
    ["Cannot connect to the Docker daemon at tcp://h:1. Is the docker daemon running?", "", "x" * 1000],
)
def test_other_complaints_stay_as_they_are(complaint: str) -> None:
    assert told(complaint, {"DOCKER_HOST": FAR}) == complaint[:300]


def test_of_a_context_the_way_out_is_another(tmp_path: Path) -> None:
    env = {**context(tmp_path, "far", FAR), "DOCKER_CONTEXT": "far"}
    assert "docker context create --docker" in told("Client sent an HTTP request to an HTTPS server", env)
    assert "give the docker context far the daemon's port" in told(
        "server gave HTTP response to HTTPS client", env
    )
    assert "which shows no certificate" in told(f"{REFUSED}bad certificate", env)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no program openssl")
def test_the_date_of_a_client_certificate_is_read_and_told(tmp_path: Path) -> None:
    authority, now = Authority(tmp_path / "authority"), datetime.now(UTC)
    for days in (-1, 30, 20_000):  # the last one ends behind 2050, which DER writes otherwise
        folder = authority.shown(tmp_path / f"c{days}", days=days)
        ends = expires(folder / "cert.pem")
        assert ends is not None and abs(ends - now - timedelta(days=days)) < timedelta(hours=1)
        env = {"DOCKER_HOST": FAR, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(folder)}
        found = told(f"{REFUSED}bad certificate", env)
        assert (f"expired on {ends:%Y-%m-%d}" in found) is (days < 0) is ("dockerd --tlscacert" not in found)
        reset = f"{GO}write tcp 127.0.0.1:41806->127.0.0.1:37583: write: connection reset by peer"
        assert (told(reset, env) == found) is (days < 0) is (told(reset, env) != reset)
    # Without extensions it is of version 1, whose number is left out of the certificate.
    old, at = tmp_path / "v1.pem", authority.folder
    words = [
        "openssl",
        "x509",
        "-req",
        "-in",
        at / "client-c30.csr",
        "-CA",
        authority.ca,
        "-CAkey",
        at / "ca-key.pem",
    ]
    subprocess.run([*words, "-CAcreateserial", "-days", "7", "-out", old], check=True, capture_output=True)
    ends = expires(old)
    assert ends is not None and abs(ends - now - timedelta(days=7)) < timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
                                  "-----BEGIN CERTIFICATE-----\n////\n-----END CERTIFICATE-----"])  # fmt: skip
def test_what_is_no_certificate_has_no_date(tmp_path: Path, text: str) -> None:
    (tmp_path / "cert.pem").write_text(text)
    assert expires(tmp_path / "cert.pem") is None and expires(tmp_path / "none.pem") is None


def test_a_daemon_on_another_host_is_told_from_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"192.0.2.50"}
    monkeypatch.setattr(bridge, "is_here", lambda address: address in own or address.startswith("127."))
    monkeypatch.setattr(bridge, "bridge_gateway", lambda env: ("192.0.2.50", ""))
    monkeypatch.setattr(bridge, "address_towards", lambda host: {"192.0.2.9": "192.0.2.50"}.get(host, ""))
    for address, host in (("tcp://127.0.0.1:2376", ""), ("tcp://192.0.2.50:2376", ""),
                          ("tcp://192.0.2.9:2376", "192.0.2.9"),
                          (f"tcp://{socket.gethostname()}:2376", ""), ("ssh://me@no-such.invalid", "no-such.invalid"),
                          ("unix:///x.sock", "")):  # fmt: skip
        assert bridge.other_host({"DOCKER_HOST": address}) == host, address
    assert bridge.way({"DOCKER_HOST": "unix:///x.sock"}) == ("192.0.2.50", "", "")
    assert bridge.way({"DOCKER_HOST": "tcp://192.0.2.9:2376"}) == ("192.0.2.50", "", "192.0.2.9")
    found = bridge.way({"DOCKER_HOST": "ssh://me@no-such.invalid"})
    assert found.address == "" and "no-such.invalid" in found.why and found.host == "no-such.invalid"


def test_the_address_towards_a_host() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1" and address_towards("no-such.invalid") == ""
