"""The offset that a Debezium MySQL connector has stored in Kafka Connect: what it says, and the forms that it has.

Source: Debezium 1.9.7 and 3.6.1, ``BinlogOffsetContext`` and ``AbstractIncrementalSnapshotContext``; Kafka Connect's
``OffsetStorageWriter``, which writes keys as ``["connector",{"server":"topic.prefix"}]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.debezium.java_map import MAGIC, read_byte_map, write_byte_map
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError, StateError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, standard_text
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number

_STOP = "start the connector again, wait until it {}, stop it (PUT /connectors/NAME/stop), and import again"
_FINISHED_SNAPSHOTS = ("", "false", "INCREMENTAL")


@dataclass(frozen=True, slots=True)
class DebeziumOffset:
    """Hold the place up to which a connector has written its records.

    Args:
        file: Binlog file.
        pos: Position of the BEGIN of the transaction in progress, or behind the last event outside of one.
        gtids: GTID set before the transaction in progress; also before a statement that was read last.
        event: Events of the transaction, its BEGIN included, that are passed.
        row: Rows of the row event behind them that are in the topics.
        collections: Tables of an incremental snapshot that is not over.
        where: Where it was read.
    """

    file: str
    pos: int
    gtids: str | None = None
    event: int = 0
    row: int = 0
    collections: tuple[str, ...] = ()
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        inside = f", event {self.event}, row {self.row}" if self.event or self.row else ""
        return f"{self.file}:{self.pos}{inside}"

    def is_before(self, file: str, pos: int) -> bool:
        """Return whether a place of the same binlog is behind this one.

        Args:
            file: Its file.
            pos: Its position.
        """
        return (file_number(self.file), self.pos) < (file_number(file), pos)


def read_offset(offset: object, where: str) -> DebeziumOffset:
    """Return what a stored offset says.

    Args:
        offset: The value of its record.
        where: Where it was read.

    Raises:
        ConfigError: It is not that of a MySQL connector.
        NoOffsetError: It is of a snapshot that is not complete.
    """
    if not isinstance(offset, Mapping):
        raise _not_mysql(where, "it is not a JSON object")
    snapshot, completed = str(offset.get("snapshot", "")), str(offset.get("snapshot_completed", "")).lower()
    if snapshot not in _FINISHED_SNAPSHOTS and completed != "true":
        raise NoOffsetError(
            "the connector's snapshot is not complete",
            where=where,
            why=f"its offset says snapshot={snapshot}: rows of the tables are missing in the topics, and only the "
            "connector knows which",
            remedy=f"{_STOP.format('has written a change after its snapshot')}; or leave it, and take a new snapshot "
            "with mysql_cdc_snapshot: rows that the connector has read come once more then",
        )
    file, numbers = offset.get("file"), {name: offset.get(name) or 0 for name in ("pos", "event", "row")}
    if not isinstance(file, str) or not file.rpartition(".")[2].isdigit():
        raise _not_mysql(where, f"file is {file!r}")
    for name, value in numbers.items():
        if not str(value).isdigit():
            raise _not_mysql(where, f"{name} is {value!r}")
    gtids = offset.get("gtids")
    try:
        text = standard_text(str(GtidSet.parse(gtids))) if isinstance(gtids, str) and gtids.strip() else None
    except ValueError as error:
        raise _not_mysql(where, f"gtids is {gtids!r}: {error}") from None
    collections = _collections(offset.get("incremental_snapshot_collections"))
    return DebeziumOffset(
        file, int(numbers["pos"]), text, int(numbers["event"]), int(numbers["row"]), collections, where
    )


def _not_mysql(where: str, why: str) -> ConfigError:
    return ConfigError(
        "this is not the offset of a Debezium connector for MySQL",
        where=where,
        why=why,
        remedy="give the offset of the connector whose JSON is given; one for MariaDB has other GTIDs, and cannot be "
        "taken over",
    )


def _collections(text: object) -> tuple[str, ...]:
    """Return the tables of an incremental snapshot; Debezium stores them as JSON in a text (1.9: the names alone)."""
    if not isinstance(text, str) or not text.strip():
        return ()
    try:
        items = json.loads(text)
    except ValueError:
        return (text,)
    prefix = "incremental_snapshot_collections_id"
    return tuple(str(item.get(prefix, item)) if isinstance(item, Mapping) else str(item) for item in items or ())


def require_no_incremental(offset: DebeziumOffset) -> None:
    """Refuse an offset in the middle of an incremental snapshot.

    Args:
        offset: The offset.

    Raises:
        StateError: It is.
    """
    if offset.collections:
        raise StateError(
            "an incremental snapshot of the connector is not over",
            where=f"{offset.where}: {', '.join(offset.collections[:10])}",
            why="rows of these tables are missing in the topics, and only the connector knows which",
            remedy=f"{_STOP.format('has finished it')}; or send it the signal stop-snapshot first, and request the "
            "snapshot again here (DAG mysql_cdc_adhoc_snapshot)",
        )


def offset_key(connector: str, prefix: str) -> bytes:
    """Return the key of a connector's offset.

    Args:
        connector: The connector's name.
        prefix: ``topic.prefix``.
    """
    return json.dumps([connector, {"server": prefix}], separators=(",", ":"), ensure_ascii=False).encode()


def connector_of(key: bytes | None, prefix: str) -> str | None:
    """Return the name of the connector whose offset has a key, also with a schema around it, as older workers write it.

    Args:
        key: The key.
        prefix: ``topic.prefix``; None is returned for other connectors.
    """
    try:
        parsed = json.loads(key or b"")
    except ValueError:
        return None
    if isinstance(parsed, Mapping):
        parsed = parsed.get("payload")
    if not isinstance(parsed, list) or len(parsed) != 2 or not isinstance(parsed[1], Mapping):
        return None
    return str(parsed[0]) if parsed[1].get("server") == prefix else None


def stored_offset(
    entries: Iterable[tuple[bytes | None, bytes | None]], connector: str, prefix: str, where: str
) -> DebeziumOffset:
    """Return the last offset of a connector among the records of an offsets topic, or the entries of a file.

    Args:
        entries: Keys and values, in order.
        connector: The connector's name; empty for the only one of this prefix.
        prefix: ``topic.prefix``.
        where: The topic or file.

    Raises:
        NoOffsetError: There is none, or its snapshot is not complete.
        ConfigError: It is of no MySQL connector, or several have one.
    """
    offsets, others = dict[str, bytes | None](), set[str]()
    for key, value in entries:
        if (name := connector_of(key, prefix)) is not None:
            offsets[name] = value
        elif key:
            others.add(key.decode("utf-8", "replace")[:200])
    names = sorted(name for name, value in offsets.items() if value is not None)
    if not connector and len(names) > 1:
        raise ConfigError(
            "several connectors of this topic.prefix have an offset there",
            where=f"{where}: topic.prefix {prefix}",
            why=f"they are {', '.join(names[:10])}",
            remedy="give the name of the one to take over (--connector-name)",
        )
    found = offsets.get(connector or next(iter(names), ""))
    if found is None:
        others |= {json.dumps([name, {"server": prefix}]) for name in names}
        why = f"it has {', '.join(sorted(others)[:5])}" if others else "it is empty"
        raise _missing(connector, prefix, where, "it was deleted there" if connector in offsets else why)
    try:
        offset = json.loads(found)
    except ValueError as error:
        raise _not_mysql(where, str(error)) from None
    return read_offset(offset.get("payload", offset) if isinstance(offset, Mapping) else offset, where)


def _missing(connector: str, prefix: str, where: str, why: str) -> NoOffsetError:
    return NoOffsetError(
        "the connector has no offset there",
        where=f"{where}: connector {connector or '(any)'}, topic.prefix {prefix}",
        why=why,
        remedy="give the connector's name as Kafka Connect has it, and the topic that offset.storage.topic of its "
        "worker names, the file of offset.storage.file.filename, or what GET /connectors/NAME/offsets answers",
    )


def rest_offset(answer: object, prefix: str, where: str) -> DebeziumOffset:
    """Return the offset in the answer of ``GET /connectors/NAME/offsets``.

    Args:
        answer: The answer.
        prefix: ``topic.prefix``.
        where: The address or file.

    Raises:
        NoOffsetError: It has none of this prefix, or its snapshot is not complete.
        ConfigError: It is something else.
    """
    parts = answer.get("offsets") if isinstance(answer, Mapping) else None
    if not isinstance(parts, list):
        raise _not_mysql(where, 'it has no list "offsets"')
    servers = []
    for part in parts:
        partition = part.get("partition") if isinstance(part, Mapping) else None
        if isinstance(partition, Mapping) and partition.get("server") == prefix:
            return read_offset(part.get("offset"), where)
        servers.append(str(partition))
    raise _missing("", prefix, where, f"it has {', '.join(servers[:5]) or 'nothing'}")


def offset_in_file(data: bytes, connector: str, prefix: str, where: str) -> DebeziumOffset:
    """Return the offset in a file: that of a standalone worker, or the answer of the REST interface.

    Args:
        data: Its content.
        connector: The connector's name; empty for any.
        prefix: ``topic.prefix``.
        where: Its name.

    Raises:
        NoOffsetError: It has none of this connector, or its snapshot is not complete.
        ConfigError: It is something else.
    """
    if not data.strip():
        raise NoOffsetError(
            "the file of the connector's offsets is empty",
            where=where,
            why="a standalone worker that is killed while it stores its offsets leaves the file so",
            remedy="give a copy from before; without one, the connector cannot go on either: take a new snapshot with "
            "mysql_cdc_snapshot",
        )
    if data.startswith(MAGIC):
        return stored_offset(read_byte_map(data, where).items(), connector, prefix, where)
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise ConfigError(
            "the file holds no offset",
            where=where,
            why=f"it is neither a file of Kafka Connect standalone nor JSON: {error}",
            remedy="give the file of offset.storage.file.filename, or what GET /connectors/NAME/offsets answers",
        ) from None
    return rest_offset(answer, prefix, where)


def written_offset(offset: BinlogOffset, ts_sec: int) -> dict[str, Any]:
    """Return an offset of this stream as the connector stores one: a transaction boundary, nothing in progress.

    Args:
        offset: The offset.
        ts_sec: Now, in seconds since 1970.
    """
    gtids = {} if offset.gtids is None else {"gtids": offset.gtids}
    return {"file": offset.file, "pos": offset.pos, **gtids, "ts_sec": ts_sec}


def rest_document(offset: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the body of ``PATCH /connectors/NAME/offsets``.

    Args:
        offset: From ``written_offset``.
        prefix: ``topic.prefix``.
    """
    return {"offsets": [{"partition": {"server": prefix}, "offset": dict(offset)}]}


def with_offset(data: bytes, key: bytes, offset: Mapping[str, Any], where: str) -> bytes:
    """Return the file of a standalone worker with an offset; those of other connectors stay.

    Args:
        data: The file; empty for a new one.
        key: From ``offset_key``.
        offset: From ``written_offset``.
        where: Its name.

    Raises:
        ConfigError: It is something else.
    """
    entries = read_byte_map(data, where) if data else {}
    return write_byte_map({**entries, key: json.dumps(offset, separators=(",", ":")).encode()})
