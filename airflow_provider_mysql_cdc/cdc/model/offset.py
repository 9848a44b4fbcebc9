"""Positions in the binlog."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


def file_number(name: str) -> int:
    """Return the number at the end of a binlog file name: ``binlog.000012`` gives 12.

    MySQL goes from ``.999999`` to ``.1000000``, so files are ordered by number, never as text.
    """
    return int(name.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class BinlogOffset:
    """Stand at a transaction boundary of one server's binlog.

    Args:
        file: Binlog file name.
        pos: Byte position in it.
        gtids: GTID set executed up to here (MySQL's text form), or None when GTIDs are off or not known.
        server_uuid: The server that file and position belong to, or None when not known.
    """

    file: str
    pos: int
    gtids: str | None = None
    server_uuid: str | None = None

    def key(self) -> tuple[int, int]:
        """Return the sort key (file number, position); only meaningful for offsets of one server."""
        return file_number(self.file), self.pos

    def at(self, file: str, pos: int, gtids: str | None = None) -> BinlogOffset:
        """Return this offset moved to another place of the same server."""
        return replace(self, file=file, pos=pos, gtids=gtids)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"file": self.file, "pos": self.pos, "gtids": self.gtids, "server_uuid": self.server_uuid}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BinlogOffset:
        """Read what ``to_json`` wrote."""
        return cls(str(data["file"]), int(data["pos"]), data.get("gtids"), data.get("server_uuid"))

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@dataclass(frozen=True, slots=True)
class Reached:
    """Say how far a writer got: a boundary, and how much of the transaction after it.

    Args:
        offset: The last transaction boundary passed.
        events: Row events of the transaction that begins there which are already committed to Kafka.
            MySQL cuts a statement's rows into events of about 8 KB, so an event is small and never split.
    """

    offset: BinlogOffset
    events: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**self.offset.to_json(), "event": self.events, "row": 0}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reached:
        """Read what ``to_json`` wrote."""
        return cls(BinlogOffset.from_json(data), int(data.get("event", 0)))
