"""Ids of the schemas of Avro keys, as the records before have them: one ledger record for each schema.

The bytes of an Avro key begin with the id that the registry gave to its schema, and the partition follows from the
bytes. With another id for the same schema (a registry that was wiped or restored, or another registry) equal keys would
stand in two partitions, in no order between them; inside a batch, in partitions of writers that have passed them, or
that come to them again. So an id is written down before its first use, and compared ever after (docs/adr/0017).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SCHEMA_KEY_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import SchemaIdChangedError
from airflow_provider_mysql_cdc.cdc.model.stored_record import INT64_MAX, Members, as_members


@dataclass(frozen=True, slots=True)
class RecordedSchemaId:
    """Remember the id of a schema of keys.

    Args:
        id: What the registry gave.
        epoch: Epoch of the batch that asked for it.
    """

    id: int
    epoch: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"id": self.id, "epoch": self.epoch}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> RecordedSchemaId:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = as_members(data)
        return cls(record.integer("id", high=INT64_MAX), record.integer("epoch"))


def schema_key_name(subject: str, text: str) -> str:
    """Return what a schema is called in the ledger, behind ``schema/``.

    Args:
        subject: Its subject.
        text: Its text.
    """
    return f"{subject}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def schema_id_record(ledger: str, name: str, recorded: RecordedSchemaId | None) -> tuple[str, bytes, bytes | None]:
    """Return the ledger record of a schema, or the one that forgets it.

    Args:
        ledger: The ledger topic.
        name: From ``schema_key_name``.
        recorded: What to remember; None forgets it.
    """
    return ledger, f"{SCHEMA_KEY_PREFIX}{name}".encode(), None if recorded is None else encode(recorded.to_json())


def schema_id_changed_error(
    about: str, subject: str, url: str, recorded: RecordedSchemaId, new_id: int
) -> SchemaIdChangedError:
    """Return the error for a schema of keys that has another id than before.

    Args:
        about: Whose keys.
        subject: The schema's subject.
        url: The registry, without an account.
        recorded: What the ledger remembers.
        new_id: The id that the registry gives.
    """
    return SchemaIdChangedError(
        "the registry gives the schema of keys another id than before",
        where=f"{about}, subject {subject}, registry {url}",
        why=f"keys that were written begin with id {recorded.id}, now it is {new_id}: the registry was wiped or "
        "restored, or "
        "is another one, or (with use.latest.version) the subject has a newer version; equal keys would stand in two "
        "partitions, without an order between them",
        remedy="restore the registry's schemas with their ids, or name the registry that the keys were written with. "
        "To go on with the new id: DAG mysql_cdc_reset_offset with offset=stored (what an unfinished batch has already "
        "committed comes again); to fill the topics again, trigger mysql_cdc_snapshot with again=true after it",
    )
