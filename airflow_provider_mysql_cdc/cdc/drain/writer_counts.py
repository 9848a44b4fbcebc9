"""What a writer has produced in a batch, as its markers and its progress report it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.decode.codegen.nulled_values import NULLED_SUFFIX
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import SKIPPED_STATEMENTS_SUFFIX, WriterMeter
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts

UNLOGGED_SUFFIX = " (changes without row events)"


@dataclass(slots=True)
class WriterCounts:
    """Count the records of one writer, those that an earlier attempt at the batch committed included.

    Args:
        by_topic: Records by topic; rows left out count under a name of their own (``dead_letter.SKIPPED_SUFFIX``),
            and so do statements that changed rows of a table without row events (``UNLOGGED_SUFFIX``), and statements
            of a database that were skipped (``SKIPPED_STATEMENTS_SUFFIX``).
        by_table: Of these the records of row events, by table (``TableId.path``).
        earlier_native: What the native kernel decoded in an earlier attempt.
        tally: Counts what the native kernel decodes in this one, and maybe in earlier batches; None without the
            kernel.
        tally_before: What it had counted before this batch.
        meter: Measures what the writer reads, for the metrics.
        take_outputs: Takes from the writer what a chain of transforms has made, by topic; None where there is no chain,
            and topics are counted as they are before it.
    """

    by_topic: dict[str, int] = field(default_factory=dict)
    by_table: dict[str, int] = field(default_factory=dict)
    earlier_native: NativeCounts = field(default_factory=NativeCounts)
    tally: Tally | None = None
    tally_before: NativeCounts = field(default_factory=NativeCounts)
    meter: WriterMeter = field(default_factory=WriterMeter)
    take_outputs: Callable[[], Mapping[str, int]] | None = None

    @classmethod
    def resume(cls, marker: Marker | None, tally: Tally | None, writer: int = 0) -> WriterCounts:
        """Return counts that continue those of an earlier attempt.

        Args:
            marker: The writer's last marker in this batch, or None.
            tally: Counts what the native kernel decodes; None without the kernel.
            writer: The writer's index.
        """
        before = NativeCounts() if tally is None else tally.counts()
        if marker is None:
            return cls(tally=tally, tally_before=before, meter=WriterMeter(first=writer == 0))
        meter = WriterMeter(writer == 0, marker.metrics.counts)
        return cls(dict(marker.counts), dict(marker.tables), marker.native, tally, before, meter)

    def add_rows(self, topic: str, table: str, count: int) -> None:
        """Count records of row events.

        Args:
            topic: Their topic.
            table: Their table (``TableId.path``).
            count: Their number.
        """
        if count:
            if self.take_outputs is None:
                self._add(topic, count)
            self.by_table[table] = self.by_table.get(table, 0) + count

    def add_side_record(self, topic: str) -> None:
        """Count a record that comes from no row event.

        Args:
            topic: Its topic.
        """
        if self.take_outputs is None:
            self._add(topic)

    def _add(self, name: str, count: int = 1) -> None:
        self.by_topic[name] = self.by_topic.get(name, 0) + count

    def add_outputs(self) -> None:
        """Count what a chain of transforms has made since the last call."""
        for topic, count in ({} if self.take_outputs is None else self.take_outputs()).items():
            self._add(topic, count)

    def add_unlogged_change(self, table: str) -> None:
        """Count a statement that changed rows of a table without row events.

        Args:
            table: The table, as ``database.table``.
        """
        self._add(table + UNLOGGED_SUFFIX)

    def add_skipped_statement(self, database: str) -> None:
        """Count a statement that was not understood and skipped.

        Args:
            database: The database of its tables, otherwise that of its session.
        """
        self._add(database + SKIPPED_STATEMENTS_SUFFIX)

    def add_nulled(self, topic: str, count: int) -> None:
        """Count values that are null in records because no type of the contract can hold them.

        Args:
            topic: The topic of the records.
            count: Their number.
        """
        self._add(topic + NULLED_SUFFIX, count)

    def records(self) -> int:
        """Return the number of records."""
        return sum(self.by_topic.values())

    def native(self) -> NativeCounts:
        """Return what the native kernel has decoded."""
        own = NativeCounts() if self.tally is None else self.tally.counts().since(self.tally_before)
        return self.earlier_native.add(own)
