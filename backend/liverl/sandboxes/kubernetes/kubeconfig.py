"""A kubeconfig, read to the one cluster and user of its context, and the credentials of that user. Blocking.

As of https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/ and client-authentication.v1. Texts of errors hold
no secret: they name files and keys, never their values.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import signal
import ssl
import stat
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import Undecodable, decode_json, decode_yaml
from liverl.util.nearest import did_you_mean
from liverl.util.regular_file import read_regular

PLUGIN_S = 10.0  # seconds for a plug-in, as preflight's for kubectl
_LARGEST = 4 << 20  # bytes of a kubeconfig, a certificate or a token
_MOST_ANSWER = 1 << 20  # bytes of a plug-in's answer
_EARLY_S = 30.0  # before they expire, credentials are asked for again
_INFO = "KUBERNETES_EXEC_INFO"


class KubeconfigError(Exception):
    """There is no way to ask this cluster; the text names the file and the key, and what was expected."""


class Access(msgspec.Struct, frozen=True):
    """One context of a kubeconfig. ``path``: the file, and ``user``: the user's keys in it, with paths made absolute;
    ``ca``: certificates in PEM, "" for the system's own; ``verify``: false where the file says
    ``insecure-skip-tls-verify``; ``readable``: others than its owner can read the file, which holds a secret."""

    path: Path
    context: str
    server: str
    namespace: str
    ca: str
    verify: bool
    server_name: str
    proxy: str
    user: dict[str, Any]
    readable: bool


class Credentials(msgspec.Struct, frozen=True):
    """What a request is made with: ``token``, or ``user:password`` as ``basic``, or a certificate with its key, in PEM.
    ``until``: Unix seconds at which they expire, None if that is not known."""

    token: str = ""
    basic: str = ""
    certificate: str = ""
    key: str = ""
    until: float | None = None

    def fresh(self, now: float) -> bool:
        """Whether they may still be used at ``now`` (Unix seconds)."""
        return self.until is None or now < self.until - _EARLY_S


def default_path(env: Mapping[str, str]) -> Path:
    """Where kubectl looks without ``--kubeconfig``; of several files in ``KUBECONFIG`` the first."""
    first = next(filter(None, env.get("KUBECONFIG", "").split(os.pathsep)), "")
    return Path(first) if first else Path(env.get("HOME") or "/", ".kube", "config")


def load(path: Path, context: str = "") -> Access:
    """The cluster of ``context``, or of the file's own ``current-context``.

    Raises:
        KubeconfigError: the file cannot be read, is none, or has no such context, cluster or user.
    """
    try:
        mode = os.stat(path).st_mode
        document = decode_yaml(read_regular(path, _LARGEST))
    except (OSError, Undecodable) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise KubeconfigError(f"{path}: cannot be read as a kubeconfig: {words}") from None
    if not isinstance(document, Mapping):
        raise KubeconfigError(
            f"{path}: found {_kind(document)}, expected a kubeconfig (a mapping with contexts)"
        )
    name = context or document.get("current-context") or ""
    if not isinstance(name, str) or not name:
        raise KubeconfigError(
            f"{path}: current-context is not set; choose one: kubectl config use-context NAME"
        )
    chosen = _named(
        path, document, "contexts", "context", name, "current-context" if not context else "context"
    )
    cluster = _named(
        path, document, "clusters", "cluster", chosen.get("cluster"), f"contexts[{name}].cluster"
    )
    user: Mapping[str, Any] = {}
    if chosen.get("user"):
        user = _named(path, document, "users", "user", chosen["user"], f"contexts[{name}].user")
    where = f"clusters[{chosen.get('cluster')}]"
    server = cluster.get("server")
    if not isinstance(server, str) or urlsplit(server).scheme not in ("http", "https"):
        raise KubeconfigError(f"{path}: {where}.server: found {_kind(server)}, expected an https:// address")
    if urlsplit(server).username is not None:
        raise KubeconfigError(
            f"{path}: {where}.server: holds a name or password, expected an address without one"
        )
    return Access(
        path=path,
        context=name,
        server=server.rstrip("/"),
        namespace=_text(path, chosen, "namespace", f"contexts[{name}]"),
        ca=_pem(path, cluster, "certificate-authority", where),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
        server_name=_text(path, cluster, "tls-server-name", where),
        proxy=_text(path, cluster, "proxy-url", where),
        user=dict(user),
        readable=bool(mode & (stat.S_IRGRP | stat.S_IROTH)) and _secret(user),
    )


def credentials(access: Access, env: Mapping[str, str], seconds: float = PLUGIN_S) -> Credentials:
    """Those of the context's user; a plug-in (``exec``) is run for at most ``seconds``, without a terminal.

    Raises:
        KubeconfigError: they cannot be had.
    """
    path, user = access.path, access.user
    where = f"users[of context {access.context}]"
    if user.get("exec") is not None:
        return _plugin(access, env, seconds)
    certificate = _pem(path, user, "client-certificate", where)
    key = _pem(path, user, "client-key", where)
    if bool(certificate) != bool(key):
        raise KubeconfigError(
            f"{path}: {where}: client-certificate and client-key are needed together, found one"
        )
    token = _text(path, user, "token", where)
    if file := _text(path, user, "tokenFile", where):
        token = _file(path, file, f"{where}.tokenFile").strip()
    name, password = _text(path, user, "username", where), _text(path, user, "password", where)
    basic = base64.b64encode(f"{name}:{password}".encode()).decode() if name else ""
    if "auth-provider" in user and not (token or certificate):
        raise KubeconfigError(
            f"{path}: {where}.auth-provider: Kubernetes 1.26 removed it, expected exec or a token"
        )
    return Credentials(_header(path, token, where), basic, certificate, key)


def tls(access: Access, found: Credentials) -> ssl.SSLContext | bool:
    """How to connect; nothing of a key is written to a file system.

    Raises:
        KubeconfigError: a certificate or key is none.
    """
    if access.server.startswith("http://"):
        return False
    try:
        context = ssl.create_default_context(cadata=access.ca or None)
        if not access.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if found.certificate:
            fd = os.memfd_create("client", os.MFD_CLOEXEC)  # OpenSSL takes certificates from files only
            with os.fdopen(fd, "w") as file:
                file.write(f"{found.certificate}\n{found.key}\n")
                file.flush()
                context.load_cert_chain(f"/proc/self/fd/{fd}", password=_no_password)
    except (ssl.SSLError, ValueError, OSError) as error:
        words = getattr(error, "reason", None) or type(error).__name__
        raise KubeconfigError(
            f"{access.path}: a certificate or key of context {access.context} is none: {words}"
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password, expected one without")


def _named(
    path: Path, document: Mapping[Any, Any], lists: str, key: str, name: object, by: str
) -> Mapping[str, Any]:
    """The entry of that name in one of a kubeconfig's three lists."""
    entries = document.get(lists)
    found: dict[str, object] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            found.setdefault(entry["name"], entry.get(key))
    if name not in found:
        hint = did_you_mean(str(name), found)
        there = f"there {'are' if len(found) != 1 else 'is'} {', '.join(sorted(found)) or 'none'}"
        raise KubeconfigError(f"{path}: {by}: found {name}, which is not in {lists} ({there}){hint}")
    value = found[str(name)]
    if not isinstance(value, Mapping):
        raise KubeconfigError(f"{path}: {lists}[{name}].{key}: found {_kind(value)}, expected a mapping")
    return value


def _text(path: Path, values: Mapping[str, Any], key: str, where: str) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise KubeconfigError(f"{path}: {where}.{key}: found {_kind(value)}, expected a text")
    return value


def _pem(path: Path, values: Mapping[str, Any], key: str, where: str) -> str:
    """The key's ``-data``, which comes first, or its file; "" without both."""
    if data := _text(path, values, f"{key}-data", where):
        try:
            return base64.b64decode(data, validate=False).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise KubeconfigError(f"{path}: {where}.{key}-data: expected PEM in base64") from None
    file = _text(path, values, key, where)
    return _file(path, file, f"{where}.{key}") if file else ""


def _file(path: Path, name: str, where: str) -> str:
    """A file that a kubeconfig names, from the kubeconfig's directory if it is relative."""
    try:
        return read_regular(path.parent / name, _LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "it is no text"
        raise KubeconfigError(f"{path}: {where}: {path.parent / name}: {words}") from None


def _header(path: Path, token: str, where: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise KubeconfigError(f"{path}: {where}: the token has characters that no header may have")
    return token


def _kind(value: object) -> str:
    names = {type(None): "nothing", dict: "a mapping", list: "a list", str: "a text"}
    return names.get(type(value), f"a {type(value).__name__}")


def _secret(user: Mapping[str, Any]) -> bool:
    return any(user.get(key) for key in ("token", "password", "client-key-data"))


class _Status(msgspec.Struct, frozen=True):
    token: str = ""
    clientCertificateData: str = ""
    clientKeyData: str = ""
    expirationTimestamp: str = ""


class _Answer(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def _plugin(access: Access, env: Mapping[str, str], seconds: float) -> Credentials:
    """Ask the program that the kubeconfig names; after ``seconds`` it is ended with all that it has started."""
    path, where = access.path, f"users[of context {access.context}].exec"
    asked = access.user["exec"]
    if not isinstance(asked, Mapping) or not isinstance(asked.get("command"), str):
        raise KubeconfigError(f"{path}: {where}.command: expected a program")
    program, words = asked["command"], asked.get("args") or []
    own = asked.get("env") or []
    if not isinstance(words, list) or not isinstance(own, list):
        raise KubeconfigError(f"{path}: {where}: args and env: expected lists")
    if os.sep in program:
        program = str(path.parent / program)
    info = {"apiVersion": asked.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    mine = {str(one.get("name")): str(one.get("value")) for one in own if isinstance(one, Mapping)}
    name = os.path.basename(program)  # its arguments may hold a secret
    try:
        process = subprocess.Popen(
            [program, *map(str, words)],
            env={**env, **mine, _INFO: msgspec.json.encode(info).decode()},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        words_of = getattr(error, "strerror", None) or error
        raise KubeconfigError(f"{path}: {where}.command: {program} cannot be run: {words_of}") from None
    with process:
        try:
            text, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.kill()
            raise KubeconfigError(
                f"{path}: {where}.command: {name} did not answer within {seconds:g} s and was ended; "
                f"try it: {shlex.quote(program)}"
            ) from None
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        raise KubeconfigError(f"{path}: {where}.command: {name} failed (exit {process.returncode}){said}")
    try:
        if len(text) > _MOST_ANSWER:
            raise ValueError
        told = decode_json(text, type=_Answer).status
        until = (
            datetime.fromisoformat(told.expirationTimestamp).timestamp() if told.expirationTimestamp else None
        )
    except (*BAD_JSON, ValueError):
        raise KubeconfigError(f"{path}: {where}.command: {name} printed no ExecCredential") from None
    if not told.token and not (told.clientCertificateData and told.clientKeyData):
        raise KubeconfigError(
            f"{path}: {where}.command: {name} gave neither a token nor a certificate with its key"
        )
    return Credentials(
        _header(path, told.token, where), "", told.clientCertificateData, told.clientKeyData, until
    )
