"""What the bench runs: tables, how their rows come to the binlog, and in which form both write them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from benchlib.shapes import COMPOSITE_KEY, DENSE_KEY, NARROW, SKEWED_KEY, STRING_KEY, WIDE, Shape
from benchlib.sides import DEBEZIUM, FLINK
from benchlib.source import DATABASE, MySqlSource, changing_rows

_PARTS = ("key", "value")
_REGISTRY = "{registry}"


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Describe a form.

    Args:
        provider_properties: Properties of this provider; ``{registry}`` in a value is the registry's address.
        schemas: Whether Connect's JSON converter writes schemas; None where it cannot write the form.
    """

    name: str
    provider_properties: Mapping[str, str] = field(default_factory=dict)
    schemas: bool | None = None

    def properties(self, registry: str) -> dict[str, str]:
        """Return the properties of this provider."""
        return {name: value.replace(_REGISTRY, registry) for name, value in self.provider_properties.items()}


def _json(name: str, *, schemas: bool) -> RecordFormat:
    return RecordFormat(name, {f"{part}.converter.schemas.enable": str(schemas).lower() for part in _PARTS}, schemas)


JSON = _json("JSON", schemas=False)
JSON_SCHEMAS = _json("JSON with schemas", schemas=True)
AVRO = RecordFormat(
    "Avro",
    {f"{part}.converter": "io.confluent.connect.avro.AvroConverter" for part in _PARTS}
    | {f"{part}.converter.schema.registry.url": _REGISTRY for part in _PARTS},
)
TICDC = RecordFormat("TiCDC's Avro", {"value.format": "ticdc-avro", "schema-registry": _REGISTRY})


@dataclass(frozen=True, slots=True)
class Change:
    """Describe what is done to rows that are there before the position that both sides begin at.

    Args:
        sql: The statement without its condition, of the table's name.
        records: Records of a row.
    """

    sql: str
    records: int = 1


STRANGERS = "strangers"
"""Table that no side captures."""
LEAST_ROWS = 100
ROWS_PER_STREAM = 3
"""Rows of a stream of a fleet that a drain finds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Describe one measurement.

    Args:
        name: Its name on the command line and in results.
        about: What it is, for the report.
        rows: Rows of all tables at scale 1.
        quick: Rows in a quick bench; 0 when it is not part of one.
        kind: How it is measured (``contest.RUNNERS``).
        a_transaction: Rows of a transaction, also of a steady load; 0 for all rows in one.
        tables: Number of tables that share the rows.
        form: Form of keys and values.
        compressed: Whether transactions are compressed in the binlog.
        peer: Side that runs it in addition to this provider; None if only this provider does.
        mysql: Version of the server that it needs; None for the bench's own.
        ours: Further properties of this provider.
        seconds: How long a steady load lasts; 0 for rows that are there before.
        rate: Changes a second of a steady load.
        least: Fewest rows at any scale.
        share: Speed of the processor that each writer has for itself, as a share of a whole one; 0 where all share all.
        change: What is done to the rows of its one table; None for rows that are inserted.
        strangers: Transactions of a table that is not captured, for each of its own.
    """

    name: str
    about: str
    shape: Shape
    rows: int
    quick: int = 0
    kind: str = "drain"
    a_transaction: int = 100
    tables: int = 1
    form: RecordFormat = JSON
    compressed: bool = False
    peer: str | None = DEBEZIUM.name
    mysql: str | None = None
    ours: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    rate: float = 200.0
    least: int = LEAST_ROWS
    share: float = 0.0
    change: Change | None = None
    strangers: int = 0

    @property
    def records(self) -> int:
        """Return the records of all its rows."""
        return self.rows * (1 if self.change is None else self.change.records)

    @property
    def names(self) -> list[str]:
        """Return the names of its tables, without their database."""
        if self.tables == 1:
            return [self.shape.name]
        return [f"{self.shape.name}_{number:05d}" for number in range(self.tables)]

    def steady_load(self, source: MySqlSource) -> AbstractContextManager[None]:
        """Return the changes of a steady load: of the first table, and between two of those of its strangers."""
        changed = [self.names[0], *[STRANGERS] * self.strangers]
        return changing_rows(source, self.rows // self.tables, self.rate, self.a_transaction, changed)

    @property
    def included(self) -> str:
        """Return the ``table.include.list`` of its tables."""
        return f"{DATABASE}[.]{self.shape.name}" + ("_[0-9]+" if self.tables > 1 else "")

    @property
    def snapshot(self) -> bool:
        """Return whether the rows are read by an initial snapshot."""
        return self.kind == "snapshot"

    def properties(self, registry: str) -> dict[str, str]:
        """Return the properties of this provider that say what is read, and in which form it is written."""
        return {
            "table.include.list": self.included,
            "snapshot.mode": _MODES.get(self.kind, "no_data"),
            **self.form.properties(registry),
        }

    @property
    def rows_as(self) -> tuple[object, ...]:
        """Return what two workloads have equal that can be measured on the same rows, one after the other."""
        alone = () if self.kind in _SHARING else (self.name,)
        written = self.a_transaction, self.compressed, self.change, self.strangers
        return self.shape, self.rows, self.tables, written, self.mysql, alone

    def scaled(self, scale: float, *, quick: bool = False) -> Workload:
        """Return it with another number of rows, and of tables where it has many.

        Args:
            scale: Share of its rows.
            quick: Whether to begin with the rows of a quick bench.
        """
        tables = self.tables if self.tables == 1 or scale >= 1 else max(2, round(self.tables * scale))
        rows = max(self.least, 2 * tables, round((self.quick if quick and self.quick else self.rows) * scale))
        whole = rows - rows % tables
        return replace(self, rows=whole, tables=tables, seconds=max(20.0, self.seconds * scale) if self.seconds else 0)


_MODES = {"snapshot": "initial_only", "verify": "initial", "verify-rows": "initial"}
"""``snapshot.mode`` of kinds that begin with the rows of tables."""
_SHARING = ("drain", *_MODES)
_M = 1_000_000
_OLD_MYSQL = "8.0.15"
_UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
_SLOW = 0.2
_SNAPSHOT = Workload("snapshot", "7 columns, integer key, read by a snapshot", NARROW, 5 * _M, 5 * _M, "snapshot")
_LAG = Workload(
    "lag-run-for",
    "200 changes a second, one a transaction; one job with run_for",
    NARROW,
    10_000,
    kind="run_for",
    a_transaction=1,
    seconds=600.0,
)


def _few(name: str, about: str, **more: Any) -> Workload:
    return replace(_LAG, name=name, about=f"{about}; one job with run_for", rate=3.0, seconds=300.0, **more)


def _tables(count: int) -> Workload:
    about = f"{count:,} tables that are made in the stream, 10 rows a transaction"
    return Workload(f"tables-{count}", about, NARROW, 200_000, a_transaction=10, tables=count)


def _linear(millions: int) -> Workload:
    about = f"as narrow, {millions} million rows"
    return Workload(f"linear-{millions}m", about, NARROW, millions * _M, peer=None)


def _writers(tables: int, writers: int, share: float) -> Workload:
    where = "ten tables" if tables > 1 else "one table, its topic with two partitions"
    ours = {"drain.writers": str(writers), **({} if tables > 1 else {"topic.creation.default.partitions": "2"})}
    name = f"{'tables' if tables > 1 else 'hot'}-{'cores' if share else 'writers'}-{writers}"
    own = (
        f", {'each with' if writers > 1 else 'with'} a processor of its own of {share:.0%} of the speed"
        if share
        else ""
    )
    about = f"{where}, {writers} writer{'s' * (writers > 1)}{own}"
    return Workload(name, about, NARROW, 5 * _M, tables=tables, peer=None, ours=ours, share=share)


_CHANGES = (
    ("updates", "updated", Change("UPDATE {} SET amount = amount + 1")),
    # A delete, a tombstone and a create.
    ("key-updates", "updated with their keys", Change("UPDATE {} SET id = id + 1000000000", 3)),
    ("deletes", "deleted", Change("DELETE FROM {}", 2)),
)
# Neighbours that share their rows (``Workload.rows_as``) are measured on one load.
_ALL = (
    Workload("narrow", "7 columns, 100 rows in a transaction", NARROW, 5 * _M, 5 * _M),
    Workload("avro", "the same in Avro", NARROW, 5 * _M, 5 * _M, form=AVRO, peer=None),
    Workload("unwrap", "the same as rows (ExtractNewRecordState)", NARROW, 5 * _M, peer=None, ours=_UNWRAP),
    _SNAPSHOT,
    Workload("verify", "as snapshot, compared by checksums", NARROW, 5 * _M, kind="verify", peer=None),
    Workload("verify-rows", "as snapshot, compared row by row", NARROW, 5 * _M, kind="verify-rows", peer=None),
    Workload(
        "narrow-lz4",
        "as narrow, compressed for Kafka",
        NARROW,
        5 * _M,
        peer=None,
        ours={"kafka.compression.type": "lz4"},
    ),
    Workload("ticdc", "as narrow, in TiCDC's Avro", NARROW, 5 * _M, form=TICDC, peer=None),
    Workload("narrow-schemas", "as narrow, schemas in each record", NARROW, 2 * _M, _M, form=JSON_SCHEMAS),
    Workload("wide", "20 columns, one row in a transaction", WIDE, 5 * _M, 500_000, a_transaction=1),
    Workload("wide-schemas", "the same, schemas in each record", WIDE, _M, a_transaction=1, form=JSON_SCHEMAS),
    Workload("snapshot-wide", "20 columns, read by a snapshot", WIDE, _M, kind="snapshot", a_transaction=1),
    Workload("single-row", "7 columns, one row in a transaction", NARROW, _M, a_transaction=1),
    *(Workload(name, f"100 rows {how} in a transaction", DENSE_KEY, _M, change=made) for name, how, made in _CHANGES),
    Workload("skipped-bytes", "as narrow, nine transactions of another table beside each", NARROW, _M, strangers=9),
    Workload("one-transaction", "7 columns, all rows in one transaction", NARROW, _M, a_transaction=0),
    Workload("compressed", "7 columns, compressed transactions of 100 rows", NARROW, _M, compressed=True),
    replace(_SNAPSHOT, name="snapshot-string", about="the same, key of 33 letters", shape=STRING_KEY, rows=_M, quick=0),
    replace(_SNAPSHOT, name="snapshot-composite", about="key of two columns", shape=COMPOSITE_KEY, rows=_M, quick=0),
    replace(_SNAPSHOT, name="snapshot-skewed", about="integer key with gaps", shape=SKEWED_KEY, rows=_M, quick=0),
    # Changed rows come as events before they are read: in a small table there would be too many.
    Workload(
        "incremental", "7 columns, read during 100 changes a second", NARROW, _M, 300_000, "incremental", least=20_000
    ),
    *(_tables(count) for count in (10, 100, 1_000, 10_000)),
    *(_writers(tables, writers, share) for tables in (1, 10) for share in (0.0, _SLOW) for writers in (1, 2)),
    *(_linear(millions) for millions in (1, 2, 4, 8)),
    _LAG,
    replace(
        _LAG,
        name="lag-run-for-5000",
        about="5,000 changes a second, 50 a transaction; one job with run_for",
        a_transaction=50,
        rate=5_000.0,
    ),
    _few("few-changes", "3 changes a second"),
    _few("few-changes-500", "3 changes a second of one of 500 tables", tables=500),
    _few("strangers", "3 transactions a second, of which one of 30 changes a table that is captured", strangers=29),
    replace(
        _LAG,
        name="lag-each-minute",
        about="the same changes; a drain each minute",
        kind="each_minute",
        peer=None,
        seconds=300.0,
    ),
    replace(
        _LAG,
        name="connect-each-minute",
        about="the same changes; a drain each minute over Spark Connect",
        kind="connect_each_minute",
        seconds=600.0,
    ),
    Workload(
        "fleet-quiet",
        "40 streams on 4 servers with three new rows each; one Spark application drains all",
        NARROW,
        40 * ROWS_PER_STREAM,
        kind="fleet",
        tables=40,
        peer=None,
    ),
    # Flink CDC 3.5 asks for the position by SHOW MASTER STATUS, which MySQL 8.4 no longer knows.
    Workload("flink-narrow", f"as narrow, on MySQL {_OLD_MYSQL}", NARROW, _M, peer=FLINK.name, mysql=_OLD_MYSQL),
)
WORKLOADS = {w.name: w for w in _ALL}
