"""Encrypt the connector's properties on their way to drivers and tasks; the key is passed separately.

Files that a job needs (its spec, Spark's broadcasts) outlive their process when it is killed, or are copied to
directories that are never cleaned. So the properties in a file are encrypted, and the key is passed in a way that ends
with the process that needs it: an environment variable, a connection, a credential of the cluster manager
(docs/adr/0015-secrets-on-the-way.md).

A key is random and encrypts one text, as a Fernet token: encrypted with AES, then authenticated with HMAC, so a wrong
key and a changed text are both detected.
"""

from __future__ import annotations

import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.stored_record import damaged_record


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
