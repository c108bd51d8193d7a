"""``make-smoke``: a tiny real model with its data, made here without a download."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import config_options
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config.schema import RunConfig

PROFILE = "cpu-verl"  # whose environment is used when nothing else is said: it needs no GPU


@click.command("make-smoke")
@click.argument("directory", metavar="DIR")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Most seconds of training.",
)
@config_options
def make_smoke_command(directory: str, seconds: float, **values: Any) -> int:
    """Make a tiny real model, its tokenizer and data in DIR: model/, train.parquet, val.parquet.

    It is trained until it mostly writes tool calls. It runs in the environment `verl` of the configuration (by
    default of profile cpu-verl), which is built on first use.
    """
    folder = Path(directory).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(f"{folder} is there already: name a new directory, or remove it first", ExitCode.USAGE)
    config = _config(values)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make(_python(config), draft, seconds)
        draft.replace(folder)
    except OSError as error:
        raise CliError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    click.echo(f"{folder} holds model/, train.parquet and val.parquet; a run with it:")
    click.echo(f"  liverl-tui up --profile {PROFILE} --set model.model_path=smoke:{folder}")
    return ExitCode.OK


def _config(values: dict[str, Any]) -> RunConfig:
    from liverl.config import load_config, resolved

    profile = values["profile"] or (None if values["config"] else PROFILE)
    loaded = load_config(values["config"], profile=profile, sets=values["sets"])
    return resolved(loaded.config, env=os.environ, cwd=Path.cwd(), now=0.0, file=values["config"])


def _python(config: RunConfig) -> Path:
    """The interpreter of the environment `verl`, built if it is not there."""
    import asyncio

    from liverl.environments import BuildError, default_cache_dir, ensure
    from liverl.plan.build import environment_spec

    told = ""

    def progress(text: str, share: float | None) -> None:
        nonlocal told
        if text != told:
            told = text
            click.echo(f"environment verl: {text}" + (f" ({share:.0%})" if share else ""), err=True)

    try:
        return asyncio.run(ensure(environment_spec(config, "verl"), default_cache_dir(), progress))
    except BuildError as error:
        raise CliError(str(error)) from error


def _make(python: Path, draft: Path, seconds: float) -> None:
    """Run the maker with our modules beside it; its progress goes to the terminal as it is."""
    from liverl.plan.verl_trainer import stub

    with tempfile.TemporaryDirectory(prefix="liverl-") as path:
        package = Path(path, "liverl", "__init__.py")
        package.parent.mkdir()
        package.write_text(stub().text, encoding="utf-8")
        argv = [str(python), "-m", "liverl.verl_runtime.smoke", str(draft), "--seconds", f"{seconds:g}"]
        try:
            code = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        except OSError as error:
            raise CliError(f"{python} cannot be started: {error.strerror}") from error
    if code:
        ending = f"exit {code}" if code > 0 else f"signal {-code}"
        raise CliError(f"the model was not made ({ending}); what {python} said stands above")
