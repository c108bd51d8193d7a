"""Texts that a configuration can hold and that Hydra, LiteLLM, a shell, argparse or a plan would read as another thing,
and what real Hydra makes of a command line."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Sequence
from typing import Any

# A Python with Hydra (that of verl has it).
HYDRA_PYTHON = os.environ.get("LIVERL_TEST_HYDRA_PYTHON") or os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
LEAK = "leaked-3b9f20c1"  # the value of the variable LIVERL_LEAK

ODD = (
    *(
        "",
        " ",
        "  a  ",
        "a b",
        "a'b",
        'a"b',
        "a\\b",
        "a\\",
        "a\\\\",
        "\\'",
        "\\\\'",
        "'",
        "''",
        '"',
        "`id`",
        "$(id)",
    ),
    *(
        "a,b",
        "a,b,c",
        "[a]",
        "[a,b]",
        "{a:1}",
        "{a}",
        "a(b)",
        "choice(1,2)",
        "range(1,3)",
        "glob(*)",
        "sort(2,1)",
    ),
    *("+x=1", "~x", "@pkg", "a@b:c", "=", "a=b", ":", "a:b", "10:20", "-x", "--multirun", "--cfg=job", "-"),
    *(
        "null",
        "NULL",
        "true",
        "False",
        "nan",
        "Inf",
        "-inf",
        "1e3",
        "1",
        "007",
        "0x10",
        "1_000",
        "+1",
        "-1.5",
    ),
    *(
        "no",
        "off",
        "infinity",
        "_",
        "/",
        ".",
        "..",
        "a.b",
        "a..b",
        "a/b/",
        "#x",
        "%d",
        "%(x)s",
        "a;b|c&d",
        "*?",
        "$HOME",
    ),
    *(
        "läufe-漢字-🙂",
        "\u202e",
        "\u200b",
        "\u2028",
        "\x85",
        "\t",
        "a\nb",
        "\n",
        "\r",
        "\x1b[31m",
        "\x7f",
        "\\n",
    ),
    *(
        "a\\,b",
        "\\[",
        "x: y",
        "- a",
        "!tag",
        "&a",
        "*a",
        "| a",
        "> a",
        "{{x}}",
        "{0}",
        "{run}",
        "$x",
        "$",
        "$$",
    ),
)
# What verl would replace, however it is written.
REPLACED = (
    *(
        "${oc.env:LIVERL_LEAK}",
        "\\${oc.env:LIVERL_LEAK}",
        "\\\\${oc.env:LIVERL_LEAK}",
        "\\\\\\${oc.env:LIVERL_LEAK}",
    ),
    *(
        "$${oc.env:LIVERL_LEAK}",
        "a ${oc.env:LIVERL_LEAK}'",
        "${oc.env:LIVERL_LEAK}\\",
        "x${",
        "${a",
        "\\${",
        "???",
    ),
)
_ALPHABET = [*"ab01 .,:;=+~@$%&|<>()[]{}'\"\\/#!?*-_\t\n", "null", "true", "e3", "ü", "\u202e", "\\'", "\\\\"]
_READ = f"""
import json, os, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
os.environ["LIVERL_LEAK"] = {LEAK!r}
given = json.load(sys.stdin)
with initialize_config_dir(sys.argv[1], version_base=None):
    for words in given:
        try:
            config = compose("empty", overrides=words)
            once = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            OmegaConf.resolve(config)  # verl does so, and resolves what it reads afterwards again
            twice = OmegaConf.to_container(config, resolve=True)
            # Names of mappings that are no text would be text in JSON.
            kinds = sorted({{type(k).__name__ for v in once.values() if isinstance(v, dict) for k in v}})
            print(json.dumps({{"once": once, "twice": twice, "kinds": kinds}}))
        except Exception as error:
            print(json.dumps({{"error": f"{{type(error).__name__}}: {{error}}"[:300]}}))
"""


def random_texts(count: int, seed: int = 7) -> list[str]:
    """Texts of a few pieces that have a meaning in Hydra's grammar."""
    choose = random.Random(seed)
    return ["".join(choose.choices(_ALPHABET, k=choose.randint(1, 8))) for _ in range(count)]


def read_by_hydra(folder: str | os.PathLike[str], lines: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What Hydra makes of each command line: ``once`` (the configuration), ``twice`` (if it is resolved again) and
    ``kinds`` (the types of the names in its mappings), or ``error``."""
    with open(os.path.join(folder, "empty.yaml"), "w") as file:
        file.write("{}\n")
    done = subprocess.run(
        [HYDRA_PYTHON, "-c", _READ, os.fspath(folder)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
