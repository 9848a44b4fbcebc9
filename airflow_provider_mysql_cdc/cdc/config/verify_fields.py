"""Properties of verify and repair."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope, SetBy

VERIFY_ROWS_PER_SECOND: Field[int] = Field(
    "verify.rows.per.second",
    parse_value.integer(0),
    0,
    "Rows that a verification reads from MySQL per second at most, all its tasks together; 0 for no limit.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_GROUP_ROWS: Field[int] = Field(
    "verify.group.rows",
    parse_value.integer(0),
    10_000_000,
    "Rows of tables, as MySQL estimates them, that a verification compares at one position. Tables are compared in "
    "groups of so many rows at most; a larger table is a group of its own. A retry goes on behind the last group. 0 "
    "compares all tables at one position.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_MAX_EXECUTION_TIME_MS: Field[int] = Field(
    "verify.max.execution.time.ms",
    parse_value.integer(0),
    0,
    "Longest time in milliseconds that one SELECT of a verification or repair may take until its last row is sent; "
    "then the server ends it, and the task fails. 0 for no limit.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
REPAIR_MAX_ROWS: Field[int] = Field(
    "repair.max.rows",
    parse_value.integer(1),
    1_000,
    "Rows that one verification repairs at most, all tables together. If more rows differ, none is repaired.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
VERIFY_REPLICA_TIMEOUT_MS: Field[int] = Field(
    "verify.replica.timeout.ms",
    parse_value.integer(0),
    600_000,
    "Longest wait in milliseconds until the replica of `replica_conn_id` has applied what the stream has read.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
