"""Records in Confluent's wire format as JsonConverter would have written them, with fastavro and the registry's API."""

from __future__ import annotations

import io
import json
import math
import struct
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from avrolib.connect_schema import connect_schema

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 30.0
Converter = Callable[[Any], Any]


class WireError(Exception):
    """Say that bytes are not in the wire format."""


@dataclass(frozen=True, slots=True)
class SchemaDecoder:
    """Hold a schema that the registry gave.

    Args:
        schema: The Connect schema.
        parsed: The Avro schema for fastavro, without logical types: values come as they lie in the bytes.
        plain: What turns a value that fastavro read into JsonConverter's form; None when it is in it already.
    """

    schema: dict[str, Any]
    parsed: Any
    plain: Converter | None


class WireReader:
    """Read records of a registry's schemas; each schema is requested once.

    Args:
        texts: The text of a schema by its id: ``from_registry``, or a recorded mapping's ``__getitem__``.
    """

    def __init__(self, texts: Callable[[int], str]) -> None:
        self._texts = texts
        self._known: dict[bytes, SchemaDecoder] = {}
        self.seen: list[str] = []
        """Texts of the schemas that records have named."""

    def split(self, data: bytes) -> tuple[dict[str, Any], Any]:
        """Return a record's Connect schema, the same object for the same id, and its payload.

        Args:
            data: Key or value.

        Raises:
            WireError: It has another format, or more bytes after its value.
        """
        decoder = self._known.get(data[:5]) or self._load_schema(data[:5])
        stream = io.BytesIO(data)
        stream.seek(5)
        value = fastavro.schemaless_reader(stream, decoder.parsed, None)
        if stream.tell() != len(data):
            raise WireError(f"{len(data) - stream.tell()} there are bytes after the value")
        return decoder.schema, value if decoder.plain is None or value is None else decoder.plain(value)

    def as_json(self, data: bytes | None) -> bytes | None:
        """Return a key or value as JsonConverter with schemas would have written it; None stays None.

        Raises:
            WireError: It has another form.
        """
        if data is None:
            return None
        schema, payload = self.split(data)
        text = json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
        return text.encode()

    def _load_schema(self, prefix: bytes) -> SchemaDecoder:
        if len(prefix) < 5 or prefix[0]:
            raise WireError(f"it begins with {prefix!r}, and not with a zero byte and the id of a schema")
        (schema_id,) = struct.unpack(">I", prefix[1:])
        text = self._texts(schema_id)
        avro = json.loads(text)
        schema = connect_schema(avro)
        decoder = self._known[prefix] = SchemaDecoder(
            schema, fastavro.parse_schema(_without_connect(avro)), _converter_of(schema)
        )
        self.seen.append(text)
        return decoder


def from_registry(url: str) -> Callable[[int], str]:
    """Return what asks a registry for the text of a schema.

    Args:
        url: The registry's address.
    """
    return lambda schema_id: str(_get_json(f"{url}/schemas/ids/{schema_id}")["schema"])


def _get_json(address: str) -> Any:
    with _OPENER.open(address, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def _without_connect(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_connect(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    inner = ("type", "items", "values", "fields")
    return {k: _without_connect(v) if k in inner else v for k, v in avro.items() if k != "logicalType"}


def _converter_of(schema: Mapping[str, Any]) -> Converter | None:
    build = _PLAIN.get(schema["type"])
    return None if build is None else build(schema)


def _struct_converter(schema: Mapping[str, Any]) -> Converter | None:
    inner = [(f["field"], plain) for f in schema["fields"] if (plain := _converter_of(f)) is not None]
    if not inner:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, of_member in inner:
            if value[name] is not None:
                value[name] = of_member(value[name])
        return value

    return convert


def _array_converter(schema: Mapping[str, Any]) -> Converter | None:
    item = _converter_of(schema["items"])
    return None if item is None else lambda value: [None if v is None else item(v) for v in value]


def _number(value: float) -> float | str:
    """Return a number; JsonConverter writes those that JSON has no number for as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_PLAIN: dict[str, Callable[[Mapping[str, Any]], Converter | None]] = {
    "struct": _struct_converter,
    "array": _array_converter,
    "bytes": lambda schema: lambda value: b64encode(value).decode(),
    "float": lambda schema: _number,
    "double": lambda schema: _number,
}
