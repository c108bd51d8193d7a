"""Tells which lines belong to the record above them, although they are not indented. Pure."""

from __future__ import annotations

from functools import lru_cache

from liverl.util.late_pattern import late_pattern

# Behind the last line of a traceback: messages of several lines, as the libraries write them
_OF_EXCEPTION = late_pattern(
    # YAML
    r"expected |but (?:found|got) |found |could not find |mapping values are|while (?:parsing|scanning) |in \""
    # CUDA, torch and NCCL
    r"|Original Traceback \(most recent call|CUDA kernel errors |For debugging consider |Compile with "
    r"|Device-side assert|Search for `|nccl\w+Error: "
    r"|Last error:|Error while |Exception raised from |frame #\d|C\+\+ (?:Traceback|CapturedTraceback)"
    # Ray
    r"|The actor is dead because |The actor died |Memory on the node |Refer to the documentation |Top \d+ memory users"
    r"|PID\s+MEM|\d+\s+[\d.]+\s|<other process>|Ray: |Python: |This process on |The node "
    r"|The worker |Object |Ray killed "
    # pydantic, transformers and the model hub
    r"|Cannot access gated repo|Access to model |Repo model |(?:Repository|Entry|Revision) Not Found for url"
    r"|If you are trying |Invalid username or |Make sure |Please make sure |Checkout |\d{3} Client Error"
    r"|You can update |You should |Value error, |For further information "
    # LiteLLM
    r"|Deployment Info: |timeout: |LiteLLM: |LiteLLM Retried: |Received Model Group|Available Model Group|Requester IP "
    # compilers
    r"|ninja: |FAILED: |\[\d{1,4}/\d{1,4}\] |/bin/sh: |[\w./+-]{1,200}\(\d{1,7}\): (?:fatal )?error"
    r"|ptxas |nvcc |Repro command: |Command: |stderr:|stdout:|/tmp/\S+:\d+"
    r"|[\w./-]{1,200}:\d+(?::\d+)?: (?:fatal )?error: "
    # Hydra and OmegaConf
    r"|full_key: |object_type=|reference_type="
)
# pydantic names each field that it refuses in a line of its own.
_FIELDS_FOLLOW = late_pattern(
    r"\d{1,3} validation errors? for \w{1,100}$|^\s{2,8}For further information visit "
)
_FIELD = late_pattern(r"(?:\d{1,4}\.)?[A-Za-z_][\w.\[\]-]{0,120}")
_OF_HYDRA = late_pattern(
    r"To append to |Or add |Key '|Value '|In '|Did you mean |Available options|Could not |See https://hydra"
)
_HYDRA = late_pattern(
    r"Could not override |Error merging override|mismatched input '|no viable alternative|extraneous input '|In '|Key '"
    r"|Multiple values for |Could not append |Could not load |Error in call to target|Missing mandatory value|You must "
)
_OF_RAYLET = late_pattern(
    r"Considered workers|Selected to kill|\((?:Task: |Actor\()|\]$|Total non-selected |To see more information "
    r"|Top \d+ "
    r"|PID\s+MEM|\d+\s+[\d.]+\s|<other process>|Refer to the documentation|\.\.\. "
)
_INTRODUCES = late_pattern(
    r"Process \S+:$|Exception in thread |Exception ignored |.*(?:[Ee]xception|[Ee]rror|failed|failure)[^\n]{0,200}$"
)
# Tools that begin each line of a message with the same word
_EACH_LINE = late_pattern(r"npm (?:ERR!|error)(?: |$)|E: |fatal: ")
# Behind the fields of a message that Ray's core prints over several lines
_OF_RAY_CORE = late_pattern(r"\}$|error_(?:message|type): ")
_RAY_CORE = ", error info "
RAY_TASK = "ray.exceptions.RayTaskError("  # its traceback in the worker follows, with its own last line
_OVERRIDES = "Error executing job with overrides"
_MOST_KNOWN, _SHORT = 1 << 9, 4096  # answers that are remembered, and characters of what each is about


def continues_exception(text: str, previous: str) -> bool:
    """Whether an unindented line behind the end of a traceback, or a line below ``previous``, is of its message."""
    return (
        previous.endswith((":", ","))
        or previous.startswith(RAY_TASK)
        or names_field(text, previous)
        or _OF_EXCEPTION.match(text) is not None
    )


def continues_message(text: str, first: str, previous: str) -> bool:
    """Whether an unindented line is of the message that begins with ``first``."""
    short = len(text) + len(first) + len(previous) <= _SHORT
    return (_continues if short else _continues.__wrapped__)(text, first, previous)


@lru_cache(maxsize=_MOST_KNOWN)  # a program that starts again and again repeats its messages
def _continues(text: str, first: str, previous: str) -> bool:
    each = _EACH_LINE.match(text)
    if each is not None and (
        first.startswith(each[0].rstrip()) or (each[0] == "fatal: " and first.startswith("error: "))
    ):
        return True
    if _RAY_CORE in first and _OF_RAY_CORE.match(text):
        return True
    if _HYDRA.match(first):
        return _OF_HYDRA.match(text) is not None
    return (
        names_field(text, previous)
        or continues_exception(text, "")
        or (previous.endswith(":") and len(previous) < 200)
    )


def names_field(text: str, previous: str) -> bool:
    """Whether a line is the name of a field that pydantic refuses: "0.type", "messages"."""
    may = "validation error" in previous or "For further information visit " in previous
    return may and _FIELDS_FOLLOW.search(previous) is not None and _FIELD.fullmatch(text.rstrip()) is not None


def continues_raylet(text: str) -> bool:
    """Whether a line without a prefix is of a report about memory that the raylet wrote above it."""
    return _OF_RAYLET.match(text) is not None


def introduces_traceback(text: str) -> bool:
    """Whether a traceback below a line of the same process is of the same record."""
    return not text.startswith(_OVERRIDES) and _INTRODUCES.match(text) is not None
