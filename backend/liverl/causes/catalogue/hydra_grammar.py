"""Signatures of overrides that Hydra cannot read: their grammar, quotes and types."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="hydra-grammar",
        component="verl",
        role="cause",
        pattern=r"no viable alternative at input '(?P<text>[^\n]{1,120}?)'",
        needle="no viable alternative at input '",
        title="An override of verl cannot be read at '{text}'",
        cause="The value breaks Hydra's grammar: a comma, bracket, colon or space is not quoted.",
        fix='Quote the value in trainer.overrides or in the launch script, lists as "[a,b]".',
        source="hydra core/override_parser/overrides_parser.py (ANTLR)",
        fires="no viable alternative at input '[a'",
        spares="WARN an alternative was chosen at input 'trainer.nnodes=2'",
    ),
    *family(
        Signature(
            id="hydra-parse-mismatched",
            component="verl",
            role="cause",
            pattern=r"mismatched input '(?P<text>[^\n]{0,120}?)'(?:\s|\Z)",
            needle="mismatched input '",
            title="An override of the command line cannot be read at '{text}'",
            cause=(
                "A word of the command line is no key=value: a blank around =, a missing quote, an unset "
                "variable, or a backslash that does not end its line."
            ),
            fix=(
                "Put values with blanks, commas, braces or = in quotes twice ('key=\"value\"'), and check the "
                "lines that end in a backslash."
            ),
            source="hydra/core/override_parser",
            fires="mismatched input '=' expecting <EOF>",
            spares=(
                "INFO input '{a' at: token EQUAL, mismatched missing mismatched extraneous recognition error"
            ),
        ),
        Text(
            id="hydra-parse-extraneous",
            pattern=r"extraneous input '(?P<text>[^\n]{0,120}?)'(?:\s|\Z)",
            needle="extraneous input '",
            fires="extraneous input 'b' expecting EOF",
            spares="INFO input '{a' at: token EQUAL, extraneous missing mismatched extraneous recognition error",
        ),
    ),
    Signature(
        id="hydra-parse-missing",
        component="verl",
        role="cause",
        pattern=r"(?:^|\n)missing (?P<what>[A-Z_]{3,30}) at '(?P<text>[^\n]{0,120}?)'(?:\s|\Z)",
        needle="missing ",
        title="An override cannot be read: {what} is missing at '{text}'",
        cause=(
            "A word of the command line is no key=value, or a bracket, brace or quote is not closed: often "
            "the shell split a list at its blanks, or a variable is not set."
        ),
        fix=(
            'Put values with blanks, commas, braces or = in quotes twice (\'key=["a","b"]\'), write lists '
            "without blanks, and check the lines that end in a backslash."
        ),
        source="hydra/core/override_parser",
        fires="missing BRACKET_CLOSE at '<EOF>'",
        spares="INFO missing keys at 'x'",
    ),
    Signature(
        id="hydra-parse-token",
        component="verl",
        role="cause",
        pattern=r"token recognition error at: '(?P<text>[^\n]{0,120}?)'(?:\s|\Z)",
        needle="token recognition error at: '",
        title="An override of the command line cannot be read at '{text}'",
        cause=(
            "A word of the command line is no key=value: a blank around =, a missing quote, an unset "
            "variable, or a backslash that does not end its line."
        ),
        fix=(
            "Put values with blanks, commas, braces or = in quotes twice ('key=\"value\"'), and check the "
            "lines that end in a backslash."
        ),
        source="hydra/core/override_parser",
        fires="token recognition error at: '\"'",
        spares=("INFO input '{a' at: token EQUAL, token missing mismatched extraneous recognition error"),
    ),
    Signature(
        id="hydra-lexer",
        component="verl",
        role="cause",
        pattern=r"LexerNoViableAltException: (?P<text>[^\n]{1,160})",
        needle="LexerNoViableAltException: ",
        title="An override of the command line cannot be read",
        cause=(
            "Hydra does not understand {text}: a value with blanks, quotes, braces or other special "
            "characters is not quoted."
        ),
        fix="Put it in quotes twice ('key=\"a value\"').",
        source="hydra/core/override_parser",
        fires="LexerNoViableAltException: my run",
        spares="INFO LexerNoViableAltException: ",
    ),
)
