"""Signatures of npm, pip, uv, conda and other tools that install packages of a language."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

_NPM = r"npm (?:ERR!|error) code "

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="npm-network",
            component="shell",
            role="cause",
            alive=True,
            pattern=_NPM + r"(?P<code>E(?:CONNRESET|TIMEDOUT|NOTFOUND|AI_AGAIN|CONNREFUSED|RR_SOCKET_TIMEOUT|"
            r"50\d|429|NETUNREACH|HOSTUNREACH))\b",
            needle=" code E",
            title="npm could not fetch packages from its registry ({code})",
            cause="The connection to the registry broke, timed out or was not made: network, DNS or proxy.",
            fix=(
                "Try again (npm install --fetch-retries 5 --fetch-timeout 600000); set npm's proxy or a registry "
                "that can be reached (npm config set registry)."
            ),
            command="npm config get registry; npm ping",
            source="npm",
            fires="npm error code ECONNRESET",
            spares="npm error code ERESOLVE",
        ),
        Text(
            "npm-network-text",
            "This is a problem related to network connectivity",
            r"npm (?:ERR!|error) network (?P<code>This is a problem) related to network connectivity",
            "npm ERR! network This is a problem related to network connectivity.",
            "INFO This is no problem related to network connectivity",
        ),
    ),
    Signature(
        id="npm-dependencies",
        component="shell",
        role="cause",
        alive=True,
        pattern=_NPM + r"ERESOLVE\b",
        needle=" code ERESOLVE",
        title="npm finds no versions of the packages that fit each other",
        cause="A peer dependency of one package forbids the version that another one wants.",
        fix="Read the conflict below it; pin fitting versions, or install with --legacy-peer-deps.",
        source="npm",
        fires="npm ERR! code ERESOLVE",
        spares="npm ERR! code ECONNRESET",
    ),
    Signature(
        id="npm-permission",
        component="shell",
        role="cause",
        alive=True,
        pattern=_NPM + r"(?P<code>E(?:ACCES|PERM|ROFS))\b",
        needle=" code E",
        title="npm may not write where it installs ({code})",
        cause="The folder belongs to another user, or is read-only: mostly npm install -g without root.",
        fix="Install into a folder of this user (npm config set prefix ~/.local), or run the step as root.",
        source="npm",
        fires="npm ERR! code EACCES",
        spares="npm ERR! code ERESOLVE",
    ),
    Signature(
        id="npm-no-package",
        component="shell",
        role="cause",
        alive=True,
        pattern=_NPM + r"(?P<code>E(?:404|TARGET|40[13]|NEEDAUTH))\b",
        needle=" code E",
        title="npm's registry does not give a package ({code})",
        cause="The package or version does not exist there, or needs a login.",
        fix="Check the name, the version and the registry; for a private one set its token in .npmrc.",
        source="npm",
        fires="npm ERR! code E404",
        spares="npm ERR! code ERESOLVE",
    ),
    Signature(
        id="npm-integrity",
        component="shell",
        role="cause",
        alive=True,
        pattern=_NPM + r"(?P<code>E(?:INTEGRITY|USAGE|JSONPARSE|BADENGINE|NOLOCK))\b",
        needle=" code E",
        title="npm refuses the project's package or lock file ({code})",
        cause="The lock file does not fit package.json, a checksum differs, or this version of Node.js is too old.",
        fix=(
            "Write the lock file anew with npm install, clear the cache (npm cache clean --force), check node "
            "--version."
        ),
        source="npm",
        fires="npm ERR! code EUSAGE",
        spares="npm ERR! code ERESOLVE",
    ),
    Signature(
        id="npm-file-missing",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"npm (?:ERR!|error) (?:enoent|ENOENT:?) [^\n]{0,80}?(?:open|lstat|scandir|spawn) "
            r"'?(?P<path>[^'\n]{1,300})"
        ),
        needle="npm ",
        title="npm misses {path}",
        cause="The file or program is not where npm looks: often the wrong working directory.",
        fix="Run npm in the folder with package.json, and check that it was copied into the image.",
        source="npm",
        fires="npm ERR! enoent ENOENT: no such file or directory, open '/app/package.json'",
        spares="npm ERR! enoent This is related to npm not being able to find a file.",
    ),
    Signature(
        id="pip-system",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"error: externally-managed-environment",
        needle="error: externally-managed-environment",
        title="pip refuses to install into the system's Python",
        cause="This Python belongs to the distribution (PEP 668).",
        fix="Make a virtual environment first (python3 -m venv), or pass --break-system-packages inside a container.",
        source="pip",
        fires="error: externally-managed-environment",
        spares="INFO no externally-managed-environment",
    ),
    *family(
        Signature(
            id="pip-build",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"ERROR: Failed building wheel for (?P<name>[\w.-]{1,100})",
            needle="ERROR: Failed building wheel for ",
            title="pip could not build the package {name}",
            cause="There is no finished wheel of it for this Python and platform, and its own build failed.",
            fix=(
                "Read the build's output above; install the compiler and headers that it misses, or a version "
                "with a wheel."
            ),
            source="pip",
            fires="ERROR: Failed building wheel for psycopg2",
            spares="INFO building wheel for psycopg2",
        ),
        Text(
            "pip-build-uv",
            "Failed to build `",
            r"Failed to build `(?P<name>[\w.=@-]{1,100})",
            "  × Failed to build `psycopg2==2.9.9`",
            "INFO no build of `psycopg2` has failed",
        ),
        Text(
            "pip-build-list",
            "Could not build wheels for ",
            r"Could not build wheels for (?P<name>[\w.-]{1,100})",
            "ERROR: Could not build wheels for psycopg2, which is required to install pyproject.toml-based projects",
            "INFO build wheels for psycopg2",
        ),
    ),
    Signature(
        id="pip-hashes",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        needle="THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        title="pip got a file with another checksum than the requirements name",
        cause="A download was cut off, a mirror gave another file, or the package was replaced.",
        fix="Clear pip's cache (pip cache purge) and try again; else write the hashes anew.",
        source="pip",
        fires="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        spares="INFO these packages match the hashes from the requirements file",
    ),
    Signature(
        id="pip-download",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"error: Failed to (?:fetch|download)[: ]{1,2}`(?P<what>[^`\n]{1,300})`",
        needle="error: Failed to ",
        title="uv could not download {what}",
        cause="The index or file server could not be reached, timed out, or refused.",
        fix="Read the lines below it; raise UV_HTTP_TIMEOUT, set a mirror (UV_INDEX_URL) or the proxy variables.",
        source="uv",
        fires="error: Failed to fetch: `https://pypi.example.org/simple/numpy/`",
        spares="INFO no fetch of `https://pypi.example.org` has failed",
    ),
    Signature(
        id="conda-unreachable",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"CondaHTTPError: HTTP (?P<status>\d{3}) (?P<why>[A-Z][A-Z ]{1,40}) for url "
            r"<(?P<url>[^>\n]{1,300})>"
        ),
        needle="CondaHTTPError: HTTP ",
        title="conda could not fetch from its channel: {status} {why}",
        cause="{url} gave no answer that conda can use: no connection (000), a proxy, TLS, or it is not there.",
        fix=(
            "Try it with curl -I; set proxy_servers or another channel in .condarc; for TLS set "
            "ssl_verify to the "
            "proxy's certificate."
        ),
        command="curl -sI {url}; conda config --show proxy_servers channels ssl_verify",
        source="conda",
        fires=(
            "CondaHTTPError: HTTP 000 CONNECTION FAILED for url "
            "<https://conda.example.org/noarch/repodata.json>"
        ),
        spares="INFO no CondaHTTPError: HTTP 000",
    ),
    *family(
        Signature(
            id="conda-no-package",
            component="shell",
            role="cause",
            alive=True,
            pattern=(
                r"PackagesNotFoundError: The following packages are not available[^\n]{0,60}\s{0,8}(?P<what>- "
                r"\S{1,120})?"
            ),
            needle="PackagesNotFoundError: ",
            title="conda's channels lack a wanted package",
            cause="No channel has the package in this version for this platform.",
            fix=(
                "Add the channel that has it (-c conda-forge), or correct the version; conda search shows what "
                "there is."
            ),
            source="conda",
            fires="PackagesNotFoundError: The following packages are not available from current channels:",
            spares="INFO no PackagesNotFoundError: all packages are available",
        ),
        Text(
            "conda-no-package-list",
            "ResolvePackageNotFound:",
            r"ResolvePackageNotFound:",
            "ResolvePackageNotFound: \n  - cudatoolkit=9.0",
            "INFO no ResolvePackageNotFound",
        ),
    ),
    Signature(
        id="conda-conflict",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"(?:LibMamba)?UnsatisfiableError: ",
        needle="UnsatisfiableError: ",
        title="conda finds no set of packages that fit each other",
        cause="Wanted versions forbid each other, or do not fit this Python.",
        fix="Read the conflicts below it; loosen the pins, or make a new environment with the wanted Python.",
        source="conda",
        fires="LibMambaUnsatisfiableError: Encountered problems while solving:",
        spares="INFO no UnsatisfiableError",
    ),
    Signature(
        id="conda-terms",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"CondaToSNonInteractiveError: Terms of Service have not been accepted",
        needle="CondaToSNonInteractiveError: ",
        title="conda waits for its terms of service to be accepted",
        cause="Anaconda's own channels ask for it since 2025, and nobody can answer in a script.",
        fix="Use conda-forge with --override-channels, or accept the terms for each channel.",
        command="conda tos accept --override-channels --channel https://repo.anaconda.com/pkgs/main",
        source="conda",
        fires="CondaToSNonInteractiveError: Terms of Service have not been accepted for the following channels.",
        spares="INFO no CondaToSNonInteractiveError: the Terms of Service have been accepted",
    ),
    Signature(
        id="linker-missing",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"error: linker [`'](?P<name>[\w.-]{1,60})[`'] not found",
        needle="error: linker ",
        title="The linker {name} is missing",
        cause="Rust needs a C compiler to link, and the image has none.",
        fix="Install it: apt-get install build-essential.",
        source="rustc",
        fires="error: linker `cc` not found",
        spares="INFO linker `cc` found",
    ),
)
