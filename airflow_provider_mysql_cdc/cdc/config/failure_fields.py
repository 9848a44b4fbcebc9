"""Properties of rows that cannot be represented as they are: failing values, and values the binlog leaves out."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import RowFailureMode
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope, SetBy

ERRORS_TOLERANCE: Field[str] = Field(
    "errors.tolerance",
    lambda value: _parse_tolerance(value.strip().lower()),
    "none",
    "`all` is `event.processing.failure.handling.mode=warn`, unless that is set: rows with a value that cannot be "
    "represented are left out, into `errors.deadletterqueue.topic.name` if it is set. Records are never left out for "
    "other reasons.",
    Group.EVENTS,
    enum={"none": "a row that cannot be represented stops the run", "all": "it is left out"},
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
EVENT_PROCESSING_FAILURE_HANDLING_MODE: Field[RowFailureMode] = Field(
    "event.processing.failure.handling.mode",
    parse_value.choice(RowFailureMode, {"ignore": "skip"}),
    RowFailureMode.FAIL,
    "Reaction to a row with a value that cannot be decoded or represented. The other rows of its event are written in "
    "any case but `fail`. Damaged events, and tables whose structure is not known, always stop the run.",
    Group.EVENTS,
    aliases=("event.deserialization.failure.handling.mode",),
    enum=RowFailureMode.docs(),
    derive=lambda get: RowFailureMode.WARN if get[ERRORS_TOLERANCE] == "all" else RowFailureMode.FAIL,
    derived_from="`fail`, or `warn` with `errors.tolerance=all`",
    refs=("STRM-23", "CFG-28"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
DEAD_LETTER_TOPIC: Field[str] = Field(
    "errors.deadletterqueue.topic.name",
    lambda value: parse_value.topic_part(value) if value.strip() else "",
    "",
    "Topic for rows that are left out (`event.processing.failure.handling.mode`): position, row key, the values that "
    "could be read, and the cause, with headers `__connect.errors.*`; in the same Kafka transaction as the other rows. "
    "Empty for none: then such rows are only counted and logged.",
    Group.TOPICS,
    pin_scope=PinScope.NOTHING,
)


def _parse_tolerance(value: str) -> str:
    if value not in ("none", "all"):
        raise ValueError("must be none or all")
    return value


def _parse_placeholder(value: str) -> str:
    if value.startswith("hex:"):
        try:
            bytes.fromhex(value[4:])
        except ValueError:
            raise ValueError("hexadecimal digits must follow hex:") from None
    return value


UNAVAILABLE_VALUE_PLACEHOLDER: Field[str] = Field(
    "unavailable.value.placeholder",
    _parse_placeholder,
    "__debezium_unavailable_value",
    "Stands for the value of a character, JSON, ENUM, SET or binary column that the row image leaves out "
    "(binlog_row_image MINIMAL or NOBLOB) and that is not known from the other image; `hex:` and hexadecimal digits "
    "give bytes.",
    Group.EVENTS,
    set_by=SetBy.RUN,
)
UNAVAILABLE_VALUE_AS_NULL: Field[bool] = Field(
    "unavailable.value.as.null",
    parse_value.boolean,
    False,
    "Write null in an after image for a nullable column that the row image leaves out and whose type cannot hold the "
    "placeholder. Null then no longer says that the value is NULL; without it such a row fails "
    "(`event.processing.failure.handling.mode`).",
    Group.EVENTS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
