"""The pages of ``docs/reference/``, made from the code: ``python -m kit.reference`` (in ``tests/``) writes them, and so
does ``pytest tests/unit/test_reference_pages.py --update-documents``."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import inspect as types

from kit import alert_texts, event_kinds
from kit.alert_texts import UNKNOWN, Texts
from kit.command_pages import ROOT, cell, plain
from kit.key_kinds import FURTHER, KINDS, used_in
from kit.key_texts import meaning
from liverl.config import packaged_defaults
from liverl.config.changes import on_change
from liverl.config.coerce import expected, plain_type
from liverl.config.env_vars import SECRET_FILES, VARIABLES
from liverl.config.profiles import default_text
from liverl.config.schema import is_open, leaves, value_of
from liverl.diagnose.catalogue.rules import FILE_RULES, RULES
from liverl.diagnose.tracker import Rule
from liverl.exit_codes import rows
from liverl.schemas import SCHEMAS, schema_text
from liverl.schemas.config_file import comments

FOLDER = ROOT / "docs" / "reference"
MADE = "This page is made from the code"
LOGGED = (
    "- What to do: what the catalogue of [causes](../diagnosis.md) says of this line, which the alert repeats; "
    "`liverl-tui rules explain ID` shows it, with the ID between the colons of the alert's id"
)
CHOOSE = "\n| what you see | what to do |\n|---|---|"
LIVE = "; *live*"
MANY = 10  # unknown parts: a text with so many is put together from pieces, and says nothing here
IN_A_BATCH_SCRIPT = """## In a batch script

What a script does after `up --no-ui --yes --name NAME --resume-or-start`:

| code | give the same command again? | what to do first |
|---|---|---|
| 0 | no: it is done | nothing |
| 1 | once, if at all | read `liverl-tui doctor`; the same failure comes again, and nothing counts the attempts |
| 2 | no | correct the command or the file |
| 3 | no, or once on another node | correct what the check names: a port, a GPU or a disk may be another node's |
| 4 | no | the run is live on another host: a second job has the same name, or the first has not ended. After a \
kill there the command waits up to three minutes and resumes, without 4 |
| 5 | yes, but not after a stop that you asked for | nothing: it goes on from the newest checkpoint, unless it \
ended early by itself (below) |
| 75 | in a new job | end what the message names: while such processes live, the next attempt is refused |
| 128+n | once, if at all | read `liverl-tui doctor`: 137 (SIGKILL) is often the end of the memory |

A run that ended early by itself, since its data was used up, ends with 5, too, and its `summary` says so: its next
attempt makes no step, and the one after that is refused with 1. Nothing bounds how often a run that has failed is
resumed. A script that repeats the
command after 1 may loop for ever over the same failure: count there, or repeat it after 5 only, as the script of
`liverl-tui launcher slurm` does.
"""
ALIKE = 0.55  # of the words of two titles, from where on they say the same
FIXES = 13  # of one alert that are shown: as many as there are statuses of HTTP with a fix of their own


def makers() -> dict[Path, Callable[[], str]]:
    """Every page, with what makes its text."""
    pages = {
        "index": index,
        "configuration": configuration,
        "alerts": alerts,
        "events": events,
        "exit-codes": exit_codes,
        "json": json_page,
    }
    return {FOLDER / f"{name}.md": make for name, make in pages.items()}


def generated() -> dict[Path, str]:
    """Every page, with its text."""
    return {path: make() for path, make in makers().items()}


def index() -> str:
    """What there is to look up, and where."""
    return f"""# Reference

{MADE}, like those that it lists.

| page | what it lists |
|---|---|
| [Commands](../commands.md) | every command and option |
| [Configuration keys](configuration.md) | every key: default, unit, used when, what a change means |
| [Alerts](alerts.md) | what a run can complain of, from when on, and what to do |
| [Events](events.md) | the kinds of lines of `events.jsonl` |
| [Exit codes](exit-codes.md) | what a command ends with |
| [JSON](json.md) | the fields of what scripts read, and the schemas |
| [What sessions support](../sessions-api.md) | the fields of the two chat APIs |
| [Metrics for Prometheus](../prometheus.md) | their names and labels |

`liverl-tui rules ls WORD` lists the lines of logs that are explained, and `liverl-tui rules explain ID` shows one.
"""


def _joined(parts: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


# -- keys of the configuration


def configuration() -> str:
    """Every key, by its section."""
    meanings, defaults = comments(default_text()), packaged_defaults()
    variables: dict[str, list[str]] = {}
    for name, key in (*VARIABLES, *SECRET_FILES):
        variables.setdefault(key, []).append(name)
    parts = [
        f"# Configuration keys\n\n{MADE}. Times are in seconds, lengths in tokens, sizes in bytes unless it is "
        "stated "
        "otherwise, and shares are 0..1. [Configuration](../configuration.md) says how files, profiles, "
        "variables and "
        "`--set` go together, and [what a change means](../configuration.md#change-an-existing-run).\n\n*Used "
        "in* names the "
        "kinds of runs in which a key has an effect, with everything else at its default; `liverl-tui plan` says "
        "it of "
        "yours. The kinds:\n",
        "| kind of run | what it is |\n|---|---|",
        "\n".join(f"| {name} | {kind.words} |" for name, kind in (KINDS | FURTHER).items()) + "\n",
    ]
    section = ""
    for key, kind in leaves().items():
        if key.partition(".")[0] != section:
            section = key.partition(".")[0]
            parts.append(f"\n## {section}\n")
            if above := meanings.get((section,)):
                parts.append(linked(meaning(above)) + "\n")
        path = tuple(key.split("."))
        names = variables.get(key, [])
        comment = meanings.get(path, "") or _of_section(meanings, path)
        said = linked(meaning(comment, names, choices(kind)))
        facts = [f"- Default: {_value(value_of(defaults, key))}, {_kind(kind)}."]
        facts.append(f"- Used in: {used_in(key)}.")
        facts.append(f"- A change: {on_change(key).words}.")
        if names:
            facts.append(f"- Also set by: {', '.join(f'`{name}`' for name in names)}.")
        # Two lists below each other would be one: a line between them says where the facts begin.
        between = (
            ["<!-- facts -->\n"] if said.splitlines()[-1:] and said.splitlines()[-1].startswith("- ") else []
        )
        parts.append("\n".join([f"\n### {key}\n", *([said + "\n"] if said else []), *between, *facts]) + "\n")
    return _joined(parts)


def linked(text: str) -> str:
    """``text`` with a link in place of each page that it names: ``docs/own-run.md``, or ``docs/own-run.md, "Rows"``."""

    def link(match: re.Match[str]) -> str:
        title = (ROOT / match["page"]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
        words, anchor = match["part"], ""
        if words:
            anchor = "#" + re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-")
        return f"[{words or title}](../{match['page'].removeprefix('docs/')}{anchor})"

    return re.sub(r'(?P<page>docs/[\w-]+\.md)(?:, "(?P<part>[^"]+)")?', link, text)


def choices(kind: Any) -> list[str]:
    """The words that a key can have, or that its list can hold; empty where there is no such list of them."""
    kind = plain_type(kind)
    if isinstance(kind, types.UnionType):
        return [word for member in kind.types for word in choices(member)]
    if isinstance(kind, types.VarTupleType):
        return choices(kind.item_type)
    return [str(value) for value in kind.values] if isinstance(kind, types.LiteralType) else []


def _of_section(meanings: dict[tuple[str, ...], str], path: tuple[str, ...]) -> str:
    """What is said of the inner section that a key is in, if nothing is said of the key."""
    return meanings.get(path[:-1], "") if len(path) > 2 else ""


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text
    return "as in config.yaml" if len(text) > 200 else f"`{text}`"


def _kind(kind: Any) -> str:
    kind = plain_type(kind)
    return "a mapping with keys of your own" if is_open(kind) else expected(kind)


# -- alerts


@functools.cache
def _texts() -> tuple[Texts, ...]:
    return tuple(alert_texts.found())


def alerts() -> str:
    """Every alert, by the module of its rule."""
    parts = [
        f"# Alerts\n\n{MADE}: what each alert means, from when on it is raised, and what to do. `...`, SERVICE "
        "and PID stand for what only a run knows: numbers, a step, the service or replica that the alert is about "
        "(`liverl-tui status` lists their names). RUN is the name of a run. "
        "OTHER is a second replica, and CARRIER what the trials' requests go through: the proxy, or the sessions. "
        "*Live* marks what only the backend of a run finds; the others are also found in the files of an ended run. "
        "`!` in the interface and "
        "`liverl-tui status` show the alerts of a run with their evidence, `liverl-tui fix` what would correct one, "
        "and [Mute an alert](../diagnosis.md#mute-an-alert) says what to type to silence one. [What is found, and "
        "how](../diagnosis.md) has the limits with their reasons.\n\n"
        "Where several fixes are listed, the alert of your run shows the one that fits it. The table below such a list "
        "says how to tell the cases apart yourself: take the first row that you see.\n"
    ]
    heads = dict.fromkeys(rule.look.__module__ for rule in RULES)
    shown: dict[str, None] = {}
    for module in heads:
        own = [rule for rule in RULES if rule.look.__module__ == module]
        doc = inspect.getdoc(inspect.getmodule(own[0].look)) or ""
        name = module.rpartition(".")[2].replace("_", " ").capitalize()
        kinds = dict.fromkeys(kind for rule in own for kind in rule.ids if kind not in shown)
        shown |= kinds
        if kinds:  # else another module has the same ones
            parts.append(f"\n## {name}\n\n{_doc(doc)}\n")
        parts += [_alert(kind, [one for one in RULES if kind in one.ids]) for kind in kinds]
    parts.append(
        "\n## Only of watched runs\n\nRaised by `liverl-tui watch`, for runs that were started by other means.\n"
    )
    for text in _texts():
        if text.module.is_relative_to(alert_texts.PACKAGE / "watch") and text.kind not in ("log", "..."):
            function = getattr(import_module(f"liverl.watch.{text.module.stem}"), text.function)
            parts.append(_told(text.kind, [text], meaning_of(function), cases=cases_of(function, text.kind)))
    return _joined(parts)


def _alert(kind: str, of: list[Rule]) -> str:
    found = []
    for rule in of:
        module = Path(inspect.getfile(inspect.unwrap(rule.look)))
        here = [
            one
            for one in _texts()
            if one.module == module and fnmatchcase(kind, one.kind.replace(UNKNOWN, "*"))
        ]
        if not here:  # the texts of `responses_*`, and of an id that a constant names
            here = [one for one in _texts() if one.module == module and UNKNOWN in one.kind]
        own = [one for one in here if one.function == rule.look.__name__]
        found += own or here
    said = " ".join(_said(kind, rule) for rule in of)
    cases = [case for rule in of for case in cases_of(rule.look, kind)]
    return _told(kind, found, said, "" if any(rule in FILE_RULES for rule in of) else LIVE, cases)


def _said(kind: str, rule: Rule) -> str:
    """What an alert of a rule means: of a rule with several alerts first what is true of this one only."""
    own = rule.alerts[kind] if rule.alerts is not None else ""
    parts = [f"{own[:1].upper()}{own[1:].rstrip('.')}."] if own else []
    parts.append(meaning_of(rule.look))
    if rule.hold:
        parts.append(f"It is raised once that has lasted {rule.hold:g} s.")
    return " ".join(parts)


def meaning_of(function: Callable[..., Any]) -> str:
    """What a function that raises an alert says of it. Its parameters have a paragraph of their own; that is left out,
    and so is its list of cases."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    said = " ".join(one for one in paragraphs if not one.startswith(("``", "- ")))
    return _doc(said, vars(inspect.getmodule(function)))


def cases_of(function: Callable[..., Any], kind: str) -> list[tuple[str, str]]:
    """How to choose between the fixes of an alert: what is seen, and what to do then. A function that raises it says so
    in a list of its docstring, ``- what is seen -> what to do``; with ``KIND:`` in front for one of several alerts.

    Raises:
        ValueError: an entry has no arrow, or more than one.
    """
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    entries = [
        " ".join(entry.split())
        for one in paragraphs
        if one.startswith("- ")
        for entry in re.split(r"^- ", one, flags=re.MULTILINE)[1:]
    ]
    found = []
    for entry in entries:
        of, colon, rest = entry.partition(": ")
        if colon and re.fullmatch(r"[a-z]+(?:_[a-z]+)+", of):
            if of != kind:
                continue
            entry = rest
        seen, arrow, do = entry.partition(" -> ")
        if not arrow or " -> " in do:
            raise ValueError(f"{kind}: no case, which is `what is seen -> what to do`: {entry}")
        found.append((seen, do))
    return found


def _shortened(text: str) -> str:
    """``text`` with one ``...`` where several unknown parts follow each other."""
    return re.sub(r"\.{3}(?:[\s,;:]*\.{3})+|\.{4,}", UNKNOWN, plain(text))


def _told(
    kind: str, found: list[Texts], said: str, where: str = "", cases: Sequence[tuple[str, str]] = ()
) -> str:
    lines = [f"\n### {kind}\n"]
    if said:
        lines.append(f"{said}\n")
    levels = dict.fromkeys(level for one in found for level in one.severity if level != UNKNOWN)
    if titles := _titles(title for one in found for title in one.title if title.strip(". ") != ""):
        lines.append("- Title: " + "; or: ".join(titles))
    if levels:
        lines.append(f"- Severity: {' or '.join(levels)}{where}")
    lines += [LOGGED] if kind == "log" else fixes([fix for one in found for fix in one.fix])
    if cases:
        lines += [CHOOSE, *(f"| {_cell(seen)} | {_cell(do)} |" for seen, do in cases)]
    return "\n".join(lines) + "\n"


def _titles(texts: Iterable[str]) -> list[str]:
    """The first two titles of an alert, and those that say something else than the ones before them."""
    shown: list[str] = []
    for at, text in enumerate(dict.fromkeys(texts)):
        title = _shortened(text)
        words = title.split()
        alike = (SequenceMatcher(None, words, one.split(), autojunk=False).ratio() for one in shown)
        if title not in shown and (at < 2 or max(alike, default=0.0) < ALIKE):
            shown.append(title)
    return shown


def _cell(text: str) -> str:
    """A part of a case as a cell of a table, which begins with a capital."""
    shown = cell(_doc(text))
    return shown[:1].upper() + shown[1:]


def fixes(texts: list[str]) -> list[str]:
    """What to do: one line, or a list of what a rule chooses between. A text whose beginning only a run knows is left
    out where the rule has others.

    Raises:
        ValueError: no text says anything without the run.
    """
    told = list(dict.fromkeys(_shortened(text) for text in texts if sayings(text)))
    whole = [text for text in told if not text.startswith(UNKNOWN)]
    shown = whole or [text.lstrip(" .;,:") for text in told]
    if not shown:
        raise ValueError("an alert says nothing of what to do")
    if len(shown) == 1:
        return [f"- What to do: {shown[0]}"]
    return ["- What to do, as the case may be:", *(f"    - {text}" for text in shown[:FIXES])]


def sayings(fix: str) -> int:
    """How many words a fix has beside what only a run knows."""
    return len(re.findall(r"[A-Za-z_][\w.]{2,}", fix.replace(UNKNOWN, " ")))


def _doc(text: str, names: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A docstring as Markdown; what stands in its brackets for the readers of the code is left out. ``names``: of its
    module, whose numbers are shown in place of their names."""
    words = " ".join(text.split()).replace(" Pure.", "")
    words = re.sub(r" \((?:knowledge|recordings|docs)/[^)]*\)", "", words)
    words = re.sub(r"``([A-Z_]+)``( s\b| seconds?\b)?", lambda name: _counted(name, names), words)
    return re.sub(r"``([^`]*)``", r"`\1`", words)


def _counted(name: re.Match[str], names: Mapping[str, Any]) -> str:
    """A name of the module as its number; with its unit if the name ends in ``_S`` (seconds)."""
    number, unit = names.get(name[1]), name[2] or (" s" if name[1].endswith("_S") else "")
    return f"{number:g}{unit}" if _number(number) else name[0]


def _number(value: object) -> bool:
    return isinstance(value, int | float)


# -- events, exit codes, JSON


def events() -> str:
    """Every kind of event with a text of it."""
    lines = [
        f"| `{kind}` | {'<br>'.join(dict.fromkeys(map(_shortened, _shown(texts))))} |"
        for kind, texts in event_kinds.kinds().items()
    ]
    return (
        f"# Events\n\n{MADE}. `liverl-tui events` prints them, and `events.jsonl` of a run has one JSON object per "
        "line with the fields of [events](json.md#events). `...`, NAME and PID stand for what only a run knows. "
        "Kinds may be "
        "added; treat one that you do not know as information. [Notifications](../notifications.md) are made "
        "from them.\n\n"
        "| `kind` | text |\n|---|---|\n" + "\n".join(lines) + "\n"
    )


def _shown(texts: list[str]) -> list[str]:
    """Up to three texts that say something, the longest words first. What has a name may be anything here."""
    said = [
        text.replace("SERVICE", "NAME")
        for text in texts
        if len(text.replace(UNKNOWN, "").strip(" .:;,()")) > 3 and text.count(UNKNOWN) < MANY
    ]
    return said[:3] or ["as the run tells it"]


def exit_codes() -> str:
    """The table of ``liverl.exit_codes``."""
    lines = [f"| {code} | {meaning} |" for code, meaning in rows()]
    return (
        f"# Exit codes\n\n{MADE}; `liverl-tui --help` ends with the same table.\n\n| code | meaning |\n|---|---|\n"
        + "\n".join(lines)
        + "\n\n[Which end of a trainer gives which code](../scripts.md#when-a-trainer-is-done) is a table there.\n\n"
        + IN_A_BATCH_SCRIPT
        + "\n## What to do\n\n"
        "- 1: `liverl-tui doctor PATH` says why, from the logs of the run "
        "([It failed: what now](../guides/it-failed.md)).\n"
        "- 2: the message names the option, or the file and the line, and what is allowed there.\n"
        "- 3: `liverl-tui check --config FILE` shows the checks again, each with its fix. `up` starts nothing then. "
        "Where the second look at ports, GPUs and disks, right before the trainer starts, finds a fault, the attempt "
        "ends with 3, and `result.json` has the check.\n"
        "- 4: `liverl-tui ls` lists the runs; `--run DIR` names one by its directory. If the run is live on another "
        "host, the message names that host: give the command there. From `wait`, and from commands for a live run, it "
        "also means that the backend of the run died without a result: `liverl-tui up --run RUN` starts another one, "
        "which adopts what still runs.\n"
        "- 5: `liverl-tui up --resume RUN` goes on from the newest checkpoint.\n"
        "- 75: the message names the processes and sandboxes that are left. End the processes: the next attempt is "
        "refused while they live. `liverl-tui clean --sandboxes` removes sandboxes.\n"
        "- 124: the run goes on; ask again, or wait longer.\n"
        "- 130: Ctrl-C ended a command that only shows or waits; the run goes on. In `up --no-ui`, Ctrl-C stops the "
        "run, and the code is 5.\n"
    )


def json_page() -> str:
    """The schemas, with the fields of the outermost object of each."""
    parts = [
        f"# JSON\n\n{MADE}. What scripts read has a version, in the field `schema`; within one version fields are "
        "only "
        "added. "
        "`liverl-tui schema NAME` prints the schema of each, and [`schemas/`](../../schemas) has copies. [Files, "
        "JSON, and use as a library](../scripts.md) explains them.\n"
    ]
    for name, published in SCHEMAS.items():
        if name != "config":
            parts.append(f"\n## {name}\n\nDescribes {published.describes}.\n\n" + _fields(name))
    return _joined(parts)


def _fields(name: str) -> str:
    schema = json.loads(schema_text(name))
    body = _resolved(schema, schema)
    said = _doc(body.get("description", ""))
    required = body.get("required", ())
    lines = [
        f"| `{field}` | {cell(_type(shape, schema))} | {'yes' if field in required else ''} |"
        for field, shape in body.get("properties", {}).items()
    ]
    head = "| field | type | always there |\n|---|---|---|\n"
    return (
        (f"{said}\n\n" if said else "")
        + (head + "\n".join(lines) + "\n" if lines else "")
        + _inner(name, schema)
    )


# Objects below the outermost one whose fields a page lists, too
INNER = MappingProxyType({"compare": ("Compared", "Difference", "Curve", "Parting")})


def _inner(name: str, schema: dict[str, Any]) -> str:
    """The fields of the objects below the outermost one, of schemas that consist of them."""
    parts = []
    for inner in INNER.get(name, ()):
        shape = schema["$defs"][inner]
        fields = ", ".join(f"`{field}` ({_type(of, schema)})" for field, of in shape["properties"].items())
        parts.append(f"\n`{inner}`: {_doc(shape.get('description', ''))}\n\nFields: {fields}.\n")
    return "".join(parts)


def _resolved(shape: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for; of several forms the first one, which is the usual."""
    while "$ref" in shape or "anyOf" in shape:
        shape = shape["anyOf"][0] if "anyOf" in shape else schema["$defs"][shape["$ref"].rpartition("/")[2]]
    return shape


def _type(shape: dict[str, Any], schema: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_types(shape, schema)))


def _types(shape: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in shape:
        inner = _resolved(shape, schema)
        yield from (
            _types(inner, schema) if inner.get("type") != "object" else (shape["$ref"].rpartition("/")[2],)
        )
    elif "anyOf" in shape:
        for one in shape["anyOf"]:
            yield from _types(one, schema)
    elif "enum" in shape:
        yield from (f"`{one}`" for one in shape["enum"])
    elif shape.get("type") == "array":
        inner = _type(shape["items"], schema) if isinstance(shape.get("items"), dict) else "values"
        yield f"list of {inner}"
    else:
        kinds = shape.get("type", "any value")
        yield from kinds if isinstance(kinds, list) else (kinds,)


def write() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in generated().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
