"""The error tree.

::

    CdcError
    ├── ConfigError                 wrong or unknown property; never retriable
    ├── SourceError                 the MySQL side
    │   ├── SourceConnectionError   cannot reach or stay connected; retriable
    │   ├── SourceAuthError         wrong account or password
    │   ├── SourcePrivilegeError    a grant is missing
    │   ├── SourceSettingError      binlog off, STATEMENT format, ...
    │   ├── BinlogPurgedError       the start position is gone
    │   ├── ServerIdInUseError      another replica registered with our server id
    │   ├── BinlogCorruptError      checksum or structure does not hold
    │   └── UnsupportedEventError   an event that must not be skipped is not understood
    ├── SchemaError                 table structure unknown or contradictory
    │   ├── DdlParseError           a relevant statement was not understood
    │   └── SchemaMismatchError     TABLE_MAP contradicts the schema history
    ├── ValueDecodeError            one value cannot be represented
    ├── SinkError                   the Kafka side
    │   ├── SinkConnectionError     brokers cannot be reached; retriable
    │   ├── SinkAuthorizationError  topic, group or transactional id refused
    │   ├── RecordTooLargeError     a record exceeds what the broker takes
    │   ├── TopicChangedError       a topic was deleted, made anew or given more partitions by somebody else
    │   └── FencedError             a newer attempt took over this writer
    ├── RegistryError               the schema registry: what it does not have, or answers
    │   ├── RegistryConnectionError it cannot be reached, or fails; retriable
    │   ├── RegistryAuthError       it refuses the account, token or certificate
    │   ├── IncompatibleSchemaError it refuses a schema that readers of the ones before could not read
    │   └── SchemaIdChangedError    the schema of keys has another id than in the records before
    └── StateError                  offsets, plans and the ledger
        ├── OffsetConflictError     another run moved the stored state first
        ├── RunInProgressError      another run of this topic.prefix is at work
        ├── LedgerMissingError      offsets exist but the ledger is gone
        ├── LedgerMismatchError     stored offset and ledger contradict each other
        ├── DamagedRecordError      a stored record is not of the form it was written in
        └── NoOffsetError           nothing to start from
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

_DAG_NAME = re.compile(r"\bmysql_cdc_(reset_offset|snapshot|drain)\b")


class CdcError(Exception):
    """Base of all errors: say what, where, why, what to do next and whether a retry can help.

    Args:
        what: What went wrong, one sentence without the trailing period.
        where: The place: ``file:position``, a table, a property name, an address.
        why: The cause as far as known (a server's own message, for example).
        remedy: What a person should do next.
        retriable: Overrides the class default.
    """

    retriable: ClassVar[bool] = False

    def __init__(
        self, what: str, *, where: str = "", why: str = "", remedy: str = "", retriable: bool | None = None
    ) -> None:
        self.what, self.where, self.why, self.remedy = what, where, why, remedy
        self.can_retry = type(self).retriable if retriable is None else retriable
        super().__init__(self.message())

    def message(self) -> str:
        """Return the one-paragraph message a person reads."""
        parts = [self.what + (f" [{self.where}]" if self.where else "") + "."]
        if self.why:
            parts.append(f"Why: {self.why.rstrip('.')}.")
        if self.remedy:
            # A DAG folder has the DAGs that somebody put there.
            source = " (DAGs of airflow_provider_mysql_cdc.example_dags)" if _DAG_NAME.search(self.remedy) else ""
            parts.append(f"What to do: {self.remedy.rstrip('.')}{source}.")
        parts.append("A retry can help." if self.can_retry else "A retry will not help.")
        return " ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.where, self.why, self.remedy, self.can_retry)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON, for the ledger's outcome record."""
        return {
            "type": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "remedy": self.remedy,
            "retriable": self.can_retry,
        }


def _rebuild(cls: type[CdcError], what: str, where: str, why: str, remedy: str, retriable: bool) -> CdcError:
    return cls(what, where=where, why=why, remedy=remedy, retriable=retriable)


class ConfigError(CdcError):
    """A property is wrong, missing or unknown (FAULT-02)."""


class SourceError(CdcError):
    """Something on the MySQL side."""


class SourceConnectionError(SourceError):
    """MySQL cannot be reached, or the connection broke or fell silent (FAULT-03, FAULT-06)."""

    retriable = True


class SourceAuthError(SourceError):
    """MySQL refuses the account or its password."""


class SourcePrivilegeError(SourceError):
    """The account lacks a privilege (SETUP-02)."""


class SourceSettingError(SourceError):
    """A server variable makes capture impossible (SETUP-11, SETUP-16)."""


class BinlogPurgedError(SourceError):
    """The binlog no longer holds the start position (FAULT-04, FAULT-11)."""


class ServerIdInUseError(SourceError):
    """Another replication client uses the same server id (STRM-02)."""

    retriable = True


class BinlogCorruptError(SourceError):
    """A checksum or the structure of an event does not hold."""


class UnsupportedEventError(SourceError):
    """An event type that MySQL does not mark ignorable is not understood."""


class SchemaError(CdcError):
    """A table's structure is unknown or contradictory."""


class DdlParseError(SchemaError):
    """A statement that can change a captured table was not understood (FAULT-15)."""


class RowsAsTextError(DdlParseError):
    """A CREATE TABLE ... SELECT was logged as text, so its rows are nowhere in the binlog (SETUP-16)."""


class SchemaMismatchError(SchemaError):
    """TABLE_MAP contradicts the structure the history gives."""


class ValueDecodeError(CdcError):
    """A value cannot be represented in the chosen mode."""


class SinkError(CdcError):
    """Something on the Kafka side."""


class SinkConnectionError(SinkError):
    """Kafka brokers cannot be reached in time (FAULT-12)."""

    retriable = True


class SinkAuthorizationError(SinkError):
    """Kafka refuses a topic, group or transactional id."""


class RecordTooLargeError(SinkError):
    """A record is larger than producer or broker accept."""


class TopicChangedError(SinkError):
    """A topic was deleted, made anew or given more partitions since the batch before."""


class FencedError(SinkError):
    """A newer attempt with the same transactional id took over."""

    retriable = True


class RegistryError(CdcError):
    """The schema registry does not have what is needed, or answers what cannot be used."""


class RegistryConnectionError(RegistryError):
    """The schema registry cannot be reached, or fails."""

    retriable = True


class RegistryAuthError(RegistryError):
    """The schema registry refuses the account, the token or the certificate."""


class IncompatibleSchemaError(RegistryError):
    """A schema fails the registry's compatibility check, or is no schema to it (FAULT-28)."""


class SchemaIdChangedError(RegistryError):
    """The schema of keys has another id than the keys that were written, so equal keys would differ."""


class StateError(CdcError):
    """Offsets, plans or the ledger do not allow to go on."""


class OffsetConflictError(StateError):
    """Another run changed the stored state since it was read."""

    retriable = True


class RunInProgressError(StateError):
    """Another run of the same topic.prefix is at work."""

    retriable = True


class LedgerMissingError(StateError):
    """Offsets are stored, but the ledger topic is gone or empty."""


class LedgerMismatchError(StateError):
    """Stored offset and ledger contradict each other."""


class DamagedRecordError(StateError):
    """A record of the ledger, the offset store or a job spec is not of the form it was written in."""


class NoOffsetError(StateError):
    """There is no offset and the configuration forbids to choose one."""


ERROR_TYPES: dict[str, type[CdcError]] = {
    c.__name__: c
    for c in (
        CdcError, ConfigError, SourceError, SourceConnectionError, SourceAuthError, SourcePrivilegeError,
        SourceSettingError, BinlogPurgedError, ServerIdInUseError, BinlogCorruptError, UnsupportedEventError,
        SchemaError, DdlParseError, SchemaMismatchError, ValueDecodeError, SinkError, SinkConnectionError,
        SinkAuthorizationError, RecordTooLargeError, TopicChangedError, FencedError, RegistryError,
        RegistryConnectionError, RegistryAuthError, IncompatibleSchemaError, SchemaIdChangedError, StateError,
        OffsetConflictError, RunInProgressError, LedgerMissingError, LedgerMismatchError, DamagedRecordError,
        NoOffsetError,
    )
}  # fmt: skip


def from_json(data: object) -> CdcError:
    """Rebuild an error from ``CdcError.to_json`` output; an unknown type becomes ``CdcError``, as does anything else.

    Args:
        data: What was recorded or sent.
    """
    fields = data if isinstance(data, dict) else {"what": f"an error without its text: {data!r:.200}"}
    values = {name: fields.get(name, "") for name in ("what", "where", "why", "remedy")}
    texts = {name: text if isinstance(text, str) else f"{text!r:.200}" for name, text in values.items()}
    cls = ERROR_TYPES.get(str(fields.get("type")), CdcError)
    what = texts["what"] or "an error whose text was not recorded"
    return _rebuild(cls, what, texts["where"], texts["why"], texts["remedy"], fields.get("retriable") is True)
