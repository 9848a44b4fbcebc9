"""How the rows of a table are spread over the partitions of its topic (TiCDC's partition dispatchers)."""

from __future__ import annotations

from dataclasses import dataclass

DISPATCHER_NAMES = ("default", "table", "index-value", "columns", "ts")
"""Known dispatchers; ``ticdc.partition_dispatcher`` says what each does."""


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Say how rows are spread over partitions.

    Args:
        name: One of ``DISPATCHER_NAMES``.
        index: Name of the unique index for ``index-value``; empty for the key.
        columns: Names of the columns for ``columns``.
    """

    name: str = "default"
    index: str = ""
    columns: tuple[str, ...] = ()
