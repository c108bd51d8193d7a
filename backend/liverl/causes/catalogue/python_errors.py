"""Signatures of errors of Python that any program may raise."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="remote-reward-no-json",
        component="python",
        role="general",
        where="exception",
        pattern=(r"JSONDecodeError: (?P<why>(?:Expecting|Extra data|Unterminated|Invalid)[^\n]{1,120})"),
        needle="JSONDecodeError: ",
        title="A text that should be JSON is none: {why}",
        cause=(
            "A program read JSON and found something else: a server (reward, tool, hub) that answered with "
            "an error page or nothing, or a file that is empty or cut."
        ),
        fix=("Look at the frame for whose text it is: ask that server by hand (curl), or look at that file."),
        effect=True,
        source="CPython Lib/json/decoder.py",
        fires="requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        spares="JSONDecodeError is handled by asking again",
    ),
    *family(
        Signature(
            id="unpicklable",
            component="python",
            role="general",
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
            effect=True,
            source="CPython Lib/pickle.py",
            fires=(
                "_pickle.PicklingError: Can't pickle <function score at 0x7f>: it's not the same object as "
                "custom_module.score"
            ),
            spares="INFO can pickle <function score>",
        ),
        Text(
            id="unpicklable-lock",
            pattern=r"Error: cannot pickle '(?P<what>[^\n]{1,200})",
            needle="Error: cannot pickle '",
            fires="TypeError: cannot pickle '_thread.lock' object",
            spares="INFO cannot be wrong: pickle",
        ),
        Text(
            id="unpicklable-local",
            pattern=r"Error: Can't get local object '(?P<what>[^\n]{1,200})",
            needle="Error: Can't get local object '",
            fires="AttributeError: Can't get local object 'main.<locals>.score'",
            spares="INFO get local object 'main'",
        ),
    ),
    Signature(
        id="attribute-missing",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^AttributeError: (?!'\w{1,60}Config')(?P<owner>'[^'\n]{1,120}' object) "
            r"has no attribute '(?P<name>[^'\n]{1,120})'"
        ),
        needle=" has no attribute '",
        title="{owner} has no attribute {name}",
        cause=(
            "A program uses {name} of {owner}, which does not have it: two packages do not fit together, or "
            "the value is of another kind than meant."
        ),
        fix=(
            "Look at the frame: if it lies in a package, install versions that belong together "
            "(environments.verl.requirements); if in code of yours, correct it there."
        ),
        effect=True,
        source="CPython",
        fires="AttributeError: 'dict' object has no attribute 'to'",
        spares="AttributeError: Reward function 'compute_score' not found in module",
    ),
    Signature(
        id="file-missing",
        component="python",
        role="general",
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
        effect=True,
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
        role="general",
        where="exception",
        pattern=r"^NameError: name '(?P<name>\w{1,120})' is not defined",
        needle="NameError: name '",
        title="A program uses the name {name}, which is not defined",
        cause=("It is a mistake in the code at that frame, or an optional import that failed before."),
        fix=(
            "Correct the code at that frame; if it lies in a package, look for an import that failed, or use "
            "another version."
        ),
        effect=True,
        source="CPython",
        fires="NameError: name 'compute_score' is not defined",
        spares="INFO name 'compute_score' is defined",
    ),
    Signature(
        id="name-unassigned",
        component="python",
        role="general",
        where="exception",
        pattern=r"^UnboundLocalError: (?:cannot access )?local variable '(?P<name>\w{1,120})'",
        needle="UnboundLocalError: ",
        title="A program uses the variable {name} before it has a value",
        cause=(
            "A branch that sets it was not taken: a mistake in the code at that frame, or an error that was "
            "passed over before."
        ),
        fix="Correct the code at that frame; if it lies in a package, use another version.",
        effect=True,
        source="CPython",
        fires="UnboundLocalError: local variable 'loss' referenced before assignment",
        spares="INFO local variable 'loss' has a value",
    ),
    Signature(
        id="server-refused",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"HTTPS?ConnectionPool\(host='(?P<host>[^'\n]{1,120})', port=(?P<port>\d{1,5})\): Max retries "
            r"exceeded with url: (?P<url>\S{1,200}) \(Caused by [^\n]{1,200}?Connection refused"
        ),
        needle="Max retries exceeded with url: ",
        title="Nothing answers at {host}:{port}",
        cause=(
            "A program asks {host}:{port}{url}, and no server listens there: a reward, retrieval or tool "
            "server that was not started, has ended, or runs on another host or port."
        ),
        fix=("Start that server first and look into its log, or correct the address in the program."),
        command="curl -sS http://{host}:{port}/",
        effect=True,
        source="urllib3 and requests",
        fires=(
            "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=8000): Max "
            "retries exceeded with url: /retrieve (Caused by "
            "NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a "
            "new connection: [Errno 111] Connection refused'))"
        ),
        spares=(
            "HTTPConnectionPool(host='127.0.0.1', port=8000): Max retries exceeded with url: /retrieve "
            '(Caused by ReadTimeoutError("Read timed out."))'
        ),
    ),
    Signature(
        id="server-no-answer",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"HTTPS?ConnectionPool\(host='(?P<host>[^'\n]{1,120})', port=(?P<port>\d{1,5})\): Read timed "
            r"out\. \(read timeout=(?P<seconds>[\d.]{1,12})\)"
        ),
        needle="Read timed out. (read timeout=",
        title="{host}:{port} gave no answer within {seconds} s",
        cause=(
            "A program waited {seconds} s for an answer of {host}:{port}: that server is overloaded, hangs, "
            "or needs longer."
        ),
        fix=("Look into that server's log, send it fewer requests at a time, or give the client more time."),
        command="curl -sS http://{host}:{port}/",
        effect=True,
        source="urllib3 and requests",
        fires=(
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=8000): Read timed "
            "out. (read timeout=30)"
        ),
        spares="INFO HTTPConnectionPool: Read timed out. (read timeout=30), asking again",
    ),
    Signature(
        id="file-missing-named",
        component="python",
        role="general",
        where="exception",
        pattern=(r"^FileNotFoundError: (?!\[Errno 2\]|Unable to find '|No such file)(?P<why>[^\n]{1,200})"),
        needle="FileNotFoundError: ",
        title="A file or folder that a program wants does not exist",
        cause="It says: {why}.",
        fix=(
            "Correct the path, or make it available on the host that runs the program (all nodes for "
            "workers)."
        ),
        effect=True,
        source="CPython, as libraries raise it",
        fires="FileNotFoundError: Directory /mnt/data/tokenized not found",
        spares="FileNotFoundError: Unable to find '/data/train.parquet'",
    ),
    Signature(
        id="argument-missing",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?P<function>(?!BackendCompilerFailed)[\w.<>]{1,160})\(\) missing (?P<count>\d{1,3}) "
            r"required (?:positional|keyword-only) arguments?: (?P<names>[^\n]{1,160})"
        ),
        needle="() missing ",
        title="{function}() was called without {names}",
        cause=(
            "The caller does not give {names}: it was written for another version of {function}, or a "
            "function of yours has a parameter that the caller does not know."
        ),
        fix=(
            "Give those parameters defaults in your function, or install versions that belong together "
            "(environments.verl.requirements)."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: compute_score() missing 1 required positional argument: 'tokenizer'",
        spares="TypeError: f() got an unexpected keyword argument 'x'",
    ),
    Signature(
        id="arguments-too-many",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?P<function>[\w.<>]{1,160})\(\) takes (?P<wanted>[\w ]{1,40}) positional "
            r"arguments? but (?P<given>\d{1,3}) (?:was|were) given"
        ),
        needle="() takes ",
        title="{function}() takes {wanted} arguments, and {given} were given",
        cause=(
            "The caller was written for another version of {function}, or for another interface than your "
            "function has."
        ),
        fix=(
            "Install versions that belong together (environments.verl.requirements), or give your function "
            "the parameters that the caller passes."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: compute_score() takes 2 positional arguments but 4 were given",
        spares="INFO compute_score() takes 4 positional arguments",
    ),
    Signature(
        id="none-used",
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: 'NoneType' object is not (?P<what>\w{1,40})",
        needle="TypeError: 'NoneType' object is not ",
        title="A program uses a value that is missing (None)",
        cause=(
            "Something that should hold a value is None: an option that is not set, a field of the data that "
            "is empty, or a call that found nothing."
        ),
        fix="Look at the frame for which value it is, and set or check it.",
        effect=True,
        source="CPython",
        fires="TypeError: 'NoneType' object is not subscriptable",
        spares="TypeError: 'int' object is not subscriptable",
    ),
    Signature(
        id="import-failed",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^ImportError: (?!cannot import name|[^\n]{0,300}(?:undefined symbol|cannot open shared "
            r"object|GLIBC))(?P<why>[^\n]{1,200})"
        ),
        needle="ImportError: ",
        title="A package could not be imported",
        cause="Python says: {why}.",
        fix="Install or update what it names in the environment of that program (environments).",
        effect=True,
        source="CPython",
        fires="ImportError: The reward module cannot be loaded",
        spares="ImportError: /opt/x.so: undefined symbol: _ZN3c10",
    ),
    Signature(
        id="unicode-decode",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^UnicodeDecodeError: '(?P<codec>[\w-]{1,40})' codec can't decode byte (?P<byte>\w{1,8}) in "
            r"position (?P<place>\d{1,15})"
        ),
        needle="UnicodeDecodeError: '",
        title="A file is not text in {codec} (byte {byte} at {place})",
        cause=(
            "A program reads a file as text, and it is binary, compressed, or in another encoding (LANG=C "
            "makes Python assume ASCII)."
        ),
        fix=(
            "Check that it is the right file and not cut; export PYTHONUTF8=1 if the host's locale is not "
            "UTF-8."
        ),
        command="file -i FILE; locale",
        effect=True,
        source="CPython",
        fires=("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte"),
        spares="UnicodeDecodeError: 'utf-8' is handled",
    ),
    Signature(
        id="file-kind",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^(?P<kind>NotADirectory|IsADirectory|FileExists)Error: \[Errno \d{1,3}\] (?P<why>[\w ]{1,60}): "
            r"'(?P<path>[^'\n]{1,400})'"
        ),
        needle="Error: [Errno ",
        title="A path is not what a program expects: {why}",
        cause="A program opens or creates {path}: {why}.",
        fix="Correct the path, or remove what stands in its place if it is not needed.",
        command="ls -ld '{path}'",
        effect=True,
        source="errno, as Python prints it",
        fires="NotADirectoryError: [Errno 20] Not a directory: '/data/gsm8k/train.parquet'",
        spares="OSError: [Errno 28] No space left on device: '/data'",
    ),
    Signature(
        id="arguments-none",
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: (?P<function>[\w.<>]{1,160})\(\) takes no arguments",
        needle="() takes no arguments",
        title="{function}() takes no arguments, and some were given",
        cause=(
            "{function} is an empty stand-in or of another version: the package that should define it is "
            "missing or did not load."
        ),
        fix=(
            "Install the package that brings {function} in the version that the caller wants (environments), "
            "and look for a failed import above."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: TransformerConfig() takes no arguments",
        spares="TypeError: f() takes 2 positional arguments but 4 were given",
    ),
)
