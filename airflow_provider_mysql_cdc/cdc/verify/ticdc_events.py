"""Read rows in TiCDC's Avro protocol: flat columns, then the extension's members; a deleted row has no value."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import EXTENSION_FIELDS
from airflow_provider_mysql_cdc.cdc.verify.avro_events import AvroPayloads, LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, Row, UnreadableRecord

_OPERATION, *_ = _EXTENSION = tuple(name for name, _ in EXTENSION_FIELDS)
_NO_SOURCE: Row = {}
_OPERATIONS = ("c", "u")


class TicdcEvents:
    """Read the records of a topic of flat rows.

    Without the extension (``enable-tidb-extension``) a record does not say whether its row was inserted or updated;
    it is then read as an update.

    Args:
        lookup_schema: Returns the text of a schema.
    """

    def __init__(self, lookup_schema: LookupSchema) -> None:
        self._keys, self._values = AvroPayloads("key", lookup_schema), AvroPayloads("value", lookup_schema)

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says; see ``EventReader``."""
        fields, key_forms, exact = None, None, True
        if key is not None:
            payload, exact = self._keys.payload(key, headers), self._keys.is_exact(key, headers)
            fields, key_forms = payload.value, payload.schema.forms
        if value is None:
            return EventRecord("d", fields, None, None, _NO_SOURCE, None, key_forms, key_bytes=key, key_exact=exact)
        payload = self._values.payload(value, headers)
        row, source, op = payload.value, _NO_SOURCE, "u"
        if _OPERATION in row:
            source = {name: row.pop(name) for name in _EXTENSION if name in row}
            op = source[_OPERATION]
            if op not in _OPERATIONS:
                raise UnreadableRecord(f"{_OPERATION} of the row is {op!r:.20}")
        forms = payload.schema.forms
        return EventRecord(op, fields, None, row, source, forms, key_forms, key_bytes=key, key_exact=exact)
