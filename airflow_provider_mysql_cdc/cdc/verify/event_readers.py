"""Choose the reader of a topic's records by the configuration: JSON, Avro or TiCDC's protocol; keys by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.verify.avro_events import AvroPart, LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.envelope_events import EnvelopeEvents, PayloadReader
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader
from airflow_provider_mysql_cdc.cdc.verify.json_events import JsonWithSchemas, PlainJson
from airflow_provider_mysql_cdc.cdc.verify.ticdc_events import TicdcEvents
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms, row_forms, struct_forms

_PartForms = Callable[[Mapping[str, Any]], Forms]
_FORMS: Mapping[F.ConverterPart, _PartForms] = {"key": struct_forms, "value": row_forms}


def event_reader(cfg: ConnectorConfig, topic: str, lookup_schema: LookupSchema) -> EventReader:
    """Return the reader of the records of a topic of tables.

    Args:
        cfg: The connector's configuration.
        topic: The topic; all topics of tables have one format.
        lookup_schema: Returns the text of a schema; not called where nothing is Avro.

    Raises:
        ConfigError: Records are Avro, and fastavro is not installed.
    """
    if cfg.is_ticdc:
        return TicdcEvents(lookup_schema)
    return EnvelopeEvents(*(_part_reader(cfg, part, lookup_schema) for part in F.PARTS))


def boundary_reader(cfg: ConnectorConfig, lookup_schema: LookupSchema) -> PayloadReader:
    """Return the reader of the values of the transaction topic.

    Args:
        cfg: The connector's configuration.
        lookup_schema: Returns the text of a schema.

    Raises:
        ConfigError: They are Avro, and fastavro is not installed.
    """
    if cfg.registry_settings("value") is None and cfg[F.VALUE_SCHEMAS_ENABLE]:
        return JsonWithSchemas("value", lambda schema: {})
    return _part_reader(cfg, "value", lookup_schema)


def _part_reader(cfg: ConnectorConfig, part: F.ConverterPart, lookup_schema: LookupSchema) -> PayloadReader:
    registry = cfg.registry_settings(part)
    if registry is not None:
        return AvroPart(part, lookup_schema, guids=bool(registry.guids_for))
    schemas = {"key": F.KEY_SCHEMAS_ENABLE, "value": F.VALUE_SCHEMAS_ENABLE}[part]
    return JsonWithSchemas(part, _FORMS[part]) if cfg[schemas] else PlainJson(part)
