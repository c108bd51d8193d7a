"""What a failed build says, out of the message of Harbor's exception, whose frame is that of 0.25. Outputs marked with
"seen" were printed by Docker 20.10 with Compose 2.26; the others are written after the source of BuildKit."""

from __future__ import annotations

import pytest

from liverl.agents.harbor.compose_words import (
    BUILD_ERROR,
    LONGEST,
    START_ERROR,
    compose_failure,
    named,
    sandbox_words,
)
from liverl.observe.trials.records import parse_result
from liverl.verl_runtime.kinds.harbor import failure
from liverl.verl_runtime.kinds.harbor_runner import Ended

# seen
OLD_STEP = """#5 [main 2/2] RUN pip install foo
#5 0.275 /bin/sh: 1: pip: not found
#5 ERROR: executor failed running [/bin/sh -c pip install foo]: exit code: 127
------
 > [main 2/2] RUN pip install foo:
0.275 /bin/sh: 1: pip: not found
------
failed to solve: executor failed running [/bin/sh -c pip install foo]: exit code: 127
"""
NEW_STEP = """#6 [2/3] RUN pip install nosuch
#6 1.901 ERROR: No matching distribution found for nosuch
#6 ERROR: process "/bin/sh -c pip install nosuch" did not complete successfully: exit code: 1
------
 > [2/3] RUN pip install nosuch:
1.900 ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)
1.901 ERROR: No matching distribution found for nosuch
1.950
1.950 [notice] A new release of pip is available: 24.0 -> 26.1
------
Dockerfile:2

--------------------

   1 |     FROM python:3.12

   2 | >>> RUN pip install nosuch

--------------------

target main: failed to solve: process "/bin/sh -c pip install nosuch" did not complete successfully: exit code: 1
"""
SILENT = """------
 > [main 2/2] RUN false:
------
failed to solve: executor failed running [/bin/sh -c false]: exit code: 1
"""
# seen
COPY = """------
 > [main 2/2] COPY nothere.txt /x:
------
failed to solve: failed to compute cache key: "/nothere.txt" not found: not found
"""
# seen
REGISTRY = """------
 > [main internal] load metadata for r.invalid/i:1:
------
failed to solve: rpc error: code = Unknown desc = failed to solve with frontend dockerfile.v0: failed to create LLB \
definition: failed to do request: Head "https://r.invalid/v2/i/manifests/1": dial tcp: lookup r.invalid: no such host
"""
# seen
SYNTAX = """failed to solve: rpc error: code = Unknown desc = failed to solve with frontend dockerfile.v0: failed to \
create LLB definition: dockerfile parse error line 2: unknown instruction: RUNN
"""
# of the builder before BuildKit
CLASSIC = """Step 2/2 : RUN make
 ---> Running in 0123456789ab
make: *** No targets specified and no makefile found.  Stop.
The command '/bin/sh -c make' returned a non-zero code: 2
"""


def of_harbor(output: str, command: str = "build", errors: str = "None") -> str:
    files = "-f /a b/base.json -f /tasks/build/up/docker-compose-build.yaml"
    return (
        "Docker compose command failed for environment hello. Command: docker compose --project-name t__env "
        f"--project-directory /tasks/build {files} {command}. Return code: 17. Stdout: {output}. Stderr: {errors}. "
    )


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (of_harbor(OLD_STEP), BUILD_ERROR, "RUN pip install foo: /bin/sh: 1: pip: not found (exit code 127)"),
        (of_harbor(NEW_STEP), BUILD_ERROR,
         "RUN pip install nosuch: ERROR: Could not find a version that satisfies the requirement nosuch (from "
         "versions: none) | ERROR: No matching distribution found for nosuch (exit code 1)"),
        (of_harbor(SILENT), BUILD_ERROR, "RUN false, which printed nothing (exit code 1)"),
        (of_harbor(COPY), BUILD_ERROR,
         'COPY nothere.txt /x: failed to compute cache key: "/nothere.txt" not found: not found'),
        (of_harbor(REGISTRY), BUILD_ERROR,
         'failed to do request: Head "https://r.invalid/v2/i/manifests/1": dial tcp: lookup r.invalid: no such host'),
        (of_harbor(SYNTAX), BUILD_ERROR, "dockerfile parse error line 2: unknown instruction: RUNN"),
        (of_harbor(CLASSIC), BUILD_ERROR,
         "RUN make: make: *** No targets specified and no makefile found. Stop. (exit code 2)"),
        (of_harbor(OLD_STEP, "up --detach --wait"), BUILD_ERROR,
         "RUN pip install foo: /bin/sh: 1: pip: not found (exit code 127)"),
        (of_harbor("", "build"), BUILD_ERROR, "docker compose build: it exited with 17 and printed nothing"),
        (of_harbor("None", "up --detach --wait --pull=never", OLD_STEP), BUILD_ERROR,
         "RUN pip install foo: /bin/sh: 1: pip: not found (exit code 127)"),
        (of_harbor(" Network t  Creating\nError response from daemon: no space left on device\n", "up --detach --wait"),
         START_ERROR, "docker compose up: Error response from daemon: no space left on device"),
    ],
)  # fmt: skip
def test_what_compose_complained_of(message: str, kind: str, words: str) -> None:
    assert compose_failure(message) == (kind, words)
    assert named("RuntimeError", message) == (kind, f"{words}\n\n{message}")
    assert sandbox_words(*named("RuntimeError", message)) == words
    failed = failure(Ended(exception=("RuntimeError", message), retry=True))
    assert (failed.kind, failed.cause) == (kind, "infrastructure") and str(failed).startswith(f"{words}; ")
    document = b'{"exception_info": {"exception_type": "RuntimeError", "exception_message": %s}}'
    result = parse_result(document % _json(message))
    assert result is not None and (result.error, result.sandbox_error) == (kind, words)
    assert result.failure.startswith(f"{kind}: {words[:40]}") and len(result.failure) <= 80


@pytest.mark.parametrize(
    "message",
    [
        "", "something else", of_harbor("x", "exec -T main bash -c build"), of_harbor("x", "down --rmi local"),
        "Docker compose command failed for environment hello", f"RuntimeError: {of_harbor(OLD_STEP)}",
        "Docker compose command failed for environment a. Command: docker compose build. Return code: x. Stdout: y",
    ],
)  # fmt: skip
def test_other_exceptions_stay_as_they_are(message: str) -> None:
    assert compose_failure(message) is None and named("RuntimeError", message) == ("RuntimeError", message)
    assert sandbox_words("RuntimeError", message) == ""
    failed = failure(Ended(exception=("RuntimeError", message)))
    assert (failed.kind, str(failed)) == ("RuntimeError", message)


def test_a_result_of_our_own_says_the_same() -> None:
    """``result.json`` is Harbor's, and ``liverl.json`` has what our trial says of it."""
    told = failure(Ended(exception=("RuntimeError", of_harbor(OLD_STEP)), retry=True))
    info = {"exception_type": told.kind, "exception_message": str(told)}
    facts = {"result": {"ending": {"cause": "infrastructure"}, "exception_info": info}}
    harbors = b'{"exception_info": {"exception_type": "RuntimeError", "exception_message": "x"}}'
    result = parse_result(harbors, facts)
    words = "RUN pip install foo: /bin/sh: 1: pip: not found (exit code 127)"
    assert str(told).startswith(words) and "exception.txt" in str(told)
    assert result is not None and (result.error, result.sandbox_error) == (BUILD_ERROR, words)


def test_hostile_output_is_cut_and_read_in_a_moment() -> None:
    step = f" > [main 2/2] RUN {'x' * 5000}:"
    long = (
        f"------\n > [main 2/2] RUN make:\n{'1.0 error ' * 100_000}\n------\nfailed to solve: ]: exit code: 1"
    )
    for output in (long, f"------\n{step}\n------\nfailed to solve: {'y' * 9000}", "------\n" * 100_000,
                   "\x00" * 10_000, " > [" * 100_000, "failed to solve: " * 50_000):  # fmt: skip
        found = compose_failure(of_harbor(output))
        assert found is not None and len(found.words) <= LONGEST and "\n" not in found.words


def _json(text: str) -> bytes:
    import msgspec

    return msgspec.json.encode(text)
