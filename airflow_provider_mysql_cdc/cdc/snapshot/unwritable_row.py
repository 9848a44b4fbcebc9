"""Say what helps where one row of a table cannot be written, so that each attempt to read the table fails at it."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_LEAVE_OUT = (
    f"to leave such rows out, set {F.EVENT_PROCESSING_FAILURE_HANDLING_MODE.name}=warn; "
    f"{F.DEAD_LETTER_TOPIC.name} names a topic that gets what can be read of them"
)


def unwritable_row(error: CdcError, table: TableId, where: str, kind: str = "") -> CdcError:
    """Return the error of a row with its table and with what helps.

    Args:
        error: A record too large, or a value that cannot be decoded.
        table: The table.
        where: The key range.
        kind: The kind of the ad-hoc snapshot that reads the table, which a signal may stop; empty for a snapshot.
    """
    remedies = [error.remedy] if error.remedy else []
    if isinstance(error, ValueDecodeError):
        remedies.append(_LEAVE_OUT)
    if kind == "incremental":
        remedies.append(f'to end this snapshot, send the signal stop-snapshot with {{"data-collections": ["{table}"]}}')
    location = error.where if where in error.where else f"{where}, table {table}; {error.where}"
    return type(error)(error.what, where=location, why=error.why, remedy="; ".join(remedies), retriable=error.can_retry)
