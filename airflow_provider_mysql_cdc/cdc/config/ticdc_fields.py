"""Properties of TiCDC's Avro protocol, by TiCDC's own names (CFG-123 to CFG-132)."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import TicdcBigintUnsignedMode, TicdcDecimalMode, ValueFormat
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, Lookup, SetBy
from airflow_provider_mysql_cdc.cdc.config.ticdc_dispatchers import DispatchRule, dispatch_rules
from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def _parse_dispatchers(value: str) -> tuple[DispatchRule, ...]:
    if not value.strip():
        return ()
    try:
        return dispatch_rules(value)
    except ConfigError as error:
        raise ValueError(f"{error.what} [{error.where}]: {error.why}; {error.remedy}") from None


VALUE_FORMAT: Field[ValueFormat] = Field(
    "value.format",
    parse_value.choice(ValueFormat),
    ValueFormat.DEBEZIUM,
    "What the records of tables are. With `ticdc-avro` keys and values are Avro, with one registry for both "
    "(`schema-registry`).",
    Group.TICDC,
    enum=ValueFormat.docs(),
    provider_specific=True,
    refs=("AVRO-01", "CFG-123"),
    set_by=SetBy.RUN,
)
TIDB_EXTENSION: Field[bool] = Field(
    "enable-tidb-extension",
    parse_value.boolean,
    False,
    "Add operation and commit timestamp to each value: `_tidb_op`, `_tidb_commit_ts`, `_tidb_commit_physical_time`.",
    Group.TICDC,
    provider_specific=True,
    refs=("CFG-124",),
    set_by=SetBy.RUN,
)
TICDC_DECIMAL: Field[TicdcDecimalMode] = Field(
    "avro-decimal-handling-mode",
    parse_value.choice(TicdcDecimalMode),
    TicdcDecimalMode.PRECISE,
    "How DECIMAL is written.",
    Group.TICDC,
    enum=TicdcDecimalMode.docs(),
    provider_specific=True,
    refs=("CFG-125",),
    set_by=SetBy.RUN,
)
TICDC_BIGINT_UNSIGNED: Field[TicdcBigintUnsignedMode] = Field(
    "avro-bigint-unsigned-handling-mode",
    parse_value.choice(TicdcBigintUnsignedMode),
    TicdcBigintUnsignedMode.LONG,
    "How BIGINT UNSIGNED is written.",
    Group.TICDC,
    enum=TicdcBigintUnsignedMode.docs(),
    provider_specific=True,
    refs=("CFG-126",),
    set_by=SetBy.RUN,
)
TICDC_NAMESPACE: Field[str] = Field(
    "ticdc.namespace",
    str.strip,
    "default",
    "What the Avro namespace of schemas begins with; the database follows. TiCDC has its changefeed's namespace there.",
    Group.TICDC,
    provider_specific=True,
)
DISPATCHERS: Field[tuple[DispatchRule, ...]] = Field(
    "dispatchers",
    _parse_dispatchers,
    (),
    "Topics and partitions by table, as a JSON list of TiCDC's rules: "
    '`[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]`. The first rule that fits '
    "a table counts. Without rules topics are named `topic.prefix.database.table`, and a table stays in one partition.",
    Group.TICDC,
    provider_specific=True,
    refs=("CFG-132",),
)

TICDC_FIELDS: tuple[Field[Any], ...] = (
    TIDB_EXTENSION,
    TICDC_DECIMAL,
    TICDC_BIGINT_UNSIGNED,
    TICDC_NAMESPACE,
    DISPATCHERS,
)
"""Properties that only its records have."""


def is_ticdc(get: Lookup) -> bool:
    """Say whether records of tables are written in TiCDC's protocol."""
    return get[VALUE_FORMAT] is ValueFormat.TICDC_AVRO
