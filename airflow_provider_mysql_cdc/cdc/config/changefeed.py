"""A TiCDC changefeed's settings and its file as properties, for those who bring one along (CFG-123 to CFG-132, EX-32
to EX-35).

A TiCDC changefeed's settings as properties, for those who bring one along (CFG-123 to CFG-132, EX-32 to EX-35).

Source: seed 002; names of further sink parameters from TiCDC's manual, "Replicate Data to Kafka".

The configuration file of a TiCDC changefeed: what of it becomes a property, and what has none and is refused.

Source: TiCDC's manual, "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from airflow_provider_mysql_cdc.cdc.config.enums import ValueFormat
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import dispatch_rules
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

WHERE = "changefeed configuration"
_CODEC_PREFIX = "sink.kafka-config.codec-config."
_CODEC_PROPERTIES = (
    "enable-tidb-extension",
    "avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode",
)
_TABLE_REMEDY = "set database.include.list and table.include.list, and remove it"
# Settings that would change what is written: the values that change nothing, and what to do instead.
_REFUSED_SETTINGS: dict[str, tuple[tuple[Any, ...], str]] = {
    "filter.rules": (([], ["*.*"]), _TABLE_REMEDY),
    "filter.ignore-txn-start-ts": (([],), "remove it"),
    "filter.event-filters": (([],), "set skipped.operations, and remove it"),
    "sink.column-selectors": (([],), "set column.include.list or column.exclude.list, and remove it"),
    "sink.protocol": (("", "avro", "flat-avro"), "set it to avro"),
    "bdr-mode": ((False,), "remove it"),
    "integrity.integrity-check-level": (("none",), "remove it: rows get no checksums"),
    f"{_CODEC_PREFIX}avro-enable-watermark": ((False,), "remove it: checkpoints give no records"),
}
# How TiCDC works, and settings of other sinks and protocols.
_NO_EFFECT = re.compile(
    r"(case-sensitive|force-replicate|ignore-ineligible-table|check-gc-safe-point|enable-old-value|memory-quota"
    r"|sql-mode|enable-sync-point|sync-point-interval|sync-point-retention|changefeed-error-stuck-duration"
    r"|(mounter|scheduler|consistent|cyclic-replication)\..*|integrity\.corruption-handle-level"
    r"|sink\.(encoder-concurrency|enable-kafka-sink-v2|safe-mode|advance-timeout-in-sec|transaction-atomicity"
    r"|only-output-updated-columns|delete-only-output-handle-key-columns|content-compatible"
    r"|date-separator|enable-partition-separator|file-index-digit|terminator|debezium-disable-schema"
    r"|(csv|debezium|open|mysql-config|cloud-storage-config|pulsar-config|kafka-config\.large-message-handle)\..*))"
)


def file_properties(text: str, schema_registry: str) -> dict[str, str]:
    """Return the properties that a changefeed's file asks for.

    Args:
        text: The file, or empty.
        schema_registry: Address of the registry; empty when the file has it.

    Raises:
        ConfigError: It is no such file, or says what has no equivalent here.
    """
    settings = dict(_flatten_settings(_parse_toml(text)))
    dispatchers = settings.pop("sink.dispatchers", None)
    url = schema_registry or str(settings.get("sink.schema-registry", ""))
    settings.pop("sink.schema-registry", None)
    out = {
        name: _setting_text(settings.pop(_CODEC_PREFIX + name))
        for name in _CODEC_PROPERTIES
        if _CODEC_PREFIX + name in settings
    }
    for name, value in settings.items():
        _refuse_unsupported(name, value)
    if not url:
        raise ConfigError(
            "no schema registry is named",
            where=WHERE,
            why="Avro's schemas are kept there",
            remedy="give --schema-registry=http://host:8081",
        )
    if not dispatchers:
        raise ConfigError(
            "there are no dispatchers",
            where=WHERE,
            why="with Avro each table needs a topic of its own",
            remedy="write [sink] dispatchers = [{matcher = ['*.*'], topic = \"tidb_{schema}_{table}\"}]",
        )
    rules = json.dumps(dispatchers, default=str)
    dispatch_rules(rules)
    return {**out, "schema-registry": url, "dispatchers": rules}


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "the file is not valid TOML", where=WHERE, why=str(error), remedy="correct the file that --config names"
        ) from None


def _flatten_settings(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a file by their full names."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_settings(value, f"{path}{name}.")
        else:
            yield path + name, value


def _setting_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_unsupported(name: str, value: Any) -> None:
    accepted, remedy = _REFUSED_SETTINGS.get(name, ((), "remove it"))
    if value in accepted or _NO_EFFECT.fullmatch(name):
        return
    raise ConfigError(
        f"the setting {name} has no equivalent",
        where=WHERE,
        why="with it the changefeed writes other records than these properties would",
        remedy=remedy,
    )


_SINK_URI = "sink-uri"


def changefeed_properties(sink_uri: str, schema_registry: str = "", config: str = "") -> dict[str, str]:
    """Return the properties that write what a changefeed writes.

    Args:
        sink_uri: ``kafka://host:port[,host:port]/topic?protocol=avro&...``.
        schema_registry: Address of the registry, with an account if it needs one; empty when ``config`` has it.
        config: Text of the configuration file (TOML), or empty.

    Raises:
        ConfigError: It is no changefeed to Kafka in Avro, or says what has no equivalent here.
    """
    parts = _kafka_address(sink_uri)
    out = {"kafka.bootstrap.servers": parts.netloc, **_security_protocol(parts.scheme)}
    sink_parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if sink_parameters.pop("protocol", "") not in ("avro", "flat-avro"):
        raise ConfigError(
            "the sink's protocol is not avro",
            where=_SINK_URI,
            why="of TiCDC's protocols only Avro is written here",
            remedy="add protocol=avro, or write Debezium events (value.format=debezium)",
        )
    out["value.format"] = ValueFormat.TICDC_AVRO.value
    for name, value in sink_parameters.items():
        out |= _parameter_properties(name, value)
    return file_properties(config, schema_registry) | out


def _kafka_address(sink_uri: str) -> SplitResult:
    try:
        parts = urlsplit(sink_uri)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in ("kafka", "kafka+ssl") or not parts.netloc or "@" in parts.netloc:
        raise ConfigError(
            "the sink has an account in its address"
            if "@" in parts.netloc
            else f"the sink is {parts.scheme or 'no address'}",
            where=_SINK_URI,
            why="changes are written to Kafka only, and its account is set by the Kafka client's properties "
            "(kafka.sasl.*)",
            remedy="write kafka://host:9092/topic?protocol=avro",
        )
    return parts


def _security_protocol(scheme: str) -> dict[str, str]:
    return {"kafka.security.protocol": "ssl"} if scheme == "kafka+ssl" else {}


def _property_setter(name: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {name: value}


# Sink parameters; one without an equivalent that would change what is written is refused.
_SINK_PARAMETERS: dict[str, Callable[[str], dict[str, str]]] = {
    "enable-tidb-extension": _property_setter("enable-tidb-extension"),
    "avro-decimal-handling-mode": _property_setter("avro-decimal-handling-mode"),
    "avro-bigint-unsigned-handling-mode": _property_setter("avro-bigint-unsigned-handling-mode"),
    "partition-num": _property_setter("topic.creation.default.partitions"),
    "replication-factor": _property_setter("topic.creation.default.replication.factor"),
    "compression": _property_setter("kafka.compression.type"),
    "kafka-client-id": _property_setter("kafka.client.id"),
    "ca": _property_setter("kafka.ssl.ca.location"),
    "cert": _property_setter("kafka.ssl.certificate.location"),
    "key": _property_setter("kafka.ssl.key.location"),
    # The transaction protocol decides about these itself.
    **dict.fromkeys(
        ("kafka-version", "max-message-bytes", "max-batch-size", "auto-create-topic", "required-acks"), lambda value: {}
    ),
}


def _parameter_properties(name: str, value: str) -> dict[str, str]:
    to_properties = _SINK_PARAMETERS.get(name)
    if to_properties is None:
        raise ConfigError(
            f"the sink parameter {name} has no equivalent",
            where=_SINK_URI,
            why=f"supported are {', '.join(_SINK_PARAMETERS)}",
            remedy="remove it, and set the corresponding property of the Kafka client (kafka.*)",
        )
    return to_properties(value)
