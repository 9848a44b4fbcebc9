"""Sets of transactions, as the server writes them: ``source:1-5:7,source:1-3``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topiclib.events import Gtid


@dataclass(frozen=True)
class GtidSet:
    """A set of transactions.

    Args:
        ranges: First and last numbers by source.
    """

    ranges: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read what ``gtid_executed`` contains."""
        ranges: dict[str, tuple[tuple[int, int], ...]] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            source, *numbers = part.split(":")
            bounds = [number.split("-") for number in numbers]
            ranges[source] = tuple((int(bound[0]), int(bound[-1])) for bound in bounds)
        return cls(ranges)

    def __contains__(self, transaction: Gtid) -> bool:
        """Return whether a transaction is in it."""
        source, number = transaction
        return any(first <= number <= last for first, last in self.ranges.get(source, ()))

    def __and__(self, other: GtidSet) -> GtidSet:
        """Return the transactions that are in both."""
        ranges = {
            source: tuple(
                (max(a, c), min(b, d))
                for a, b in own
                for c, d in other.ranges.get(source, ())
                if max(a, c) <= min(b, d)
            )
            for source, own in self.ranges.items()
        }
        return GtidSet({source: both for source, both in ranges.items() if both})
