"""What a writer of a drain hands to its producer: the records that it owns, counted by topic and table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.drain.table_routes import Route, Routes
from airflow_provider_mysql_cdc.cdc.drain.writer_position import Position
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.formats.formatted_rows import formed_rows, placed
from airflow_provider_mysql_cdc.cdc.formats.partition_share import partition_of
from airflow_provider_mysql_cdc.cdc.sink.record_writer import Headers
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@dataclass(slots=True)
class RecordOutput:
    """Produce records in binlog order, those of other writers left out.

    Args:
        sink: The transactional producer.
        routes: The writer's routes, which know the headers of all records.
        at: Where the writer stands, which goes on changing.
        forms: The forms of records; None when all is JSON.
        history_topic: The schema history's topic, whose records are JSON without headers and are not counted.
        server_uuid: The server that the batch is read from, for ids of records without a GTID.
        counts: Records by topic; goes on changing.
        tables: Of these the records of row events, by table; goes on changing.
    """

    sink: TransactionalWriter
    routes: Routes
    at: Position
    forms: Forms | None
    history_topic: str
    server_uuid: str | None
    counts: dict[str, int]
    tables: dict[str, int]

    def rows(self, route: Route, records: list[Any], where: str) -> list[BadRow]:
        """Produce the records of a row event, each on its partition; return the rows that are left out.

        Args:
            route: The table's route.
            records: What the decoder made: key, value, row, leg and header of each.
            where: Place of the event, for errors.

        Raises:
            ValueDecodeError: A row cannot be written, and such rows stop the run.
        """
        share, bad = route.share, list[BadRow]()
        if route.form is not None and placed(records):
            n = self._placed(route, records)
        elif route.form is not None:
            tolerant = self.routes.failed is not None
            made, bad = formed_rows(route.form, records, share, where, tolerant=tolerant)
            n = self._formed(route, made)
        elif share.whole and share.partitions == 1 and not self.routes.identity and route.ids is None:
            self.sink.produce_all(route.topic, records, self.routes.headers)
            n = len(records)
        else:
            count, mine = share.partitions, share.mine
            parts = (partition_of(r[0], count) for r in records if mine)
            pairs = zip(records, parts, strict=False)
            n = self._formed(route, ((k, v, p, row, leg, h) for (k, v, row, leg, h), p in pairs if p in mine))
        self._count(route, n)
        return bad

    def walked(self, route: Route, records: list[Any], partition: int, size: int) -> None:
        """Produce records that were written at once: those of the writer's partitions.

        Args:
            route: The table's route.
            records: As for ``rows``.
            partition: Their partition; not looked at where records say their own.
            size: Bytes of their keys and values.
        """
        if route.form is not None:
            self._count(route, self._placed(route, records))
            return
        if partition not in route.share.mine:
            return
        if self.routes.identity or route.ids is not None:
            n = self._formed(route, ((k, v, partition, row, leg, h) for k, v, row, leg, h in records))
        else:
            self.sink.produce_plain(route.topic, records, self.routes.headers, partition, size)
            n = len(records)
        self._count(route, n)

    def _count(self, route: Route, n: int) -> None:
        if n:
            self.counts[route.topic] = self.counts.get(route.topic, 0) + n
            self.tables[route.path] = self.tables.get(route.path, 0) + n

    def _placed(self, route: Route, records: list[Any]) -> int:
        """Produce records that know their partition; return their number."""
        mine = route.share.mine
        if not route.share.whole:
            records = [record for record in records if record[4] in mine]
        if self.routes.identity:
            return self._formed(route, ((k, v, part, row, leg, None) for k, v, row, leg, part in records))
        self.sink.produce_all(route.topic, records, self.routes.headers)
        return len(records)

    def _formed(self, route: Route, records: Iterable[tuple[Any, ...]]) -> int:
        """Produce records in their form; return their number."""
        topic, ids = route.topic, route.ids
        produce, headers, identity = self.sink.produce, self.routes.headers, self.routes.identity
        n = 0
        for key, value, part, row, leg, header in records:
            extra: Headers = headers if header is None else [header, *headers]
            if identity:
                extra = [*extra, ("cdc-id", self._identity(row, leg))]
            if ids is not None:
                extra = ids.behind(extra, key, value)
            produce(topic, key, value, part, extra)
            n += 1
        if n:
            self.sink.meet(topic, part)
        return n

    def side(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int = 0, *, headed: bool = True
    ) -> None:
        """Produce a record that is no row event.

        Args:
            topic: Its topic.
            key: Its key as JSON, or None.
            value: Its value as JSON, or None.
            partition: Its partition.
            headed: Whether it gets the context headers; transaction records get none, as in Debezium.
        """
        if topic == self.history_topic:
            self.sink.produce(topic, key, value, partition, None)
            return
        headers: Headers | None = self.routes.headers if headed else None
        if self.forms is not None:
            key, value, headers = self.forms.side(topic, key, value, headers)
        self.sink.produce(topic, key, value, partition, headers)
        self.counts[topic] = self.counts.get(topic, 0) + 1

    def _identity(self, row: int, leg: int) -> bytes:
        """Return GTID (or server uuid, file and outer position), event ordinal, row and leg (design, section 4)."""
        at = self.at
        start = at.gtid or f"{self.server_uuid}/{at.boundary}"
        return f"{start}/{at.events}/{row}/{leg}".encode()
