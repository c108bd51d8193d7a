"""When a symptom opens, stays, gets worse and is cleared: every window at its edge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.screens import NOW, snapshot
from msgspec.structs import replace

from liverl.diagnose.tracker import Diagnosis, Resolved, Rule, RunContext, SymptomChange, Window, words
from liverl.model import Evidence, Snapshot, Symptom


def symptom(id: str = "bad", severity: str = "warning", since: float | None = None) -> Symptom:
    return Symptom(
        id=id,
        severity=severity,  # type: ignore[arg-type]
        title=f"{id} happens",
        cause=f"because of {id}",
        fix="mend it",
        since=since,
    )


class Looks:
    """A diagnosis of one rule, which finds what the test says."""

    def __init__(self, hold: float = 0.0, linger: float = 30.0, known: tuple[Symptom, ...] = ()) -> None:
        self._found: tuple[Symptom | Resolved, ...] = ()
        self.seen: list[Window] = []
        self.diagnosis = Diagnosis((Rule(self._look, hold, linger),), known)

    def _look(self, seen: Window) -> Iterator[Symptom | Resolved]:
        self.seen.append(seen)
        yield from self._found

    def at(self, seconds: float, *found: Symptom | Resolved) -> list[tuple[str, str]]:
        self._found = found
        news = self.diagnosis.update(snapshot(at=NOW + seconds), RunContext())
        return [(n.what, n.symptom.id) for n in news]

    @property
    def shown(self) -> list[str]:
        return [s.id for s in self.diagnosis.symptoms]


# --- opening --------------------------------------------------------------------------------------------


def test_without_a_hold_it_is_told_at_the_first_look() -> None:
    looks = Looks()
    assert looks.at(0, symptom()) == [("new", "bad")]
    assert looks.shown == ["bad"] and looks.diagnosis.symptoms[0].since == NOW
    assert looks.at(2, symptom()) == [], "and once"


@pytest.mark.parametrize(("second", "told"), [(29.75, False), (30.0, True), (30.25, True)])
def test_it_is_told_when_it_has_held_for_the_whole_time(second: float, told: bool) -> None:
    looks = Looks(hold=30.0)
    assert looks.at(0, symptom()) == [] and looks.shown == []
    assert looks.at(second, symptom()) == ([("new", "bad")] if told else [])
    assert looks.shown == (["bad"] if told else [])


def test_what_is_held_is_looked_at_more_often() -> None:
    looks = Looks(hold=30.0)
    assert not looks.diagnosis.holding
    looks.at(0, symptom())
    assert looks.diagnosis.holding
    looks.at(30, symptom())
    assert not looks.diagnosis.holding, "it is reported"
    other = Looks(hold=30.0)
    other.at(0, symptom())
    other.at(2)
    assert not other.diagnosis.holding, "it was nothing"


def test_the_hold_counts_from_when_the_evidence_says_that_it_began() -> None:
    looks = Looks(hold=30.0)
    assert looks.at(0, symptom(since=NOW - 29)) == []
    assert looks.at(1, symptom(since=NOW - 29)) == [("new", "bad")]
    assert looks.diagnosis.symptoms[0].since == NOW - 29


def test_one_look_without_it_starts_the_hold_anew() -> None:
    looks = Looks(hold=30.0, linger=300.0)
    looks.at(0, symptom())
    assert looks.at(29, symptom()) == [] and looks.at(29.5) == []
    assert looks.at(31, symptom()) == []
    assert looks.at(60.5, symptom()) == []
    assert looks.at(61, symptom()) == [("new", "bad")]
    assert looks.diagnosis.symptoms[0].since == NOW + 61, "when it was told, not when its rule began to wait"


def test_what_was_never_told_ends_without_a_word() -> None:
    looks = Looks(hold=30.0)
    looks.at(0, symptom())
    assert looks.at(10, Resolved("bad")) == []
    assert looks.at(40, symptom()) == [], "it begins again"


# --- staying --------------------------------------------------------------------------------------------


def test_it_keeps_its_beginning_and_takes_the_newest_words() -> None:
    looks = Looks()
    looks.at(0, symptom())
    later = replace(symptom(since=NOW + 4), cause="for another reason", evidence=(Evidence("line 2"),))
    assert looks.at(4, later) == []
    (shown,) = looks.diagnosis.symptoms
    assert (shown.since, shown.cause, shown.evidence) == (NOW, "for another reason", (Evidence("line 2"),))


def test_a_rule_is_shown_the_look_before() -> None:
    looks = Looks()
    looks.at(0)
    looks.at(2)
    assert looks.seen[0].before is None
    assert looks.seen[1].before == snapshot(at=NOW) and looks.seen[1].now == snapshot(at=NOW + 2)


def test_only_a_higher_severity_is_told_again() -> None:
    looks = Looks()
    assert looks.at(0, symptom(severity="info")) == [("new", "bad")]
    assert looks.at(2, symptom(severity="warning")) == [("worse", "bad")]
    assert looks.at(4, symptom(severity="critical")) == [("worse", "bad")]
    assert looks.at(6, symptom(severity="info")) == []
    assert looks.diagnosis.symptoms[0].severity == "info", "shown as it is now"
    assert looks.at(8, symptom(severity="critical")) == [], "that was told"


def test_severity_found_before_it_is_told_is_no_worsening() -> None:
    looks = Looks(hold=30.0)
    looks.at(0, symptom(severity="info"))
    assert looks.at(10, symptom(severity="critical")) == []
    assert looks.at(30, symptom(severity="critical")) == [("new", "bad")]


# --- ending ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gone", "cleared"), [(44.75, False), (45.0, False), (45.25, True)])
def test_it_lingers_for_the_whole_time(gone: float, cleared: bool) -> None:
    looks = Looks(linger=45.0)
    looks.at(0, symptom())
    looks.at(10, symptom())
    assert looks.at(10 + gone) == ([("cleared", "bad")] if cleared else [])
    assert looks.shown == ([] if cleared else ["bad"])


def test_without_a_linger_it_ends_at_the_first_look_without_it() -> None:
    looks = Looks(linger=0.0)
    looks.at(0, symptom())
    assert looks.at(2) == [("cleared", "bad")] and looks.shown == []
    assert looks.at(4) == [], "once"
    assert looks.at(6, symptom()) == [("new", "bad")], "and is new when it comes again"


def test_a_rule_that_knows_the_end_need_not_wait() -> None:
    looks = Looks(linger=300.0)
    looks.at(0, symptom(), symptom("other"))
    assert looks.at(2, Resolved("bad"), Resolved("unknown"), symptom("other")) == [("cleared", "bad")]
    assert looks.shown == ["other"]


def test_the_usual_linger_is_half_a_minute_and_the_usual_hold_none() -> None:
    rule = Rule(lambda _: iter(()))
    assert (rule.hold, rule.linger) == (0.0, 30.0)


# --- what an earlier backend had told -------------------------------------------------------------------


def test_known_symptoms_wait_a_minute_for_their_rule() -> None:
    looks = Looks(known=(symptom(since=NOW - 500),))
    assert looks.at(1000) == [], "counted from the first look, not from when it began"
    assert looks.at(1060) == [] and looks.shown == ["bad"]
    assert looks.at(1060.25) == [("cleared", "bad")]


def test_a_known_symptom_belongs_to_its_rule_once_that_finds_it() -> None:
    looks = Looks(linger=5.0, known=(symptom(since=NOW - 500),))
    assert looks.at(0, symptom(since=NOW - 1)) == []
    assert looks.diagnosis.symptoms[0].since == NOW - 500
    assert looks.at(5) == [] and looks.at(5.25) == [("cleared", "bad")]


def test_a_known_symptom_that_got_worse_meanwhile_is_told() -> None:
    looks = Looks(known=(symptom(since=NOW - 500),))
    assert looks.at(0, symptom(severity="critical")) == [("worse", "bad")]


# --- order and words ------------------------------------------------------------------------------------


def test_the_most_severe_first_then_the_oldest_then_by_name() -> None:
    looks = Looks()
    looks.at(
        0,
        symptom("e", "info", NOW - 900),
        symptom("d", "warning", NOW - 5),
        symptom("c", "warning", NOW - 5),
        symptom("b", "warning", NOW - 50),
        symptom("a", "critical", NOW),
    )
    assert looks.shown == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("seconds", "length"), [(0, "0m00s"), (59.9, "0m59s"), (60, "1m00s"), (125, "2m05s"), (3661, "61m01s")]
)
def test_the_end_is_told_with_how_long_it_lasted(seconds: float, length: str) -> None:
    ended = SymptomChange("cleared", symptom(severity="critical", since=NOW))
    assert words(ended, NOW + seconds) == (f'resolved after {length}: "bad happens"', "info")


def test_the_end_names_it_as_it_was_told() -> None:
    """A rule may speak of a later step at each look, which nobody was told; and of good news nothing is resolved."""
    found = symptom(severity="info")
    diagnosis = Diagnosis((Rule(lambda _: iter([found]), linger=0.0),))
    for second, title in enumerate(("step 26 is solved", "step 32 is solved")):
        found = replace(found, title=title)
        told = diagnosis.update(snapshot(at=NOW + second), RunContext())
        assert [one.symptom.title for one in told] == ["step 26 is solved"] * (not second)
    diagnosis._rules = ()
    (ended,) = diagnosis.update(snapshot(at=NOW + 65), RunContext())
    assert words(ended, NOW + 65) == ('over after 1m05s: "step 26 is solved"', "info")


def test_an_end_without_a_beginning_lasted_no_time() -> None:
    assert words(SymptomChange("cleared", symptom()), NOW) == ('resolved after 0m00s: "bad happens"', "info")


@pytest.mark.parametrize(
    ("severity", "level"), [("info", "info"), ("warning", "warning"), ("critical", "error")]
)
@pytest.mark.parametrize("what", ["new", "worse"])
def test_a_beginning_is_told_with_its_cause(what: str, severity: str, level: str) -> None:
    news = SymptomChange(what, symptom(severity=severity, since=NOW))  # type: ignore[arg-type]
    assert words(news, NOW + 60) == ("bad happens: because of bad", level)
    for title, text in (("x: y", "x: y. Because of bad"), ("x; y", "x; y. Because of bad")):
        both = news._replace(symptom=replace(news.symptom, title=title))
        assert words(both, NOW + 60)[0] == text
    named = news._replace(symptom=replace(news.symptom, title="x: y", cause="a.b is bad"))
    assert words(named, NOW + 60)[0] == "x: y. a.b is bad", "the name of a key"


def test_two_rules_keep_their_own_windows() -> None:
    def one(seen: Window) -> Iterator[Symptom | Resolved]:
        if seen.now.step == 1:
            yield symptom("one")

    def two(seen: Window) -> Iterator[Symptom | Resolved]:
        if seen.now.step == 1:
            yield symptom("two")

    diagnosis = Diagnosis((Rule(one, linger=10.0), Rule(two, linger=20.0)))

    def look(now: Snapshot) -> list[tuple[str, str]]:
        return [(n.what, n.symptom.id) for n in diagnosis.update(now, RunContext())]

    assert look(snapshot(step=1)) == [("new", "one"), ("new", "two")]
    assert look(snapshot(step=2, at=NOW + 11)) == [("cleared", "one")]
    assert look(snapshot(step=2, at=NOW + 20)) == []
    assert look(snapshot(step=2, at=NOW + 21)) == [("cleared", "two")]
