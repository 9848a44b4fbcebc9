"""Check that the ledger topic holds this stream's records only, so that nothing is added to the topic of others.

A stream claims the ledger before it writes anything else. A claim is a record without a transaction, under a key of its
own, and is written once: of two streams that begin in one empty topic at the same moment, both read both claims, and
the first one owns the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.commit import ledger_keys as keys
from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import LedgerValues
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import ForeignLedgerError
from airflow_provider_mysql_cdc.cdc.model.record_owner import connect_record, describe_record

_OWN_TOPIC = (
    "set another ledger.topic for this stream; if it has run already, then run mysql_cdc_reset_offset with "
    "offset=stored, which begins the new one. This topic was not changed"
)
_KEY_STARTS = frozenset(
    value.partition("/")[0] for name, value in vars(keys).items() if name.endswith(("_KEY", "_PREFIX"))
)
_KEY_FORM = re.compile(r"[a-z][a-z-]*(/.*)?", re.DOTALL)


def require_own_records(topic: str, values: LedgerValues) -> None:
    """Check that every record's key is one of the ledger's.

    Another version may write keys that this one does not know. Where the ledger also holds keys that this one knows,
    their version is refused by name (``stored_record.require_version``).

    Args:
        topic: The ledger topic.
        values: Its records.

    Raises:
        ForeignLedgerError: A record is another program's.
    """
    unknown = [k for k, v in values.values.items() if v is not None and k.partition("/")[0] not in _KEY_STARTS]
    if not unknown:
        return
    foreign = next(filter(_is_foreign, unknown), None)
    if foreign is None and not _is_own(values.values):
        foreign = unknown[0]
    if foreign is not None:
        raise ForeignLedgerError(
            "the ledger topic holds records that are not this stream's",
            where=f"topic {topic}, offset {values.offsets[foreign]}",
            why=f"it is {describe_record(foreign.encode(), values.values[foreign])}",
            remedy=_OWN_TOPIC,
        )


def require_own_prefix(topic: str, prefix: str, state: LedgerState) -> None:
    """Check that the ledger was claimed by this stream, if it was.

    Args:
        topic: The ledger topic.
        prefix: ``topic.prefix``.
        state: The ledger.

    Raises:
        ForeignLedgerError: It is another stream's (TOPIC-08).
    """
    if state.owner not in ("", prefix):
        raise ForeignLedgerError(
            f"the ledger belongs to topic.prefix={state.owner}, not to {prefix}",
            where=f"topic {topic}",
            why="topic.prefix was changed, or two connectors have the same ledger.topic",
            remedy=f"set topic.prefix back to {state.owner}; or set another ledger.topic for the new one "
            "and take a new snapshot",
        )


def claim_ledger(prefix: str, peek: Callable[[], LedgerState], write: Callable[[str, bytes | None], None]) -> None:
    """Record that the ledger is this stream's, unless it says so already.

    Args:
        prefix: ``topic.prefix``.
        peek: Returns the ledger, or raises ``ForeignLedgerError``.
        write: Writes the value of a key at once, outside of any transaction.

    Raises:
        ForeignLedgerError: It is another stream's or program's; of this stream nothing is left in it.
    """
    if peek().owner:
        return
    key = keys.owner_key(prefix)
    write(key, encode({"prefix": prefix}))
    try:
        peek()
    except ForeignLedgerError:
        write(key, None)
        raise


def _is_foreign(key: str) -> bool:
    return _KEY_FORM.fullmatch(key) is None or bool(connect_record(key.encode()))


def _is_own(records: Iterable[str]) -> bool:
    return any(key.partition("/")[0] in _KEY_STARTS for key in records)
