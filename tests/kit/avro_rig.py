"""Read records in Confluent's Avro wire format with two readers that were not written here."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

Headers = Sequence[tuple[str, Any]]
AVRO = "io.confluent.connect.avro.AvroConverter"


def avro(url: str, *parts: str) -> dict[str, str]:
    """Return the properties that make keys and values Avro, or one of them."""
    found = {}
    for part in parts or ("key", "value"):
        found |= {f"{part}.converter": AVRO, f"{part}.converter.schema.registry.url": url}
    return found


def stripped(schema: Any) -> Any:
    """Return a schema without logical types, so that a reader gives numbers and bytes as they lie."""
    if isinstance(schema, list):
        return [stripped(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: stripped(v) if k in ("type", "items", "fields") else v for k, v in schema.items() if k != "logicalType"}


def assert_equal(told: Any, plain: Any) -> None:
    """Fail unless a value that was read with its logical types is the one that was read as it lies.

    Args:
        told: Read by Confluent's deserializer.
        plain: Numbers and bytes as they lie.
    """
    if isinstance(plain, dict):
        assert list(told) == list(plain)
        for name, value in plain.items():
            assert_equal(told[name], value)
    elif isinstance(told, Decimal):
        sign, digits, _ = told.as_tuple()
        assert int("".join(map(str, digits))) * (-1 if sign else 1) == int.from_bytes(plain, "big", signed=True)
    elif not isinstance(told, date | time):
        assert told == plain


class Readers:
    """Read Avro records through a registry.

    Args:
        url: The registry's address.
    """

    def __init__(self, url: str) -> None:
        # Without a timeout the client waits for ever; Apicurio 3.3.3 does not answer some requests on kept connections.
        self.client = SchemaRegistryClient({"url": url, "timeout": 10})
        self._confluent = AvroDeserializer(self.client)
        self.parsed = cache(self._parsed)
        self._parsed_guid = cache(
            lambda guid: fastavro.parse_schema(stripped(json.loads(self.client.get_schema_by_guid(guid).schema_str)))
        )

    def _parsed(self, schema_id: int) -> Any:
        return fastavro.parse_schema(stripped(json.loads(self.schema_text(schema_id))))

    def schema_text(self, schema_id: int) -> str:
        return str(self.client.get_schema(schema_id).schema_str)

    def id_of(self, data: bytes) -> int:
        magic, schema_id = struct.unpack(">bI", data[:5])
        assert magic == 0
        return int(schema_id)

    def read(self, topic: str, data: bytes | None, *, key: bool = False, headers: Headers = ()) -> Any:
        """Return a record's part as fastavro reads it; Confluent's deserializer has to read it as well."""
        if data is None:
            return None
        guid = dict(headers).get(f"__{'key' if key else 'value'}_schema_id")
        if guid is None:
            stream, parsed = io.BytesIO(data[5:]), self.parsed(self.id_of(data))
        else:
            assert guid[0] == 1
            stream, parsed = io.BytesIO(data), self._parsed_guid(str(UUID(bytes=guid[1:])))
        found = fastavro.schemaless_reader(stream, parsed)
        assert stream.read() == b"", "the record goes on behind its value"
        if guid is not None and len(data) <= 5:
            return found  # confluent-kafka 2.16 misses a prefix here, although there is none with a GUID
        field = MessageField.KEY if key else MessageField.VALUE
        # It looks for a GUID in the headers first (dual_schema_id_deserializer).
        other = self._confluent(data, SerializationContext(topic, field, list(headers)))
        assert_equal(other, found)
        return found

    def register(self, subject: str, schema: Any) -> int:
        return int(self.client.register_schema(subject, Schema(json.dumps(schema), "AVRO")))


PROGRAM = Path(__file__).parents[1] / "integration" / "ApicurioLines.java"
RELEASE, CLIENT, COMMON = "2.6.13.Final", "2.6.2.Final", "0.1.18.Final"
# The deserializer and what it needs, beside what Spark and Kafka bring.
SERDE = (
    ("io.apicurio", "apicurio-registry-serdes-avro-serde", RELEASE),
    ("io.apicurio", "apicurio-registry-serde-common", RELEASE),
    ("io.apicurio", "apicurio-registry-schema-resolver", RELEASE),
    ("io.apicurio", "apicurio-registry-common", RELEASE),
    ("io.apicurio", "apicurio-registry-client", CLIENT),
    ("io.apicurio", "apicurio-common-rest-client-common", COMMON),
    ("io.apicurio", "apicurio-common-rest-client-jdk", COMMON),
)
OF_SPARK = ("avro-1", "jackson-core-2", "jackson-databind", "jackson-annotations", "slf4j-api", "commons-lang3")


def class_path() -> list[str]:
    """Return the archives of Apicurio's deserializer, fetching once what neither Spark nor Kafka brings."""
    import pyspark
    from stacklib import maven
    from stacklib.java import find_java
    from stacklib.locks import build_once
    from stacklib.settings import KAFKA_VERSION, cache_dir

    java = find_java()
    own = build_once(
        cache_dir() / f"apicurio-serde-{RELEASE}",
        lambda folder: maven.fetch(SERDE, folder, java, "serde", transitive=False),
        "serde",
        f"Apicurio's deserializer {RELEASE}",
    )
    spark = [j for j in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if j.name.startswith(OF_SPARK)]
    kafka = (cache_dir() / f"kafka-{KAFKA_VERSION}").glob("**/kafka-clients-*.jar")
    return [str(jar) for jar in (*own.glob("*.jar"), *spark, *kafka)]


def read_with_java(url: str, records: list[bytes]) -> list[Any]:
    """Return records as Apicurio's deserializer for Java reads them: bytes, and a decimal's number, as Base64.

    The program runs from its source, which needs a JDK.

    Args:
        url: The registry's address.
        records: Keys and values.
    """
    from stacklib.java import find_java

    java = find_java()
    modules = subprocess.run([java.program, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip("this Java cannot run a program from its source")
    own_api = url.replace("/apis/ccompat/v7", "/apis/registry/v2")
    if own_api == url:
        pytest.skip("Apicurio's deserializer asks Apicurio's registry")
    paths = os.pathsep.join(class_path())
    command = [java.program, "-XX:TieredStopAtLevel=1", "-cp", paths, str(PROGRAM), own_api]
    lines = "".join(b64encode(record).decode() + "\n" for record in records)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.removesuffix("\n").split("\n")]


def shown(value: Any) -> Any:
    """Return what was read of Avro as JSON can hold it: bytes as Base64."""
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items()}
    if isinstance(value, list):
        return list(map(shown, value))
    return b64encode(value).decode() if isinstance(value, bytes) else value


def as_json(schema: dict[str, Any], value: Any) -> Any:
    """Return what was read of Avro in JsonConverter's form."""
    if value is None:
        return None
    if schema["type"] == "struct":
        assert list(value) == [f["field"] for f in schema["fields"]]
        return {f["field"]: as_json(f, value[f["field"]]) for f in schema["fields"]}
    if schema["type"] == "array":
        return [as_json(schema["items"], v) for v in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


def whole(schema: dict[str, Any], payload: Any) -> Any:
    """Return a JSON payload with the members that are left out, and 4-byte numbers as such."""
    if payload is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: whole(f, payload.get(f["field"])) for f in schema["fields"]}
    if schema["type"] == "array":
        return [whole(schema["items"], p) for p in payload]
    if schema["type"] == "float":
        return struct.unpack("<f", struct.pack("<f", float(payload)))[0]
    return payload
