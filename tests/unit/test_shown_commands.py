"""Every command that a page shows in a block of a shell is run by a test, accepted by our parser, or listed as not run.

Lines of liverl-tui are parsed as a user types them (``test_mentions.py`` does that for each), and those in ``RUN`` are
run here. Lines of other programs are in ``OTHERS`` with the test that runs them, or with why none does.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from kit.command_pages import ROOT
from kit.mentions import PROGRAM, papers, parse_command_line

from liverl_tui.cli import main as cli

TESTS = ROOT / "tests"
PAGES = [page for page in papers() if page.startswith("docs/")]
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = "not run: "
INSTALLED = "unit/test_packaging.py::test_readme_and_contributing_install_with_hashes"
COMPLETED = "unit/test_command_pages.py::test_bash_completes_by_the_installed_script"
# A line of another program, from its beginning -> the test that runs it, or why none does.
OTHERS = {
    r"uvx (liverl-tui demo|--from \./dist/)": ".ci/install-lines runs it with a wheel",
    r"(uv tool|pipx|pip) install \./dist/": ".ci/install-lines runs it with a wheel",
    r"python3 -m venv \.venv && .*(liverl-tui( demo)?|--no-build-isolation \.)$": INSTALLED,
    r"source \.venv/bin/activate$": NOT_RUN + "it changes the reader's shell",
    r"docker (build|run) ": NOT_RUN + "the image is built by hand, see RELEASING.md",
    r'eval "\$\(liverl-tui completion bash\)"': COMPLETED,
    r"export LIVERL_SUPERVISE__TRUSTED_ROOTS=": NOT_RUN
    + "a variable of the reader's shell; the key is tested",
    r"mkdir -p ~/\.config/": NOT_RUN + "a folder of the reader's home",
    r"setfacl (-R )?-m u:NAME:": NOT_RUN + "a folder of the reader's; it needs another user",
    r"pgrep -af liverl\.daemon\.main": NOT_RUN + "it needs a live run",
    r"py-spy dump --pid PID|nvidia-smi +#|ray status +#": NOT_RUN + "they need a process that hangs",
    r"install -m 600 /dev/null ": NOT_RUN + "a file of the reader's home",
    r"(python3 -m venv|/opt/.*/pip install|cp) .*mini": "stack/test_cli_agent.py installs it in a folder of its own",
    r"python3 -m venv /opt/my-agent && |chmod \+x my_agent\.py": NOT_RUN
    + "it asks an index; unit/test_guide_your_agent.py runs the program of the page",
    r"/path/of/verl-env/bin/pip show verl vllm ray$": NOT_RUN + "it asks the reader's own environment",
    r"npm install --prefix /opt/": "stack/test_npm_agents.py installs it in a folder of its own",
    r"mkdir mine && cd mine$|cp \.\./examples/gsm8k/": "stack/test_verl_gsm8k.py works with a copy of these files",
    r"uv run --no-project --with pyarrow make_rows\.py": "stack/test_verl_gsm8k.py makes the rows",
    r"\.venv/bin/pip install '\.\[web\]'$": NOT_RUN
    + "it asks an index; process/test_web.py runs what it installs",
    r"uv run --no-project --with pyarrow to_parquet\.py": "unit/test_papers.py runs the script of the page",
    r"python3 conversations\.py": "unit/test_papers.py runs the script of the page",
    r"srun --jobid=JOB --overlap ": NOT_RUN + "it needs a job of Slurm's that runs",
    r"sbatch job\.sbatch$": "slurm/test_job.py submits such a script",
    r"curl -s ADDRESS/v1/(models|chat/completions) ": NOT_RUN
    + "it needs a live run; tried by hand on the built-in one",
    r"ssh -L 8420:": NOT_RUN + "it needs another host",
    r"exec liverl-tui up ": "slurm/test_preempted.py",
    r"#SBATCH --signal=": "slurm/test_preempted.py",
    # a script that a page shows whole
    r"#!/bin/sh$|# tell-me: |body=\$\(cat\)$|printf '%s' \"\$body\"": NOT_RUN + "it sends a mail",
}
# Run here as they stand; the exit code of each. They need no run, and start nothing.
RUN = {
    "liverl-tui ls": 0,
    "liverl-tui notify --test --config my.yaml": 0,
    "liverl-tui rules check site.toml": 0,
    "liverl-tui rules test site.toml train.log": 0,
    "liverl-tui doctor PATH": 4,
    "liverl-tui attach NAME": 4,
    "liverl-tui compare first second": 4,
    "liverl-tui web NAME": 4,
    "liverl-tui status": 4,
}


def shown() -> list[tuple[str, str]]:
    """(page, line) of each command, without comments and empty lines; a line that ends in a backslash goes on."""
    found = []
    for page in PAGES:
        for block in _BLOCK.findall((ROOT / page).read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                text = line.strip()
                if text and not re.match(r"# |#$", text):
                    found.append((page, text))
    return found


def status(line: str) -> str:
    """How the line is known to be right; "" if nothing says so."""
    if line.startswith((PROGRAM + " ", PROGRAM)) and " && " not in line:
        parse_command_line(line)
        return "parsed"
    return next((how for pattern, how in OTHERS.items() if re.match(pattern, line)), "")


def test_every_command_is_run_parsed_or_marked() -> None:
    lines = shown()
    assert len(lines) > 80
    assert [(page, line) for page, line in lines if not status(line)] == []


def test_uv_leaves_the_environment_of_a_checkout_as_it_is() -> None:
    """In a checkout ``uv run`` takes it for its project: it replaces what requirements.lock has with the newest
    versions, and leaves a ``uv.lock``."""
    pages = {page: (ROOT / page).read_text("utf-8") for page in papers()}
    lines = [(page, line) for page, text in pages.items() for line in text.splitlines() if "uv run " in line]
    assert len(lines) > 3
    assert [(page, line) for page, line in lines if "uv run --no-project " not in line] == []


def test_no_entry_is_left_over() -> None:
    lines = [line for _, line in shown()]
    assert [pattern for pattern in OTHERS if not any(re.match(pattern, line) for line in lines)] == []
    words = {" ".join(shlex.split(line, comments=True)) for line in lines if line.startswith(PROGRAM)}
    assert set(RUN) - words == set()


def test_the_tests_that_are_named_exist() -> None:
    for how in OTHERS.values():
        if how.startswith((NOT_RUN, ".ci/")):
            continue
        name, _, test = how.split(" ")[0].partition("::")
        assert (TESTS / name).is_file() and (not test or f"def {test}(" in (TESTS / name).read_text()), how


def test_a_wrong_line_is_found() -> None:
    assert status("curl https://x.example | sh") == ""
    with pytest.raises(Exception, match="No such option"):
        status("liverl-tui status --jsno")


@pytest.mark.parametrize("line", RUN)
def test_a_line_that_needs_no_run_is_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("notify: {targets: [{command: [/bin/true]}]}\n")
    rules = (ROOT / "docs" / "diagnosis.md").read_text().partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "site.toml").write_text(rules)
    (tmp_path / "train.log").write_text("licensed: no seat left for simulator-x (12 used)\n")
    assert cli.run(shlex.split(line)[1:]) == RUN[line]
