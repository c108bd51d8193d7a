"""Prints what ``doctor`` says of each case. ``PYTHONPATH=backend:.:tests:tests/unit`` is needed."""

from __future__ import annotations

from test_doctor_cases import HEALTHY, RECORDINGS, cases, explained

from liverl.offline.doctor.examine import examine


def main() -> None:
    right = good = total = 0
    for case in cases():
        found = examine([case.log])
        cause = found.verdict.cause
        text = "" if cause is None else cause.evidence[0].text
        line, told = any(part in text for part in case.lines), explained(found)
        total, right, good = total + 1, right + line, good + told
        identity = "-" if cause is None else cause.id
        print(
            f"{case.log.name:50} line {'yes' if line else 'NO ':3} explained {'yes' if told else 'NO ':3} {identity}"
        )
        if not (line and told):
            print(f"    wanted: {case.lines[0]}\n    said:   {text[:200]}")
    print(f"right line {right} of {total}, explained {good} of {total}")
    for name in HEALTHY:
        verdict = examine([RECORDINGS / name]).verdict
        wrong = [one.title for one in (verdict.cause, *verdict.symptoms) if one is not None]
        print(f"{name:50} healthy: {wrong or 'nothing'}")


if __name__ == "__main__":
    main()
