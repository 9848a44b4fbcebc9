"""Properties of the servers whose transactions count, and of how the place of the stream is found again."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope
from airflow_provider_mysql_cdc.cdc.config.parse_value import Patterns

GTID_SOURCE_INCLUDES: Field[Patterns] = Field(
    "gtid.source.includes",
    parse_value.patterns,
    Patterns(),
    "Regular expressions that match whole server UUIDs: only transactions of these servers count when the stream goes "
    "on at another server. What it lacks of other servers, or has executed besides, does not stop the stream.",
    Group.CONNECTION,
    refs=("CFG-35", "STRM-07", "SETUP-32"),
)
GTID_SOURCE_EXCLUDES: Field[Patterns] = Field(
    "gtid.source.excludes",
    parse_value.patterns,
    Patterns(),
    "As `gtid.source.includes`, the servers whose transactions do not count.",
    Group.CONNECTION,
    refs=("CFG-36", "STRM-07", "SETUP-32"),
)
GTID_SOURCE_FILTER_DML_EVENTS: Field[bool] = Field(
    "gtid.source.filter.dml.events",
    parse_value.boolean,
    True,
    "Whether rows of transactions that do not count are not written. With `false` they are, and only transactions that "
    "another server lacks are passed over: those that it has executed besides stop the stream, or rows would be lost. "
    "Without `gtid.source.includes` and `gtid.source.excludes` it has no effect.",
    Group.CONNECTION,
    refs=("STRM-07",),
)
GTID_IGNORE_ON_RECOVERY: Field[bool] = Field(
    "gtid.ignore.on.recovery",
    parse_value.boolean,
    False,
    "Whether the stream goes on by file and position alone, so that it is refused at any server but the one that it "
    "was read from.",
    Group.CONNECTION,
    pin_scope=PinScope.NOTHING,
)
