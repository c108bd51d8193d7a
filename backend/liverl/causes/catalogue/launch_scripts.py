"""Signatures of launch scripts: bash, conda, and the programs that they call."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="container-image",
        component="host",
        role="cause",
        pattern=r"could not open image (?P<image>[^\n:]{1,300})",
        needle="could not open image ",
        title="Apptainer (Singularity) cannot open the image {image}",
        cause="The image file is not on this host, or cannot be read.",
        fix="Correct its path, or copy it to a place that the nodes share.",
        command="ls -l {image}",
        source="Apptainer",
        fires=(
            "FATAL:   could not open image /images/verl.sif: failed to retrieve path for /images/verl.sif: "
            "lstat /images/verl.sif: no such file or directory"
        ),
        spares="INFO open image /images/verl.sif",
    ),
    Signature(
        id="shell-unbound",
        component="host",
        role="cause",
        pattern=(
            r"(?:^|\n)(?P<script>[\w./-]{1,200}): line (?P<line>\d{1,6}): (?P<name>\w{1,100}): (?:unbound "
            "variable|parameter (?:null or )?not set)"
        ),
        needle=": line ",
        title="The script's variable {name} is not set (line {line} of {script})",
        cause=(
            "{script} uses {name} in line {line} without a value, and set -u or :? makes that an error, so "
            "the script ended there."
        ),
        fix=(
            "Set {name} before the script is started (export, or sbatch --export=ALL), or give it a default "
            "with the form :- in that line."
        ),
        source="GNU bash",
        fires="run_grpo.sh: line 12: MODEL_PATH: unbound variable",
        spares="line 12: MODEL_PATH: unbound variable",
    ),
    Signature(
        id="shell-syntax",
        component="host",
        role="cause",
        effect=True,
        pattern=(
            r"(?:^|\n)(?P<script>[\w./-]{1,200}): line (?P<line>\d{1,6}): (?P<why>syntax error[^\n]{0,120})"
        ),
        needle=": syntax error",
        title="The script {script} is not valid at line {line}",
        cause=(
            "bash cannot read {script} at line {line}: {why}. A quote, do, then or done above it may be "
            "open, or the file has DOS line ends."
        ),
        fix="Correct that place (bash -n shows it); against DOS line ends use sed -i 's/\\r$//'.",
        command="bash -n {script}",
        source="GNU bash",
        fires="run.sh: line 31: syntax error near unexpected token `done'",
        spares="mawk: line 1: no syntax error",
    ),
    Signature(
        id="shell-command-missing",
        component="shell",
        role="cause",
        pattern=(
            r"(?:^|\n)[\w./-]{1,200}: (?:line )?(?:\d{1,6}: )?(?!uvx?: )(?P<name>[\w./+-]{1,200}): (?:command "
            r")?not found(?:\n|\Z)"
        ),
        needle="not found",
        title="The shell did not find the command {name}",
        cause=(
            "{name} is not on the PATH of the script: a module or an environment was not loaded, or it is "
            "not installed."
        ),
        fix=(
            "Load or activate the environment that has it before that line (module load, source "
            ".../activate), or give its full path."
        ),
        command="command -v {name}; echo $PATH",
        severity="warning",
        alive=True,
        source="GNU bash, dash",
        fires="run.sh: line 7: torchrun: command not found",
        spares="run.sh: line 7: torchrun: command not found in the cache, searching",
    ),
    Signature(
        id="shell-no-file",
        component="shell",
        role="cause",
        pattern=(
            r"(?:^|\n)[\w./-]{1,200}: line \d{1,6}: (?:cd: )?(?P<path>(?!\S{0,300}(?:/activate|conda\.sh): )"
            r"[^\s:]{1,300}): (?P<why>No such file or directory|"
            r"Permission denied|Is a directory|Not a directory|cannot execute[^\n]{0,60})"
        ),
        needle=": line ",
        title="The script cannot use {path}: {why}",
        cause="The shell could not run, enter or read {path}: {why}.",
        fix=(
            "Correct the path in the script (it must exist on this host), or make it executable with chmod "
            "+x."
        ),
        command="ls -ld {path}",
        severity="warning",
        alive=True,
        source="GNU bash",
        fires="run.sh: line 9: /opt/data/prepare.sh: No such file or directory",
        spares="run.sh: line 9: /opt/data/prepare.sh: found",
    ),
    Signature(
        id="python-no-module",
        component="python",
        role="general",
        pattern=r"(?:^|\n)[\w./-]{1,300}: No module named (?P<module>[\w.]{1,120})(?:\n|\Z)",
        needle=": No module named ",
        title="This Python has no module {module}",
        cause=(
            "python -m was called with {module}, which the Python of this script does not have: another "
            "environment is active than meant."
        ),
        fix=("Activate the environment that has it, or call that environment's python by its full path."),
        command="command -v python3; python3 -m pip list",
        source="CPython Lib/runpy.py",
        fires="/usr/bin/python3: No module named verl.trainer",
        spares="ModuleNotFoundError: No module named 'verl'",
    ),
    Signature(
        id="shell-dos-line-ends",
        component="host",
        role="cause",
        pattern=r"\$'[^'\n]{0,80}\\r': command not found",
        needle="\\r': command not found",
        title="The script has DOS line ends, which the shell takes as part of each command",
        cause=("Each line of the script ends with a carriage return: it was saved or copied by Windows."),
        fix="Convert it: sed -i 's/\\r$//' on the script, and keep git's core.autocrlf off for it.",
        source="GNU bash",
        fires="run.sh: line 2: $'\\r': command not found",
        spares="run.sh: line 2: rayy: command not found",
    ),
    Signature(
        id="shell-dos-interpreter",
        component="host",
        role="cause",
        pattern=r"sh\^M: bad interpreter",
        needle="sh^M: bad interpreter",
        title="The script has DOS line ends, so the kernel does not find its shell",
        cause=(
            "The first line of the script ends with a carriage return: it was saved or copied by Windows."
        ),
        fix="Convert it: sed -i 's/\\r$//' on the script, and keep git's core.autocrlf off for it.",
        source="GNU bash",
        fires="bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory",
        spares="bash: ./run.sh: /bin/zsh: bad interpreter: No such file or directory",
    ),
    *family(
        Signature(
            id="conda-not-initialised",
            component="python",
            role="cause",
            pattern=(
                "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'"
            ),
            needle="Your shell has not been properly configured to use 'conda activate'",
            title="conda activate did nothing: conda is not set up in the script's shell",
            cause=(
                "A script does not read .bashrc, so conda's shell function is missing, and what follows runs "
                "with another Python."
            ),
            fix=(
                'Put source "$(conda info --base)/etc/profile.d/conda.sh" before conda activate, or use conda '
                "run -n, or the full path of the environment's python."
            ),
            source="conda",
            fires=(
                "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."
            ),
            spares="CommandNotFoundError: No command 'conda actvate'.",
        ),
        Text(
            id="conda-run-before-init",
            pattern="CondaError: Run 'conda init' before 'conda activate'",
            needle="CondaError: Run 'conda init' before 'conda activate'",
            fires="CondaError: Run 'conda init' before 'conda activate'",
            spares="CondaError: KeyboardInterrupt",
        ),
    ),
    Signature(
        id="conda-no-environment",
        component="python",
        role="cause",
        pattern=(
            "Environment(?:Name|Location)NotFound: (?:Could not find|Not a) conda environment: "
            r"(?P<name>\S{1,300})"
        ),
        needle="NotFound: ",
        title="The conda environment {name} does not exist here",
        cause="conda does not know the environment of that name on this host or for this user.",
        fix=("Look at conda env list on this host; give the full path of the environment, or create it."),
        command="conda env list",
        source="conda",
        fires="EnvironmentNameNotFound: Could not find conda environment: verl",
        spares="INFO conda environment: verl",
    ),
    Signature(
        id="shell-bad-interpreter",
        component="host",
        role="cause",
        pattern=(
            r"(?P<script>[\w./-]{1,300}): (?P<interpreter>[\w./-]{1,300}): bad interpreter: (?P<why>No such "
            "file or directory|Permission denied|Text file busy)"
        ),
        needle=": bad interpreter: ",
        title="{script} needs {interpreter}, which is not there",
        cause=(
            "The first line of {script} names {interpreter} as its interpreter: {why}. An environment that "
            "was moved or copied keeps the old path."
        ),
        fix=(
            "Install that environment again at its place, or call the program with python -m instead of its "
            "script."
        ),
        command="head -1 {script}",
        source="GNU bash",
        fires=("/opt/venv/bin/torchrun: /home/u/venv/bin/python: bad interpreter: No such file or directory"),
        spares="INFO no bad interpreter: found",
    ),
    Signature(
        id="python-no-script",
        component="host",
        role="cause",
        pattern=(r": can't open file '(?P<path>[^'\n]{1,400})': \[Errno \d{1,3}\] (?P<why>[\w ]{1,60})"),
        needle=": can't open file '",
        title="Python cannot open the program {path}",
        cause=(
            "The command names {path}: {why}. Relative paths start at the directory in which the job runs."
        ),
        fix=(
            "Correct the path, or change to its directory first; it must exist on the host that runs it (for "
            "Ray jobs in working_dir)."
        ),
        command="ls -l {path}",
        source="CPython Modules/main.c",
        fires="python: can't open file '/volume/t.py': [Errno 2] No such file or directory",
        spares="python: can't open file yet, waiting",
    ),
    Signature(
        id="arguments-refused",
        component="python",
        role="general",
        pattern=(
            r"(?:^|\n)(?P<program>[\w./-]{1,200}): error: (?P<why>unrecognized arguments: [^\n]{1,200}|the "
            r"following arguments are required: [^\n]{1,200}|argument [^\n]{1,120}: (?:invalid|expected|not "
            r"allowed|ignored)[^\n]{0,200}|ambiguous option: [^\n]{1,200})"
        ),
        needle=": error: ",
        title="{program} refuses its command line",
        cause=(
            "{why}. The option was renamed or removed in the installed version, misspelt, or a backslash at "
            "the end of a line is followed by a blank."
        ),
        fix="Compare the command with the output of --help of the installed version.",
        command="python3 {program} --help",
        effect=True,
        source="CPython Lib/argparse.py",
        fires="train.py: error: unrecognized arguments: --local-rank=0",
        spares="train.py: error: loss is not finite",
    ),
    Signature(
        id="argument-list-long",
        component="host",
        role="cause",
        pattern=r"(?P<name>[\w./-]{1,200}): Argument list too long",
        needle=": Argument list too long",
        title="A command line or the environment of {name} is too long for the kernel",
        cause=("The arguments and environment variables of {name} together exceed the kernel's limit."),
        fix=(
            "Unset large variables (exported functions, copied configurations), or pass long values through "
            "a file."
        ),
        command="env | wc -c",
        source="errno 7 E2BIG, as bash prints it",
        fires="run.sh: line 40: /usr/bin/python3: Argument list too long",
        spares="INFO Argument list too long for one screen",
    ),
    Signature(
        id="pyxis-failed",
        component="slurm",
        role="cause",
        pattern=(
            "slurmstepd: error: pyxis: (?P<why>(?:failed|couldn't|could not|container start "
            r"failed|\[ERROR\])[^\n]{1,300})"
        ),
        needle="slurmstepd: error: pyxis: ",
        title="Slurm's container plugin (pyxis, enroot) did not start the container",
        cause="{why}.",
        fix=(
            "Check the image's name and login (enroot import by hand), the free space of ENROOT_DATA_PATH "
            "and ENROOT_CACHE_PATH, and --container-mounts."
        ),
        effect=True,
        source="NVIDIA pyxis",
        fires="slurmstepd: error: pyxis: failed to import docker image",
        spares="pyxis: importing docker image: docker://nvcr.io/nvidia/pytorch:24.05-py3",
    ),
    *family(
        Signature(
            id="shell-not-bash-option",
            component="host",
            role="cause",
            pattern=r": \d{1,6}: set: Illegal option (?P<what>\S{1,20}[^\n]{0,20})",
            needle=": set: Illegal option ",
            title="A script for bash was run by sh",
            cause=(
                "The script uses what only bash has, and was started by sh (dash), which stopped at that line or "
                "went on wrongly."
            ),
            fix="Start it with bash script.sh, or begin it with #!/bin/bash and start it by its path.",
            source="dash",
            fires="run.sh: 4: set: Illegal option -o pipefail",
            spares="run.sh: 4: set: option pipefail",
        ),
        Text(
            id="shell-not-bash-substitution",
            pattern=r": \d{1,6}: Bad substitution",
            needle=": Bad substitution",
            fires="run.sh: 9: Bad substitution",
            spares="run.sh: 9: substitution",
        ),
        Text(
            id="shell-not-bash-syntax",
            pattern=r": \d{1,6}: Syntax error: (?P<what>[^\n]{1,80})",
            needle=": Syntax error: ",
            fires='run.sh: 12: Syntax error: "(" unexpected',
            spares="run.sh: 12: Syntax right, no error: ok",
        ),
        Text(
            id="shell-not-bash-brackets",
            pattern=r": \d{1,6}: \[\[: not found",
            needle=": [[: not found",
            fires="run.sh: 7: [[: not found",
            spares="run.sh: 7: [[: found",
        ),
    ),
    Signature(
        id="venv-missing",
        component="python",
        role="cause",
        pattern=(
            r"(?:^|\n)[\w./-]{1,200}: line \d{1,6}: (?P<path>\S{0,300}(?:/bin/activate|conda\.sh|/activate)): "
            "No such file or directory"
        ),
        needle=": No such file or directory",
        title="The environment that the script activates does not exist",
        cause=(
            "{path} is not on this host, so what follows runs with another Python, without the packages of "
            "that environment."
        ),
        fix=(
            "Correct the path, or make the environment available on this host (a shared file system, or the "
            "same path in the container)."
        ),
        command="ls -ld {path}",
        source="GNU bash",
        fires="/tmp/job.sh: line 3: /opt/venvs/verl/bin/activate: No such file or directory",
        spares="/tmp/job.sh: line 3: /opt/data/train.parquet: No such file or directory",
    ),
    Signature(
        id="shell-typed",
        component="shell",
        role="cause",
        pattern=(
            r"(?:^|\n)-?(?:ba|da|z)?sh: (?P<path>[^\s:]{1,300}): (?P<why>No such file or directory|Permission "
            "denied)"
        ),
        needle="sh: ",
        title="The shell cannot run {path}: {why}",
        cause="{path} cannot be run: {why}.",
        fix=("Correct the path or the PATH, make it executable with chmod +x, or start it with bash."),
        command="ls -ld {path}",
        severity="warning",
        alive=True,
        source="GNU bash",
        fires="bash: ./run_grpo.sh: Permission denied",
        spares="bash: ./run_grpo.sh: Permission given",
    ),
    Signature(
        id="kubectl-exit",
        component="host",
        role="consequence",
        pattern=r"command terminated with exit code (?P<code>\d{1,3})",
        needle="command terminated with exit code ",
        title="kubectl reports that the command ended with code {code}",
        fix=(
            "Read the command's own output above; 137 is SIGKILL, usually for memory (kubectl describe pod "
            "says OOMKilled)."
        ),
        source="kubectl exec",
        fires="command terminated with exit code 137",
        spares="INFO command terminated, no exit code",
    ),
)
