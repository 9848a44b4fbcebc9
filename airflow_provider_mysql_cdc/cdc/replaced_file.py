"""Replace files as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str, mode: int) -> None:
    """Write a file as a whole; who reads it at the same time sees the old file or the new one.

    Args:
        path: The file. The part that is being written has a name of its own, which begins with a dot.
        text: Its text; of a name with half of a surrogate pair, which has no UTF-8, the escape is written.
        mode: Its permissions.

    Raises:
        OSError: It cannot be written; nothing is left.
    """
    replace_bytes(path, text.encode("utf-8", "backslashreplace"), mode)


def replace_bytes(path: Path, data: bytes, mode: int) -> None:
    """Write a file as a whole, as ``replace_file`` does.

    Args:
        path: The file.
        data: Its content.
        mode: Its permissions.

    Raises:
        OSError: It cannot be written; nothing is left.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
            out.write(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
