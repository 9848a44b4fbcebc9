"""What a signal asks for, as one digest: a signal that was corrected under the same id has another one."""

from __future__ import annotations

import hashlib
import json

from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

_DIGEST_CHARS = 32


def content_digest(signal: Signal) -> str:
    """Return a digest of a signal's type and data; neither id nor channel, nor how its JSON is written, is part of it.

    Args:
        signal: The signal.
    """
    try:
        data = json.dumps(json.loads(signal.data), sort_keys=True)
    except (ValueError, RecursionError):
        data = signal.data
    content = json.dumps([signal.type.strip(), data, signal.invalid_reason])
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]
