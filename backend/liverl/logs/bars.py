"""Progress bars of tqdm in a log: they end without a newline, so what is printed next stands behind them. Pure."""

from __future__ import annotations

from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.ray_prefixes import repeated_in
from liverl.util.late_pattern import late_pattern

# "[00:08<00:02,  2.83s/it, loss=0.3]", "[00:00, 251231.07 examples/s]"
_BAR = late_pattern(r"\[(?:\d{1,4}:)?\d\d:\d\d[<,][^\[\]\n]{1,200}\](?=\S)")


_TRAINING = "Training Progress:"  # of verl's trainer, and of ours
# Nothing but what tqdm draws: a value that somebody has put into the bar stands nowhere else
_WHOLE = late_pattern(
    rf"\s*{_TRAINING}\s{{0,4}}(?:\d{{1,3}}%\|[\s\d#\u2588-\u258f]{{0,200}}\|?\s?)?\d{{1,12}}(?:/\d{{1,12}}|it)"
    r" \[[\d:]{4,12}(?:<[\d:?]{1,12})?(?:, {1,3}[\d.?]{1,10}(?:s/it|it/s))?\]\s*"
)


def may_have_training_bar(text: str) -> bool:
    """Whether ``text``, of any number of lines, may hold the trainer's progress bar. Quick."""
    return _TRAINING in text


def is_training_bar(line: str) -> bool:
    """Whether a plain line is nothing but the trainer's progress bar: how many steps are done, and a guess at the time
    that is left, which the interface tells at the top, by the newest steps."""
    return _TRAINING in line and _WHOLE.fullmatch(repeated_in(split_prefixes(line).text)[0]) is not None


def behind_bar(text: str) -> int:
    """Where in a line the text begins that stands directly behind a progress bar; 0 if there is none."""
    if "/s" not in text and "s/" not in text:  # every bar has a rate; this is quick
        return 0
    return max((bar.end() for bar in _BAR.finditer(text)), default=0)
