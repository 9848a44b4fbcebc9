"""What deals with whole transactions before the stream yields their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Walked(Protocol):
    """What a stream reads of a walk (``decode.native_transactions``)."""

    @property
    def at(self) -> int:
        """Offset behind the transactions that were walked."""

    @property
    def pos(self) -> int:
        """Position behind them."""

    @property
    def cut(self) -> bool:
        """Whether more bytes may bring more of them."""


Walk = Callable[[bytes, int, str, int, int, int], Walked]
"""Deals with the transactions that it knows: chunk, offset of the packet with the first one's GTID event, file,
position, the position behind which no event ends, bytes of checksum behind each event."""
