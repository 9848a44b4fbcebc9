"""The job spec: what the Airflow layer passes to a Spark job, as one JSON file with encrypted properties.

Encrypt the connector's properties on their way to drivers and tasks; the key is passed separately.

Files that a job needs (its spec, Spark's broadcasts) outlive their process when it is killed, or are copied to
directories that are never cleaned. So the properties in a file are encrypted, and the key is passed in a way that ends
with the process that needs it: an environment variable, a connection, a credential of the cluster manager
(docs/adr/0015-secrets-on-the-way.md).

A key is random and encrypts one text, as a Fernet token: encrypted with AES, then authenticated with HMAC, so a wrong
key and a changed text are both detected.

What the driver of a job needs to reach a Spark Connect server; the address may hold a token.

It is never an argument, a file with a name, or a variable: the driver inherits the open file that holds it
(docs/adr/0026-spark-connect.md).
"""

from __future__ import annotations

import binascii
import json
import os
import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cryptography.fernet import Fernet, InvalidToken
from msgspec import Meta

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    Members,
    Record,
    VersionedRecord,
    damaged_record,
    parse_json,
    record_location,
    require_version,
)


def encrypt_properties(properties: Mapping[str, Any]) -> tuple[str, str]:
    """Return properties as an encrypted text, and its key; both are ASCII, the key has 44 characters.

    Args:
        properties: Names and values, secrets among them.
    """
    key = Fernet.generate_key()
    return Fernet(key).encrypt(zlib.compress(json.dumps(dict(properties)).encode())).decode(), key.decode()


def decrypt_properties(text: str, key: str) -> dict[str, Any]:
    """Return the properties of an encrypted text.

    Args:
        text: The text that ``encrypt_properties`` returned.
        key: The key that it returned.

    Raises:
        ConfigError: The key belongs to another text, or the text was changed.
        DamagedRecordError: The key is not a Fernet key.
    """
    try:
        fernet = Fernet(key.encode())
    except (ValueError, binascii.Error):
        raise damaged_record("the key of its encrypted properties is not a Fernet key") from None
    try:
        properties: dict[str, Any] = json.loads(zlib.decompress(fernet.decrypt(text.encode())))
    except InvalidToken:
        raise ConfigError(
            "the job's properties cannot be decrypted with its key",
            why="key and encrypted text belong to different submissions, or the text was changed",
            remedy="run the task again; if it happens again, see docs/adr/0015-secrets-on-the-way.md",
            retriable=True,
        ) from None
    return properties


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
        options: What the mode needs beyond that, as JSON (``verify.report.verify_result``).
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


@dataclass(frozen=True, slots=True)
class ConnectSettings(Record):
    """Hold how a driver reaches a Spark Connect server.

    Args:
        url: ``sc://host:port/;token=...``, as pyspark's client takes it.
        conf: Settings of the session, and those of this provider (``spark.mysqlcdc.*``).
        archives: Archives that executors of the session unpack, as ``path#alias``.
        py_files: Python files and zip archives for the executors' path.
    """

    url: str = field(repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    archives: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()

    def write(self, fd: int) -> None:
        """Write the settings into an open file, in place of what it holds.

        Args:
            fd: The file's descriptor, which the driver inherits.
        """
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(self.to_json()).encode(), 0)

    @classmethod
    def read(cls, fd: int) -> ConnectSettings:
        """Read the settings from an inherited file, and close it.

        Args:
            fd: The file's descriptor.

        Raises:
            DamagedRecordError: The file holds something else.
        """
        with os.fdopen(fd, "rb") as file, record_location("settings of Spark Connect"):
            file.seek(0)
            return cls.from_json(parse_json(file.read()))
