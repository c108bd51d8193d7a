"""Why a daemon cannot be asked, as one sentence with what to do, from what the docker program prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from liverl.agents.harbor.docker_endpoint import Endpoint, endpoint
from liverl.sandboxes.certificates import expires
from liverl.util.late_pattern import late_pattern

LONGEST = 300  # characters of a complaint that is shown as it is
_PASS = "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH (a folder with ca.pem, cert.pem and key.pem), and name both in "
_PASS += "supervise.pass_env"


def told(complaint: str, env: Mapping[str, str]) -> str:
    """A complaint of the docker program that was started with ``env``; the sentence for it, or else itself."""
    for pattern, sentence in _FAULTS:
        if (match := pattern.search(complaint)) and (found := sentence(match, endpoint(env))):
            return found
    return complaint[:LONGEST]


def _folder(where: Endpoint) -> str:
    """Where the certificates are, as a user chose it."""
    if where.context:
        return f"the docker context {where.context}"
    return where.certificates or "DOCKER_CERT_PATH"


def _other_authority(match: re.Match[str], where: Endpoint) -> str:
    return (
        f"the certificate of the daemon at {where.address} is of another authority than the ca.pem of "
        f"{_folder(where)}: take the ca.pem with which that daemon's certificate was made"
    )


def _other_name(match: re.Match[str], where: Endpoint) -> str:
    return (
        f"the certificate of the daemon at {where.address} does not name {where.host}: use a name that is in it, "
        f"or have one made with {where.host} in its subjectAltName ({match[0]})"
    )


def _server_expired(match: re.Match[str], where: Endpoint) -> str:
    return (
        f"the certificate of the daemon at {where.address} has expired or is not valid yet ({match[1].strip()}): "
        "have a new one made there, or set the clock of this machine"
    )


def _client_refused(match: re.Match[str], where: Endpoint) -> str:
    """The server says no more than that: the file tells."""
    if found := _no_good(match, where):
        return found
    begin, file = f"the daemon at {where.address} refuses this client", Path(where.certificates, "cert.pem")
    if not where.certificates:
        return f"{begin}, which shows no certificate: {_PASS}"
    return (
        f"{begin}: its certificate {file} is not of the authority that the daemon trusts (dockerd --tlscacert); have "
        "one made by that"
    )


def _no_good(match: re.Match[str], where: Endpoint) -> str:
    """That the client's certificate is missing or has expired, "" if it is neither. A daemon that refuses one
    closes the connection, which the program may see before the daemon's reason."""
    if not where.certificates:
        return ""
    begin, file = f"the daemon at {where.address} refuses this client", Path(where.certificates, "cert.pem")
    if not file.is_file():
        return f"{begin}, which has no certificate: put cert.pem and key.pem into {_folder(where)} ({file} is missing)"
    ends = expires(file)
    if ends is not None and ends <= datetime.now(UTC):
        return f"{begin}: its certificate {file} expired on {ends:%Y-%m-%d %H:%M} UTC; have a new one made"
    return ""


def _no_file(match: re.Match[str], where: Endpoint) -> str:
    return (
        f"there is no file {match[1]}: DOCKER_CERT_PATH has to name a folder of this machine with ca.pem, cert.pem and "
        "key.pem"
    )


def _wrong_key(match: re.Match[str], where: Endpoint) -> str:
    return f"cert.pem and key.pem of {_folder(where)} do not belong together: take both from one certificate"


def _wants_tls(match: re.Match[str], where: Endpoint) -> str:
    if where.context:
        return (
            f"the daemon at {where.address} wants TLS, and the docker context {where.context} has no certificates: "
            f"make it anew with docker context create --docker host={where.address},ca=FILE,cert=FILE,key=FILE"
        )
    return f"the daemon at {where.address} wants TLS, and it was asked without: {_PASS}"


def _plain(match: re.Match[str], where: Endpoint) -> str:
    ways = (
        f"give the docker context {where.context} the daemon's port for TLS"
        if where.context
        else "name its port for TLS (2376 by habit), or unset DOCKER_TLS_VERIFY and DOCKER_TLS"
    )
    return (
        f"{where.address} is a port without TLS, and it was asked with TLS: {ways}; whoever reaches a port without TLS "
        "is root of that host"
    )


def _no_context(match: re.Match[str], where: Endpoint) -> str:
    return (
        f"there is no docker context {match[1]} here: docker context ls lists those that there are; correct "
        "DOCKER_CONTEXT, or choose one with docker context use"
    )


_FAULTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Endpoint], str]], ...] = (
    (late_pattern(r"x509: certificate signed by unknown authority"), _other_authority),
    (late_pattern(r"x509: certificate has expired or is not yet valid:?([^\n]{0,120})"), _server_expired),
    (
        late_pattern(
            r"x509: (?:certificate is (?:not )?valid for|cannot validate certificate for|certificate relies on)"
            r"[^\n]{0,120}"
        ),
        _other_name,
    ),
    (
        late_pattern(
            r"remote error: tls: (?:bad certificate|certificate required|expired certificate|revoked certificate|"
            r"unknown certificate(?: authority)?|unsupported certificate)"
        ),
        _client_refused,
    ),
    (late_pattern(r"https://[^\n]{1,300}(?:connection reset by peer|broken pipe|EOF)"), _no_good),
    (late_pattern(r"resolve docker endpoint: open ([^\n:]{1,300}\.pem): no such file"), _no_file),
    (late_pattern(r"tls: private key does not match public key"), _wrong_key),
    (late_pattern(r"Client sent an HTTP request to an HTTPS server"), _wants_tls),
    (
        late_pattern(
            r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake"
        ),
        _plain,
    ),
    (
        late_pattern(r"context \"([^\"\n]{1,200})\"(?:: context not found| is not found on the file system)"),
        _no_context,
    ),
)
