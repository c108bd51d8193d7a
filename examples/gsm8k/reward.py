"""The reward: 1 if the reply's answer is the right number, else 0; 0.1 of it for the form alone."""

import re

_ANSWER = re.compile(r"####\s*\$?(-?[0-9][0-9,]*(?:\.[0-9]+)?)")


def score(data_source, solution_str, ground_truth, extra_info=None, form=0.1, **kwargs):
    """``solution_str``: the reply; ``ground_truth``: the number as text. Returns the score, and its parts."""
    found = _ANSWER.findall(solution_str)
    right = bool(found) and float(found[-1].replace(",", "")) == float(ground_truth)
    return {
        "score": 1.0 if right else form if found else 0.0,
        "right": float(right),
        "has_answer": float(bool(found)),
    }
