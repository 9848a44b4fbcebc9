"""Properties on their way to drivers and tasks: text that tells nothing without a key that goes another way.

Files that a job needs (its spec, Spark's broadcasts) outlive their process when it is killed, or are copied to places
that nobody clears. So what lies in a file is sealed, and the key goes where it ends with the process that needs it:
an environment, a connection, a credential of the cluster manager (docs/adr/0015-secrets-on-the-way.md).

A key is random and seals one text, as a Fernet token: encrypted with AES, then authenticated with HMAC, so that a wrong
key and a changed text are found out.
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
    """Return properties as a sealed text, and the key that opens it; both are plain ASCII, the key 44 characters.

    Args:
        properties: Names and values, secrets among them.
    """
    key = Fernet.generate_key()
    return Fernet(key).encrypt(zlib.compress(json.dumps(dict(properties)).encode())).decode(), key.decode()


def decrypt_properties(text: str, key: str) -> dict[str, Any]:
    """Return the properties of a sealed text.

    Args:
        text: What ``encrypt_properties`` returned first.
        key: What it returned second.

    Raises:
        ConfigError: The key is that of another text, or the text was changed.
        DamagedRecordError: What is given for the key is none.
    """
    try:
        fernet = Fernet(key.encode())
    except (ValueError, binascii.Error):
        raise damaged_record("the key of its sealed properties is none") from None
    try:
        properties: dict[str, Any] = json.loads(zlib.decompress(fernet.decrypt(text.encode())))
    except InvalidToken:
        raise ConfigError(
            "the key of the job does not open its properties",
            why="key and sealed text are of two submissions, or the text was changed",
            remedy="run the task again; should it happen again, see docs/adr/0015-secrets-on-the-way.md",
            retriable=True,
        ) from None
    return properties
