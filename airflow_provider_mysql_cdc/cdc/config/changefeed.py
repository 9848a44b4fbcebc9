"""A TiCDC changefeed's settings as properties, for those who bring one along (CFG-123 to CFG-132, EX-32 to EX-35).

Source: seed 002; names of further sink parameters from TiCDC's manual, "Replicate Data to Kafka".
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import SplitResult, parse_qsl, urlsplit

from airflow_provider_mysql_cdc.cdc.config.changefeed_file import file_properties
from airflow_provider_mysql_cdc.cdc.config.enums import ValueFormat
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

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
