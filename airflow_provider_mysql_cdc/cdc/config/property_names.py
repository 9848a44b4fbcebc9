"""Judge property names: which is meant, which hides a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.model.secret import Secret

_WORDS = re.compile(
    r"pass?w(?:or)?d|pass?phrase|pass?code|(?:^|[._-])(?:pass|pwd)$|secret|token|credential|jaas|user\.?info"
    r"|key\W?pem|keystore\.key$|(?:api|access|private)[._-]?key$|oauthbearer\.config",
    re.IGNORECASE,
)
# The last word tells that the value is a name, a place or an expression, whatever stands before it.
_NAMES_ONLY = re.compile(
    r"\.(?:type|regex|replacement|selector|predicate|class|id|source|location|keytab|file|(?:endpoint\.)?ur[il]"
    r"|include\.list|exclude\.list)$",
    re.IGNORECASE,
)
# Behind these prefixes stands a name of the user's own: a table, a topic setting, or what a column rule does.
_FREE = ("snapshot.select.statement.overrides.", "topic.creation.", "column.")
# The salt of a hash is part of the property's name (COL-05); everything behind the algorithm may be one, misspelt.
_SALT = re.compile(r"(.*?(?:mask|hash)\.(?:hash\.)?(?:v2\.)?[^.]*\.(?:with\.salt\.)?).+", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"col\w*[._-].*(?:hash|salt)", re.DOTALL | re.IGNORECASE)
# A private key, or a password inside a longer text (a JAAS line, a URL with an account), under whatever name.
_SECRET_TEXT = re.compile(r"PRIVATE KEY-----|passw(?:or)?d\s*=|\w+://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)

HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Say whether a property's value must not be shown; the one place that decides this.

    Args:
        name: The property, of any family and in any spelling, known or not; or a client's setting.
    """
    if name.startswith(_FREE) or _NAMES_ONLY.search(name):
        return False
    return _WORDS.search(name) is not None


def holds_secret(name: str) -> bool:
    """Say whether a property's value or its name (the salt of a hash) must not be shown."""
    return is_secret(name) or salt_of(name) is not None


def shown(name: str, value: str) -> str:
    """Return a property's value as it may be shown."""
    if is_secret(name) or _SECRET_TEXT.search(value):
        return HIDDEN
    # The value of a hash that is misspelt may hold its salt.
    return value.replace(salt, HIDDEN) if (salt := salt_of(name)) else value


def hide_salt(name: str) -> str:
    """Return a property name as it may be shown: the salt of a hash becomes ``***``."""
    return _SALT.sub(rf"\1{HIDDEN}", name) if _HASHES.match(name) else name


def salt_of(name: str) -> str | None:
    """Return the salt that a property's name holds, or None."""
    found = _SALT.fullmatch(name) if _HASHES.match(name) else None
    return found[0][len(found[1]) :] if found else None


def scrub(text: str, properties: Mapping[str, object]) -> str:
    """Return a text of somebody else's, for example a library's message, without the secrets of some properties.

    Args:
        text: The text.
        properties: Values by property name; secrets may be wrapped.
    """
    for name, value in properties.items():
        plain = value.reveal() if isinstance(value, Secret) else str(value)
        if (is_secret(name) or isinstance(value, Secret)) and plain:
            text = text.replace(plain, HIDDEN).replace(repr(plain)[1:-1], HIDDEN)
        if salt := salt_of(name):
            text = text.replace(salt, HIDDEN)
    return text


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
