"""LiveRL's filter of trajectories as ``agent.endings``: the variables ``TRAJ_FILTER_ENABLE`` and
``TRAJ_FILTER_DROP_REASONS``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from liverl.agents.endings import Treatment
from liverl.util.nearest import did_you_mean

ENABLE, REASONS = "TRAJ_FILTER_ENABLE", "TRAJ_FILTER_DROP_REASONS"
KEY = "agent.endings"
USUAL = "timeout,env_setup_failed"  # LiveRL's reasons if the variable is not set
# LiveRL's reason -> the key of agent.endings, and its value if trials are dropped for that reason. LiveRL drops a
# trial whose sandbox failed after its retries: that is what ``repeat`` does.
_MEANS: dict[str, tuple[str, Treatment]] = {
    "timeout": ("timeout", "drop"),
    "overlong": ("limit", "drop"),
    "max_turns_reached": ("limit", "drop"),
    "env_setup_failed": ("infrastructure", "repeat"),
}
_ON, _OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class FilterSetting(Struct, frozen=True):
    """One key that the variables set, with the variable that does. ``problem``: what is wrong with its value instead;
    ``allowed`` and ``hint`` say what it may be."""

    variable: str
    key: str
    value: str
    problem: str = ""
    allowed: str = ""
    hint: str = ""


def endings_of(env: Mapping[str, str]) -> Iterator[FilterSetting]:
    """The keys of ``agent.endings`` that the variables set; none if neither is set. A cause for which LiveRL has no
    reason keeps its own value, unless the filter is off."""
    enable, reasons = env.get(ENABLE, ""), env.get(REASONS, "")
    if not enable and not reasons:
        return
    word = enable.strip().lower()
    if word and word not in (*_ON, *_OFF):
        hint = did_you_mean(word, ["True", "False"])
        yield FilterSetting(ENABLE, KEY, enable, "wrong value", "True or False", hint)
        return
    if word in _OFF:
        for cause in ("limit", "timeout", "exit", "infrastructure"):
            yield FilterSetting(ENABLE, f"{KEY}.{cause}", "train")
        return
    variable = REASONS if reasons else ENABLE
    named = [reason.strip() for reason in (reasons or USUAL).strip("[]").split(",") if reason.strip()]
    unknown = [reason for reason in named if reason not in _MEANS]
    for reason in unknown:
        allowed = f"a list of {', '.join(_MEANS)}"
        yield FilterSetting(
            variable, KEY, reason, "unknown reason", allowed, did_you_mean(reason, list(_MEANS))
        )
    if unknown:
        return
    values: dict[str, Treatment] = {cause: "train" for cause, _ in _MEANS.values()}
    values.update(_MEANS[reason] for reason in named)
    for cause, treatment in values.items():
        yield FilterSetting(variable, f"{KEY}.{cause}", treatment)
