"""Package indexes: passes pip's configured index to uv, at run time only, and never shows it.

An index address often holds a host or a token that must not be in a log, so uv's output is redacted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from liverl.environments.errors import BuildError
from liverl.util.decode import Undecodable, decode_toml
from liverl.util.regular_file import open_binary, read_text

PYPI = "https://pypi.org/simple"  # pip's and uv's default
_UV_SETTINGS = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_OFFLINE",
)
_LARGEST = 1 << 20  # bytes of a configuration file of uv
_UV_KEYS = frozenset({"index", "index-url", "extra-index-url", "find-links", "no-index", "offline"})
_PIP_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")
# The interpreter is named explicitly; ours must not leak into builds.
_FOREIGN = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://[^\s\"'`<>()\[\],]+")
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})


def uv_environment(env: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """``env`` for a uv process: the caller's, the system's certificates, and pip's index if uv has none."""
    result = dict(env)
    result.setdefault("UV_SYSTEM_CERTS", "1")
    result.setdefault("UV_NATIVE_TLS", "1")  # the same, for uv before 0.11
    result["UV_NO_PROGRESS"] = "1"
    for name in _FOREIGN:
        result.pop(name, None)
    if any(env.get(name) for name in _UV_SETTINGS) or uv_has_index(env):
        return result
    pip = pip_settings(env, prefix)
    extra = pip.get("extra-index-url", "").split()
    if extra:
        # pip takes the best file of all indexes. uv's nearest to that: the best version, and among indexes that
        # have it the first one, so pip's main index stands first (uv's "default" index is its last resort).
        *first, result["UV_DEFAULT_INDEX"] = [pip.get("index-url") or PYPI, *extra]
        result["UV_INDEX"] = " ".join(first)
        result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    elif pip.get("index-url"):
        result["UV_DEFAULT_INDEX"] = pip["index-url"]
    if pip.get("find-links"):
        result["UV_FIND_LINKS"] = ",".join(pip["find-links"].split())
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        result["UV_NO_INDEX"] = "1"
    if pip.get("trusted-host"):
        result.setdefault("UV_INSECURE_HOST", " ".join(pip["trusted-host"].split()))
    if pip.get("cert"):
        result.setdefault("SSL_CERT_FILE", pip["cert"])
    return result


def pip_environment(env: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """``env`` for pip in another environment: the caller's, and what pip here is configured with."""
    result = {k: v for k, v in env.items() if k not in _FOREIGN}
    for key, value in pip_settings(env, prefix).items():
        result[_variable(key)] = value
    return result


def with_index(env: Mapping[str, str], index_url: str, find_links: Sequence[str]) -> dict[str, str]:
    """``env`` for uv and pip with an environment's own index in place of the configured ones, and its links too.

    ``${NAME}`` is replaced by that variable. Raises BuildError if it is not set.
    """
    result = dict(env)
    if index_url:
        address = _expanded(index_url, env)
        for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX", "PIP_NO_INDEX"):
            result.pop(name, None)
        result |= {"UV_DEFAULT_INDEX": address, "PIP_INDEX_URL": address, "PIP_EXTRA_INDEX_URL": ""}
    if find_links:
        links = [_expanded(text, env) for text in find_links]
        configured = [part for part in result.get("UV_FIND_LINKS", "").split(",") if part]
        result["UV_FIND_LINKS"] = ",".join([*links, *configured])
        result["PIP_FIND_LINKS"] = " ".join([*links, *result.get("PIP_FIND_LINKS", "").split()])
    return result


def from_wheels(env: Mapping[str, str], wheels: Path) -> dict[str, str]:
    """``env`` for uv and pip that take packages from one folder and from nowhere else."""
    drop = (*_UV_SETTINGS, *_PIP_SETTINGS, "PIP_NO_INDEX")
    kept = {name: value for name, value in env.items() if name not in drop}
    told = {
        "UV_FIND_LINKS": str(wheels),
        "UV_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
    }
    return kept | told


def _expanded(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if not env.get(match[1]):
            raise BuildError(f"the environment variable {match[1]}, used in an index URL, is not set")
        return env[match[1]]

    return _REFERENCE.sub(value, text)


def _variable(key: str) -> str:
    """The environment variable of one of pip's settings."""
    return "PIP_" + key.upper().replace("-", "_")


def pip_settings(env: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """pip's effective settings of an index, from its files and variables, in pip's order of precedence."""
    import configparser  # not before an environment is built

    merged: dict[str, str] = {}
    for path in _pip_files(env, prefix):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text(path))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue  # absent, or pip's own problem: it would not run either
        for section in ("global", "install"):
            if parser.has_section(section):
                merged.update(
                    {key: parser.get(section, key) for key in _PIP_KEYS if parser.has_option(section, key)}
                )
    for key in _PIP_KEYS:
        value = env.get(_variable(key))
        if value:
            merged[key] = value
    return merged


def _pip_files(env: Mapping[str, str], prefix: str) -> list[Path]:
    chosen = env.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    shared = [
        Path(part) / "pip" / "pip.conf" for part in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    ]
    files = [*shared, Path("/etc/pip.conf"), home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    files.append(Path(prefix) / "pip.conf")
    return files + ([Path(chosen)] if chosen else [])


def uv_has_index(env: Mapping[str, str]) -> bool:
    """Whether a configuration file of uv names an index. One that cannot be read counts: uv will say so."""
    if env.get("UV_NO_CONFIG"):
        return False
    home = Path(env.get("HOME") or "~").expanduser()
    shared = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [Path(part) / "uv" / "uv.toml" for part in shared]
    files += [
        Path("/etc/uv/uv.toml"),
        Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "uv" / "uv.toml",
    ]
    if env.get("UV_CONFIG_FILE"):
        files.append(Path(env["UV_CONFIG_FILE"]))
    for path in files:
        try:
            with open_binary(path) as file:
                document = decode_toml(file.read(_LARGEST))
        except OSError:
            continue
        except Undecodable:
            return True
        pip = document.get("pip")
        if _UV_KEYS & (document.keys() | (pip.keys() if isinstance(pip, dict) else set())):
            return True
    return False


def has_default_index(env: Mapping[str, str], prefix: str = sys.prefix) -> bool:
    """Whether packages come from the public index, be it among others."""
    told = uv_environment(env, prefix)
    if told.get("UV_NO_INDEX", "").lower() in ("1", "true", "yes", "on"):
        return False
    if uv_has_index(env):
        return False  # of a file of uv: what it says for which project is not read here
    last = told.get("UV_DEFAULT_INDEX") or told.get("UV_INDEX_URL") or PYPI
    others = (told.get(name, "") for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"))
    addresses = (last, *(word for text in others for word in text.split()))
    return any(re.sub(r"^[\w-]+=(?=\w+://)", "", address).rstrip("/") == PYPI for address in addresses)


class Redactor:
    """Replaces addresses of indexes in an installer's output: whole settings, their hosts, other remote hosts."""

    def __init__(self, env: Mapping[str, str]) -> None:
        urls = {
            part
            for name in (*_UV_SETTINGS, *_PIP_SETTINGS)
            for part in re.split(r"[\s,]+", env.get(name, ""))
            if "://" in part
        }
        # A named index is written name=address.
        urls = {url.partition("=")[2] if re.match(r"[\w-]+=\w+://", url) else url for url in urls}
        urls |= {re.sub(r"(://)[^/@]*@", r"\1", url) for url in urls}  # as uv shows them: without credentials
        self._settings = sorted((url.rstrip("/") for url in urls), key=len, reverse=True)
        self._hosts = sorted(_hosts(urls), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for url in self._settings:
            text = text.replace(url, "[index]")
        text = _URL.sub(_hide_host, text)
        for host in self._hosts:
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "[index]", text)
        return text


def _hosts(urls: Iterable[str]) -> set[str]:
    hosts = set()
    for url in urls:
        try:
            host = urlsplit(url).hostname
        except ValueError:
            continue
        if host and host not in _LOCAL:
            hosts.add(host)
    return hosts


def _hide_host(match: re.Match[str]) -> str:
    scheme = match[1]
    if scheme == "file":
        return match[0]
    path = match[0].partition("://")[2].partition("/")[2]
    return f"{scheme}://[host]/{path.partition('?')[0]}"
