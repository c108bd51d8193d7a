"""Hides secrets in texts, commands and environments before they are shown or stored outside of the run. Pure.

Every text that leaves a run goes through here, and through nothing else: ``value`` for any text, also JSON and lines
of it, ``data`` for bytes, ``document`` and ``struct`` for plain data, ``command`` and ``environment`` for processes,
``description`` for plans and configurations. A
secret is known by the name before it (``secret_names``) or by its own form. What was JSON stays JSON. The work that a
text takes grows with its length only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from liverl.util.late_pattern import late_pattern
from liverl.util.secret_names import Strength, is_password, is_phrase, names_path, strength

HIDDEN = "***"
_Record = TypeVar("_Record", bound=msgspec.Struct)

# Broad: hiding a harmless variable does no damage.
_VARIABLE = late_pattern(r"key|token|secret|passw|credential", re.IGNORECASE)
_PATH_OF_ONE = late_pattern(r"_(file|path|dir)$", re.IGNORECASE)
# Narrow: `--max-num-batched-tokens`, `--tokenizer` and `--ssl-keyfile` must stay readable.
_OPTION = late_pattern(
    r"(?:^|[-_./+])(?:api_?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
# Forms of secrets, each with texts of which it contains one. What stands before the secret is group 1: a form that
# begins with fixed letters is found ten times as fast as one that looks behind.
_VALUES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        ("private key",),  # a block of several lines, or one string of JSON
        late_pattern(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY-----(?:[^-\"]|-(?!----))*+"
            r"(?:-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY-----)?"
        ),
    ),
    (
        ("bearer",),
        late_pattern(
            r"(?<=\bbearer[ \t])(?!(?:tokens?|auth\w*|scheme|header|is|was|and|or)\b)[\w.~+/=*-]++", re.I
        ),
    ),
    # of OpenAI and Anthropic, and the run's own
    (("sk-",), late_pattern(r"\bsk-(?!dummy\b)[A-Za-z0-9_.~+/=-]{8,}")),
    (("eyj",), late_pattern(r"(?<![\w-])eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*+")),  # JSON web tokens
    (
        ("hf_", "gh", "wandb_v1_", "r8_", "npm_", "pypi-", "glpat-", "xox", "akia", "asia", "aiza", "nvapi-"),
        late_pattern(
            r"\b(?:(?:hf|gh[opsur]|github_pat|wandb_v1|r8|npm)_[A-Za-z0-9_]{16,}|(?:pypi|glpat|nvapi)-[\w-]{16,}"
            r"|xox[abeoprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35})"
        ),
    ),
    # user:password of a URL, and a token in their place
    (("://",), late_pattern(r"(://)[^/\s:@\"'\\]*:[^/\s\"'\\]+(?=@)")),
    (("://",), late_pattern(r"(://)(?=[^/\s@\"'\\]{0,80}\d)[^/\s:@\"'\\]{16,}(?=@)")),
    (
        ("hooks.slack.com", "discord.com/api/webhooks"),
        late_pattern(r"(?<=hooks\.slack\.com/services/)[\w/-]+|(?<=discord\.com/api/webhooks/)[\w/-]+"),
    ),
)

# Texts that names of secrets contain. A name is looked for around these, which is ten times as fast as at each word.
_WORDS = (
    "key",
    "token",
    "secret",
    "passw",
    "passp",
    "passc",
    "pwd",
    "credential",
    "auth",
    "cookie",
    "signature",
    "_pat",
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_OF_NAME = late_pattern(r"[\w.-]")
# A name and what joins it to its value: NAME=, "name":, config[name]=, ("name", "value").
_NAMED = late_pattern(
    r"(?P<name>[\w.-]++)(?P<close>\\*+[\"'])?+\]?+(?P<sep>[ \t]*+(?::(?!//|:)|:?=(?![=>])|=>)[ \t]*+"
    r"|(?<=[\"'])[ \t]*+,[ \t]*+(?=\\*+[\"'])(?!\\*+[\"'][^\"'\\]{0,128}+\\*+[\"'][ \t]*+:))"
)
# Programs' options, and commands of shells: `--api-key VALUE`, `"--api-key", "VALUE"`, `setenv HF_TOKEN VALUE`.
_OPTIONS = late_pattern(
    r"(?P<name>--?[A-Za-z][\w.-]*+|(?<=setenv )\w++)"
    r"(?P<close>\\*+[\"'])?+(?P<sep>(?<=[\"'])[ \t]*+,[ \t]*+|(?<![\"'])[ \t]++)(?!-)"
)
# The form of Kubernetes and of others: {"name": "HF_TOKEN", "value": "..."}.
_ENTRY = late_pattern(
    r"name\\*+[\"']?+[ \t]*+:[ \t]*+\\*+[\"']?+(?P<name>\w{1,128}+)(?P<close>\\*+[\"'])?+[ \t]*+,?"
    r"(?:\s|\\n){0,200}+\\*+[\"']?+value\\*+[\"']?+(?P<sep>[ \t]*+:[ \t]*+)",
    re.I,
)
_USER = late_pattern(
    r"(?P<name>-u|--user|--proxy-user)(?P<sep>[ \t=]++)(?=[\"']?[^\s:\"'/]{1,128}:[^\s\"'/])"
)
_ENDS_A_STRING = late_pattern(r"[\s,:}\])\\]|\Z")
_QUOTE = late_pattern(r"(\\*+)([\"'])")
_BARE = late_pattern(
    r"(?:[^\s\"'`\\,;&|]|[,;&|](?!\s|$|\\|[\"']|[\w.-]{1,64}+[\"']?[=:])|\\(?![nrt\"'\\]))++"
)
_WHOLE = late_pattern(r"(?:[^\s\\]|\\(?![nrt\"'\\]))++")
_PHRASE = late_pattern(r"(?:[^\n\r\\]|\\(?![nrt\"'\\]))++")
_SCHEME = late_pattern(r"(?:bearer|basic|digest|token|apikey|negotiate|aws4-hmac-sha256)[ \t]+", re.I)
_NUMBER = late_pattern(r"[-+]?(?:\d{1,7}|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)[KMGkmg%]?")
_BOUND = late_pattern(r"[\w.-]+")
_NONE = frozenset(
    {
        "none",
        "null",
        "nil",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "str",
        "int",
        "bool",
        "bytes",
        "float",
        "any",
        "undefined",
        "default",
        "unset",
        "set",
        "missing",
        "required",
        "optional",
        "empty",
        "present",
        "redacted",
        "[redacted]",
        "<redacted>",
        "<set>",
        "hidden",
        "auto",
        "self",
        "placeholder",
        "sk-dummy",
        "dummy",
    }
)
# References to a secret, types of one, and what is hidden already.
_REFERENCE = late_pattern(
    r"\*{3,}|\.{3}|…|\$[\w{(]|\$\$|%[(\w]|\{\{?\s*\w|<[^<>]*>$|<\||os\.|getenv|environ|self\.|config\.|args\.|settings\."
    r"|file:|vault:|env:|secretref|Optional\b|Union\b|str\b ?[|=]|lambda\b|[*x]+$|\w[\w.]{0,128}\($"
)
_PATH = late_pattern(r"~?(?:/[\w.@+-]+)+/?")
_WORD = late_pattern(r"[a-z][a-z_]{0,30}")


def value(text: str) -> str:
    """Return ``text`` with everything that is or looks like a secret replaced by ``***``."""
    text = _by_name(text)
    lower = text.lower()
    for parts, form in _VALUES:
        if any(part in lower for part in parts):
            text = form.sub(rf"\1{HIDDEN}" if form.groups else HIDDEN, text)
    return text


def data(text: bytes) -> bytes:
    """The same for bytes; what is no UTF-8 stays."""
    return value(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def document(plain: Any) -> Any:
    """Dictionaries and lists with every text in them as ``value`` returns it, and the texts below a key that names a
    secret hidden. Keys stay."""
    if isinstance(plain, str):
        return value(plain)
    if isinstance(plain, Mapping):
        return {key: _below(str(key), item) for key, item in plain.items()}
    if isinstance(plain, list | tuple):
        return [document(item) for item in plain]
    return plain


def struct(record: _Record) -> _Record:
    """A ``msgspec`` struct with the texts in it, also those of structs below it, as ``document`` returns them."""
    return msgspec.convert(document(msgspec.to_builtins(record)), type(record))


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with the values of variables redacted whose name contains key, token, secret, password
    or credential.

    The absolute path of a file that holds a secret is kept.
    """
    shown = {}
    for name, text in env.items():
        path = _PATH_OF_ONE.search(name) and text.startswith(("/", "{run_dir}/"))
        shown[name] = HIDDEN if text and _VARIABLE.search(name) and not path else value(text)
    return shown


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return ``argv`` with the values of options such as ``--api-key VALUE``, ``--api-key=VALUE`` and
    ``trainer.api_key=VALUE`` redacted."""
    shown: list[str] = []
    hide = False
    for word in argv:
        name, equals, text = word.partition("=")
        if hide and not word.startswith("-"):
            shown.append(HIDDEN)  # keep hiding: vLLM's --api-key takes several values
            continue
        if equals and text and _OPTION.search(name) and not _harmless(name, text):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(value(word))
        hide = not equals and word.startswith("-") and bool(_OPTION.search(word))
    return tuple(shown)


def _harmless(name: str, text: str) -> bool:
    """Whether ``name=text`` of a command holds no secret: no value, a reference to one, or, as in
    ``data.prompt_key=prompt``, the name of a column or field."""
    if text.lower() in _NONE or _REFERENCE.match(text) is not None:
        return True
    return name[:1] != "-" and strength(name) == "doubtful" and _WORD.fullmatch(text) is not None


def description(plain: Any, name: str = "") -> Any:
    """Plain data that say how programs are started (a plan, a configuration), with every text as ``value`` returns it,
    lists of words as ``command`` does and mappings called ``env`` as ``environment`` does; of other mappings the texts
    below a key that names a secret are hidden. Keys stay, and the names of variables in ``secret_env``."""
    if isinstance(plain, str):
        return value(plain)
    if isinstance(plain, Mapping):
        texts = {key: item for key, item in plain.items() if isinstance(item, str)}
        shown = environment(texts) if name in ("env", "child_env") else {}
        if name != "secret_env":
            shown = {key: _below(str(key), item) for key, item in texts.items()} | shown
        return {
            key: shown[key] if key in shown else description(item, str(key)) for key, item in plain.items()
        }
    if isinstance(plain, list | tuple):
        words = [item for item in plain if isinstance(item, str)]
        return (
            list(command(words)) if len(words) == len(plain) else [description(item, name) for item in plain]
        )
    return plain


# --- values behind a name ---


def _by_name(text: str) -> str:
    for words, forms in _FORMS:
        hits = _hits(text, words)
        if hits:
            text = _hide(text, hits, forms)
    return text


_FORMS: tuple[tuple[tuple[str, ...], tuple[re.Pattern[str], ...]], ...] = (
    (_WORDS, (_NAMED, _OPTIONS)),
    (("name",), (_ENTRY,)),
    (("-u ", "-user", "-u="), (_USER,)),
)


def _hits(text: str, words: tuple[str, ...]) -> list[int]:
    """Where the words stand, in order, whatever their case."""
    lower = text.lower()
    if len(lower) != len(text):  # a few letters become two
        lower = text.translate(_LOWER)
    found = []
    for word in words:
        at = lower.find(word)
        while at >= 0:
            found.append(at)
            at = lower.find(word, at + len(word))
    return sorted(found)


def _hide(text: str, hits: list[int], forms: tuple[re.Pattern[str], ...]) -> str:
    """Hide what is a secret behind the names at ``hits``. Each name is tried once, from where it begins."""
    parts: list[str] = []
    done = at = 0  # up to here it is copied, and looked at
    for hit in hits:
        if hit < at:
            continue
        start = hit
        while start > at and _OF_NAME.match(text, start - 1):
            start -= 1
        form, match = next(((form, m) for form in forms if (m := form.match(text, start))), (_NAMED, None))
        if match is None:
            at = _END_OF_NAME.match(text, hit).end()  # type: ignore[union-attr]  # it matches everywhere
            continue
        at = match.end() if form is not _ENTRY else hit + 1
        # A value is judged by its beginning, so that what is passed over and looked at again is short.
        if _Value(form, match, text, match.end() + _JUDGED).secret:
            found = _Value(form, match, text, len(text) + 1)
            parts += text[done : found.start], found.hidden
            done = at = max(found.end, match.end())
    return "".join((*parts, text[done:])) if parts else text


_END_OF_NAME = late_pattern(r"[\w.-]*+")
_JUDGED = 256  # characters


class _Value:
    """The value behind one name: where it stands in ``text``, whether it is a secret, and what replaces it. Nothing
    from ``limit`` on is looked at."""

    def __init__(self, form: re.Pattern[str], match: re.Match[str], text: str, limit: int) -> None:
        name, close = match["name"], match.groupdict().get("close") or ""
        self.start = self.end = match.end()
        self.hidden, self.secret = HIDDEN, False
        before = text[max(0, match.start() - 4) : match.start()]
        how = "strong" if form is _USER else _strength(name, match["sep"], close, before, form)
        if how is None:
            return
        quote = _QUOTE.match(text, self.start)
        if not close and before[-1:] in ("'", '"') and form is _NAMED:
            marks = before[:-1][len(before[:-1].rstrip("\\")) :]  # "NAME=VALUE": all between the quotes
            self.end = _closing(text, self.start, marks, before[-1], limit) or self._bare_end(
                name, match, text, limit
            )
            quote = None
        elif quote is not None and len(quote[0]) < len(close):
            return
        elif quote is not None and quote[0] != close and _ENDS_A_STRING.match(text, quote.end()):
            return  # "password: ", and the string around the name ends there
        elif quote is not None:
            self.start = quote.end()
            self.end = _closing(text, self.start, quote[1], quote[2], limit) or self._bare_end(
                name, match, text, limit
            )
        else:
            self.end = self._bare_end(name, match, text, limit)
        found = text[self.start : self.end]
        quoted = quote is not None
        if not quoted and form is not _USER and "authorization" not in name.lower():
            kept = found.rstrip(")]}>,;")
            if kept and len(kept) != len(found) and kept[-1:] != "\\":
                self.end = self.start + len(kept)
                found = kept
        if "authorization" in name.lower() and (scheme := _SCHEME.match(found)) is not None:
            self.start += scheme.end()
            found = found[scheme.end() :]
        container = not quoted and found[:1] in ("[", "{", "(") and (close or len(found) == 1)
        self.secret = bool(found) and not container and _is_secret(name, found, how, quoted, close)
        if not quoted and close.endswith('"') and re.fullmatch(r"[-+.\deE]+", found):
            self.hidden = f"{close}{HIDDEN}{close}"  # JSON: a number becomes a string

    def _bare_end(self, name: str, match: re.Match[str], text: str, limit: int) -> int:
        form = _BARE
        if "authorization" in name.lower() or "cookie" in name.lower() or is_phrase(name):
            form = _PHRASE_QUOTED
        elif not match.groupdict().get("close") and (line := _begun_line(text, match.start())) is not None:
            if line.startswith("\\"):  # in a string of JSON
                form = _PHRASE_QUOTED if is_password(name) else _BARE
            else:
                form = _PHRASE if is_password(name) else _WHOLE
        found = form.match(text, self.start, limit)
        return found.end() if found is not None else self.start


_PHRASE_QUOTED = late_pattern(r"(?:[^\n\r\\\"']|\\(?![nrt\"'\\]))++")
_LINE = late_pattern(r"(\A|[\n\r]|\\[nr])[ \t]*+(?:- |export |declare -x |set |ENV )?+\Z")


def _begun_line(text: str, at: int) -> str | None:
    """What stands before the line whose first word the name is, but for blanks and words such as ``export``: as
    ``printenv`` and YAML have it. A newline, one of JSON, or "" at the beginning of the text; None: other words."""
    from_ = max(0, at - 40)
    found = _LINE.search(text[from_:at])
    return None if found is None or (not found[1] and from_) else found[1]


def _strength(name: str, sep: str, close: str, before: str, form: re.Pattern[str]) -> Strength | None:
    how = strength(name)
    if form is _OPTIONS:
        # An option such as --key takes a secret; where it is followed by a blank it must be one beyond doubt.
        return "strong" if how == "strong" else ("weak" if _OPTION.search(name) else None)
    if before[-1:] in ("?", "&") and sep == "=":
        return "strong" if how is not None or name.lower() in ("sig", "signature") else None
    if name.lower() in ("cookie", "x-amz-signature", "x-goog-signature"):
        return "strong"
    if how == "weak" and ":" in sep and not close and not name.isupper() and re.fullmatch(r"[a-z]+", name):
        return "doubtful"  # prose: "unexpected token: ..."
    if "," in sep and how != "strong" and not name.isupper():
        return None
    return how


def _closing(text: str, start: int, marks: str, quote: str, limit: int) -> int | None:
    """Where the string ends that ``marks`` (backslashes) and ``quote`` began before ``start``: at the same marks and
    quote, or at those of a string around it; ``limit`` if it is longer. None if it does not end in its line, or not
    before texts of JSON end and begin."""
    level = len(marks)
    at, end = start, min(limit, len(text))
    while (match := _CLOSING[quote].search(text, at, end)) is not None:
        if match[0] in "\n\r":
            return None
        run = len(match[0]) - 1
        own = _ends(run, level)
        if own or run < level or any(_ends(run, around) for around in (0, 1, 3, 7) if around < level):
            ending = match.end() - 1 - level if own else match.start()
            return None if quote == "'" and _JSON.search(text, start, ending) is not None else ending
        at = match.end()
    return end if end == limit else None


def _ends(run: int, level: int) -> bool:
    """Whether a quote behind ``run`` backslashes ends a string whose quotes have ``level`` of them: further ones are
    pairs of its own text."""
    return run >= level and (run - level) % (2 * (level + 1)) == 0


_JSON = late_pattern(r"\"(?:[ \t\n]|\\n)*+[:,}\]]")
# A search that begins within a run of backslashes has looked at its quote already.
_CLOSING = {quote: late_pattern(rf"(?<!\\)\\*+{quote}|[\n\r]") for quote in "\"'"}


def _is_secret(name: str, found: str, how: Strength, quoted: bool, close: str) -> bool:
    plain = found.strip().rstrip("\\")
    lower = plain.lower()
    if not plain or lower in _NONE or _REFERENCE.match(plain) is not None:
        return False
    if names_path(name) or "credential" in name.lower():
        if _PATH.fullmatch(plain):
            return False
        if names_path(name):
            how = "weak"
    if how == "doubtful":
        return _random(plain)
    if _PATH.fullmatch(plain) and plain.count("/") > 1 and how == "weak":
        return False
    if _NUMBER.fullmatch(plain) and (how == "weak" or (close and not is_password(name))):
        return False
    if quoted or name.isupper():
        return True
    # In a program: api_key=api_key, token=self.token, password=getpass()
    bound = _BOUND.fullmatch(plain)
    code = bound is not None and (
        plain == name.rpartition(".")[2] or ("." in plain and strength(plain) is not None)
    )
    return not (code or plain.endswith("(") or re.fullmatch(r"[\w.]{1,200}\(.*", plain) is not None)


def _random(text: str) -> bool:
    """Whether a text looks like a key: long, without blanks, of letters and digits mixed."""
    if len(text) < 16 or re.fullmatch(r"[A-Za-z0-9+/_=~-]+", text) is None:
        return False
    digits = sum(map(str.isdigit, text))
    if not digits or digits == len(text):
        return False
    hexadecimal = re.fullmatch(r"[0-9a-fA-F-]+", text) is not None
    words = re.split(r"[_/-]", text)
    return hexadecimal or digits * 4 >= len(text) or max(map(len, words)) >= 16


def _below(name: str, item: Any) -> Any:
    how = strength(name)
    if isinstance(item, str):
        return HIDDEN if how is not None and _is_secret(name, item, how, True, '"') else value(item)
    if how == "strong" and isinstance(item, list | tuple):
        return [_below(name, one) for one in item]
    if how == "strong" and isinstance(item, Mapping):
        below = document(item)
        return {k: HIDDEN if isinstance(v, str) and _random(v) else v for k, v in below.items()}
    return document(item)
