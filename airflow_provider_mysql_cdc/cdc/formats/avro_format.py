"""Records in the form that the configured converters give them: keys, values or both as Avro.

What makes records writes JSON; here it becomes Avro, where the configuration says so, before its partition is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, payload_of
from airflow_provider_mysql_cdc.cdc.avro.compiled_payload import encoder_of_use
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import Schema, avro_schema, record_name
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.emit.headers import Header
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.partition_share import partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import (
    UNFIT,
    AskId,
    Bytes,
    IdHeaders,
    TableForm,
    head_of,
    id_header,
    not_written,
)
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcForm
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.sink.record_writer import HeadedRecord, Headers


@dataclass(frozen=True, slots=True)
class AvroForm:
    """Write keys or values of one schema.

    Args:
        head: What stands before the bytes, byte text: magic byte and id, or nothing.
        encode: From a payload to byte text.
        about: Whose records they are, for errors.
        header: The header with the schema's GUID, or None.
    """

    head: str
    encode: Encode
    about: str
    header: Header | None = None

    def of_payload(self, payload: Any) -> bytes:
        """Return the bytes of a payload in JsonConverter's form.

        Raises:
            ValueDecodeError: It does not fit the schema.
        """
        try:
            return (self.head + self.encode(payload)).encode("latin-1")
        except UNFIT as error:
            raise not_written(self.about, error) from error

    def of_json(self, data: bytes) -> bytes:
        """Return the bytes of a payload that is JSON text.

        Raises:
            ValueDecodeError: It does not fit the schema, or is none: what came of a damaged value.
        """
        try:
            payload = payload_of(data)
        except ValueError as error:
            raise not_written(self.about, error) from error
        return self.of_payload(payload)


@dataclass(frozen=True, slots=True)
class RowForm(TableForm):
    """Write the records of one table version.

    Args:
        key: Form of its keys; None leaves them as they are.
        value: Form of its values; None leaves them as they are.
    """

    key: AvroForm | None
    value: AvroForm | None

    def key_bytes(self, key: Bytes) -> Bytes:
        """Return a record's key."""
        return key if key is None or self.key is None else self.key.of_json(key)

    def value_bytes(self, value: Bytes) -> Bytes:
        """Return a record's value; a tombstone stays one."""
        return value if value is None or self.value is None else self.value.of_json(value)

    def heads(self, *, keyed: bool) -> tuple[str, str] | None:
        """Return what keys and values begin with, or None where one of them is JSON.

        Args:
            keyed: Whether the table has a key.
        """
        if self.value is None or (keyed and self.key is None):
            return None
        return "" if self.key is None else self.key.head, self.value.head

    def ids(self) -> IdHeaders | None:
        """Return the headers that records get beside their other ones, or None."""
        return _ids(self.key, self.value)

    def partition(self, name: Bytes, key: Bytes, value: Bytes, count: int) -> int:
        """Return the partition that Kafka's Java client gives the record's key."""
        return partition_of(name, count)


def _ids(key: AvroForm | None, value: AvroForm | None) -> IdHeaders | None:
    found = IdHeaders(None if key is None else key.header, None if value is None else value.header)
    return found or None


class Forms:
    """Make the forms of tables and of the records beside them; each schema is asked for once.

    Args:
        cfg: The connector's configuration.
        ask: Gives the id of a schema.
    """

    def __init__(self, cfg: ConnectorConfig, ask: AskId) -> None:
        self._cfg, self._ask = cfg, ask
        self._made: dict[tuple[F.Part, str, str], AvroForm] = {}
        self._side: dict[tuple[F.Part, str], list[tuple[bytes, AvroForm]]] = {}
        # Longest wait in seconds for the ids of a table's two schemas.
        self.longest_s = sum(s.longest_s() for s in map(cfg.registry_settings, F.PARTS) if s is not None)

    @classmethod
    def wanted(cls, cfg: ConnectorConfig, ask: AskId) -> Forms | None:
        """Return the forms that a configuration asks for, or None when all is JSON.

        Args:
            cfg: The connector's configuration.
            ask: Gives the id of a schema.
        """
        return cls(cfg, ask) if any(map(cfg.avro, F.PARTS)) else None

    def of_table(self, table: Table, options: DecoderOptions, topic: str) -> TableForm:
        """Return the form of a table version's records; both schemas are registered then.

        Args:
            table: The table.
            options: From ``wiring.table_options``.
            topic: Its topic.

        Raises:
            SchemaError: A name or type has no form in Avro.
            RegistryError: The registry does not give an id.
        """
        if self._cfg.ticdc:
            return TicdcForm(self._cfg, table, options, topic, self._ask)
        text, about = wiring.schema_text(self._cfg, table, options), f"table {table.id}"
        return RowForm(
            self._form("key", topic, text.key_schema, about), self._form("value", topic, text.value_schema, about)
        )

    def _form(self, part: F.Part, topic: str, schema: str | None, about: str) -> AvroForm | None:
        if schema is None or not self._cfg.avro(part):
            return None
        found = self._made.get((part, topic, schema))
        if found is None:
            found = self._made[part, topic, schema] = self._make(part, topic, json.loads(schema), about)
        return found

    def _make(self, part: F.Part, topic: str, schema: Schema, about: str) -> AvroForm:
        of = F.OF_PART[part]
        try:
            text = dumps(avro_schema(schema, meta=self._cfg[of.meta_data]))
            encode = encoder_of_use(schema)
        except SchemaError as error:
            raise SchemaError(error.what, where=f"{about}, {part}", why=error.why, remedy=error.remedy) from error
        subject = _SUBJECTS[self._cfg[of.subjects]](topic, part, record_name(schema))
        found = self._ask(part, subject, text, about)
        return AvroForm(head_of(found), encode, about, id_header(part, found))

    def side(
        self, topic: str, key: Bytes, value: Bytes, headers: Headers | None
    ) -> tuple[Bytes, Bytes, Headers | None]:
        """Return key, value and headers of a record beside those of rows; it holds its schemas as JsonConverter does.

        Args:
            topic: Its topic.
            key: Its key.
            value: Its value.
            headers: Its headers, or None.

        Raises:
            RegistryError: The registry does not give the id of a schema.
        """
        name, key_form = self._converted("key", topic, key)
        data, value_form = self._converted("value", topic, value)
        ids = _ids(key_form, value_form)
        return name, data, headers if ids is None else ids.behind(headers or (), name, data)

    def _converted(self, part: F.Part, topic: str, data: Bytes) -> tuple[Bytes, AvroForm | None]:
        """Return the bytes of a key or a value, and the form that they have."""
        if data is None or not self._cfg.avro(part):
            return data, None
        known = self._side.setdefault((part, topic), [])
        for prefix, form in known:
            if data.startswith(prefix):
                return form.of_json(data[len(prefix) : -1]), form
        whole = json.loads(data)
        schema = dumps(whole["schema"])
        made = self._form(part, topic, schema, f"topic {topic}")
        if made is None:
            return data, None
        known.append((f'{{"schema":{schema},"payload":'.encode(), made))
        return made.of_payload(whole["payload"]), made

    def sides(self, records: Sequence[HeadedRecord]) -> list[HeadedRecord]:
        """Return records to be committed together, those of the ledger and of the schema history as they are.

        Args:
            records: Topic, key, value and headers of each.
        """
        inner = (self._cfg.ledger_topic, self._cfg.history_topic)
        return [r if r[0] in inner else (r[0], *self.side(*r)) for r in records]


_SUBJECTS: Mapping[str, Callable[[str, str, str], str]] = {
    F.SUBJECTS[0]: lambda topic, part, name: f"{topic}-{part}",
    F.SUBJECTS[1]: lambda topic, part, name: name,
    F.SUBJECTS[2]: lambda topic, part, name: f"{topic}-{name}",
}
