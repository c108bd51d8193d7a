"""Signatures of errors of Python about values of another type than a program expects."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="none-computed",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: unsupported operand type\(s\) for (?P<operator>\S{1,12}): (?:'NoneType' and "
            r"'\w{1,60}'|'\w{1,60}' and 'NoneType')"
        ),
        needle="TypeError: unsupported operand type(s) for ",
        title="A value that is missing (None) is computed with ({operator})",
        cause=(
            "One of the two values is None: an option that is not set, or a function (a reward, a "
            "tool) that returned nothing."
        ),
        fix="Look at the line for which value it is, and set it or return a number.",
        effect=True,
        source="CPython",
        fires="TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'",
        spares="TypeError: unsupported operand type(s) for +: 'int' and 'str'",
    ),
    Signature(
        id="operand-types",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: unsupported operand type\(s\) for (?P<operator>\S{1,12}): "
            r"'(?P<left>\w{1,60})' and '(?P<right>\w{1,60})'"
        ),
        needle="TypeError: unsupported operand type(s) for ",
        title="A program computes {left} {operator} {right}, which is not defined",
        cause=("One of the two values has another type than the program expects ({left} and {right})."),
        fix=(
            "Look at the line for which value it is and convert it; a reward that returns a dict, "
            "where a number is wanted, must name the key of its score."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: unsupported operand type(s) for +: 'int' and 'dict'",
        spares="INFO unsupported operand type(s) for +: none",
    ),
    Signature(
        id="none-compared",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: '(?P<operator>[<>=]{1,2})' not supported between instances of (?:'NoneType' "
            r"and '\w{1,60}'|'\w{1,60}' and 'NoneType')"
        ),
        needle="' not supported between instances of '",
        title="A value that is missing (None) is compared ({operator})",
        cause=(
            "One of the two values is None: most often an option that the program needs and that is not set."
        ),
        fix="Set the option that the line of code names.",
        effect=True,
        source="CPython",
        fires="TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        spares="TypeError: '>' not supported between instances of 'str' and 'int'",
    ),
    Signature(
        id="compared-types",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: '(?P<operator>[<>=]{1,2})' not supported between instances of "
            r"'(?P<left>\w{1,60})' and '(?P<right>\w{1,60})'"
        ),
        needle="' not supported between instances of '",
        title="A program compares {left} with {right} ({operator})",
        cause=(
            "One of the two values has another type than the program expects, for example a number "
            "that is written as text in a configuration or in the data."
        ),
        fix=("Look at the line for which value it is; write numbers without quotes, or convert the column."),
        effect=True,
        source="CPython",
        fires="TypeError: '<' not supported between instances of 'str' and 'int'",
        spares="INFO '<' is not supported between instances of 'str' here",
    ),
    Signature(
        id="concatenated-types",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: can only concatenate (?P<left>\w{1,40}) \(not \"(?P<right>\w{1,60})\"\) to "
            r"\w{1,40}"
        ),
        needle="TypeError: can only concatenate ",
        title="A program adds {right} to {left}",
        cause=(
            "One of the two is not what the program expects: a prompt that is a list of messages "
            "where a text is wanted (no chat template was applied), or a number where a text is."
        ),
        fix=(
            "Look at the line for which value it is; for prompts switch on that the chat template "
            "is applied, or read the other column."
        ),
        effect=True,
        source="CPython",
        fires='TypeError: can only concatenate list (not "str") to list',
        spares="INFO can only concatenate lists",
    ),
    Signature(
        id="index-kind",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?P<what>string|list|tuple|byte|dict)[\w ]{0,20} indices must be "
            r"integers(?: or slices)?(?:, not (?P<given>'?[\w.]{1,60}'?))?"
        ),
        needle=" indices must be integers",
        title="A {what} is used as a table with names, or with a wrong index",
        cause=(
            "The program expects a dict or another kind of value there. In data, a column that "
            "should hold a dict often holds JSON text."
        ),
        fix=(
            "Look at the line for which value it is; for data write the column as a dict "
            "(json.loads), for replies of a server look for an error message in its place."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: string indices must be integers, not 'str'",
        spares="INFO string indices must be integers",
    ),
    Signature(
        id="not-callable",
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: '(?P<type>\w{1,60})' object is not callable",
        needle="' object is not callable",
        title="A value of type {type} is called like a function",
        cause=(
            "The program expects a function there: a name was overwritten, an option names "
            "something else, or the function that should be loaded is missing."
        ),
        fix=(
            "Look at the line for its name; for functions given by a path check that the name is "
            "that of a function."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: 'str' object is not callable",
        spares="INFO object is not callable here",
    ),
    Signature(
        id="not-table",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: '(?P<type>(?!NoneType)\w{1,60})' object (?:is not "
            r"(?P<what>subscriptable|iterable|an iterator|a mapping)|does not support item assignment)"
        ),
        needle="' object ",
        title="A value of type {type} is used as a list or table",
        cause=(
            "The program expects a list, dict or tensor there and has a {type}: a function "
            "returned something else, or the data has another form."
        ),
        fix=(
            "Look at the line for which value it is, and return or store what the caller wants; "
            "within a package compare the versions."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: 'float' object is not subscriptable",
        spares="TypeError: 'NoneType' object is not subscriptable",
    ),
    Signature(
        id="none-length",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?:object|argument) of type 'NoneType' (?:has no len\(\)|is not "
            r"(?:iterable|a container))"
        ),
        needle=" of type 'NoneType' ",
        title="A program uses a value that is missing (None) as a list or text",
        cause=(
            "Something that should hold a list or text is None: an option that is not set, an "
            "empty field of the data, or a reply without content (a tool call has none)."
        ),
        fix="Look at the line for which value it is, and set it or handle the empty case.",
        effect=True,
        source="CPython",
        fires="TypeError: object of type 'NoneType' has no len()",
        spares="TypeError: object of type 'int' has no len()",
    ),
    Signature(
        id="no-length",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?:object of type '(?P<type>(?!NoneType)[\w.]{1,60})' has no "
            r"len\(\)|argument of type '(?!NoneType)[\w.]{1,60}' is not iterable)"
        ),
        needle="TypeError: ",
        title="A single value is used as a list or text",
        cause=(
            "The program expects a list or text there and has one value: a function returned "
            "something else, or the data has another form."
        ),
        fix="Look at the line for which value it is, and return or store a list or text.",
        effect=True,
        source="CPython",
        fires="TypeError: object of type 'int' has no len()",
        spares="TypeError: object of type 'NoneType' has no len()",
    ),
    Signature(
        id="unhashable",
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: unhashable type: '(?P<type>[\w.]{1,60})'",
        needle="TypeError: unhashable type: '",
        title="A {type} is used as a key",
        cause=(
            "Keys of dicts and members of sets must not change, and a {type} can: the data or an "
            "option holds a {type} where a text or number is expected."
        ),
        fix="Look at the line for which value it is, and store a text, number or tuple.",
        effect=True,
        source="CPython",
        fires="TypeError: unhashable type: 'list'",
        spares="INFO unhashable types are skipped",
    ),
    Signature(
        id="text-expected",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?:sequence item \d{1,9}: expected str instance, (?P<has>\w{1,60}) "
            r"found|expected string or bytes-like object(?:, got '\w{1,60}')?|the JSON object must be "
            r"str, bytes or bytearray, not (?P<json>\w{1,60})|TextEncodeInput must be [^\n]{1,80})"
        ),
        needle="TypeError: ",
        title="A text is expected, and something else was given",
        cause=(
            "The program expects a text there: a field of the data, an answer or a message is "
            "None, a number, a list or a dict."
        ),
        fix=(
            "Look at the line for which value it is; convert it (str, json.dumps, the text of a "
            "message) or leave such samples out."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: sequence item 0: expected str instance, NoneType found",
        spares="TypeError: expected a string, found a list",
    ),
)
