"""``TimestampConverter`` of Kafka Connect and ``TimezoneConverter`` of Debezium 3.6.1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    RecordSchema,
    SchemaField,
    TransformFault,
    inferred,
    is_envelope,
    java_class,
    java_map,
    require_map,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    NULL_DEFAULT,
    ChainRecord,
    Option,
    OptionError,
    PartTransform,
    SchemaCache,
    Transform,
    names,
    one_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import JavaDateFormat, milliseconds_of

_DAY_MS, _MS_PER_SECOND = 86_400_000, 1_000
_PER_MS = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}
_NO_FORMAT = 'Cannot invoke "java.text.SimpleDateFormat.parse(String)" because "config.format" is null'
_TARGETS = {
    "string": ("string", None),
    "unix": ("int64", None),
    "Date": ("int32", CONNECT_DATE),
    "Time": ("int32", CONNECT_TIME),
    "Timestamp": ("int64", CONNECT_TIMESTAMP),
}


class TimestampConverter(PartTransform):
    """Convert a field, or a whole key or value, from one form of time to another."""

    DOC = "converts times: text, unix time, Connect's `Date`, `Time` and `Timestamp`"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "field": Option(str.strip, "the field; without it the whole key or value", ""),
        "target.type": Option(one_of(*_TARGETS), f"{', '.join(_TARGETS)}", required=True),
        "format": Option(lambda text: JavaDateFormat(text) if text.strip() else None, "format of texts"),
        "unix.precision": Option(one_of("seconds", *_PER_MS), "of unix times; default `milliseconds`", "milliseconds"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._field: str = options["field"]
        self._target: str = options["target.type"]
        self._format: JavaDateFormat | None = options["format"]
        self._precision: str = options["unix.precision"]
        self._default: bool = options["replace.null.with.default"]
        if self._target == "string" and self._format is None:
            raise OptionError("format", "is missing; target.type=string needs it", "Set it")
        self._schemas = SchemaCache(self._schema)

    def _schema(self, schema: RecordSchema) -> RecordSchema:
        fields = (
            SchemaField(m.name, self._typed(m.schema) if m.name == self._field else m.schema) for m in schema.fields
        )
        return schema.basics(fields, optional=schema.optional)

    def _typed(self, schema: RecordSchema) -> RecordSchema:
        kind, name = _TARGETS[self._target]
        return RecordSchema(kind, schema.optional, name=name, version=None if name is None else 1)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if schema is None and value is None:
            return record
        if schema is None and not self._field:
            return self.write(record, None, self._plain(value))
        if (plain := require_map(schema, value, "converting timestamp formats")) is not None:
            converted = {self._field: self._plain(plain.get(self._field))}
            return self.write(record, None, java_map(plain, converted))
        assert schema is not None
        if not self._field:
            return self.write(record, self._typed(schema), self._converted(schema, value))
        if value is None:
            return self.write(record, self._schemas(schema), None)
        schema, value = require_struct(schema, value, "converting timestamp formats")
        updated = {member.name: member.read(value, default=self._default) for member in schema.fields}
        if (member := schema.member(self._field)) is not None:
            updated[self._field] = self._converted(member.schema, updated[self._field])
        return self.write(record, self._schemas(schema), updated)

    def _plain(self, value: Any) -> Any:
        """Return a value without a schema in the other form."""
        if value is None:
            return None
        schema = inferred(value)
        if schema.type not in ("string", "int64"):
            found = java_class(schema, value)
            raise TransformFault(f"TimestampConverter does not support class {found} objects as timestamps")
        return self._converted(schema, value)

    def _converted(self, schema: RecordSchema, value: Any) -> Any:
        if milliseconds_of(schema, 0) is None and schema.type not in ("string", "int64"):
            text = f"{schema.name}:{schema.java_type()}" if schema.name else schema.java_type()
            raise TransformFault(f"Schema Schema{{{text}}} does not correspond to a known timestamp type format")
        return None if value is None else self._written(self._milliseconds(schema, value))

    def _milliseconds(self, schema: RecordSchema, value: Any) -> int:
        if schema.type == "string":
            try:
                if self._format is None:
                    raise TransformFault(_NO_FORMAT, "format is missing; texts need it")
                return self._format.parse(value)
            except ValueError:
                assert self._format is not None
                pattern = self._format.pattern
                raise TransformFault(
                    f"Could not parse timestamp: value ({value}) does not match pattern ({pattern})"
                ) from None
        known = milliseconds_of(schema, value)
        if known is not None:
            return known
        number: int = value
        if self._precision == "seconds":
            return _saturated(number * _MS_PER_SECOND)
        return _truncated(number, _PER_MS[self._precision])

    def _written(self, ms: int) -> Any:
        if self._target == "string":
            assert self._format is not None
            return self._format.format(ms)
        if self._target == "unix":
            if self._precision == "seconds":
                return _truncated(ms, _MS_PER_SECOND)
            return _saturated(ms * _PER_MS[self._precision])
        return {"Date": (ms // _DAY_MS + 2**31) % 2**32 - 2**31, "Time": ms % _DAY_MS, "Timestamp": ms}[self._target]


def _truncated(number: int, divisor: int) -> int:
    """Return a quotient rounded towards 0, as Java does."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _saturated(number: int) -> int:
    """Return a number within 64 bits, as Java's ``TimeUnit`` does."""
    return max(-(2**63), min(number, 2**63 - 1))


_OFFSET = re.compile(r"([+-])(\d{2}):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_RULES = re.compile(r'\[(source|topic|[".\w\s_]+):([".\w\s_]+(?::[".\w\s_]+)?(?:,|]$))+', re.ASCII)
_FORM = (
    'must be "source:TABLE:FIELD", "topic:TOPIC:FIELD" or "NAME:FIELD"; only the first rule may have source or topic'
)
_EPOCH = datetime(1970, 1, 1)
_LAST = (datetime.max - _EPOCH) // timedelta(seconds=1)
_FIRST = (datetime.min - _EPOCH) // timedelta(seconds=1)
_PER_SECOND = {
    "io.debezium.time.Timestamp": 1_000,
    CONNECT_TIMESTAMP: 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_ZONED = "io.debezium.time.ZonedTimestamp"
_EPOCH_FIELDS = {"ts_ms": 1_000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}


def _zone(text: str) -> tzinfo:
    text = text.strip()
    if (match := _OFFSET.fullmatch(text)) is not None:
        sign, hours, minutes, seconds = match[1], int(match[2]), int(match[3]), int(match[4] or 0)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > timedelta(hours=18):
            raise ValueError("must be between -18:00 and +18:00")
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a zone such as America/Los_Angeles, or an offset such as +08:00") from None


def _rules(text: str) -> tuple[str, ...]:
    rules = names(text)
    if rules and _RULES.fullmatch(f"[{', '.join(rules)}]") is None:
        raise ValueError(_FORM)
    return rules


class TimezoneConverter(Transform):
    """Shift DATETIME and TIMESTAMP columns to another zone."""

    DOC = "shifts times of change events to another zone"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "converted.timezone": Option(_zone, "the zone: `Europe/Berlin`, `+08:00`", required=True),
        "include.list": Option(_rules, "what is shifted: `source:TABLE:FIELD`, `topic:TOPIC:FIELD`, `NAME:FIELD`", ()),
        "exclude.list": Option(_rules, "what is not; not both lists", ()),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._zone: tzinfo = options["converted.timezone"]
        self._includes, excludes = bool(options["include.list"]), options["exclude.list"]
        if self._includes and excludes:
            raise OptionError("exclude.list", "cannot be combined with include.list", "Keep one of the two")
        self._lists = self._includes or bool(excludes)
        self._fields: dict[str, dict[str, set[str]]] = {"topic": {}, "source": {}, "": {}}
        kind = ""
        for rule in options["include.list"] or excludes:
            parts = rule.split(":")
            if len(parts) > 1 and parts[0].lower() in ("source", "topic"):
                kind, parts = parts[0], parts[1:]
            fields = self._fields[kind if kind in self._fields else ""].setdefault(parts[0], set())
            fields.update(parts[1:2])

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema):
            return record
        source = event.get("source") or {}
        fields = self._matching(source.get("table"), record.topic) if self._lists else frozenset[str]()
        if self._includes == (fields is not None) or not self._lists:
            # Without fields, all of them are meant.
            self._shift(schema, event, fields or frozenset(), included=bool(fields) and self._includes)
        elif fields:
            self._shift(schema, event, fields, included=False)
        return record

    def _matching(self, table: str | None, topic: str) -> frozenset[str] | None:
        """Return the fields of the rule that matches an event, empty for all; None where no rule does."""
        for kind, name in (("topic", topic), ("source", table), ("", topic), ("", table)):
            if name is not None and (found := self._fields[kind].get(name)) is not None:
                return frozenset(found)
        return None

    def _shift(self, schema: RecordSchema, event: dict[str, Any], fields: frozenset[str], *, included: bool) -> None:
        """Shift the times of an event: those of the fields alone, or all but these."""
        listed: dict[str, set[str]] = {"before": set(), "after": set(), "source": set()}
        for field in fields:
            part, _, name = field.partition(".")
            for names_of_part in [listed[part]] if name and part in listed else [listed["before"], listed["after"]]:
                names_of_part.add(name if name and part in listed else field)
        for part in ("before", "after"):
            if event.get(part) is not None:
                self._shift_row(schema.by_name[part].schema, event[part], listed[part], included)
        if listed["source"] and event.get("source") is not None:
            self._shift_source(event["source"], listed["source"], included)

    def _shift_row(self, schema: RecordSchema, row: dict[str, Any], listed: set[str], included: bool) -> None:
        for member in schema.fields:
            kind = member.schema.name
            if (kind == _ZONED or kind in _PER_SECOND) and (member.name in listed) == included:
                value = member.read(row)
                if value is not None:
                    row[member.name] = self._zoned(value) if kind == _ZONED else self._local(value, _PER_SECOND[kind])

    def _shift_source(self, source: dict[str, Any], listed: set[str], included: bool) -> None:
        for name, per_second in _EPOCH_FIELDS.items():
            if source.get(name) is not None and (name in listed) == included:
                instant = _EPOCH + timedelta(seconds=source[name] // per_second)
                offset = instant.replace(tzinfo=UTC).astimezone(self._zone).utcoffset() or timedelta()
                source[name] += int(offset.total_seconds()) * per_second

    def _offset(self, local: datetime) -> timedelta:
        """Return the zone's offset at a local time; in a gap and an overlap the one before, as Java does."""
        return local.replace(tzinfo=self._zone, fold=0).utcoffset() or timedelta()

    def _local(self, value: int, per_second: int) -> int:
        seconds = min(max(value // per_second, _FIRST), _LAST)
        return value - int(self._offset(_EPOCH + timedelta(seconds=seconds)).total_seconds()) * per_second

    def _zoned(self, value: str) -> str:
        read = datetime.fromisoformat(value)
        before = read.replace(tzinfo=None)
        offset = self._offset(before)
        try:
            local = before - (read.utcoffset() or timedelta()) + offset
        except OverflowError:
            return value
        fraction = f".{local.microsecond:06}".rstrip("0") if local.microsecond else ""
        return local.isoformat(timespec="seconds") + fraction + _offset_text(offset)


def _offset_text(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    if not seconds:
        return "Z"
    hours, rest = divmod(abs(seconds), 3600)
    text = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
    return text + (f":{rest % 60:02}" if rest % 60 else "")
