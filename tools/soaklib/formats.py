"""The formats that a stream's records can have: the properties that choose one, and what reads its topics."""

from __future__ import annotations

import json

from topiclib.ticdc import FlatWire
from topiclib.wire import WireReader, from_registry

from soaklib.verify import Topics

FORMATS = ("json", "avro", "ticdc")
_AVRO = "io.confluent.connect.avro.AvroConverter"


def format_properties(name: str, registry_url: str | None, prefix: str) -> dict[str, str]:
    """Return the properties of a format."""
    url = str(registry_url)
    if name == "avro":
        parts = ("key.converter", "value.converter")
        return {p: _AVRO for p in parts} | {f"{p}.schema.registry.url": url for p in parts}
    if name == "ticdc":
        # Topics are named as those of the other formats, and equal keys share a partition.
        rule = {"matcher": ["*.*"], "topic": f"{prefix}.{{schema}}.{{table}}", "partition": "index-value"}
        return {
            "value.format": "ticdc-avro",
            "schema-registry": url,
            "enable-tidb-extension": "true",
            "dispatchers": json.dumps([rule]),
        }
    return {}


def stream_topics(name: str, registry_url: str | None, bootstrap: str, prefix: str, database: str) -> Topics:
    """Return the topics of a stream, with what reads its format."""
    texts = from_registry(str(registry_url))
    return Topics(
        bootstrap,
        prefix,
        database,
        wire=WireReader(texts) if name == "avro" else None,
        flat=FlatWire(texts) if name == "ticdc" else None,
    )
