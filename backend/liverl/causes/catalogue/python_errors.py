"""Signatures of errors of Python that any program may raise."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="remote-reward-no-json",
        component="python",
        role="cause",
        where="exception",
        pattern=(r"JSONDecodeError: (?P<why>(?:Expecting|Extra data|Unterminated|Invalid)[^\n]{1,120})"),
        needle="JSONDecodeError: ",
        title="A text that should be JSON is none: {why}",
        cause=(
            "A program read JSON and found something else: a server (reward, tool, hub) that answered with "
            "an error page or nothing, or a file that is empty or cut."
        ),
        fix=("Look at the frame for whose text it is: ask that server by hand (curl), or look at that file."),
        source="CPython Lib/json/decoder.py",
        fires="requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        spares="JSONDecodeError is handled by asking again",
    ),
    Signature(
        id="unpicklable",
        component="python",
        role="cause",
        pattern=r"Error: Can't pickle (?P<what>[^\n]{1,200})",
        needle="Error: Can't pickle ",
        title="An object cannot be sent to another process (pickle)",
        cause=(
            "It is {what}. It was defined in a file that is loaded under another name, inside a function, or "
            "holds a lock, socket or file."
        ),
        fix=(
            "Define the function at the top level of a module that the other process can import (for a "
            "reward: use a reward manager that does not send it, naive or dapo), or create the object there."
        ),
        source="CPython Lib/pickle.py",
        fires=(
            "_pickle.PicklingError: Can't pickle <function score at 0x7f>: it's not the same object as "
            "custom_module.score"
        ),
        spares="INFO can pickle <function score>",
    ),
    Signature(
        id="unpicklable-lock",
        component="python",
        role="cause",
        pattern=r"Error: cannot pickle '(?P<what>[^\n]{1,200})",
        needle="Error: cannot pickle '",
        title="An object cannot be sent to another process (pickle)",
        cause=(
            "It is {what}. It was defined in a file that is loaded under another name, inside a function, or "
            "holds a lock, socket or file."
        ),
        fix=(
            "Define the function at the top level of a module that the other process can import (for a "
            "reward: use a reward manager that does not send it, naive or dapo), or create the object there."
        ),
        source="CPython Lib/pickle.py",
        fires="TypeError: cannot pickle '_thread.lock' object",
        spares="INFO cannot be wrong: pickle",
    ),
    Signature(
        id="unpicklable-local",
        component="python",
        role="cause",
        pattern=r"Error: Can't get local object '(?P<what>[^\n]{1,200})",
        needle="Error: Can't get local object '",
        title="An object cannot be sent to another process (pickle)",
        cause=(
            "It is {what}. It was defined in a file that is loaded under another name, inside a function, or "
            "holds a lock, socket or file."
        ),
        fix=(
            "Define the function at the top level of a module that the other process can import (for a "
            "reward: use a reward manager that does not send it, naive or dapo), or create the object there."
        ),
        source="CPython Lib/pickle.py",
        fires="AttributeError: Can't get local object 'main.<locals>.score'",
        spares="INFO get local object 'main'",
    ),
    Signature(
        id="attribute-missing",
        component="python",
        role="cause",
        where="exception",
        pattern=(
            r"^AttributeError: (?!'\w{1,60}Config')(?:module )?"
            r"(?P<owner>'[^'\n]{1,120}'(?: object)?|type object '[^'\n]{1,120}') "
            r"has no attribute '(?P<name>[^'\n]{1,120})'"
        ),
        needle=" has no attribute '",
        title="{owner} has no attribute {name}",
        cause=(
            "A program uses {name} of {owner}, which does not have it: two packages do not fit together, or "
            "a value is missing (NoneType) or of another kind than meant."
        ),
        fix=(
            "Look at the frame: if it lies in a package, install versions that belong together "
            "(environments.verl.requirements); if in code of yours, correct it there."
        ),
        source="CPython",
        fires="AttributeError: 'NoneType' object has no attribute 'keys'",
        spares="AttributeError: Reward function 'compute_score' not found in module",
    ),
    Signature(
        id="file-missing",
        component="python",
        role="cause",
        where="exception",
        pattern=(
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: "
            r"'(?![^'\n]{0,300}(?:model_world_size_|nvcc'|\.safetensors'|\.bin'))(?P<path>[^'\n]{1,400})'"
        ),
        needle="FileNotFoundError: [Errno 2] No such file or directory: '",
        title="The file {path} does not exist",
        cause="A program opens {path}, which is not there on the host that it runs on.",
        fix=(
            "Correct the path, or make it available on all nodes; relative paths start at the directory of "
            "that process."
        ),
        command="ls -l '{path}'",
        source="errno 2 ENOENT, as Python prints it",
        fires=("FileNotFoundError: [Errno 2] No such file or directory: '/data/countdown/train.json'"),
        spares=(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/ckpt/actor/model_world_size_8_rank_0.pt'"
        ),
    ),
    Signature(
        id="name-undefined",
        component="python",
        role="cause",
        where="exception",
        pattern=r"^NameError: name '(?P<name>\w{1,120})' is not defined",
        needle="NameError: name '",
        title="A program uses the name {name}, which is not defined",
        cause=("It is a mistake in the code at that frame, or an optional import that failed before."),
        fix=(
            "Correct the code at that frame; if it lies in a package, look for an import that failed, or use "
            "another version."
        ),
        source="CPython",
        fires="NameError: name 'compute_score' is not defined",
        spares="INFO name 'compute_score' is defined",
    ),
    Signature(
        id="name-unassigned",
        component="python",
        role="cause",
        where="exception",
        pattern=r"^UnboundLocalError: (?:cannot access )?local variable '(?P<name>\w{1,120})'",
        needle="UnboundLocalError: ",
        title="A program uses the variable {name} before it has a value",
        cause=(
            "A branch that sets it was not taken: a mistake in the code at that frame, or an error that was "
            "passed over before."
        ),
        fix="Correct the code at that frame; if it lies in a package, use another version.",
        source="CPython",
        fires="UnboundLocalError: local variable 'loss' referenced before assignment",
        spares="INFO local variable 'loss' has a value",
    ),
)
