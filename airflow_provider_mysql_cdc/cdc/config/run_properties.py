"""Which properties a DAG run may set: what is captured and how, never where it goes or who connects."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.field import SetBy
from airflow_provider_mysql_cdc.cdc.config.property_names import hide_salt, holds_secret
from airflow_provider_mysql_cdc.cdc.config.read_properties import canonical_name
from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def set_by(name: str) -> SetBy:
    """Return who may set a property; of a family, or an unknown one, its author.

    A member of a family is a setting of a client, a class, a statement, a topic, or hides a column.

    Args:
        name: The property, of either generation and in any spelling.
    """
    if holds_secret(name):
        return SetBy.CONNECTION
    declared = F.BY_NAME.get(canonical_name(name))
    return SetBy.AUTHOR if declared is None else declared.set_by


def check_run_properties(names: Iterable[str], opened: Collection[str], conn_id: str) -> None:
    """Refuse properties that a run sets and may not set.

    Args:
        names: Properties that the run sets.
        opened: Properties that the author of the DAG lets runs set.
        conn_id: The connection in which they can be set.

    Raises:
        ConfigError: There are such properties; the text names them, and where to set them.
    """
    opened_names = {canonical_name(name) for name in opened}
    refused = [name for name in sorted(names) if set_by(name) not in _accepted(canonical_name(name) in opened_names)]
    if refused:
        raise ConfigError(
            "the run sets properties that a run may not set",
            where=", ".join(map(_shown, refused)),
            why="they decide where the stream goes, who connects, which code or SQL runs, or which columns are hidden",
            remedy=f"set them in the connection {conn_id}, or in the DAG file as text of the operator's properties; "
            "its author can let runs set single ones with the operator's argument run_properties=[...]",
        )


def _accepted(opened: bool) -> tuple[SetBy, ...]:
    return (SetBy.RUN, SetBy.AUTHOR) if opened else (SetBy.RUN,)


def _shown(name: str) -> str:
    """Return a name as an error shows it: in quotes where it could not be seen otherwise."""
    text = hide_salt(name)
    return text if text.isprintable() and text and text == text.strip() else repr(text)
