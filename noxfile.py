"""What a developer does: ``nox -s NAME``, and ``nox -l`` lists them. All use the environment of CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "borders"]
BIN = Path(".venv/bin")
PYTHON = str(BIN / "python")


def _tool(session: nox.Session, name: str, *words: str) -> None:
    session.run(str(BIN / name), *words, external=True)


@nox.session
def gate(session: nox.Session) -> None:
    """Run all that must pass before a change lands."""
    session.run(".ci/run", external=True)


@nox.session
def test(session: nox.Session) -> None:
    """Run the tests that are named, or the quick ones: nox -s test -- tests/unit/test_config.py"""
    session.run(PYTHON, "-m", "pytest", *(session.posargs or ["tests/unit"]), external=True)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the drills of minutes."""
    session.run(PYTHON, "-m", "pytest", "-m", "slow", *session.posargs, external=True)


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Write the style that lint asks for."""
    _tool(session, "ruff", "check", "--fix", ".")
    _tool(session, "ruff", "format", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style."""
    _tool(session, "ruff", "check", ".")
    _tool(session, "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    session.run(
        PYTHON, "-m", "mypy", "-p", "liverl", "-p", "liverl_tui", external=True, env={"MYPYPATH": "backend:."}
    )


@nox.session
def borders(session: nox.Session) -> None:
    """Check which package imports which."""
    _tool(session, "lint-imports")


@nox.session
def generated(session: nox.Session) -> None:
    """Write anew what is made from the code: contract, plans, schemas, pages of commands and metrics, completion."""
    for module in ("kit.contract", "kit.golden"):
        session.run(PYTHON, "-m", module, external=True, env={"PYTHONPATH": "tests"})
    tests = sorted(
        str(path) for path in Path("tests").rglob("test_*.py") if "--update-documents" in path.read_text()
    )
    session.run(PYTHON, "-m", "pytest", "-n0", "-q", *tests, "--update-documents", external=True)


@nox.session
def forge(session: nox.Session) -> None:
    """Check the files of the forge, and the spelling."""
    session.run(".ci/forge", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site in build/site, and check its links; nox -s docs -- serve shows it."""
    session.run(".ci/docs", *session.posargs, external=True)


@nox.session
def dist(session: nox.Session) -> None:
    """Build what is published, twice, and check it."""
    session.run(".ci/dist", *session.posargs, external=True)


@nox.session
def lock(session: nox.Session) -> None:
    """Write the locks after pyproject.toml has changed."""
    session.run(".ci/lock", *session.posargs, external=True)
