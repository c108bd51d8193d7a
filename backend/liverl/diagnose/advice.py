"""What an advice may name in a run: no key that nothing uses there, and no GPUs in a run on CPUs. Pure.

Every advice that names keys goes through ``fitting``: the fixes of alerts, of causes, of the bottleneck of a step, and
of ``When to scale``. An advice is a list of clauses, joined by ``; ``, ``. `` or by ``, or``, ``or`` and ``, then``
before a verb; a clause that does not hold in the run is left out. Where none is left, a cause and an alert are told
what is to be done without the keys that stand in brackets behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from liverl.model import MIRRORED, Cause, Inert, Symptom
from liverl.util.late_pattern import late_pattern

WORKERS = "harbor_runtime.num_workers"  # trials at once, where Harbor or the embedded trainer runs them
# Where nothing holds trials back, all of a batch run at once: a smaller one has fewer of them. It cannot have more.
BATCH = "training.train_batch_size"
NOTHING = "no key of this run's configuration changes that"
_FEWER = late_pattern(rf"\b((?i:lower |halve |fewer \w+ at once \()){re.escape(WORKERS)}\b")
_KEY = late_pattern(r"(?<![\w./-])[a-z]\w*(?:\.[a-z]\w*)+(?![\w/])")
_GPUS = late_pattern(
    r"\b(?:more|fewer) GPUs\b|\bGPUs of their own\b|\bon its GPUs\b|\bif the GPUs have room\b"
)
_VERBS = (
    "add ask check compare disallow double drop end give halve keep leave let limit look lower make more open raise "
    "remove restart resume rule run save set shorten start stop use validate GPUs"
)
_VERB = rf"(?:first |then )?(?:{'|'.join(_VERBS.split())}) [\w']"
_JOINT = late_pattern(
    rf"(?P<end>; |\. (?=[A-Z])|, or (?={_VERB})|,? then (?={_VERB})|,? and then (?={_VERB})"
    rf"| or (?={_VERB})|, and (?=(?:check|look) [\w']))"
)
_WHOLE = ("; ", ". ")
_BEGIN = late_pattern(r"^(?:or|then:?|and|otherwise) ")
_HINT = late_pattern(r" \((?P<items>[^()]{1,200})\)")  # behind what is to be done: by which keys
_ITEMS = late_pattern(r", (?:or |and )?| or | and ")
_ITEM = r"(?:a (?:higher|lower) )?{key}(?:: [\w.]*\w)?"


class Means(msgspec.Struct, frozen=True):
    """What a run has. ``inert``: keys that nothing uses in it; ``mirrored``: those that its launch script sets;
    ``cpus``: nothing of it computes on GPUs."""

    inert: frozenset[str] = frozenset()
    mirrored: frozenset[str] = frozenset()
    cpus: bool = False


ANY = Means()  # of a run of which nothing is known: an advice may name every key


def means(inert: Iterable[Inert], *, cpus: bool) -> Means:
    """Of a run with these inert keys. ``cpus``: nothing of it computes on GPUs."""
    keys = {one.key: one.why for one in inert}
    mirrored = frozenset(key for key, why in keys.items() if why == MIRRORED)
    return Means(frozenset(keys) - mirrored, mirrored, cpus)


def fitting(text: str, run: Means) -> str:
    """The advice without what does not hold in the run; "" if nothing of it is left."""
    if WORKERS in run.inert and BATCH not in run.inert:
        text = _FEWER.sub(rf"\1{BATCH}", text)
    text = _without_items(text, run)
    kept: list[tuple[str, str]] = []  # clause, and what joins it to the next one
    clauses = list(_clauses(text))
    for clause, joint in clauses:
        if _holds(clause, run):
            kept.append((clause, joint))
        elif kept and joint in (*_WHOLE, ""):  # the next clause begins anew, whatever stood before this one
            kept[-1] = (kept[-1][0], joint)
    if not kept:
        return ""
    if len(kept) < len(clauses):
        kept[0] = (_BEGIN.sub("", kept[0][0]), kept[0][1])
    text = "".join(clause + joint for clause, joint in kept[:-1]) + kept[-1][0]
    scripts = [key for key in keys_in(text) if key in run.mirrored]
    return f"{text} (your launch script sets {' and '.join(scripts)})" if scripts else text


def keys_in(text: str) -> list[str]:
    """The keys that a text names, in its order."""
    return list(dict.fromkeys(_KEY.findall(text)))


def fitted(symptom: Symptom, run: Means) -> Symptom:
    """The alert with an advice that fits."""
    fix, patch = _of(symptom.fix, symptom.patch, run)
    return msgspec.structs.replace(symptom, fix=fix, patch=patch)


def fitted_cause(cause: Cause, run: Means) -> Cause:
    """The cause with an advice that fits."""
    fix, patch = _of(cause.fix, cause.patch, run)
    return msgspec.structs.replace(cause, fix=fix, patch=patch)


def _of(fix: str, patch: dict[str, str], run: Means) -> tuple[str, dict[str, str]]:
    fits = fitting(fix, run) if fix else ""
    if not _says_what(fits):  # what is to be done may hold without the key in the brackets behind it
        fits = (
            fitting(_HINT.sub(lambda hint: "" if _all_inert(hint["items"], run) else hint[0], fix), run)
            or fits
        )
    return fits or (NOTHING if fix else ""), {k: v for k, v in patch.items() if k not in run.inert}


def _says_what(fits: str) -> bool:
    """Whether an advice says more than with which command to go on."""
    return bool(fits) and not fits.startswith("liverl-tui up --resume")


def _all_inert(items: str, run: Means) -> bool:
    """Whether what stands in brackets are keys alone, of which the run uses none: what is to be done holds without."""
    return all(item.partition("=")[0].partition(": ")[0] in run.inert for item in _ITEMS.split(items))


def _holds(clause: str, run: Means) -> bool:
    return run.inert.isdisjoint(_KEY.findall(clause)) and not (run.cpus and _GPUS.search(clause))


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    """Each clause with what joins it to the next one. What stands in brackets is one piece."""
    begin = 0
    for joint in _JOINT.finditer(text):
        if text.count("(", 0, joint.start()) == text.count(")", 0, joint.start()):
            yield text[begin : joint.start()], joint.group()
            begin = joint.end()
    yield text[begin:], ""


def _without_items(text: str, run: Means) -> str:
    """The text without inert keys of lists that have others: ``A, B and C``."""
    for key in keys_in(text):
        if key not in run.inert:
            continue
        item = _ITEM.format(key=re.escape(key))
        end = r"(?=$|[,;.)]| and | or )"
        other = r"(?=(?:a (?:higher|lower) )?[a-z]\w*\.[a-z]\w*)"
        last = rf"(?P<before>[a-z]\w*\.\w+(?:: [\w.]*\w)?)(?:, or|, and|,| or| and) {item}{end}"
        text = re.sub(last, r"\g<before>", text)
        text = re.sub(rf"{item}(?:,? or|,? and|,) {other}", "", text)
    return text
