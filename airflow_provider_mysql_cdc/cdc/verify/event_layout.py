"""Recognize the JSON text of events that the stream writes under a table's present structure, without reading it.

Members stand in one order, each once. A text with other members, or in another order, has to be read; it may have been
written under another configuration, or by other hands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import value_columns
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member, contract
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compared_columns import column_field

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = rb"(?:" + _STRING + rb'|[^"\[\]{},]++)'
_VALUE = rb"(?:" + _STRING + rb'|[^"\[\]{},]++|\[(?:' + _STRING + rb'|[^"\[\]])*+\]|\{(?:' + _STRING + rb'|[^"{}])*+\})'
_BEFORE, _AFTER, _NULL = b'{"before":', b',"after":', b"null"
_OPERATION = rb'"([a-z])"'


@dataclass(frozen=True, slots=True)
class EventLayout:
    """Hold the patterns of a table's events.

    Args:
        row: Matches the text of a row.
        tail: Matches what follows the rows, from the comma before ``source`` to the end; its group is the operation.
    """

    row: re.Pattern[bytes]
    tail: re.Pattern[bytes]

    def has_own_members(self, value: bytes, start: int) -> bool:
        """Return whether a text has the members of an event of the present structure, and no others.

        Args:
            value: The record's value.
            start: Where its payload begins.
        """
        for name in (_BEFORE, _AFTER):
            if not value.startswith(name, start):
                return False
            start += len(name)
            if value.startswith(_NULL, start):
                start += len(_NULL)
            elif (row := self.row.match(value, start)) is not None:
                start = row.end()
            else:
                return False
        return self.tail.fullmatch(value, start) is not None


def event_layout(cfg: ConnectorConfig, table: Table, *, has_schema: bool) -> EventLayout:
    """Return the layout of a table's events in JSON.

    Args:
        cfg: The connector's configuration.
        table: The table.
        has_schema: Whether values have schemas.
    """
    columns = value_columns(table, table_options.table_options(cfg, table))
    layout = contract(str(cfg[F.EVENT_CONTRACT]), source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]))
    return layout_of((column_field(cfg, column) for column in columns), table.id, layout, has_schema=has_schema)


def layout_of(fields: Iterable[str], table: TableId, layout: Contract, *, has_schema: bool) -> EventLayout:
    """Return the layout of events.

    Args:
        fields: Fields of the table's rows, in order.
        table: The table's name.
        layout: The event contract.
        has_schema: Whether values have schemas.
    """
    named = {"db": _literal(table.db), "table": _literal(table.table)}
    source = b",".join(_name(m.name) + named.get(m.name, _SCALAR) for m in layout.source)
    tail = b"".join(b"," + _name(member.name) + _tail_value(member) for member in layout.tail)
    closing = rb"\}\}" if has_schema else rb"\}"
    row = b",".join(_name(name) + _VALUE for name in fields)
    return EventLayout(
        re.compile(rb"\{" + row + rb"\}"), re.compile(rb',"source":\{' + source + rb"\}" + tail + closing)
    )


def _literal(text: str) -> bytes:
    return re.escape(dumps(text).encode())


def _name(name: str) -> bytes:
    return _literal(name) + b":"


def _tail_value(member: Member) -> bytes:
    if member.name == "op":
        return _OPERATION
    if not member.schema:
        return _SCALAR
    members = b",".join(_name(field["field"]) + _SCALAR for field in dict(member.schema)["fields"])
    return rb"(?:null|\{" + members + rb"\})"
