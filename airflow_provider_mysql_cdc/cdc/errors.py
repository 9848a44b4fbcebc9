"""The error tree.

::

    CdcError
    ├── ConfigError                 wrong or unknown property; never retriable
    │   ├── RepairLimitError        more rows differ than a repair may write
    │   └── TransformError          a transform, or the converter behind it, cannot take a record
    ├── SourceError                 the MySQL side
    │   ├── SourceConnectionError   cannot reach or stay connected; retriable
    │   ├── SourceAuthError         wrong account or password
    │   ├── SourcePrivilegeError    a grant is missing
    │   ├── SourceSettingError      binlog off, STATEMENT format, ...
    │   ├── BinlogPurgedError       the start position is gone
    │   │   └── ServerChangedError  another server answers, and its GTIDs do not continue the stream's
    │   ├── ServerIdInUseError      another replica registered with our server id
    │   ├── BinlogCorruptError      checksum or structure does not hold
    │   └── UnsupportedEventError   an event that must not be skipped is not understood
    ├── SchemaError                 table structure unknown or contradictory
    │   ├── DdlParseError           a relevant statement was not understood
    │   │   └── RowsAsTextError     the rows of CREATE TABLE ... SELECT are nowhere in the binlog
    │   └── SchemaMismatchError     TABLE_MAP contradicts the schema history
    ├── ValueDecodeError            one value cannot be represented
    ├── SinkError                   the Kafka side
    │   ├── SinkConnectionError     brokers cannot be reached; retriable
    │   ├── SinkTlsError            TLS is not possible: protocol, certificate, host name
    │   ├── SinkAuthorizationError  account, topic, group or transactional id refused
    │   ├── RecordTooLargeError     a record exceeds what the broker takes
    │   ├── TopicChangedError       a topic was deleted, created again or given more partitions by somebody else
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
        │   └── ForeignLedgerError  the ledger topic is another stream's or another program's
        ├── RecordsLostError        ledger or topics lack records that Kafka had confirmed
        ├── DamagedRecordError      a stored record is not of the form it was written in
        ├── StoredVersionError      a stored record has a version that this package does not read
        ├── NoOffsetError           nothing to start from
        ├── StreamsFailedError      streams of a fleet failed, each with an error of its own
        ├── DifferencesFoundError   a verification found topics that differ from their tables
        └── NotJudgedError          a verification could not judge tables, or some of their rows
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

_DAG_NAME = re.compile(r"\bmysql_cdc_(reset_offset|snapshot|drain|verify)\b")
PACKAGE_DAGS = "mysql_cdc"
"""What the ids of the DAGs that come with this package begin with; errors name these DAGs."""
DAG_KINDS = (
    "snapshot",
    "drain",
    "adhoc_snapshot",
    "backfill",
    "verify",
    "send_signal",
    "reset_offset",
    "import_debezium",
)
"""What the ids of a stream's DAGs end with."""
_PACKAGE_DAG = re.compile(rf"(?<!Variable )\b{PACKAGE_DAGS}_({'|'.join(DAG_KINDS)})\b")
# A DAG folder has the DAGs that somebody put there.
_DAG_SOURCE = " (DAGs of airflow_provider_mysql_cdc.example_dags)"
_MESSAGE = re.compile(
    r"(?P<what>.+?)(?: \[(?P<where>.+?)])?\.(?: Why: (?P<why>.+?)\.)?(?: What to do: (?P<remedy>.+?)\.)?"
    r" A retry (?P<retry>can|will not) help\."
)


READ_AGAIN = (
    "trigger mysql_cdc_reset_offset with offset=current, then mysql_cdc_snapshot with again=true, then "
    "mysql_cdc_verify with repair=yes"
)
"""How to go on where the binlog has what no drain can pass: its batch is not finished, and keeps a snapshot from
beginning; what was deleted meanwhile is still in the topics."""


class CdcError(Exception):
    """Something of no other kind; the base of all errors, which say what, where, why, what to do, and whether to retry.

    Args:
        what: What went wrong, one sentence without the trailing period.
        where: The place: ``file:position``, a table, a property name, an address.
        why: The cause as far as known (a server's own message, for example).
        remedy: What a person should do next.
        retriable: Overrides the class default.
    """

    advice: ClassVar[str] = "Do what the message says."
    """What a person should do, in the runbook and where an error has no remedy of its own."""
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
            parts.append("Why: " + self.why.rstrip(".\n") + ".")
        # A list of causes has lines of its own; what follows it does not stand in its last line.
        after = "\n" if "\n" in self.why else " "
        rest = [f"What to do: {self.next_step()}."] if self.remedy else []
        return " ".join(parts) + after + " ".join([*rest, self.retry_hint()])

    def next_step(self) -> str:
        """Return what a person should do, without a period; the class's advice where the error has no remedy."""
        if not self.remedy:
            return self.advice.rstrip(".")
        return self.remedy.rstrip(".") + (_DAG_SOURCE if _DAG_NAME.search(self.remedy) else "")

    def with_dags_of(self, stream: str) -> CdcError:
        """Return the error with the DAGs of a stream in place of those that come with this package.

        Args:
            stream: What the ids of the stream's DAGs begin with.
        """
        remedy = self.remedy or (self.advice if _PACKAGE_DAG.search(self.advice) else "")
        before = (self.what, self.where, self.why, remedy)
        what, where, why, remedy = (_PACKAGE_DAG.sub(rf"{stream}_\1", text) for text in before)
        return (
            self
            if (what, where, why, remedy) == before
            else _rebuild(type(self), what, where, why, remedy, self.can_retry)
        )

    def located(self, where: str) -> Self:
        """Return the error with a place, unless it has one."""
        if self.where:
            return self
        return type(self)(self.what, where=where, why=self.why, remedy=self.remedy, retriable=self.can_retry)

    def retry_hint(self) -> str:
        """Return the sentence that says whether a retry can help."""
        return "A retry can help." if self.can_retry else "A retry will not help."

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

    advice = "Correct the property, argument or connection that the message names."


class RepairLimitError(ConfigError):
    """More rows differ than a repair may write; none of them is written."""

    advice = "Find out why so many rows differ; then verify again with repair=yes and a higher repair.max.rows."


class TransformError(ConfigError):
    """A record cannot pass the transforms, or be converted behind them; the stream stops before it (TOPIC-05)."""

    advice = "Mend the transform that the message names, or keep such records from it with a predicate; then run again."


class SourceError(CdcError):
    """Something on the MySQL side."""

    advice = "Do what the message says."


class SourceConnectionError(SourceError):
    """MySQL cannot be reached, or the connection broke or fell silent (FAULT-03, FAULT-06)."""

    advice = "Check that the server runs, its address, and what is between it and Spark."
    retriable = True


class SourceAuthError(SourceError):
    """MySQL refuses the account or its password."""

    advice = "Correct user and password of the connection, or the account's authentication plugin."


class SourcePrivilegeError(SourceError):
    """The account lacks a privilege (SETUP-02)."""

    advice = "Grant the account the privilege that the message names."


class SourceSettingError(SourceError):
    """A server variable makes capture impossible (SETUP-11, SETUP-16)."""

    advice = "Set the server's variable as the message says."


class BinlogPurgedError(SourceError):
    """The binlog no longer holds the start position (FAULT-04, FAULT-11)."""

    advice = "Run mysql_cdc_snapshot with *Snapshot again*, then mysql_cdc_verify with repair."


class ServerChangedError(BinlogPurgedError):
    """Another server answers, and the stored offset has no place in its binlog (STRM-05, STRM-06)."""

    advice = "Let database.hostname lead to the server that the message names, or do what it says."


class ServerIdInUseError(SourceError):
    """Another replication client uses the same server id (STRM-02)."""

    advice = "Set database.server.id to numbers that no other replication client has."


class BinlogCorruptError(SourceError):
    """A checksum or the structure of an event does not hold."""

    advice = "Run mysqlbinlog --verify-binlog-checksum on the file that the message names."


class UnsupportedEventError(SourceError):
    """An event type that MySQL does not mark ignorable is not understood."""

    advice = "Check the server's version; update this package."


class SchemaError(CdcError):
    """A table's structure is unknown or contradictory."""

    advice = "Do what the message says; often snapshot.mode=recovery reads the structures again."


class DdlParseError(SchemaError):
    """A statement that can change a captured table was not understood (FAULT-15)."""

    advice = "Report the statement; schema.history.internal.skip.unparseable.ddl=true skips it."


class RowsAsTextError(DdlParseError):
    """A CREATE TABLE ... SELECT was logged as text, so its rows are nowhere in the binlog (SETUP-16)."""

    advice = "Set binlog_format=ROW for every session, and do what the message says."


class SchemaMismatchError(SchemaError):
    """TABLE_MAP contradicts the structure the history gives."""

    advice = "Rebuild the schema history (snapshot.mode=recovery), or do what else the message says."


class ValueDecodeError(CdcError):
    """A value cannot be represented in the chosen mode."""

    advice = "Change the mode of the column's type, or exclude the column."


class SinkError(CdcError):
    """Something on the Kafka side."""

    advice = "Do what the message says."


class SinkConnectionError(SinkError):
    """Kafka brokers cannot be reached in time (FAULT-12)."""

    advice = "Check that the brokers run, kafka.bootstrap.servers, and the client's security settings."
    retriable = True


class SinkTlsError(SinkError):
    """Kafka and the client cannot agree on TLS, or one of them refuses the other's certificate."""

    advice = "Correct kafka.security.protocol, or the certificate or authority that the message names."


class SinkAuthorizationError(SinkError):
    """Kafka refuses an account, a topic, group or transactional id."""

    advice = "Correct the account, or grant it the operation that the message names."


class RecordTooLargeError(SinkError):
    """A record is larger than producer or broker accept."""

    advice = "Raise the limit that the message names, or exclude the column."


class TopicChangedError(SinkError):
    """A topic was deleted, created again or given more partitions since the batch before."""

    advice = "Find out who changed it; then run mysql_cdc_reset_offset with stored."


class FencedError(SinkError):
    """A newer attempt with the same transactional id took over."""

    advice = "Look at the newer attempt."
    retriable = True


class RegistryError(CdcError):
    """The schema registry does not have what is needed, or answers what cannot be used."""

    advice = "Do what the message says."


class RegistryConnectionError(RegistryError):
    """The schema registry cannot be reached, or fails."""

    advice = "Check that the registry runs, its URL, and what is between it and Spark."
    retriable = True


class RegistryAuthError(RegistryError):
    """The schema registry refuses the account, the token or the certificate."""

    advice = "Correct the account, token or certificate of the registry's connection."


class IncompatibleSchemaError(RegistryError):
    """A schema fails the registry's compatibility check, or is no schema to it (FAULT-28)."""

    advice = "Register a compatible schema, or change the subject's compatibility level."


class SchemaIdChangedError(RegistryError):
    """The schema of keys has another id than the keys that were written, so equal keys would differ."""

    advice = "Restore the registry's schemas with their ids, or name the registry that had them."


class StateError(CdcError):
    """Offsets, plans or the ledger do not allow to go on."""

    advice = "Do what the message says; a retry continues from the last committed marker."


class OffsetConflictError(StateError):
    """Another run changed the stored state since it was read."""

    advice = "Wait for the other run; the next try plans again."
    retriable = True


class RunInProgressError(StateError):
    """Another run of the same topic.prefix is at work."""

    advice = "Wait for the other run, or end it."
    retriable = True


class LedgerMissingError(StateError):
    """Offsets are stored, but the ledger topic is gone or empty."""

    advice = "Find out who deleted the topic; then run mysql_cdc_reset_offset with stored."


class LedgerMismatchError(StateError):
    """Stored offset and ledger contradict each other."""

    advice = "Decide where the stream continues, and run mysql_cdc_reset_offset to that position."


class RecordsLostError(StateError):
    """Kafka no longer has records that it had confirmed: a broker that lacked them leads the topic now."""

    advice = "Find out which broker lost them; then run mysql_cdc_reset_offset with stored, and mysql_cdc_verify."


class ForeignLedgerError(LedgerMismatchError):
    """The ledger topic holds records of another stream or another program; nothing is written to it."""

    advice = "Set another ledger.topic for this stream."


class DamagedRecordError(StateError):
    """A record of the ledger, the offset store or a job spec is not of the form it was written in."""

    advice = "Find out what wrote the record; the entry below says what to do with each kind."


class StoredVersionError(StateError):
    """A record of the ledger, the offset store, the schema history or a job spec is of another version of the form."""

    advice = "Use the version of this package that wrote the record, or start the stream's state again."


class NoOffsetError(StateError):
    """There is no offset and the configuration forbids to choose one."""

    advice = "Run mysql_cdc_snapshot first, or set snapshot.mode so that a drain may begin without one."


class StreamsFailedError(StateError):
    """Streams of a fleet were not drained; the message has the error of each, and the others are drained."""

    advice = "Do for each stream what the message says about it."


class DifferencesFoundError(StateError):
    """A verification that has to fail on differences found topics that differ from their tables."""

    advice = "Find out what changed the rows or records; repair them with mysql_cdc_verify (a dry run first)."


class NotJudgedError(StateError):
    """A verification that has to fail on it could not judge tables, or some of their rows."""

    advice = "Remove the cause that the message names, or read the tables again, and run mysql_cdc_verify again."


PREVENT_LOSS = (
    "find out which broker lost them, and prevent it (three replicas, min.insync.replicas=2, "
    "unclean.leader.election.enable=false)"
)
"""Begins the remedy of ``RecordsLostError``."""


def _tree(base: type[CdcError]) -> list[type[CdcError]]:
    return [base, *(error for child in base.__subclasses__() for error in _tree(child))]


ERROR_TYPES: dict[str, type[CdcError]] = {error.__name__: error for error in _tree(CdcError)}
"""All classes by name, each behind its base."""


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


def from_message(text: str, *, retriable: bool | None = None) -> CdcError:
    """Rebuild an error from one line: its class's name, a colon, and its message.

    Args:
        text: What a driver printed; an unknown class becomes ``CdcError``.
        retriable: Whether a retry can help; None for what the message says.
    """
    name, _, message = text.partition(": ")
    kind = ERROR_TYPES.get(name, CdcError)
    match = _MESSAGE.fullmatch(message)
    if match is None:
        return kind(message or text, retriable=retriable)
    what, where, why, remedy = (match[part] or "" for part in ("what", "where", "why", "remedy"))
    can_retry = match["retry"] == "can" if retriable is None else retriable
    return _rebuild(kind, what, where, why, remedy.removesuffix(_DAG_SOURCE), can_retry)
