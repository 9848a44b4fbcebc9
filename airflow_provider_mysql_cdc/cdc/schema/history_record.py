"""One record of the schema history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import orjson

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange, apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, damaged_record, parse_json
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all, read_table_change

_CONTEXT_DEFAULTS = asdict(DdlContext())


_MAX_RECORD_BYTES = 500_000
"""Bytes of a record with what its statement changes: a broker takes a megabyte, and DROP TABLE may name thousands."""


REBUILD_REMEDY = "rebuild the history with snapshot.mode=recovery"


class QueryStatement(Protocol):
    """The members of a parsed QUERY event that the history keeps (``binlog.event_parsers.QueryEvent`` fits)."""

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
        ts_ms: When it was written, in milliseconds since the epoch.
        db: The database it belongs to, empty for none.
        ddl: The statement as it was read.
        context: What its session had set.
        table_changes: The tables it changed, as schema changes describe them; informative.
        snapshot: Whether a snapshot wrote it.
        between: Whether it was told between two batches, so that the binlog does not tell it again.
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
            ts_ms: Now, in milliseconds since the epoch.
            query: The parsed QUERY event.
            changes: What ``ddl.apply`` made of it.
            prefix: ``topic.prefix``.
            context: What the statement was applied with; taken from the event when None.
        """
        table_changes = tuple(change_dict(c) for c in changes if c.listed)
        session = DdlContext.from_query(query) if context is None else context
        return cls(prefix, position, epoch, ts_ms, query.db or "", query.sql, session, table_changes)

    def to_bytes(self) -> bytes:
        """Return the record as JSON; the changes that a statement makes are left out where they make it too large."""
        data = self._json(self.table_changes)
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
        try:
            return orjson.dumps(data)
        except TypeError:  # half a surrogate pair, in a name that the server wrote so
            return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "") -> HistoryRecord:
        """Read what ``to_bytes`` wrote; members of later versions are ignored.

        Args:
            data: The record's value.
            where: Topic and offset, for error texts.

        Raises:
            SchemaError: The record is damaged.
        """
        try:
            return cls._read(data)
        except DamagedRecordError as error:
            raise SchemaError(
                "a schema history record is damaged", where=where, why=error.why, remedy=REBUILD_REMEDY
            ) from error

    @classmethod
    def _read(cls, data: bytes) -> HistoryRecord:
        record = Members(_parse_json(data))
        position, context = record.object("position"), record.object("context", {})
        if not isinstance(ddl := record.value("ddl"), str):
            raise record.member_error("ddl", "a text")
        return cls(
            prefix=record.object("source").text("server"),
            position=BinlogOffset.from_json(position),
            epoch=record.integer("epoch"),
            ts_ms=record.integer("ts_ms"),
            db=record.text("databaseName"),
            ddl=ddl,
            context=_context_of(context),
            table_changes=tuple(change.as_dict() for change in record.objects("tableChanges", ())),
            snapshot=position.flag("snapshot", False),
            between=position.flag("between", False),
        )

    def identity(self) -> tuple[str | None, str, int, str, str]:
        """Return what makes two records the same statement, whichever attempt wrote them."""
        content = json.dumps(self.table_changes, sort_keys=True) if self.from_signal else self.ddl
        return self.position.server_uuid, self.position.file, self.position.pos, self.db, content

    @property
    def from_signal(self) -> bool:
        """Whether a signal told the structure, and no statement."""
        return not self.ddl and bool(self.table_changes)

    def apply_to(self, state: SchemaState, captures: CapturePredicate | None) -> SchemaState:
        """Return the structures behind the statement, or behind what a signal told.

        Args:
            state: Structures before it.
            captures: Which tables matter, None for all.

        Raises:
            DdlParseError: The statement is not understood.
            SchemaError: The record is damaged.
        """
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
        """Return the table that a snapshot's CREATE TABLE describes and that is not captured; None for anything else.

        Args:
            captures: Which tables matter, None for all.
        """
        if captures is None or not self.snapshot or len(self.table_changes) != 1 or not self.ddl.startswith("CREATE"):
            return None
        change = self.table_changes[0]
        db_prefix, name = f'"{self.db}"."', str(change.get("id", ""))
        if change.get("type") != "CREATE" or not name.startswith(db_prefix):
            return None
        table_id = TableId(self.db, name[len(db_prefix) : -1])
        return None if captures(table_id) else table_id

    def is_base_for(self, until: BinlogOffset) -> bool:
        """Return whether a whole description of all captured tables begins here that stands at or before an offset.

        A snapshot writes one, and so does a person who moves the offset to where the history does not reach; it begins
        with the server's character sets. What was recorded before it is contained or belongs to another binlog.

        Args:
            until: The offset.
        """
        return (
            self.starts_description and comparable(self.position, until) and compare_offsets(self.position, until) <= 0
        )

    @property
    def starts_description(self) -> bool:
        """Whether this is the first record of a whole description."""
        return self.snapshot and self.ddl.startswith("SET ")

    def applies(self, until: BinlogOffset, epoch: int, base: HistoryRecord | None) -> bool:
        """Return whether the statement is part of the structures at an offset.

        Args:
            until: The offset.
            epoch: The epoch that starts at it.
            base: First record of the description that the structures begin with; None in histories without one. There,
                of another server, whose positions cannot be compared, all batches of earlier epochs lie before.
        """
        position = self.position
        if base is None and position.server_uuid and until.server_uuid and position.server_uuid != until.server_uuid:
            return self.epoch < epoch
        if not comparable(position, until) or compare_offsets(position, until) > 0:
            return False
        if base is None or (self.snapshot and self.epoch == base.epoch and position == base.position):
            return True
        # A writer that was fenced since may have committed a statement of its own binlog behind the description.
        # What is told between two batches may stand where the description does.
        base_order = compare_offsets(position, base.position) if comparable(position, base.position) else -1
        after_base = base_order > 0 or (base_order == 0 and self.between and self.epoch > base.epoch)
        return after_base and self.epoch >= base.epoch


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except ValueError:  # half a surrogate pair, in a name that the server wrote so
        pass
    try:
        return parse_json(data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        raise damaged_record(f"it is not UTF-8: {error}") from None


def _context_of(members: Members) -> DdlContext:
    """Return a session's context; what the record does not say has its default."""
    try:
        return _cached_context(orjson.dumps(members.as_dict()))
    except TypeError:  # a text or a number that is damaged; the reading names it
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
    )
