"""Recognize what follows the rows of an event without reading it, where only its times differ from an earlier one.

The events of a chunk of a snapshot have one source block; so have most of an incremental snapshot's. What was read once
need not be read again where the same bytes stand there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

FactsT = TypeVar("FactsT")
Times = tuple[int, re.Pattern[bytes], re.Pattern[bytes]]
"""Where the times at the end of a value begin, and what matches such times, and those with as many digits."""

_TRIES_PER_MISS = 16
"""One of so many tails that are not like the last one is remembered: those of changes seldom come again."""
_JSON_TIMES = re.compile(rb'(?:,"ts_[a-z]{2}":(?:0|[1-9][0-9]{0,18}))+\}{1,2}\Z')
_DIGITS = re.compile(rb"(?<=:)[0-9]+")
_MAX_TIMES_BYTES = 128


class RecentTails(Generic[FactsT]):
    """Remember the last text that was read, up to its times.

    Args:
        times: Returns what is known of the times at the end of a value; None where there are none.
    """

    def __init__(self, times: Callable[[bytes, int], Times | None]) -> None:
        self._times_of, self._misses = times, -1
        self._head, self._times, self._size = b"", b"", 0
        self._is_times: Callable[[bytes, int], object] = _JSON_TIMES.fullmatch
        self._is_as_long: Callable[[bytes, int], object] = _JSON_TIMES.fullmatch
        self._whole_size = 0
        self._facts: FactsT | None = None

    def read(self, value: bytes, source: int) -> FactsT | None:
        """Return what was said of the text that this one is like; None for another one.

        Args:
            value: The record's value.
            source: Where the text behind its rows begins.
        """
        if self._facts is None or not value.startswith(self._head, source):
            return None
        return self._facts if self._is_times(value, source + self._size) is not None else None

    def read_end(self, value: bytes) -> tuple[int, FactsT] | None:
        """Return where a text begins that is like the last one and of its length, and what was said of that.

        What is before it has to be looked at, or compared as bytes: nothing says that no such text is there, too.

        Args:
            value: The record's value.
        """
        source = len(value) - self._whole_size
        facts = self._facts
        if facts is None or source < 0 or not value.startswith(self._head, source):
            return None
        return (source, facts) if self._is_as_long(value, source + self._size) is not None else None

    def last(self) -> tuple[bytes, bytes, FactsT] | None:
        """Return the text that was read last up to its times, these, and what was said of it; None for none."""
        return None if self._facts is None else (self._head, self._times, self._facts)

    def learn(self, value: bytes, source: int, facts: FactsT) -> FactsT:
        """Take a text as one that later ones may be like, and return what it says.

        Args:
            value: The record's value, which was read and accepted.
            source: Where the text behind its rows begins.
            facts: What it says.
        """
        self._misses += 1
        if self._misses % _TRIES_PER_MISS == 0:
            found = self._times_of(value, source)
            self._facts = None
            if found is not None:
                begin, pattern, as_long = found
                self._head, self._size, self._whole_size = value[source:begin], begin - source, len(value) - source
                self._times = value[begin:]
                self._is_times, self._is_as_long, self._facts = pattern.fullmatch, as_long.fullmatch, facts
        return facts


def json_times(value: bytes, source: int) -> Times | None:
    """Return what is known of the times at the end of an event in JSON.

    Args:
        value: The record's value.
        source: Where the text behind its rows begins.
    """
    found = _JSON_TIMES.search(value, max(source, len(value) - _MAX_TIMES_BYTES))
    if found is None:
        return None
    names = [re.escape(name) for name in _DIGITS.split(found[0])]
    sizes = [len(digits) for digits in _DIGITS.findall(found[0])]
    numbers = (b"[0-9]" if size == 1 else b"[1-9][0-9]{%d}" % (size - 1) for size in sizes)
    same = b"".join(part for pair in zip(names, (*numbers, b""), strict=True) for part in pair)
    return found.start(), re.compile(rb"(?:0|[1-9][0-9]{0,18})".join(names)), re.compile(same)
