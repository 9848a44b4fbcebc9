"""A record of the schema history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import orjson

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange, apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    Members,
    damaged_record,
    parse_json,
    read_as,
    require_version,
    versioned,
)
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.stored_structure import DescriptionPart, read_structure, structure_json
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all, read_table_change

_CONTEXT_DEFAULTS = asdict(DdlContext())


_MAX_RECORD_BYTES = 500_000
"""Most bytes of a record with its table changes: a broker accepts a megabyte, and DROP TABLE can name thousands of
tables."""


REBUILD_REMEDY = "rebuild the history with snapshot.mode=recovery"


class QueryStatement(Protocol):
    """The members of a parsed QUERY event that the history stores (``binlog.event_parsers.QueryEvent`` has them)."""

    @property
    def db(self) -> str:
        """The session's database."""

    @property
    def sql(self) -> str:
        """The statement."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """Hold one statement of the history.

    Args:
        prefix: ``topic.prefix`` of the connector that wrote it.
        position: The transaction boundary right after the statement; for a statement of a snapshot the position of the
            snapshot's view.
        epoch: Epoch of the batch that wrote it.
        ts_ms: When it was written, in milliseconds since 1970.
        db: The statement's database; empty for none.
        ddl: The statement text as it was read.
        context: The session settings of the statement.
        table_changes: The tables it changed, in the format of schema change records; informative.
        snapshot: Whether a snapshot wrote it.
        between: Whether a signal between two batches provided it, so that it is not in the binlog.
        structure: The structure of a table that was corrected without a statement, or that is part of a full
            description; ``table_changes`` describes it too.
        carried_from: Server, file and position of the record of which this one is a copy, made where the stream went on
            in another server's binlog; empty otherwise.
        part: Set in the records of a full description that a drain wrote (``full_description``).
    """

    prefix: str
    position: BinlogOffset
    epoch: int
    ts_ms: int
    db: str
    ddl: str
    context: DdlContext = field(default_factory=DdlContext)
    table_changes: tuple[dict[str, Any], ...] = ()
    snapshot: bool = False
    between: bool = False
    structure: Table | None = None
    carried_from: str = ""
    part: DescriptionPart | None = None

    @classmethod
    def of_statement(
        cls,
        position: BinlogOffset,
        epoch: int,
        ts_ms: int,
        query: QueryStatement,
        changes: Iterable[TableChange],
        *,
        prefix: str = "",
        context: DdlContext | None = None,
    ) -> HistoryRecord:
        """Return the record of a statement of the stream.

        Args:
            position: The boundary right after it.
            epoch: The batch's epoch.
            ts_ms: Now, in milliseconds since 1970.
            query: The parsed QUERY event.
            changes: The statement's changes, from ``ddl.apply``.
            prefix: ``topic.prefix``.
            context: The session settings that it was applied with; None takes them from the event.
        """
        table_changes = tuple(change_dict(c) for c in changes if c.listed)
        session = DdlContext.from_query(query) if context is None else context
        return cls(prefix, position, epoch, ts_ms, query.db or "", query.sql, session, table_changes)

    def to_bytes(self) -> bytes:
        """Return the record as JSON; the changes of a statement are omitted when they make the record too large."""
        data = self._json(self.table_changes)
        if self.structure is not None and len(data) > _MAX_RECORD_BYTES:
            return self._json(())
        return data if len(data) <= _MAX_RECORD_BYTES or not self.ddl else self._json(())

    def _json(self, table_changes: Sequence[dict[str, Any]]) -> bytes:
        position = {k: v for k, v in self.position.to_json().items() if v is not None}
        position |= {name: True for name in ("snapshot", "between") if getattr(self, name)}
        context = {k: v for k, default in _CONTEXT_DEFAULTS.items() if (v := getattr(self.context, k)) != default}
        data = {
            "source": {"server": self.prefix},
            "position": position,
            "ts_ms": self.ts_ms,
            "databaseName": self.db,
            "ddl": self.ddl,
            "tableChanges": list(table_changes),
            "epoch": self.epoch,
            "context": context,
        }
        if self.carried_from:
            data["carriedFrom"] = self.carried_from
        if self.structure is not None:
            data["structure"] = structure_json(self.structure)
        if self.part is not None:
            data["part"] = self.part.to_json()
        try:
            return orjson.dumps(versioned(data))
        except TypeError:  # a lone surrogate, in a name that the server wrote that way
            text = json.dumps(versioned(data), ensure_ascii=False, separators=(",", ":"))
            return text.encode("utf-8", "surrogatepass")

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "") -> HistoryRecord:
        """Read what ``to_bytes`` wrote.

        Args:
            data: The record's value.
            where: Topic and offset, for error messages.

        Raises:
            SchemaError: The record is damaged.
            StoredVersionError: It is of another version.
        """
        try:
            return cls._read(data, where)
        except DamagedRecordError as error:
            raise SchemaError(
                "a schema history record is damaged", where=where, why=error.why, remedy=REBUILD_REMEDY
            ) from error

    @classmethod
    def _read(cls, data: bytes, where: str) -> HistoryRecord:
        members = parse_history_json(data)
        record = Members(members)
        require_version(members, where)
        position, context = record.object("position"), record.object("context")
        if not isinstance(ddl := record.value("ddl"), str):
            raise record.member_error("ddl", "a string")
        return cls(
            prefix=record.object("source").text("server"),
            position=read_as(BinlogOffset, position.data, "position"),
            epoch=record.integer("epoch"),
            ts_ms=record.integer("ts_ms"),
            db=record.text("databaseName"),
            ddl=ddl,
            context=_context_of(context),
            table_changes=tuple(change.as_dict() for change in record.objects("tableChanges")),
            snapshot=position.flag("snapshot", False),
            between=position.flag("between", False),
            structure=None if "structure" not in record else read_structure(record.object("structure")),
            carried_from=record.text("carriedFrom", ""),
            part=None if "part" not in record else DescriptionPart.from_members(record.object("part")),
        )

    def carried_to(self, offset: BinlogOffset, epoch: int) -> HistoryRecord:
        """Return a copy of the record at the place at which the stream goes on in another server's binlog.

        Args:
            offset: The place.
            epoch: Epoch of the batch that begins there.
        """
        position = self.position
        origin = self.carried_from or f"{position.server_uuid}/{position.file}:{position.pos}"
        here = replace(offset, gtids=None)
        # It continues nothing: the statements before it have positions of another server.
        part = None if self.part is None else replace(self.part, records=0)
        return replace(self, position=here, epoch=epoch, between=False, carried_from=origin, part=part)

    def identity(self) -> tuple[str | None, str, int, str, str, str]:
        """Return the identity of the statement, which is the same whichever attempt wrote the record."""
        content = json.dumps(self.table_changes, sort_keys=True) if self.from_signal else self.ddl
        if self.structure is not None and self.part is not None:  # a description has each table once
            content = str(self.structure.id)
        elif self.structure is not None:
            content = json.dumps(structure_json(self.structure), sort_keys=True)
        position = self.position
        return position.server_uuid, position.file, position.pos, self.db, content, self.carried_from

    @property
    def from_signal(self) -> bool:
        """Whether a signal described the structure, without a statement."""
        return not self.ddl and bool(self.table_changes) and self.structure is None

    def apply_to(self, state: SchemaState, captures: CapturePredicate | None) -> SchemaState:
        """Return the structures after the statement, the changes of a signal, or a correction.

        Args:
            state: Structures before it.
            captures: Selects the relevant tables; None for all.

        Raises:
            DdlParseError: The statement cannot be parsed.
            SchemaError: The record is damaged.
        """
        part = self.part
        if (table := self.structure) is not None:
            return state.with_table(table, state.non_unique_indexes.get(table.id, ()) if part is None else part.indexes)
        if part is not None and part.defaults is not None:
            if self.starts_description:
                return state.with_server_defaults(part.defaults)
            return state.with_database(self.db, part.defaults)
        if not self.from_signal:
            return apply_ddl(state, self.ddl, self.context, captures).state
        try:
            changes = [read_table_change(Members(change), self.db) for change in self.table_changes]
        except DamagedRecordError as error:
            where = f"schema history, {self.position}"
            raise SchemaError(
                "a schema history record is damaged", where=where, why=error.why, remedy=REBUILD_REMEDY
            ) from error
        return apply_all(state, changes)[0]

    def uncaptured_table(self, captures: CapturePredicate | None) -> TableId | None:
        """Return the table of a snapshot's CREATE TABLE statement if it is not captured; None for any other record.

        Args:
            captures: Selects the relevant tables; None for all.
        """
        if captures is None or not self.snapshot or len(self.table_changes) != 1 or not self.ddl.startswith("CREATE"):
            return None
        change = self.table_changes[0]
        db_prefix, name = f'"{self.db}"."', str(change.get("id", ""))
        if change.get("type") != "CREATE" or not name.startswith(db_prefix):
            return None
        table_id = TableId(self.db, name[len(db_prefix) : -1])
        # An id of a name with double quotes does not always tell the name; its statement does.
        return None if '"' in str(table_id) or captures(table_id) else table_id

    def is_base_for(self, until: BinlogOffset) -> bool:
        """Return whether a full description of all captured tables starts with this record, at or before an offset.

        A snapshot writes a full description, and so does a reset to an offset that the history does not cover, and a
        drain after many statements. It starts with the server's character sets. Earlier records are included in it, or
        belong to another binlog.

        Args:
            until: The offset.
        """
        return (
            self.starts_description and comparable(self.position, until) and compare_offsets(self.position, until) <= 0
        )

    @property
    def starts_description(self) -> bool:
        """Whether this is the first record of a full description."""
        return self.snapshot and self.ddl.startswith("SET ")

    @property
    def continues_history(self) -> bool:
        """Whether this is the first record of a full description that repeats what the records before it say."""
        return self.starts_description and self.part is not None and self.part.records > 0

    def applies(self, until: BinlogOffset, epoch: int, base: HistoryRecord | None) -> bool:
        """Return whether the statement is part of the structures at an offset.

        Args:
            until: The offset.
            epoch: The epoch that starts at it.
            base: First record of the full description that the structures start with; None in a history without one.
                In such a history, records of another server, whose positions cannot be compared, count as earlier when
                their epoch is earlier.
        """
        position = self.position
        if base is None and position.server_uuid and until.server_uuid and position.server_uuid != until.server_uuid:
            return self.epoch < epoch
        if not comparable(position, until) or compare_offsets(position, until) > 0:
            return False
        if base is None:
            return True
        if (self.snapshot or self.carried_from) and self.epoch == base.epoch and position == base.position:
            return True
        # A writer that was fenced later may have committed a statement of its own binlog after the description.
        # What is set between two batches can have the same position and epoch as the description. The driver writes
        # both, so it is not part of the description if it comes after it in the topic.
        base_order = compare_offsets(position, base.position) if comparable(position, base.position) else -1
        after_base = base_order > 0 or (base_order == 0 and (self.between or self.structure is not None))
        return after_base and self.epoch >= base.epoch


def parse_history_json(data: bytes) -> Any:
    """Return the value of a record's JSON.

    Args:
        data: The record's value.

    Raises:
        DamagedRecordError: It is no JSON.
    """
    try:
        return orjson.loads(data)
    except ValueError:  # a lone surrogate, in a name that the server wrote that way
        pass
    try:
        return parse_json(data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        raise damaged_record(f"it is not UTF-8: {error}") from None


def _context_of(members: Members) -> DdlContext:
    """Return a session's settings; members that the record does not have get their defaults."""
    try:
        return _cached_context(orjson.dumps(members.as_dict()))
    except TypeError:  # a damaged string or number; reading the members reports it
        return _read_context(members)


@lru_cache(maxsize=256)
def _cached_context(text: bytes) -> DdlContext:
    return _read_context(Members(parse_json(text), "context"))


def _read_context(members: Members) -> DdlContext:
    default = DdlContext()
    return DdlContext(
        default_db=members.text("default_db", default.default_db),
        sql_mode=members.integer("sql_mode", default.sql_mode),
        client_collation=members.integer_or_none("client_collation"),
        server_collation=members.integer_or_none("server_collation"),
        lower_case_table_names=members.integer("lower_case_table_names", default.lower_case_table_names, high=2),
        default_collation_for_utf8mb4=members.integer_or_none("default_collation_for_utf8mb4"),
        explicit_defaults_for_timestamp=members.flag(
            "explicit_defaults_for_timestamp", default.explicit_defaults_for_timestamp
        ),
        temporary=members.flag("temporary", default.temporary),
        atomic=members.flag("atomic", default.atomic),
        connection_collation=members.integer_or_none("connection_collation"),
        server_layout=members.flag("server_layout", default.server_layout),
        utf8mb4_after_collate=members.integer_or_none("utf8mb4_after_collate"),
        keeps_written_sizes=members.flag("keeps_written_sizes", default.keeps_written_sizes),
        marks_atomic=members.flag("marks_atomic", default.marks_atomic),
    )
