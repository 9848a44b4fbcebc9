"""The tables of a verification, by number, and which of them the records of a topic are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.carried_forms import FormCarrier
from airflow_provider_mysql_cdc.cdc.verify.compared_columns import compared_columns
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import ComparedColumns
from airflow_provider_mysql_cdc.cdc.verify.row_identity import IdentitySource, RowIdentity, row_identity
from airflow_provider_mysql_cdc.cdc.verify.source_place import source_order, time_of, time_order
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import TableVersions
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms
from airflow_provider_mysql_cdc.cdc.verify.written_structures import WrittenStructures


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """Describe a table that is compared with its topic.

    Args:
        number: Its number in the verification.
        table: Its structure at the position of the verification.
        topic: Its topic.
        own_key: Whether the key of its records names one row; otherwise message.key.columns chooses it.
        keyless: Whether no part of its records names one row.
        key_columns: Columns of the table's own key.
        identity: Tells its rows apart.
        columns: Says how its rows are compared.
        carrier: Adds the forms of values to its rows.
        alone: Whether no other table's records can be in its topic; a tombstone does not name its table.
        unchanged: Whether ``columns`` are those of ``table``; otherwise rows have to carry their forms.
        row_forms: Forms of the table's rows where their records do not say them and ``columns`` are others.
        written: Completes events by the structure that they were written under; None where that is not wanted.
    """

    number: int
    table: Table
    topic: str
    own_key: bool
    keyless: bool
    key_columns: tuple[str, ...]
    identity: RowIdentity
    columns: ComparedColumns
    carrier: FormCarrier
    alone: bool
    unchanged: bool = True
    row_forms: Forms | None = None
    written: WrittenStructures | None = None

    def completed(self, event: EventRecord) -> EventRecord:
        """Return an event with what its record does not say, as far as it is known and wanted.

        Args:
            event: The event.
        """
        return event if self.written is None else self.written.complete(event)

    def with_added_columns(self, event: EventRecord) -> EventRecord:
        """Return an event that was completed with the columns that the table got later, as far as they are known.

        Args:
            event: The event.
        """
        return event if self.written is None else self.written.with_added_columns(event)

    def writes_key(self, record: EventRecord) -> bool:
        """Return whether a record's key is in the bytes that the stream writes, as far as it is known.

        Args:
            record: The record.
        """
        return self.written is None or self.written.wrote_key(record)

    def names_no_row(self, event: EventRecord) -> bool:
        """Return whether an event has a former key of the table, and does not say the present one.

        Args:
            event: The event.
        """
        written = self.written if self.own_key else None
        return written is not None and written.has_former_key(event) and not self.identity.is_named_by(event)

    def order_of(self, source: Row) -> int:
        """Return a number by which events in several partitions are ordered; 0 where there is none.

        Args:
            source: The event's source block.
        """
        return source_order(source) if self.has_one_binlog else time_order(source)

    def step_order(self, source: Row) -> int:
        """Return a number that does not fall from one event of a key to the next; 0 where there is none.

        Positions fall where another server goes on, within a second perhaps, which ``order_of`` cannot tell.

        Args:
            source: The event's source block.
        """
        return source_order(source) if self.has_one_binlog else time_of(source)

    @property
    def has_one_binlog(self) -> bool:
        """Whether all positions are of one binlog, as far as is known."""
        return self.written is None or self.written.one_binlog


def compared_table(
    cfg: ConnectorConfig,
    number: int,
    table: Table,
    columns: ComparedColumns | None = None,
    versions: TableVersions | None = None,
) -> ComparedTable:
    """Return the description of a table.

    Args:
        cfg: The connector's configuration.
        number: Its number in the verification.
        table: Its structure.
        columns: Its columns as those have them who compare its rows; None for those of this structure.
        versions: The structures that it has had; None where events are not told apart by them.
    """
    current = compared_columns(cfg, table)
    columns = columns or current
    unchanged = columns == current
    identity = row_identity(cfg, table)
    topic = record_topics.table_topic_name(cfg, table.id)
    return ComparedTable(
        number,
        table,
        topic,
        identity.source is IdentitySource.RECORD_KEY,
        identity.source is IdentitySource.VALUES,
        tuple(table.key_columns()),
        identity,
        columns,
        FormCarrier(columns),
        topic == topic_names.topic_name(cfg[F.TOPIC_PREFIX], table.id),
        unchanged,
        None if unchanged or current.has_schemas else {**current.forms, **current.declared},
        None if versions is None else WrittenStructures(cfg, table, versions),
    )


@dataclass(frozen=True, slots=True)
class TopicTables:
    """Find the table of a topic's record.

    Args:
        tables: Numbers of the topic's tables, by their names.
        topic: The topic.
    """

    tables: Mapping[TableId, int]
    topic: str

    def number_of(self, record: EventRecord) -> int | None:
        """Return the number of a record's table; None for one that is not compared.

        Args:
            record: The record.
        """
        source: Row = record.source
        if "db" in source and "table" in source:
            return self.tables.get(TableId(str(source["db"]), str(source["table"])))
        return next(iter(self.tables.values())) if len(self.tables) == 1 else None

    def require_own(self, record: EventRecord, topic_of: Callable[[TableId], str]) -> None:
        """Check that an event of a table that is not compared may be in the topic.

        Args:
            record: The event.
            topic_of: Returns a table's topic.

        Raises:
            UnreadableRecord: Events of its table are in another topic.
        """
        db, table = record.source.get("db"), record.source.get("table")
        if record.op and db and table and topic_of(TableId(str(db), str(table))) != self.topic:
            raise UnreadableRecord(f"it is an event of table {db}.{table}, which has another topic")


def tables_by_topic(tables: Iterable[ComparedTable]) -> dict[str, TopicTables]:
    """Return the tables of each topic.

    Args:
        tables: The tables of the verification.
    """
    numbers: dict[str, dict[TableId, int]] = {}
    for compared in tables:
        numbers.setdefault(compared.topic, {})[compared.table.id] = compared.number
    return {topic: TopicTables(of_topic, topic) for topic, of_topic in numbers.items()}
