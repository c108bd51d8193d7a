"""A virtual environment as an installer leaves it, with a console script and an editable package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MODULE = "heavy"  # a module of the environment, with many files


def site(venv: Path) -> Path:
    """Its site-packages."""
    return next(venv.glob("lib/python*/site-packages"))


def make_venv(folder: Path, checkout: Path | None = None, files: int = 5) -> Path:
    """A venv with the module ``heavy`` (of ``files`` files), its script ``heavy-cli``, and, from ``checkout``, the
    editable module ``mine``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = site(folder)
    (packages / MODULE).mkdir()
    for number in range(files):
        (packages / MODULE / f"part{number}.py").write_text(f"VALUE = {number}\n")
    imports = "".join(f"from {MODULE} import part{number}\n" for number in range(files))
    (packages / MODULE / "__init__.py").write_text(imports)
    script = folder / "bin" / "heavy-cli"
    script.write_text(f"#!{folder}/bin/python\nimport sys, {MODULE}\nprint(sys.prefix)\n")
    script.chmod(0o755)
    if checkout is not None:
        (checkout / "mine").mkdir(parents=True)
        (checkout / "mine" / "__init__.py").write_text("WHO = 'checkout'\n")
        (packages / "__editable__.mine-1.0.pth").write_text(f"{checkout}\n")
        info = packages / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "direct_url.json").write_text(
            json.dumps({"url": f"file://{checkout}", "dir_info": {"editable": True}})
        )
    return folder


def says(python: Path, program: str) -> str:
    """What a program prints in an interpreter."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", program], capture_output=True, text=True, check=True, env=env, cwd="/"
    )
    return done.stdout.strip()
