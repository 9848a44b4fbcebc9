"""Read each record of the models once: most records of a ledger are the same from one look at it to the next.

The values are frozen, or only looked at, so one of them serves every reader; half of a walk's time went into reading
them again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit import ledger_records
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import decode
from airflow_provider_mysql_cdc.cdc.incremental import incremental_state
from airflow_provider_mysql_cdc.cdc.model.stored_record import parse_json

REMEMBERED = 4096


class _Record(dict[str, Any]):
    """A record's JSON; the same bytes give the same object, so it can be a key."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # type: ignore[assignment]


@lru_cache(maxsize=REMEMBERED)
def _decode(value: bytes) -> _Record:
    return _Record(decode(value))


@lru_cache(maxsize=REMEMBERED)
def _stored(text: str) -> StoredState:
    return StoredState.from_json(parse_json(text))


class _Once:
    """Stand in for a type of records: it reads each once."""

    def __init__(self, kind: Any) -> None:
        self.from_json = lru_cache(maxsize=REMEMBERED)(kind.from_json)
        self._kind = kind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._kind(*args, **kwargs)


def read_once(patch: pytest.MonkeyPatch) -> None:
    """Let what was read before come from memory, in the ledger and in the store.

    Args:
        patch: Takes it back.
    """

    def load(self: MemoryOffsetStore) -> StoredState | None:
        return None if self._text is None else _stored(self._text)

    patch.setattr(ledger_records, "decode", _decode)
    for kind in ("TableScan", "DoneKeyRange", "RequestRecord"):
        patch.setattr(incremental_state, kind, _Once(getattr(incremental_state, kind)))
    for kind in ("BatchPlan", "Marker"):
        patch.setattr(ledger_records, kind, _Once(getattr(ledger_records, kind)))
    patch.setattr(MemoryOffsetStore, "load", load)
