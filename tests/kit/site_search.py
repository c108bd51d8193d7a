"""What MkDocs calls after it has built the site: its search is corrected in two places.

lunr, the search of mkdocs-material, keeps the words of all pages as an automaton, in which states count as equal that
have the same text: letter and number of each next state, one after the other. So "1" to state 23 is "12" to state 3,
and on a site with many numbers whole words are exchanged for others: `exit code 3` found nothing. A comma between
them tells them apart.

Its words are cut at dashes, and words such as "like", "since" and "all" are in no index: the options `--like`,
`--since` and `--all` could not be found. An option is a further word of its own, with dashes at which nothing is cut;
docs/site/site.js asks for it in the same form. So are whole names with underscores or dots: `agent_name` is more than
"agent" and "name".

What has all words that are asked for comes before what has one of them in its title: "image column" is no question
about `pods_image_pull`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

WEIGHT = 8  # the power of the share of the words: half of them count 1/256
_WORKERS = "assets/javascripts/workers/search.*.js"
# The score of what was found: times what share of the words it has, here with more weight.
_SCORE = re.compile(
    r"let (?P<share>\w)=\+!(?P<of>\w)\.parent\+Object\.values\(\w\)[^;]*;[^;]*?"
    r"score:\w\*\(1\+(?P<pow>\w+)\((?P=share),2\)\)"
)
_STATE = re.compile(r"\b(\w)=\1\+(\w)\+(\w)\.id\b")
_WORD = re.compile(
    r"(?P<words>\w)\.push\(new lunr\.Token\((?P<text>\w)\.slice\((?P<start>\w),(?P<end>\w)\)\.toLowerCase\(\),"
    r"(?P<at>\{position:[^}]*\})\)\)"
)
_PLACES = re.compile(r"\bfor\(let (?P<one>\w) of (?P<all>\w)\.sort\(\((\w),(\w)\)=>\3-\4\)\)")
# The option or the name that a word of a text begins, "" if it begins none. An option has two dashes, or one before a
# single letter; a name has underscores or dots within it. At U+2010, a hyphen, and U+203F, a tie, nothing is cut.
_OPTION_OF = r"""
function optionOf(text, start) {
  const name = /(?:^|[^\w.-])$/.test(text.slice(Math.max(0, start - 1), start)) &&
    /^[a-z]\w*(?:\.[a-z]\w*)*/i.exec(text.slice(start, start + 80));
  if (name && /[._]/.test(name[0])) return name[0].toLowerCase().replace(/[._]/g, "\u203f");
  const dashes = /(?:^|[^\w-])(--?)$/.exec(text.slice(Math.max(0, start - 3), start));
  if (!dashes) return "";
  const word = /^[\w-]*/.exec(text.slice(start, start + 80))[0];
  if (dashes[1].length === 1 && word.length > 1) return "";
  return (dashes[1] + word).toLowerCase().replace(/-/g, "\u2010");
}
"""


def on_post_build(config: Any) -> None:
    """Correct the search of the site that was built.

    Raises:
        ValueError: the search of this version of mkdocs-material is another one.
    """
    (worker,) = Path(config["site_dir"]).glob(_WORKERS)
    worker.write_text(all_words_first(with_options(told_apart(worker.read_text("utf-8")))), "utf-8")


def told_apart(source: str) -> str:
    """The search worker with a comma between letter and number of a state.

    Raises:
        ValueError: there is not exactly one place for it.
    """
    corrected, places = _STATE.subn(r'\1=\1+\2+","+\3.id+","', source)
    if places != 1:
        raise ValueError(f"{places} places in the search name a state of lunr's words; expected 1")
    return corrected


def all_words_first(source: str) -> str:
    """The search worker whose scores fall with each word that is asked for and not found.

    Raises:
        ValueError: there is not exactly one place for it.
    """

    def weighted(score: re.Match[str]) -> str:
        return f"{score[0]}*{score['pow']}({score['share']}-!{score['of']}.parent,{WEIGHT})"

    corrected, places = _SCORE.subn(weighted, source)
    if places != 1:
        raise ValueError(f"{places} places in the search weigh what was found; expected 1")
    return corrected


def with_options(source: str) -> str:
    """The search worker with a further word for each option of a command that a text names.

    Raises:
        ValueError: there is not exactly one place for it.
    """

    def further(word: re.Match[str]) -> str:
        option = f"optionOf({word['text']},{word['start']})"
        return f"{word[0]},{option}&&{word['words']}.push(new lunr.Token({option},{word['at']}))"

    def once(
        places: re.Match[str],
    ) -> str:  # an option and its first word stand at one place, which is marked once
        return places[0].replace(f"{places['all']}.sort", f"[...new Set({places['all']})].sort")

    for pattern, new, what in ((_WORD, further, "make a word of a text"), (_PLACES, once, "mark words")):
        source, places = pattern.subn(new, source)
        if places != 1:
            raise ValueError(f"{places} places in the search {what}; expected 1")
    return source + _OPTION_OF
