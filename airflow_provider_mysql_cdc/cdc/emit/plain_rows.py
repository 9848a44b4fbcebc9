"""Row events of sources without a compiled decoder: plain values in, record bytes out.

The members and their order come from the contract's tables, so every connector has the same envelope (DB2-17). It is
the slow path; MySQL's rows go through ``decode``, which writes the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.options import EnvelopeText
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract
from airflow_provider_mysql_cdc.cdc.emit.source import source_dict

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    """Describe one change of one row, its values as JSON shows them.

    Args:
        op: ``c``, ``u``, ``d`` or ``r``.
        before: The row before, None for ``c`` and ``r``.
        after: The row after, None for ``d``.
        source: Values of the source block by member; ``version`` and ``connector`` come from the contract.
        at_ns: Time of handling in nanoseconds since the epoch.
        transaction: The transaction block, or None.
    """

    op: str
    before: Row | None
    after: Row | None
    source: Row
    at_ns: int
    transaction: Row | None = None


@dataclass(frozen=True, slots=True)
class EventFormat:
    """Write the events of one table.

    Args:
        layout: The event contract.
        text: Key and value schema (``envelope_text``).
        keys: Columns of the event key, empty for none.
        tombstones: ``tombstones.on.delete``.
    """

    layout: Contract
    text: EnvelopeText
    keys: tuple[str, ...]
    tombstones: bool = True

    def records(self, change: RowChange) -> list[tuple[bytes | None, bytes | None]]:
        """Return the records of a change, keys and values.

        A change of the key is a delete, a tombstone and a create (EVT-28, DB2-12); a tombstone follows each delete.

        Args:
            change: The change.
        """
        old, new = self._key(change.before), self._key(change.after)
        if change.op == "u" and old != new:
            source, at_ns, transaction = change.source, change.at_ns, change.transaction
            gone = RowChange("d", change.before, None, source, at_ns, transaction)
            return [*self.records(gone), *self.records(RowChange("c", None, change.after, source, at_ns, transaction))]
        key = old if change.op == "d" else new
        tombstone = [(key, None)] if change.op == "d" and self.tombstones and key is not None else []
        return [(key, self._value(change)), *tombstone]

    def _key(self, row: Row | None) -> bytes | None:
        if row is None or not self.keys:
            return None
        return _with_schema(self.text.key_schema, {name: row[name] for name in self.keys})

    def _value(self, change: RowChange) -> bytes:
        now = change.at_ns
        times = {"ts_ms": now // 1_000_000, "ts_us": now // 1000, "ts_ns": now}
        values = {"op": change.op, "transaction": change.transaction, **times}
        members = [m.name for m in self.layout.tail]
        if change.transaction is not None and "transaction" not in members:
            members.append("transaction")
        payload = {
            "before": change.before,
            "after": change.after,
            "source": source_dict(self.layout, change.source),
            **{name: values[name] for name in members},
        }
        return _with_schema(self.text.value_schema, payload)


def _with_schema(schema: str | None, payload: Row) -> bytes:
    text = dumps(payload)
    return (text if schema is None else f'{{"schema":{schema},"payload":{text}}}').encode()
