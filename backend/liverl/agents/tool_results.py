"""Results of tools as the model gets them. Pure; for Python 3.10 without packages."""

from __future__ import annotations


def cut(text: str, most: int, side: str) -> str:
    """``text`` with at most ``most`` characters of it, cut as verl 0.9.1 cuts results of tools. ``side``: what is left
    out, ``left`` or ``right``; any other: the middle, which keeps half of ``most``, rounded down, on both sides."""
    if len(text) <= most:
        return text
    if side == "left":
        return "(truncated)..." + text[-most:]
    if side == "right":
        return text[:most] + "...(truncated)"
    half = most // 2
    return text[:half] + "...(truncated)..." + text[-half:]
