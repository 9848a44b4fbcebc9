"""Values that events show as null because a type of the contract cannot hold them, until they are reported.

As Debezium does, ``time.precision.mode`` ``connect`` and ``isostring`` write null for a TIME outside of a day, and
``nanoseconds`` for a DATETIME beyond 64 bits, if the column may be NULL. The event is kept, but its value is lost, so
it is counted, and the first one of a column is logged. Where the column's default stands for NULL, which would be
another value, the row fails.

Generated code has no way to return them: it notes them here, each thread its own, and who decodes takes them after
each event, or after each row of a snapshot. Who decodes rows again drops what was noted before.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.model.table import Column, TableId

NULLED_SUFFIX = " (values written as null)"
"""Follows the topic in the name under which they are counted."""


class NulledValue(NamedTuple):
    """Describe a value.

    Args:
        column: Its column.
        value: The value as MySQL shows it; empty where the configuration changes what events show of the column.
        mode: ``time.precision.mode``.
    """

    column: str
    value: str
    mode: str


class NulledValues(threading.local):
    """Hold the values that this thread has written as null.

    Attributes:
        values: They, in order.
    """

    def __init__(self) -> None:
        self.values: list[NulledValue] = []

    def note(self, column: Column, options: DecoderOptions, value: str) -> None:
        """Note a value.

        Args:
            column: Its column.
            options: Modes.
            value: The value as MySQL shows it.
        """
        hidden = options.treatment(column).change is not None
        self.values.append(NulledValue(column.name, "" if hidden else value, options.time_mode))

    def take(self) -> list[NulledValue]:
        """Return the values and forget them."""
        values, self.values = self.values, []
        return values


NULLED = NulledValues()


def nulled_warning(table: TableId, value: NulledValue, where: str) -> str:
    """Return the line of the log.

    Args:
        table: The table.
        value: The first such value of its column.
        where: The event, or the key range of a snapshot.
    """
    shown = f" {value.value}" if value.value else ""
    return (
        f"WARNING: the value{shown} of column {value.column} of table {table} is null in its event ({where}): "
        f"time.precision.mode={value.mode} cannot represent it. Others of the column are counted and not logged. "
        "Another time.precision.mode, such as microseconds, can represent it"
    )
