"""Rules of a site: what is wrong with them is told at once, and what is right is used beside our rows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from kit.live_logs import Followed

from liverl.causes.catalogue import by_id, rows
from liverl.causes.inputs.ended import Ended, error_behind_success, why_ended
from liverl.causes.match import Matcher
from liverl.causes.patterns import MOST_STEPS, not_linear
from liverl.causes.row_files import RowsError
from liverl.causes.site.reading import read_rules
from liverl.causes.site.rules import Rules, with_rules
from liverl.observe.live_logs.reader import LiveLogs

ROOT = Path(__file__).parents[2]
ROW = """\
[[row]]
id = "cache-drains"
role = "cause"
text = 'cache node is draining'
title = "The cache node drains"
cause = "It is being emptied."
fix = "Wait."
source = "operators"
fires = 'ERROR cache node is draining now'
spares = 'cache node has drained'
"""
GROUPS = ROW.replace(
    "text = 'cache node is draining'", r"pattern = 'cache (?P<what>\w{1,20}) is (?P<how>draining)'"
)


def faults(text: str) -> list[str]:
    with pytest.raises(RowsError) as raised:
        with_rules(rows(), {"x.toml": text.encode()})
    return str(raised.value).split("\n")


def rules(text: str) -> Rules:
    return with_rules(rows(), {"x.toml": text.encode()})


# A row, one change to it, and what is said of it.
WRONG: dict[str, tuple[str, str, str, str]] = {
    "a wrong key": (
        ROW,
        "title =",
        "titel =",
        "x.toml:5: cache-drains: titel: there is no such key; did you mean title?",
    ),
    "a wrong type": (
        ROW,
        '"operators"',
        "7",
        "x.toml:8: cache-drains: source: found 7: Expected `str`, got `int`",
    ),
    "a wrong choice": (
        ROW,
        '"cause"\n',
        '"caus"\n',
        "x.toml:3: cache-drains: role: found 'caus', expected one of cause, waits, general, consequence, noise; "
        "did you mean cause?",
    ),
    "an id of ours": (
        ROW,
        '"cache-drains"',
        '"cuda-oom"',
        "x.toml:2: cuda-oom: id: liverl has a row cuda-oom: choose another id, or write replaces = "
        '"cuda-oom" in place of id to re-word it',
    ),
    "an id of a verdict": (
        ROW,
        '"cache-drains"',
        '"killed"',
        "x.toml:2: killed: id: killed is the id of a verdict without a row: choose another one",
    ),
    "an id that no alert can have": (
        ROW,
        '"cache-drains"',
        '"a:b"',
        "x.toml:2: a:b: id: found 'a:b', expected small letters, digits and hyphens, such as disk-gone",
    ),
    "what is never matched": (
        ROW,
        "'ERROR cache node is draining now'",
        "'ERROR cache is gone'",
        "x.toml:9: cache-drains: fires: the row does not match 'ERROR cache is gone', which it must: "
        "write a line as the program prints it",
    ),
    "a near miss that is matched": (
        ROW,
        "'cache node has drained'",
        "'my cache node is draining'",
        "x.toml:10: cache-drains: spares: the row matches 'my cache node is draining', which it must spare: "
        "write a near miss, or make the pattern narrower",
    ),
    "a patch": (
        ROW,
        'source = "operators"',
        'source = "operators"\npatch = {"run.name" = "x"}',
        "x.toml:9: cache-drains: patch: a rule changes no configuration: say in fix which key to set",
    ),
    "no regular expression": (
        GROUPS,
        r"(?P<how>draining)'",
        r"(?P<how>draining'",
        "x.toml:4: cache-drains: pattern: no regular expression: missing ), unterminated subpattern at character 29",
    ),
    "a group that is none": (
        GROUPS,
        '"The cache node drains"',
        '"The cache {wat} drains"',
        "x.toml:5: cache-drains: title: {wat} is no group that every match captures; did you mean what?",
    ),
    "an exponential pattern": (
        GROUPS,
        r"\w{1,20}",
        r"(?:\w{1,20}){1,20}",
        "x.toml:4: cache-drains: pattern: a repetition inside another one may take more than linear time: "
        "write it out, or use {n}",
    ),
    "a text and a pattern": (
        ROW,
        "text =",
        "pattern = 'draining'\ntext =",
        "x.toml:5: cache-drains: text: it stands for needle and pattern: leave those out",
    ),
    "a text of nothing": (
        ROW,
        "'cache node is draining'",
        "' 12 '",
        "x.toml:4: cache-drains: text: every match must contain one text with at least 4 letters or signs, "
        "digits not counted; found ' 12 '",
    ),
    "a needle that is not in it": (
        GROUPS,
        "title =",
        "needle = 'disk'\ntitle =",
        "x.toml:5: cache-drains: needle: 'disk' does not stand in every match of the pattern: leave it out",
    ),
    "nothing to look for": (
        ROW,
        "text = 'cache node is draining'\n",
        "",
        "x.toml:1: cache-drains: pattern: it is missing: write text (a plain text) or pattern (a regular expression)",
    ),
    "a long title": (
        ROW,
        '"The cache node drains"',
        f'"{"long " * 20}"',
        "x.toml:5: cache-drains: title: expected one line of at most 80 characters, found 100",
    ),
    "no cause": (
        ROW,
        'cause = "It is being emptied."\n',
        "",
        "x.toml:1: cache-drains: cause: it is missing: a row of role cause says why this happens",
    ),
    "before a row of nothing": (
        ROW,
        'source = "operators"',
        'source = "operators"\nbefore = ["cuda-ooom"]',
        "x.toml:9: cache-drains: before: there is no row cuda-ooom; did you mean cuda-oom?",
    ),
    "re-words nothing": (
        ROW,
        'id = "cache-drains"',
        'replaces = "cuda-ooom"',
        "x.toml:2: cuda-ooom: replaces: there is no row cuda-ooom of ours; did you mean cuda-oom? "
        "(liverl-tui rules ls lists them)",
    ),
    "re-words and has an id": (
        ROW,
        'id = "cache-drains"',
        'id = "x"\nreplaces = "cuda-oom"',
        "x.toml:2: cuda-oom: id: leave it out: a row that replaces another one keeps its id",
    ),
    "silences nothing": (
        ROW,
        "[[row]]",
        'silence = ["cuda-ooom"]\n[[row]]',
        "x.toml:1: silence: there is no row cuda-ooom of ours; did you mean cuda-oom? (liverl-tui rules ls lists them)",
    ),
    "silences a text": (
        ROW,
        "[[row]]",
        'silence = "cuda-oom"\n[[row]]',
        'x.toml:1: silence: expected a list of ids, such as ["git-lock"]',
    ),
    "a wrong key at the top": (
        ROW,
        "[[row]]",
        'silense = ["cuda-oom"]\n[[row]]',
        "x.toml:1: silense: there is no such key; did you mean silence?",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_told_with_its_place_and_what_to_write(name: str) -> None:
    row, before, after, said = WRONG[name]
    assert row.count(before) == 1
    assert said in faults(row.replace(before, after))


def test_the_row_of_the_table_is_right() -> None:
    for text in (ROW, GROUPS):
        (rule,) = rules(text).own
        assert (rule.row.id, rule.row.printer, rule.line) == ("cache-drains", "x", 1)


def test_ten_faults_of_a_file_are_ten_sentences() -> None:
    ten = [name for name in WRONG if "needle" not in name and WRONG[name][1] != "[[row]]"][:10]
    changed = [
        WRONG[name][0].replace(*WRONG[name][1:3]).replace('"cache-drains"', f'"row-{number}"')
        for number, name in enumerate(ten)
    ]
    told = faults("\n".join(changed))
    assert len(told) == len(set(told)) == 10, told
    lines = [int(found[1]) for one in told if (found := re.match(r"x\.toml:(\d+): ", one))]
    begins = [number for number, line in enumerate("\n".join(changed).split("\n"), 1) if line == "[[row]]"]
    assert sorted(sum(begin <= line for begin in begins) for line in lines) == [*range(1, 11)], told


def test_rows_before_each_other_are_told_where_the_site_wrote_one() -> None:
    first = next(row for row in rows() if row.before)
    circle = ROW.replace("source =", f'before = ["{first.id}"]\nsource =') + "\n"
    circle += f'[[row]]\nreplaces = "{first.before[0]}"\nbefore = ["cache-drains"]\n'
    (told,) = faults(circle)
    assert "a circle: " in told and told.startswith("x.toml:")


def test_files_and_rows_that_contradict_each_other_are_told() -> None:
    both = {"a.toml": ROW.encode(), "b.toml": ROW.encode()}
    with pytest.raises(RowsError, match=r"b\.toml:2: cache-drains: id: a\.toml has a row of this id, too"):
        with_rules(rows(), both)
    words = b'[[row]]\nreplaces = "cuda-oom"\nfix = "Ask."\n'
    with pytest.raises(RowsError, match=r"b\.toml:2: cuda-oom: replaces: a\.toml replaces this row, too"):
        with_rules(rows(), {"a.toml": words, "b.toml": words})
    with pytest.raises(RowsError, match=r"a\.toml:3: cuda-oom: replaces: a\.toml silences this row"):
        with_rules(rows(), {"a.toml": b'silence = ["cuda-oom"]\n' + words})


@pytest.mark.parametrize(
    "data", [b"\x80", b"[[row]", b"row = 1", b"row = ''", b"text = 'x'", b"\xef\xbb\xbf[[row]]"]
)
def test_a_file_of_anything_is_a_fault(data: bytes) -> None:
    with pytest.raises(RowsError, match=r"^x\.toml"):
        with_rules(rows(), {"x.toml": data})


# --- patterns -------------------------------------------------------------------------------------------

HOSTILE = [
    r"(a{0,10}){0,10}b",
    r"(?:\w{1,50}\s?){1,50}$",
    r".*gone",
    r"a+b",
    r"a{3,}",
    r"(a|aa){1,30}b",
    r"(?:a?){30}a",
    r"a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaa",
    r"(\w)\1{1,9}x",
    r"(a)?(?(1)b|c)",
    r"x.{0,200}y.{0,200}z",
    r"(?=.{0,600}a)b.{0,600}c",
    r"(?i)[a-z]{0,900}X[A-Z]{0,900}y",
    r"(?i)[a-z]{0,600}X1",
    r"(?s).{0,100}\n.{0,100}x",
    r"(?:a{0,900}b{0,900}c)?",
    r"(?>a{0,900}){0,900}b",
    r"\A.*gone",
    r"(?!(?:a*)*b)gone",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_may_be_slow_is_refused(pattern: str) -> None:
    assert not_linear(pattern)
    told = faults(GROUPS.replace(r"cache (?P<what>\w{1,20}) is (?P<how>draining)", pattern))
    assert any(": pattern: " in one for one in told)


@pytest.mark.parametrize(
    "pattern",
    [
        r"disk (?P<disk>\w{1,60}) of (?P<host>[\w.-]{1,60}) is gone",
        r"(?:a|b)x.{0,900}",
        r"gone.{0,200}b",
        r"(?:abc){5} gone",
        r"[^\n]{0,300}gone",
    ],
)
def test_a_pattern_that_is_linear_is_allowed(pattern: str) -> None:
    assert not_linear(pattern) == ""


def test_steps_are_what_a_search_takes() -> None:
    """The count follows the number of ways that a text of the worst kind has."""
    assert not_linear(rf"x[ab]{{0,{MOST_STEPS // 3}}}b") == ""
    assert not_linear(rf"x[ab]{{0,{MOST_STEPS}}}b")
    assert not_linear(rf"x[ab]{{0,{MOST_STEPS - 10}}}c") == "", "it ends where it cannot go on"


# --- in use ---------------------------------------------------------------------------------------------


def log_of(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trainer.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


NODES = "[FATAL] only 3/4 nodes joined after 300s"


def test_a_rule_explains_what_ours_do_not(tmp_path: Path) -> None:
    log = log_of(tmp_path, "INFO start", "INFO cache node is draining now", "INFO end")
    ended = Ended("trainer", log)
    assert why_ended(ended) is None and error_behind_success(ended, unfinished=True) is None
    matcher = Matcher(rules(ROW).rows)
    for why in (
        why_ended(ended, matcher=matcher),
        error_behind_success(ended, unfinished=True, matcher=matcher),
    ):
        assert why is not None
        assert (why.explanation.id, why.explanation.fix) == ("cache-drains", "Wait.")


def test_a_rule_re_words_a_row_of_ours(tmp_path: Path) -> None:
    ended = Ended("trainer", log_of(tmp_path, NODES))
    own = rules('[[row]]\nreplaces = "ray-nodes-missing"\ntitle = "{has} nodes, not {wanted}"\n')
    why = why_ended(ended, matcher=Matcher(own.rows))
    assert why is not None
    ours = by_id()["ray-nodes-missing"]
    assert (why.explanation.id, why.explanation.title) == (ours.id, "3 nodes, not 4")
    assert (why.explanation.cause, why.explanation.fix) == (ours.cause, ours.fix)
    assert len(own.rows) == len(rows())


def test_a_rule_changes_what_a_row_of_ours_looks_for(tmp_path: Path) -> None:
    text = ROW.replace('id = "cache-drains"', 'replaces = "ray-nodes-missing"')
    (rule,) = rules(text).own
    assert (rule.row.printer, rule.row.needle) == ("liverl", "cache node is draining")
    why = why_ended(Ended("trainer", log_of(tmp_path, NODES)), matcher=Matcher(rules(text).rows))
    assert why is None or why.explanation.id != "ray-nodes-missing"


def test_a_file_silences_a_row_of_ours(tmp_path: Path) -> None:
    own = rules('silence = ["ray-nodes-missing"]\n')
    assert own.silenced == ("ray-nodes-missing",) and len(own.rows) == len(rows()) - 1
    why = why_ended(Ended("trainer", log_of(tmp_path, NODES)), matcher=Matcher(own.rows))
    assert why is None or why.explanation.id != "ray-nodes-missing"


FAMILY = """\
[[row]]
role = "cause"
where = "exception"
title = "The volume is away"
cause = "It was taken out."
fix = "Wait."
source = "operators"

[[row.text]]
id = "volume-away"
text = 'volume 7.1 (scratch) is away'
fires = 'OSError: volume 7.1 (scratch) is away'
spares = 'OSError: volume 7x1 (scratch) is away'

[[row.text]]
id = "volume-lost"
pattern = '(?P<name>\\w{1,20})-volume lost'
fires = 'ScratchError: a-volume lost'
spares = 'a-volume lost'
"""


def test_a_row_of_several_texts_is_a_rule_for_each() -> None:
    first, second = rules(FAMILY).own
    assert first.row.needle == "volume 7.1 (scratch) is away" and first.row.pattern == re.escape(
        first.row.needle
    )
    assert (second.row.needle, second.row.title, second.line) == ("-volume lost", "The volume is away", 15)
    (told,) = faults(FAMILY.replace("'ScratchError: a-volume lost'", "'b-volume lost'"))
    assert told.startswith(
        "x.toml:18: volume-lost: fires: 'b-volume lost' holds what is looked for, but no exception"
    )


def test_a_running_service_raises_an_alert_by_a_rule(tmp_path: Path) -> None:
    text = ROW.replace("source =", 'fails = "part"\nsource =')
    run = Followed(tmp_path, time.time())
    run.live = LiveLogs(tmp_path, Matcher(rules(text).rows))
    run.write("replica-1", "INFO start")
    run.look()
    for _ in range(3):
        run.write("replica-1", "ERROR cache node is draining now")
        run.look()
    (found,) = [one for name, one in run.symptoms().items() if name.startswith("log:cache-drains")]
    assert "The cache node drains" in found.title


# --- files ----------------------------------------------------------------------------------------------


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(ROW)
    file.chmod(0o644)
    assert [rule.file for rule in read_rules([file]).own] == [str(file)]
    file.chmod(0o666)
    with pytest.raises(RowsError) as raised:
        read_rules([file, tmp_path / "none.toml"])
    first, second = str(raised.value).split("\n")
    assert first.startswith(f"{file}: it is not used, since others can change it (") and "chmod o-w" in first
    assert second == f"{tmp_path / 'none.toml'}: it cannot be read: No such file or directory"


def test_the_example_of_the_documentation_is_right() -> None:
    text = (ROOT / "docs/diagnosis.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text[text.index("## Rules of your own") :], re.S)
    found = rules(example)
    assert [rule.row.id for rule in found.own] == ["scratch-drains", "licence-used-up", "ray-nodes-missing"]
    assert len(found.silenced) == 1
