"""A piece of a log in parts, lines and the states of progress bars in them. Pure."""

from __future__ import annotations


def piece_end(data: bytes, begin: int, size: int) -> int:
    """Where a piece of about ``size`` bytes, of some lines, ends that begins at ``begin``."""
    least, most = begin + size, begin + 2 * size
    place = (
        data.find(b"\n", least, most) + 1 or data.find(b"\r", least, most) + 1 or data.find(b"\n", most) + 1
    )
    return place or len(data)


class Block:
    """The parts of a piece of ``data``, its bytes from ``first`` to ``last``; ``data`` begins at byte ``offset`` of the
    log. ``shapes``: each as long as its part; ``loose``: see ``Listening._coded``."""

    def __init__(
        self, data: bytes, first: int, last: int, offset: int, shapes: list[bytes], loose: list[bytes]
    ) -> None:
        self.data, self.offset, self.shapes, self.loose = data, offset, shapes, loose
        self._first, self._last = first, last
        self._number, self._begin = 0, first  # a part, and where it begins
        self._line = range(0)  # where the line begins and ends that was asked for last

    @property
    def piece(self) -> bytes:
        """Its bytes."""
        return self.data[self._first : self._last]

    def begin(self, number: int) -> int:
        """Where a part begins in ``data``. Quick if those are asked for one after another."""
        if number < self._number:
            self._number, self._begin = 0, self._first
        self._begin += sum(map(len, self.shapes[self._number : number])) + number - self._number
        self._number = number
        return self._begin

    def part(self, number: int) -> bytes:
        """A part without what ends it."""
        begin = self.begin(number)
        return self.data[begin : begin + len(self.shapes[number])]

    def line(self, number: int) -> tuple[int, int]:
        """Where the line of a part begins and ends in the log."""
        begin = self.begin(number)
        if not (self._line.start <= begin <= self._line.stop and self._line):
            end = self.data.find(b"\n", begin)
            self._line = range(self.data.rfind(b"\n", 0, begin) + 1, len(self.data) if end < 0 else end)
        return self.offset + self._line.start, self.offset + self._line.stop
