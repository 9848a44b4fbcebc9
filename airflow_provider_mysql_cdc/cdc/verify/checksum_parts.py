"""Choose how a table's keys and rows are taken out of its records for checksums, by the format of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.verify.avro_keys import AvroKeys
from airflow_provider_mysql_cdc.cdc.verify.avro_slices import AvroSlices
from airflow_provider_mysql_cdc.cdc.verify.carried_rows import record_schemas
from airflow_provider_mysql_cdc.cdc.verify.checksum_function import bytes_checksum_of, checksum_of
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import KeySlices, key_texts
from airflow_provider_mysql_cdc.cdc.verify.checksum_records import EventSlicers, event_slicers, row_slicer
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.event_layout import event_layout
from airflow_provider_mysql_cdc.cdc.verify.json_slices import value_prefix
from airflow_provider_mysql_cdc.cdc.verify.plain_entries import plain_parts
from airflow_provider_mysql_cdc.cdc.verify.sql_row_text import SqlTexts, sql_texts

SliceRow = Callable[[bytes], bytes | None]
"""Returns the row after an event; empty for a delete, None where the event has to be read."""


@dataclass(frozen=True, slots=True)
class ChecksumParts:
    """Hold what takes records apart.

    Args:
        keys: Takes the fields out of keys.
        of_events: Takes the rows out of events.
        of_row: Takes the row out of records that the product's encoders have written.
        checksum_of: Returns the checksum of identity and row.
        texts: Expressions with which the server computes the same; None where it cannot.
    """

    keys: KeySlices
    of_events: EventSlicers
    of_row: SliceRow
    checksum_of: Callable[[bytes], bytes]
    texts: SqlTexts | None


def has_checksums(cfg: ConnectorConfig, compared: ComparedTable) -> bool:
    """Return whether a table can be compared by checksums: its records say as bytes which row they are about.

    TiCDC's records do not always say by their keys in which partition they belong.

    Args:
        cfg: The connector's configuration.
        compared: The table.
    """
    if not (compared.own_key and compared.alone and compared.unchanged):
        return False
    if value_prefix(cfg, compared.table) is not None:
        return True
    return not cfg.is_ticdc and record_schemas(cfg, compared.table) is not None


def checksum_parts(
    cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats | None, *, sums_in_sql: bool
) -> ChecksumParts | None:
    """Return what takes the records of a table apart that has checksums; None where they have to be read.

    Args:
        cfg: The connector's configuration.
        compared: The table.
        formats: The formats of records; None when all of them are JSON.
        sums_in_sql: Whether the server may add up the checksums of rows.
    """
    table = compared.table
    prefix = value_prefix(cfg, table)
    if prefix is not None:
        of_texts = event_slicers(prefix, event_layout(cfg, table, has_schema=bool(prefix)))
        texts = sql_texts(cfg, table) if sums_in_sql else None
        return ChecksumParts(key_texts(cfg, table), of_texts, row_slicer(prefix, of_texts.of_event), checksum_of, texts)
    keys, slices = plain_parts(cfg, compared, formats) or (None, None)
    if not isinstance(keys, AvroKeys) or not isinstance(slices, AvroSlices):
        return None

    def of_event(value: bytes) -> bytes | None:
        event = slices.slice(value)
        return None if event is None else event[0]

    return ChecksumParts(keys, EventSlicers(of_event, lambda values: None), slices.of_row, bytes_checksum_of, None)
