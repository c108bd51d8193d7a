"""Package indexes: what pip is configured to use is told to uv, at run time only, and never shown.

An index address often holds a host or a token that belongs in no log, so all that uv says is redacted.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

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
_UV_KEYS = frozenset({"index", "index-url", "extra-index-url", "find-links", "no-index", "offline"})
_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://[^\s\"'`<>()\[\],]+")
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})


def uv_environment(env: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """``env`` for a uv process: the caller's, the system's certificates, and pip's index if uv has none."""
    result = dict(env)
    result.setdefault("UV_SYSTEM_CERTS", "1")
    result.setdefault("UV_NATIVE_TLS", "1")  # the same, for uv before 0.11
    result["UV_NO_PROGRESS"] = "1"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"):
        result.pop(name, None)  # the interpreter is named explicitly; ours must not leak into builds
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


def pip_settings(env: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """pip's effective settings of an index, from its files and variables, in pip's order of precedence."""
    merged: dict[str, str] = {}
    for path in _pip_files(env, prefix):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue  # absent, or pip's own problem: it would not run either
        for section in ("global", "install"):
            if parser.has_section(section):
                merged.update(
                    {key: parser.get(section, key) for key in _PIP_KEYS if parser.has_option(section, key)}
                )
    for key in _PIP_KEYS:
        value = env.get("PIP_" + key.upper().replace("-", "_"))
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
            with path.open("rb") as file:
                document = tomllib.load(file)
        except OSError:
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            return True
        pip = document.get("pip")
        if _UV_KEYS & (document.keys() | (pip.keys() if isinstance(pip, dict) else set())):
            return True
    return False


class Redactor:
    """Replaces addresses of indexes in uv's output: whole settings, their hosts, any other remote host."""

    def __init__(self, uv_env: Mapping[str, str]) -> None:
        urls = {
            part
            for name in _UV_SETTINGS
            for part in re.split(r"[\s,]+", uv_env.get(name, ""))
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
    found = set()
    for url in urls:
        try:
            host = urlsplit(url).hostname
        except ValueError:
            continue
        if host and host not in _LOCAL:
            found.add(host)
    return found


def _hide_host(match: re.Match[str]) -> str:
    scheme = match[1]
    if scheme == "file":
        return match[0]
    path = match[0].partition("://")[2].partition("/")[2]
    return f"{scheme}://[host]/{path.partition('?')[0]}"
