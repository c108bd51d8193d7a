"""Signatures of Python environments: packages that are missing, or do not fit together."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="pip-conflict",
        component="python",
        role="cause",
        pattern="because these package versions have conflicting dependencies",
        needle="because these package versions have conflicting dependencies",
        title="pip cannot install packages whose requirements contradict each other",
        cause="No set of versions satisfies all requirements; pip lists above which ones conflict.",
        fix="Loosen or change one of the versions that pip lists under The conflict is caused by.",
        source="pip",
        fires="ERROR: Cannot install a==1.0 and b==2.0 because these package versions have conflicting dependencies.",
        spares="INFO: looked at these package versions; no conflicting dependencies",
    ),
    Signature(
        id="numpy-two",
        component="python",
        role="cause",
        where="exception",
        pattern="^RuntimeError: Numpy is not available",
        needle="RuntimeError: Numpy is not available",
        title="A package was compiled for numpy 1, and numpy 2 is installed",
        cause="The compiled package cannot use numpy 2, so that it works as if numpy were missing.",
        fix="Install numpy below 2 (pip install 'numpy<2'), or a version of the package that was built for numpy 2.",
        command="pip list | grep -iE 'numpy|torch'",
        source="torch; numpy 2 migration guide",
        fires="RuntimeError: Numpy is not available",
        spares="RuntimeError: Numpy array has no such axis",
    ),
    Signature(
        id="uvicorn-app-missing",
        component="python",
        role="cause",
        pattern=r"Error loading ASGI app\. (?P<why>[^\n]{1,200})",
        needle="Error loading ASGI app.",
        title="uvicorn cannot load the application",
        cause="{why}",
        fix="Name it as module:variable, and start uvicorn where that module lies (or with --app-dir).",
        source="uvicorn/config.py",
        fires='ERROR:    Error loading ASGI app. Could not import module "main".',
        spares="INFO:    loading ASGI app. Done",
    ),
    Signature(
        id="libstdcxx-old",
        component="host",
        role="cause",
        pattern=r"version `?CXXABI_(?P<version>[\d.]{1,10})'? not found",
        needle="CXXABI_",
        title="libstdc++ is older than a package needs (CXXABI_{version})",
        cause="A compiled package was built with a newer C++ compiler than the libstdc++ that was loaded first.",
        fix=(
            "Install a newer one into the environment (conda install -c conda-forge libstdcxx-ng), and put its "
            "lib folder first in LD_LIBRARY_PATH."
        ),
        source="GNU ld.so; anaconda-issues 5191",
        fires=(
            "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `CXXABI_1.3.15' not found "
            "(required by libicui18n.so.78)"
        ),
        spares="libstdc++.so.6 has CXXABI_1.3.15",
    ),
    Signature(
        id="protobuf-version",
        component="python",
        role="cause",
        pattern="TypeError: Descriptors cannot be created directly",
        needle="TypeError: Descriptors cannot be created directly",
        title="protobuf is too new for a package's generated code",
        cause="A package brings files that an older protoc generated, and the installed protobuf refuses them.",
        fix="Install a newer version of that package, or protobuf below 3.21 (pip install 'protobuf<3.21').",
        source="protobuf python",
        fires="TypeError: Descriptors cannot be created directly.",
        spares="Descriptors were created by protoc 25; nothing to do directly",
    ),
    Signature(
        id="python-too-old",
        component="python",
        role="cause",
        pattern=r"requires a different Python: (?P<has>[\d.]{1,12}) not in '(?P<wanted>[^'\n]{1,60})'",
        needle="requires a different Python:",
        title="A package needs Python {wanted}, and this is {has}",
        cause="pip refuses to install a package into a Python that it does not support.",
        fix="Make the environment with a Python that satisfies {wanted}, or take an older version of the package.",
        command="python --version",
        source="pip",
        fires="ERROR: Package 'verl' requires a different Python: 3.8.10 not in '>=3.10'",
        spares="verl requires Python: 3.11.7 is in '>=3.10'",
    ),
    Signature(
        id="uv-conflict",
        component="python",
        role="cause",
        pattern=r"No solution found when resolving [^\n]{0,60}",
        needle="No solution found when resolving",
        title="uv cannot install packages whose requirements contradict each other",
        cause="No set of versions satisfies all requirements; the lines below say which ones conflict.",
        fix="Loosen or change one of the versions that uv names.",
        source="uv",
        fires="  × No solution found when resolving dependencies:",
        spares="Resolved 12 packages; solution found when resolving took 3 ms",
    ),
)
