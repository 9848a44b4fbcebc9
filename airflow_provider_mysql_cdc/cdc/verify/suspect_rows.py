"""The SELECT statements that find the rows of suspects: keys of which topic and table seem to disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.snapshot.select import rows_sql
from airflow_provider_mysql_cdc.cdc.verify.key_conditions import UnsearchableValue, value_condition
from airflow_provider_mysql_cdc.cdc.verify.row_text import DIGEST_MARK

KeyFields = Mapping[str, Any]
"""The fields that identify a row, by name, as records hold them."""
MAX_SUSPECTS_PER_SELECT = 500
MAX_CONDITION_CHARACTERS = 1 << 20
"""Well below max_allowed_packet, 64 MB by default, and the memory of the range optimizer
(range_optimizer_max_mem_size, 8 MB; some 300 bytes for each comparison)."""


@dataclass(frozen=True, slots=True)
class SuspectSelect:
    """Describe a statement that reads at least the rows of some suspects.

    Args:
        sql: The SELECT; its rows are those of the table's text decoder.
        key_kinds: For ``stored_dates_allowed``.
        suspects: Their number.
        scans: Whether it reads the whole table.
    """

    sql: str
    key_kinds: tuple[str, ...]
    suspects: int
    scans: bool = False


class SuspectRows:
    """Build the statements of one table.

    Args:
        table: The table as it is in the view.
        options: From ``table_options.table_options``.
        columns: The columns to select.

    Attributes:
        unsearchable: Why columns do not bound the statements, by column; such rows are found by reading all rows that
            the other columns leave, and if there is none, the whole table.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> None:
        self.unsearchable: dict[str, str] = {}
        self._table, self._options, self._columns = table, options, columns
        self._column_by_field = {field_name(c.name, options.field_names): c for c in table.columns}
        self._in_key = {column.name for column in key_columns(table, options)}
        temporal = any(column.family in TEMPORAL_FAMILIES for column in table.columns)
        self._key_kinds = ("DATE",) if temporal else ()

    def selects(self, suspects: Iterable[KeyFields]) -> Iterator[SuspectSelect]:
        """Yield statements that together read the row of each suspect that has one, and possibly others.

        Args:
            suspects: The suspects' fields: those of the key, or for a table without one any others of its row.
        """
        conditions: list[str] = []
        size, unbounded = 0, 0
        for fields in suspects:
            condition = self.condition(fields)
            if condition == "TRUE":
                unbounded += 1
                continue
            if conditions and (
                len(conditions) >= MAX_SUSPECTS_PER_SELECT or size + len(condition) > MAX_CONDITION_CHARACTERS
            ):
                yield self._select(conditions)
                conditions, size = [], 0
            conditions.append(condition)
            size += len(condition)
        if conditions:
            yield self._select(conditions)
        if unbounded:
            yield SuspectSelect(self._sql("TRUE"), self._key_kinds, unbounded, scans=True)

    def condition(self, fields: KeyFields) -> str:
        """Return the condition of a suspect's rows; TRUE if nothing is known of them.

        Args:
            fields: The suspect's fields.
        """
        parts: list[str] = []
        for name, value in fields.items():
            column = self._column_by_field.get(name)
            if column is None:
                # Fields that transforms add to keys are the same for all rows of a table.
                continue
            try:
                if column.name not in self._in_key and self._options.treatment(column).change is not None:
                    raise UnsearchableValue("records show it masked, hashed or truncated")
                if isinstance(value, str) and value.startswith(DIGEST_MARK):
                    raise UnsearchableValue("it is so long that only its digest is known")
                parts.append(value_condition(column, self._options, value))
            except UnsearchableValue as reason:
                self.unsearchable.setdefault(column.name, str(reason))
        return " AND ".join(parts) or "TRUE"

    def _select(self, conditions: list[str]) -> SuspectSelect:
        condition = conditions[0] if len(conditions) == 1 else " OR ".join(f"({each})" for each in conditions)
        return SuspectSelect(self._sql(condition), self._key_kinds, len(conditions))

    def _sql(self, condition: str) -> str:
        return rows_sql(self._table.id, self._columns, condition, ())


__all__ = ["KeyFields", "SuspectRows", "SuspectSelect"]
