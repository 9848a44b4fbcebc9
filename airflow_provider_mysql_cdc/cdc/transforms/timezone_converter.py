"""``TimezoneConverter`` of Debezium 3.6.1: times of change events in another zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.option_values import names
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import CONNECT_TIMESTAMP, RecordSchema, is_envelope
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, OptionError, Transform

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
