"""The job spec: what the Airflow layer passes to a Spark job, as one JSON file."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.properties_encryption import decrypt_properties, encrypt_properties
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    Members,
    VersionedRecord,
    parse_json,
    record_location,
    require_version,
)


@dataclass(frozen=True, slots=True)
class JobSpec(VersionedRecord):
    """Describe one Spark job completely.

    Args:
        mode: ``drain``, ``snapshot`` or ``verify``.
        properties: Connector properties with secrets in clear text.
        plan: The batch plan as JSON (``BatchPlan.to_json``).
        owner: Who runs: ``dag_id/run_id/task_id/map_index``. A retry has the same owner and may take over.
        run_for_s: Seconds for which to drain batch after batch; 0 drains one batch.
        id: Random id of this submission; empty when no operator reads how it ended (``reporting_job_error``).
        run: Id of the run whose batches are counted together (``commit.run_tally``); empty for a run of its own.
        options: What the mode needs beyond that, as JSON (``verify.report.verify_request``).
    """

    mode: str
    properties: dict[str, Any] = field(repr=False)
    plan: dict[str, Any]
    owner: str
    run_for_s: Annotated[float, Meta(ge=0, lt=2**53)] = 0.0
    id: str = ""
    run: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Check the properties.

        Raises:
            ValueError: One is neither a text nor a number; its value, which may be secret, is not shown.
        """
        for name, value in self.properties.items():
            if not isinstance(value, (str, int)):
                raise ValueError(f"Expected a string or a number - at `$.properties.{name}`")

    def write(self, path: Path) -> None:
        """Write the spec, including its secrets, to a new file that only this account can read."""
        _write(path, self.to_json())

    def write_encrypted(self, path: Path) -> str:
        """Write the spec with encrypted properties to a new file of this account, and return their key.

        Args:
            path: The file; remains or copies of it reveal no secret.
        """
        text, key = encrypt_properties(self.properties)
        _write(path, {**self.to_json(), "properties": {}, "sealed": text})
        return key

    @classmethod
    def read(cls, path: Path, key: Callable[[], str | None] = lambda: None) -> JobSpec:
        """Read a spec file.

        Args:
            path: The file.
            key: Returns the key of encrypted properties; called only when they are encrypted.

        Raises:
            StateError: The file is missing, or cannot be read.
            DamagedRecordError: The file is not a spec.
            StoredVersionError: It is one of another version.
            ConfigError: Its properties are encrypted, and the key is missing or a different one.
        """
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise _missing_spec(path) from None
        except OSError as error:
            raise StateError(
                "the job spec cannot be read",
                where=_location(path),
                why=error.strerror or str(error),
                remedy="let the account that the driver runs as read this file, or start jobs through the operators",
                retriable=True,
            ) from error
        with record_location(f"job spec {path}"):
            data = parse_json(text)
            members = Members(data)
            require_version(data)
            encrypted = members.text("sealed", "")
            if encrypted:
                data = {**data, "properties": decrypt_properties(encrypted, _require_key(key(), path))}
            return cls.from_json(data)


def _write(path: Path, data: dict[str, Any]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as out:
        json.dump(data, out)


def _location(path: Path) -> str:
    return f"{path.absolute()} on host {socket.gethostname()}"


def _missing_spec(path: Path) -> StateError:
    return StateError(
        "the job spec is missing",
        where=_location(path),
        why="the operator wrote it when it submitted the job; since then it was deleted (by whatever cleans the "
        "temporary folder, or because the task was killed), or the driver runs where this path is not visible",
        remedy="run the task again, which writes a new one; if this recurs, set TMPDIR of the Airflow worker to a "
        "folder that nothing cleans, and use a deploy mode that docs/spark.md describes",
        retriable=True,
    )


def _require_key(key: str | None, path: Path) -> str:
    if key is None:
        raise ConfigError(
            "the job's properties are encrypted, and their key is missing",
            where=f"job spec {path}",
            why="the operator passes the key separately from the file (docs/adr/0015-secrets-on-the-way.md)",
            remedy="start jobs through the operators; if an operator has started this one, run the task again",
            retriable=True,
        )
    return key
