"""Judge property names: which is meant, which hides a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SECRET = re.compile(
    r"pass?w(?:or)?d|passphrase|secret|token(?!\.endpoint)|credential|jaas|\.pem$|keystore\.key$|\.salt\.", re.I
)


# The salt of a hash is part of the property's name (COL-05).
_SALT = re.compile(r"(\.with\.salt\.).+", re.DOTALL)


def hide_salt(name: str) -> str:
    """Return a property name as it may be shown: the salt of a hash becomes ``***``."""
    return _SALT.sub(r"\1***", name)


def salt_of(name: str) -> str | None:
    """Return the salt that a property's name holds, or None."""
    found = _SALT.search(name)
    return found[0][len(found[1]) :] if found else None


def looks_secret(name: str) -> bool:
    """Say whether a property of this name may hold a secret."""
    return _SECRET.search(name) is not None


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.82) -> str | None:
    """Return the known name nearest to ``name``, or None when none is near.

    Args:
        name: The name as given.
        known: Names that exist.
        cutoff: Least similarity, 0 to 1.
    """
    plain = {_plain(k): k for k in sorted(known)}
    found = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", ".")
