"""The forms of keys and values, and what makes each side write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_PARTS = ("key", "value")
_REGISTRY = "{registry}"


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Describe a form.

    Args:
        name: Its name.
        provider_properties: Properties of this provider; ``{registry}`` in a value is the registry's address.
        schemas: Whether Connect's JSON converter writes schemas; None where it cannot write the form.
    """

    name: str
    provider_properties: Mapping[str, str] = field(default_factory=dict)
    schemas: bool | None = None

    def properties(self, registry: str) -> dict[str, str]:
        """Return the properties of this provider.

        Args:
            registry: Address of the schema registry.
        """
        return {name: value.replace(_REGISTRY, registry) for name, value in self.provider_properties.items()}


def _json(name: str, *, schemas: bool) -> RecordFormat:
    return RecordFormat(name, {f"{part}.converter.schemas.enable": str(schemas).lower() for part in _PARTS}, schemas)


JSON = _json("JSON", schemas=False)
JSON_SCHEMAS = _json("JSON with schemas", schemas=True)
AVRO = RecordFormat(
    "Avro",
    {f"{part}.converter": "io.confluent.connect.avro.AvroConverter" for part in _PARTS}
    | {f"{part}.converter.schema.registry.url": _REGISTRY for part in _PARTS},
)
TICDC = RecordFormat("TiCDC's Avro", {"value.format": "ticdc-avro", "schema-registry": _REGISTRY})
