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
        id="numpy-binary",
        component="python",
        role="cause",
        pattern=(
            r"numpy\.(?:dtype|ufunc|ndarray) size changed, may indicate binary incompatibility\. Expected "
            r"(?P<wanted>\d{1,6})"
        ),
        needle="size changed, may indicate binary incompatibility. Expected",
        title="A package was compiled for another version of numpy",
        cause="Its binary expects a structure of numpy with {wanted} bytes, and the installed numpy has another.",
        fix=(
            "Install that package again for this numpy (pip install --force-reinstall), or the numpy that it was "
            "built for."
        ),
        command="pip list | grep -i numpy; pip check",
        source="Cython",
        fires=(
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C "
            "header, got 88 "
            "from PyObject"
        ),
        spares="RuntimeWarning: numpy.dtype size changed, may indicate binary incompatibility",
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
        id="package-version-required",
        component="python",
        role="cause",
        pattern=(
            r"ImportError: (?P<what>[\w.\[\]-]{1,80}[<>=!~][^\n]{0,80}?) is required for a normal functioning "
            r"of this "
            r"module, but found (?P<found>[^\n]{1,80}?)\.?(?:\n|$)"
        ),
        needle=" is required for a normal functioning of this module",
        title="transformers needs {what}",
        cause="transformers checks its requirements at import: it needs {what}, and {found} is installed.",
        fix="pip install '{what}', or install the transformers that belongs to what is installed.",
        source="transformers/utils/versions.py",
        fires=(
            "ImportError: huggingface-hub>=0.30.0,<1.0 is required for a normal functioning of this module, "
            "but found "
            "huggingface-hub==1.2.0."
        ),
        spares="ImportError: accelerate is required for a normal run of this module",
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
)
