"""The source block in Avro with marks in place of what differs from event to event, for the native kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource, branch_prefix, member_encoder, transaction_end
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK, MarkedContext, mark
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member

# Marks by member: of the source block, and of the members after the operation.
_SOURCE_MARKS = {
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
_NOW_MARKS = {"ts_ms": "now_millis", "ts_us": "now_micros", "ts_ns": "now_nanos"}
# The kernel's bytes of a value that is zero or empty, where the member is no time: some as unions with null first.
_ZERO, _SECOND = map(avro_binary.varint, (0, 1))
_KERNEL_ZEROS = {"server_id": _ZERO, "file": _ZERO, "pos": _ZERO, "gtid": _SECOND + _ZERO, "thread": _SECOND + _ZERO}
_NULLABLE = ("gtid", "thread")


def marked_context(block: AvroSource) -> MarkedContext | None:
    """Return the texts around rows as ``avro_source.fill`` makes them of an event without a statement.

    Args:
        block: The table's source block.

    Returns:
        None for a contract whose blocks the kernel would write differently.
    """
    layout = block.plain.layout
    # Rows of contract 1.9 do not have the time of the commit, as the kernel writes it.
    if not layout.recent:
        return None
    if not all(_matches_kernel(member) for member in layout.source if member.name in _KERNEL_ZEROS):
        return None
    row_index = [member.name for member in layout.source].index("row")
    constants = {**block.constants, "snapshot": block.streamed_snapshot}
    if "query" in (members := {member.name: member for member in layout.source}):
        constants["query"] = member_encoder(members["query"])(None)
    head, tail = (
        _texts(part, _SOURCE_MARKS, constants) for part in (layout.source[:row_index], layout.source[row_index + 1 :])
    )
    return MarkedContext(EventContext(head, tail, op_tail(block)), BINARY_MARK)


def op_tail(block: AvroSource) -> str:
    """Return the bytes after the operation, with marks.

    Args:
        block: The table's source block.
    """
    layout = block.plain.layout
    times = _texts((member for member in layout.tail if member.name in _NOW_MARKS), _NOW_MARKS, {})
    return times + transaction_end(layout)


def _texts(members: Iterable[Member], mark_names: Mapping[str, str], constants: Mapping[str, str]) -> str:
    return "".join(
        constants[member.name] if member.name in constants else _member_mark(member, mark_names[member.name])
        for member in members
    )


def _member_mark(member: Member, mark_name: str) -> str:
    branch = branch_prefix(member) if member.name.startswith("ts_") else ""
    return branch + mark(mark_name, BINARY_MARK)


def _matches_kernel(member: Member) -> bool:
    encode, zero_value = member_encoder(member), "" if member.type == "string" else 0
    return encode(zero_value) == _KERNEL_ZEROS[member.name] and (member.name not in _NULLABLE or encode(None) == _ZERO)
