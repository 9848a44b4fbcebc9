"""Take the properties out of a Kafka Connect configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def _json_object(value: object, name: str) -> Mapping[str, Any]:
    """Return a member of a configuration document; an absent one is empty."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} of the configuration is not a JSON object", remedy="Correct the JSON text")
    return value or {}


def connect_properties(document: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a Kafka Connect configuration.

    Args:
        document: JSON text or the object: ``{"name": .., "config": {..}}``, a bare configuration, or Strimzi's
            KafkaConnector resource.

    Raises:
        ConfigError: It is none of these.
    """
    try:
        data = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError) as e:
        raise ConfigError("The configuration is not JSON", why=str(e), remedy="Correct the JSON text") from e
    if isinstance(data, Mapping) and isinstance(data.get("spec"), Mapping):
        spec, meta = _json_object(data["spec"], "spec"), _json_object(data.get("metadata"), "metadata")
        spec_settings = {
            "name": meta.get("name"),
            "connector.class": spec.get("class"),
            "tasks.max": spec.get("tasksMax"),
        }
        data = {
            "name": meta.get("name"),
            "config": {
                **{k: v for k, v in spec_settings.items() if v},
                **_json_object(spec.get("config"), "spec.config"),
            },
        }
    if not isinstance(data, Mapping):
        raise ConfigError(
            "The configuration is not a JSON object", remedy='Give {"name": .., "config": {..}} or the properties alone'
        )
    if isinstance(data.get("config"), Mapping):
        return {"name": data.get("name"), **data["config"]}
    return dict(data)
