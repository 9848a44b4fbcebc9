"""The forms of keys and values, and what makes each side write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_PARTS = ("key", "value")
_REGISTRY = "{registry}"


@dataclass(frozen=True, slots=True)
class Form:
    """Describe a form.

    Args:
        name: Its name.
        ours: Properties of this provider; ``{registry}`` in a value is the registry's address.
        schemas: Whether Connect's JSON converter writes schemas; None where it cannot write the form.
    """

    name: str
    ours: Mapping[str, str] = field(default_factory=dict)
    schemas: bool | None = None

    def properties(self, registry: str) -> dict[str, str]:
        """Return the properties of this provider.

        Args:
            registry: Address of the schema registry.
        """
        return {name: value.replace(_REGISTRY, registry) for name, value in self.ours.items()}


def _json(name: str, *, schemas: bool) -> Form:
    return Form(name, {f"{part}.converter.schemas.enable": str(schemas).lower() for part in _PARTS}, schemas)


JSON = _json("JSON", schemas=False)
JSON_SCHEMAS = _json("JSON with schemas", schemas=True)
AVRO = Form(
    "Avro",
    {f"{part}.converter": "io.confluent.connect.avro.AvroConverter" for part in _PARTS}
    | {f"{part}.converter.schema.registry.url": _REGISTRY for part in _PARTS},
)
TICDC = Form("TiCDC's Avro", {"value.format": "ticdc-avro", "schema-registry": _REGISTRY})
