"""Events of topics whose keys and values are Avro."""

from __future__ import annotations

from typing import Any

from avrolib.wire import WireError, WireReader

from demolib.events import EventReader, Layout, RecordError


class AvroReader(EventReader):
    """Read the records of one topic; what a schema means is found once.

    Args:
        layout: The table at the end.
        wire: Reads Avro through the registry.
    """

    def __init__(self, layout: Layout, wire: WireReader) -> None:
        super().__init__(layout)
        self._wire = wire
        self._prepared: dict[bytes, Any] = {}

    def _split(self, data: bytes, prepare: Any) -> tuple[Any, Any]:
        try:
            schema, payload = self._wire.split(data)
        except WireError as error:
            raise RecordError(str(error)) from error
        head = data[:5]
        if head not in self._prepared:
            self._prepared[head] = prepare(schema)
        return self._prepared[head], payload
