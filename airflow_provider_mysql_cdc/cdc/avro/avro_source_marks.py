"""The source block in Avro with marks in place of what differs from event to event, for the native kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource, branch_of, encoder_of
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK, Marked, mark
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member

# Marks by member: of the source block, and of what is behind the operation.
_PLACES = {
    "ts_sec": "seconds",
    "ts_ms": "millis",
    "ts_us": "micros",
    "ts_ns": "nanos",
    "server_id": "server",
    "gtid": "gtid",
    "file": "file",
    "pos": "position",
    "thread": "thread",
}
_NOW = {"ts_ms": "now_millis", "ts_us": "now_micros", "ts_ns": "now_nanos"}
# What the kernel writes of a value that is zero or empty, where the member is no time: some as unions with null first.
_ZERO, _SECOND = map(binary.varint, (0, 1))
_WRITTEN = {"server_id": _ZERO, "file": _ZERO, "pos": _ZERO, "gtid": _SECOND + _ZERO, "thread": _SECOND + _ZERO}
_OR_NULL = ("gtid", "thread")


def marked(block: AvroSource) -> Marked | None:
    """Return the texts around rows as ``avro_source.fill`` makes them of an event without a statement.

    Args:
        block: The table's source block.

    Returns:
        None for a contract whose blocks the kernel would write otherwise.
    """
    layout = block.plain.layout
    if not all(_written_alike(member) for member in layout.source if member.name in _WRITTEN):
        return None
    at = [member.name for member in layout.source].index("row")
    same = {**block.constants, "snapshot": block.streamed}
    if "query" in (members := {member.name: member for member in layout.source}):
        same["query"] = encoder_of(members["query"])(None)
    head, tail = (_texts(part, _PLACES, same) for part in (layout.source[:at], layout.source[at + 1 :]))
    return Marked(EventContext(head, tail, op_tail(block)), BINARY_MARK)


def op_tail(block: AvroSource) -> str:
    """Return what stands behind the operation.

    Args:
        block: The table's source block.
    """
    return _texts((member for member in block.plain.layout.tail if member.name in _NOW), _NOW, {})


def _texts(members: Iterable[Member], places: Mapping[str, str], same: Mapping[str, str]) -> str:
    return "".join(
        same[member.name] if member.name in same else _marked(member, places[member.name]) for member in members
    )


def _marked(member: Member, place: str) -> str:
    branch = branch_of(member) if member.name.startswith("ts_") else ""
    return branch + mark(place, BINARY_MARK)


def _written_alike(member: Member) -> bool:
    encode, none = encoder_of(member), "" if member.type == "string" else 0
    return encode(none) == _WRITTEN[member.name] and (member.name not in _OR_NULL or encode(None) == _ZERO)
