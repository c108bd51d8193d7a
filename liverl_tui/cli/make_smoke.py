"""``make-smoke``: make a tiny real model with its data on this machine, without a download."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.util.regular_file import overwrite
from liverl.util.remove_tree import remove_tree
from liverl_tui.cli import numbers
from liverl_tui.cli.options import UpOptions, config_options
from liverl_tui.cli.output import echo
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config.schema import RunConfig

PROFILE = "cpu-verl"  # the profile whose environment is used by default: it needs no GPU

_MODEL = "model.model_path"


@click.command("make-smoke")
@click.argument("directory", metavar="DIR")
@click.option(
    "--steps",
    type=numbers.TRAINING_STEPS,
    default=600,
    show_default=True,
    metavar="N",
    help="Maximum number of training steps.",
)
@config_options
def make_smoke_command(directory: str, steps: int, **values: Any) -> int:
    """Make a tiny real model, its tokenizer and data in DIR: model/, train.parquet, val.parquet.

    The model is trained until about half of its conversations are right. The command runs in the environment `verl` of
    the configuration (default: of profile cpu-verl), which is built on first use.
    """
    folder = Path(directory).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(
            f"{folder} already exists; choose another directory, or remove it first", ExitCode.USAGE
        )
    config = _config(values)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make(_python(config), draft, steps)
        draft.replace(folder)
    except OSError as error:
        raise CliError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    finally:
        remove_tree(draft)
    echo(f"wrote model/, train.parquet and val.parquet to {folder}; start a run with it:")
    options = UpOptions.of(values)
    echo(f"  {as_typed(next_command(options, folder))}{options.to_fill_in}")
    return ExitCode.OK


def next_command(options: UpOptions, folder: Path) -> str:
    """``up`` with the options that were given, and the model in ``folder`` in the place of theirs."""
    profile = options.profile or (None if options.config else PROFILE)
    others = tuple(one for one in options.sets if one.partition("=")[0].strip() != _MODEL)
    return options._replace(profile=profile, sets=(*others, f"{_MODEL}=smoke:{folder}")).command_line()


def _config(values: dict[str, Any]) -> RunConfig:
    from liverl.config import load_config, resolved

    profile = values["profile"] or (None if values["config"] else PROFILE)
    loaded = load_config(values["config"], profile=profile, sets=values["sets"])
    return resolved(loaded.config, env=os.environ, cwd=Path.cwd(), now=0.0, file=values["config"])


def _python(config: RunConfig) -> Path:
    """The interpreter of the environment `verl`, which is built first if it does not exist.

    Raises:
        CliError: the build failed.
    """
    import asyncio

    from liverl.environments import BuildError, default_cache_dir, ensure
    from liverl.plan.build import environment_spec

    last_text = ""

    def progress(text: str, share: float | None) -> None:
        nonlocal last_text
        if text != last_text:
            last_text = text
            echo(f"environment verl: {text}" + (f" ({share:.0%})" if share else ""), err=True)

    try:
        return asyncio.run(ensure(environment_spec(config, "verl"), default_cache_dir(), progress))
    except BuildError as error:
        raise CliError(str(error)) from error


def _make(python: Path, draft: Path, steps: int) -> None:
    """Make model and data in ``draft`` with the interpreter ``python``; its output goes to the terminal unchanged.

    Raises:
        CliError: the interpreter could not be started, or it failed.
    """
    from liverl.plan.guest_path import stub

    with tempfile.TemporaryDirectory(prefix="liverl-") as path:
        package = Path(path, "liverl", "__init__.py")
        package.parent.mkdir()
        overwrite(package, stub("").text.encode())
        argv = [str(python), "-m", "liverl.verl_runtime.smoke", str(draft), "--steps", str(steps)]
        try:
            code = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        except OSError as error:
            raise CliError(f"{python} cannot be started: {error.strerror}") from error
    if code:
        ending = f"exit {code}" if code > 0 else f"signal {-code}"
        raise CliError(f"making the model failed ({ending}); see the output of {python} above")
