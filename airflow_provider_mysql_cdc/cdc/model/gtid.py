"""Sets of global transaction identifiers, tagged ones too.

Text form, interval rules and tags: MySQL 9 manual, 19.1.3.1 "GTID Format and Storage". Binary form: the set that
COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS events carry.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct

GtidInterval = tuple[int, int]  # first, last + 1
Tsid = tuple[str, str]  # uuid, tag ("" for none)
GtidIntervals = tuple[GtidInterval, ...]

MAX_COPIED_CHARS = 4000
"""Characters of a set's text that a person is to copy out of an error, at most."""
MOST_READ_EMPTY = 200
"""Intervals of GTIDs that are remembered of transactions that were read as empty ones, at most: the newest."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_U64 = Struct("<Q")
_INTERVAL_STRUCT = Struct("<QQ")
_TAGGED_FORMAT = 1


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Hold a set of GTIDs; equal sets compare equal whatever text they came from.

    Args:
        sets: Disjoint, ordered intervals for each (uuid, tag).
    """

    sets: Mapping[Tsid, GtidIntervals] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> GtidSet:
        """Read MySQL's text form: ``uuid:1-5:7:tag:1-3,uuid:...``; None and blank text give the empty set.

        Raises:
            ValueError: The text is not a GTID set.
        """
        intervals_by_tsid: dict[Tsid, list[GtidInterval]] = {}
        for part in (text or "").split(","):
            if part.strip():
                for tsid, interval in _parse_part(part):
                    intervals_by_tsid.setdefault(tsid, []).append(interval)
        return cls._from_intervals(intervals_by_tsid)

    @classmethod
    def decode(cls, data: bytes) -> GtidSet:
        """Read the binary form.

        Raises:
            ValueError: The bytes end early.
        """
        try:
            return cls._from_intervals(_decode(data))
        except (IndexError, ArithmeticError, UnicodeDecodeError) as error:
            raise ValueError("the binary GTID set is cut off or damaged") from error

    @classmethod
    def _from_intervals(cls, intervals_by_tsid: Mapping[Tsid, Iterable[GtidInterval]]) -> GtidSet:
        merged = {tsid: _merge(intervals) for tsid, intervals in sorted(intervals_by_tsid.items())}
        return cls({tsid: intervals for tsid, intervals in merged.items() if intervals})

    def __str__(self) -> str:
        parts: list[str] = []
        last = ""
        for (uuid, tag), intervals in self.sets.items():
            text = ":".join(str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in intervals)
            text = f"{tag}:{text}" if tag else text
            if uuid == last:
                parts[-1] += ":" + text
            else:
                parts.append(f"{uuid}:{text}")
            last = uuid
        return ",".join(parts)

    def __bool__(self) -> bool:
        return bool(self.sets)

    def add(self, gtid: str) -> GtidSet:
        """Return the set with one GTID (or a set's text) added."""
        return self.union(GtidSet.parse(gtid))

    def union(self, other: GtidSet) -> GtidSet:
        """Return all GTIDs of either set."""
        combined = {t: [*self.sets.get(t, ()), *other.sets.get(t, ())] for t in {**self.sets, **other.sets}}
        return GtidSet._from_intervals(combined)

    def subtract(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs of this set that the other does not hold."""
        return GtidSet._from_intervals({t: _subtract(own, other.sets.get(t, ())) for t, own in self.sets.items()})

    def contains(self, other: GtidSet | str) -> bool:
        """Return whether every GTID of the other set (or of a set's text) is in this one."""
        required = GtidSet.parse(other) if isinstance(other, str) else other
        return not required.subtract(self)

    def of_sources(self, wanted: Callable[[str], bool]) -> GtidSet:
        """Return the GTIDs of some servers.

        Args:
            wanted: Says of a server's uuid whether its GTIDs are wanted.
        """
        return GtidSet({tsid: intervals for tsid, intervals in self.sets.items() if wanted(tsid[0])})

    def behind_first_of(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs of the set with a higher number than the lowest of their server in another set.

        Args:
            other: The other set, which holds none of them.
        """
        lowest = {tsid: intervals[0][0] for tsid, intervals in other.sets.items()}
        return GtidSet._from_intervals(
            {
                tsid: [interval for interval in intervals if interval[0] > lowest[tsid]]
                for tsid, intervals in self.sets.items()
                if tsid in lowest
            }
        )

    def newest(self, most: int) -> GtidSet:
        """Return the set with as many intervals; what it loses are the lowest numbers of who has most of them.

        Args:
            most: How many it may have.
        """
        sets = dict(self.sets)
        while sum(map(len, sets.values())) > most:
            longest = max(sets, key=lambda tsid: len(sets[tsid]))
            sets[longest] = sets[longest][1:]
        return GtidSet({tsid: intervals for tsid, intervals in sets.items() if intervals})

    def has_tags(self) -> bool:
        """Return whether any GTID has a tag."""
        return any(tag for _, tag in self.sets)

    def encode(self) -> bytes:
        """Return the binary form; servers before 8.3 read it as long as no tag is used."""
        tagged = self.has_tags()
        count = len(self.sets)
        # The format number stands in the highest and, for tagged sets, again in the lowest byte of the count.
        header = (_TAGGED_FORMAT << 56 | count << 8 | _TAGGED_FORMAT) if tagged else count
        out = [_U64.pack(header)]
        for (uuid, tag), intervals in self.sets.items():
            out.append(bytes.fromhex(uuid.replace("-", "")))
            if tagged:
                out += [bytes([len(tag) << 1]), tag.encode()]
            out.append(_U64.pack(len(intervals)))
            out += [_INTERVAL_STRUCT.pack(a, b) for a, b in intervals]
        return b"".join(out)


class GtidTracker:
    """Follow the executed set while transactions pass; adding the next transaction costs no more than a look-up.

    Args:
        start: Set executed before the first transaction; None when it is not known, then the result is not known.
    """

    __slots__ = ("_sets", "_start_known")

    def __init__(self, start: str | None) -> None:
        self._start_known = start is not None
        self._sets: dict[str, list[GtidInterval]] = {}
        for (uuid, tag), intervals in GtidSet.parse(start).sets.items():
            self._sets[f"{uuid}:{tag}" if tag else uuid] = list(intervals)

    def add_range(self, uuid: str, first: int, end: int) -> None:
        """Add GTIDs that follow each other.

        Args:
            uuid: The server's UUID.
            first: The first number.
            end: The number behind the last.
        """
        intervals = self._sets.get(uuid)
        if intervals and intervals[-1][1] == first:
            intervals[-1] = (intervals[-1][0], end)
            return
        for number in range(first, end):
            self.add(f"{uuid}:{number}")

    def add(self, gtid: str) -> None:
        """Add one GTID as ``events.parse_gtid`` writes it: ``uuid:number`` or ``uuid:tag:number``."""
        tsid, _, text = gtid.rpartition(":")
        number = int(text)
        intervals = self._sets.get(tsid)
        if intervals is None:
            self._sets[tsid] = [(number, number + 1)]
            return
        first, end = intervals[-1]
        if number == end:
            intervals[-1] = (first, number + 1)
        elif number > end:
            intervals.append((number, number + 1))
        elif number < first:
            self._insert(intervals, number)

    @staticmethod
    def _insert(intervals: list[GtidInterval], number: int) -> None:
        index = bisect_right(intervals, (number, number + 1))
        low = max(index - 1, 0)
        intervals[low : index + 1] = _merge([*intervals[low : index + 1], (number, number + 1)])

    def gtid_set(self) -> GtidSet:
        """Return the set as of now."""
        parts = {t: t.partition(":") for t in self._sets}
        return GtidSet._from_intervals({(parts[t][0], parts[t][2]): intervals for t, intervals in self._sets.items()})

    def text(self) -> str | None:
        """Return the set's text, or None when the start was not known."""
        return str(self.gtid_set()) if self._start_known else None


@lru_cache(maxsize=4)
def standard_text(text: str | None) -> str:
    """Return a server's text of a set as ``GtidSet`` writes it; the texts that come again and again are kept.

    A run that follows a source asks ten times a second, and a set of many servers takes milliseconds to parse.

    Args:
        text: MySQL's text form; None for the empty set.

    Raises:
        ValueError: The text is not a GTID set.
    """
    return str(GtidSet.parse(text))


def gtid_source(gtid: str) -> str:
    """Return the uuid of the server that a GTID is of.

    Args:
        gtid: ``uuid:number`` or ``uuid:tag:number``.
    """
    return gtid.partition(":")[0]


def _parse_part(part: str) -> Iterator[tuple[Tsid, GtidInterval]]:
    uuid, *items = (item.strip().lower() for item in part.split(":"))
    if not _UUID.fullmatch(uuid) or not items:
        raise ValueError(f"not a GTID set: {part.strip()!r}")
    tag, has_interval = "", False
    for item in items:
        if match := _INTERVAL.fullmatch(item):
            first = int(match[1])
            last = int(match[2] or first)
            if first < 1:
                raise ValueError(f"not a GTID set, numbers begin at 1: {part.strip()!r}")
            has_interval = True
            if last >= first:
                yield (uuid, tag), (first, last + 1)
        elif _TAG.fullmatch(item):
            tag, has_interval = item, False
        else:
            raise ValueError(f"not a GTID set: {part.strip()!r}")
    if not has_interval:
        raise ValueError(f"not a GTID set, a tag without numbers: {part.strip()!r}")


def _merge(intervals: Iterable[GtidInterval]) -> GtidIntervals:
    out: list[GtidInterval] = []
    for first, end in sorted(intervals):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((first, end))
    return tuple(out)


def _subtract(own: GtidIntervals, other: GtidIntervals) -> list[GtidInterval]:
    remaining = list(own)
    for first, end in other:
        pieces: list[GtidInterval] = []
        for a, b in remaining:
            pieces += [(x, y) for x, y in ((a, min(b, first)), (max(a, end), b)) if x < y]
        remaining = pieces
    return remaining


def _decode(data: bytes) -> dict[Tsid, list[GtidInterval]]:
    header = int.from_bytes(data[:8], "little")
    tagged = header >> 56 == _TAGGED_FORMAT
    count = header >> 8 & 0xFFFFFFFFFFFF if tagged else header
    intervals_by_tsid: dict[Tsid, list[GtidInterval]] = {}
    pos = 8
    for _ in range(count):
        uuid, tag = uuid_text(data[pos : pos + 16]), ""
        pos += 16
        if tagged:
            length = data[pos] >> 1
            tag = data[pos + 1 : pos + 1 + length].decode("ascii")
            if tag:
                require_tag(tag)
            pos += 1 + length
        if pos + 8 > len(data):
            raise IndexError(pos)
        interval_count = int.from_bytes(data[pos : pos + 8], "little")
        pos += 8
        if pos + 16 * interval_count > len(data):
            raise IndexError(pos)
        pairs: list[GtidInterval] = [_INTERVAL_STRUCT.unpack_from(data, pos + 16 * i) for i in range(interval_count)]
        if any(not 0 < first < end for first, end in pairs):
            raise ValueError("an interval of a binary GTID set is empty")
        intervals_by_tsid[uuid, tag] = pairs
        pos += 16 * interval_count
    return intervals_by_tsid


def require_tag(tag: str) -> None:
    """Refuse what is not a tag.

    Raises:
        ValueError: It is not.
    """
    if not _TAG.fullmatch(tag):
        raise ValueError(f"not a tag of a GTID: {tag!r}")


def uuid_text(data: bytes) -> str:
    """Return the text of a 16-byte uuid.

    Raises:
        IndexError: Not 16 bytes.
    """
    if len(data) != 16:
        raise IndexError("a uuid has 16 bytes")
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
