"""Properties on their way to drivers and tasks: text that tells nothing without a key that goes another way.

Files that a job needs (its spec, Spark's broadcasts) outlive their process when it is killed, or are copied to places
that nobody clears. So what lies in a file is sealed, and the key goes where it ends with the process that needs it:
an environment, a connection, a credential of the cluster manager (docs/adr/0015-secrets-on-the-way.md).

A key is random, 32 bytes, and seals one text. The text is combined with as much of SHAKE-256 of the key, and what
follows bears a keyed digest (encrypt, then authenticate), so that a wrong key is found out. Both are in Python's own
library: a driver's environment has no other one in common with the Airflow worker's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import zlib
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.stored import damaged

KEY_BYTES = 32
_DIGEST = hashlib.sha256().digest_size
_STREAM, _CHECK = b"mysql-cdc stream\0", b"mysql-cdc check\0"


def seal(properties: Mapping[str, Any]) -> tuple[str, str]:
    """Return properties as a sealed text, and the key that opens it; both are plain ASCII.

    Args:
        properties: Names and values, secrets among them.
    """
    key = secrets.token_bytes(KEY_BYTES)
    hidden = _combine(zlib.compress(json.dumps(dict(properties)).encode()), key)
    return base64.b64encode(hidden + _digest(hidden, key)).decode(), key.hex()


def unseal(text: str, key: str) -> dict[str, Any]:
    """Return the properties of a sealed text.

    Args:
        text: What ``seal`` returned first.
        key: What it returned second.

    Raises:
        ConfigError: The key is that of another text.
        DamagedRecordError: The text was not made by ``seal``.
    """
    try:
        data, secret = base64.b64decode(text, validate=True), bytes.fromhex(key)
    except ValueError:
        raise damaged("its sealed properties, or their key, are no encoded text") from None
    hidden, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(secret) != KEY_BYTES or not hmac.compare_digest(digest, _digest(hidden, secret)):
        raise ConfigError(
            "the key of the job does not open its properties",
            why="key and sealed text are of two submissions",
            remedy="run the task again; should it happen again, see docs/adr/0015-secrets-on-the-way.md",
            retriable=True,
        )
    found: dict[str, Any] = json.loads(zlib.decompress(_combine(hidden, secret)))
    return found


def _combine(data: bytes, key: bytes) -> bytes:
    stream = hashlib.shake_256(_STREAM + key).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _digest(hidden: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _CHECK + hidden, "sha256")
