"""The ids of Avro key schemas with which earlier records were written: one ledger record for each schema.

The bytes of an Avro key begin with the id of its schema in the registry, and the partition is computed from the bytes.
With another id for the same schema (a registry that was wiped or restored, or another registry) equal keys would be in
two partitions, without an order between them; inside a batch, also in partitions of writers that have already passed
these rows, or that read them again. So an id is recorded before its first use and compared afterwards (docs/adr/0017).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SCHEMA_KEY_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import SchemaIdChangedError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


@dataclass(frozen=True, slots=True)
class RecordedSchemaId(Record):
    """Hold the recorded id of a key schema.

    Args:
        id: Its id in the registry.
        epoch: Epoch of the batch that asked for it.
    """

    id: Count
    epoch: Count


def schema_key_name(subject: str, text: str) -> str:
    """Return the name of a schema in the ledger, after ``schema/``.

    Args:
        subject: Its subject.
        text: Its text.
    """
    return f"{subject}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def schema_id_record(ledger: str, name: str, recorded: RecordedSchemaId | None) -> SideRecord:
    """Return the ledger record of a schema, or the one that deletes it.

    Args:
        ledger: The ledger topic.
        name: From ``schema_key_name``.
        recorded: Its id; None deletes the record.
    """
    key = f"{SCHEMA_KEY_PREFIX}{name}".encode()
    return SideRecord(ledger, key, None if recorded is None else encode(recorded.to_json()))


def schema_id_changed_error(
    about: str, subject: str, url: str, recorded: RecordedSchemaId, new_id: int
) -> SchemaIdChangedError:
    """Return the error for a key schema whose id differs from the recorded one.

    Args:
        about: Whose keys they are.
        subject: The schema's subject.
        url: The registry, without credentials.
        recorded: The recorded id.
        new_id: The id that the registry returns.
    """
    return SchemaIdChangedError(
        "the schema registry returns another id for a key schema than before",
        where=f"{about}, subject {subject}, registry {url}",
        why=f"earlier keys were written with id {recorded.id}, now it is {new_id}: the registry was wiped or restored, "
        "or it is another one, or (with use.latest.version) the subject has a newer version; equal keys would be in "
        "two partitions, without an order between them",
        remedy="restore the registry's schemas with their ids, or configure the registry with which the keys were "
        "written. To continue with the new id, run DAG mysql_cdc_reset_offset with offset=stored (records that an "
        "unfinished batch has already committed are written a second time); to fill the topics again, trigger "
        "mysql_cdc_snapshot with again=true after it",
    )
