"""Judge property names: which is meant, which hides a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.model.secret import Secret

_SECRET_NAME = re.compile(
    r"pass?w(?:or)?d|pass?phrase|pass?code|(?:^|[._-])(?:pass|pwd)$|secret|token|credential|jaas|user\.?info"
    r"|key\W?pem|keystore\.key$|(?:api|access|private)[._-]?key$|oauthbearer\.config",
    re.IGNORECASE,
)
# The last word tells that the value is a name, a place or an expression, whatever stands before it.
_PUBLIC_NAME = re.compile(
    r"\.(?:type|regex|replacement|selector|predicate|class|id|source|location|keytab|file|(?:endpoint\.)?ur[il]"
    r"|include\.list|exclude\.list)$",
    re.IGNORECASE,
)
# Behind these prefixes stands a name of the user's own: a table, a topic setting, or what a column rule does.
_USER_NAMED_PREFIXES = ("snapshot.select.statement.overrides.", "topic.creation.", "column.")
# The salt of a hash is part of the property's name (COL-05); everything behind the algorithm may be one, misspelt.
_SALTED_NAME = re.compile(
    r"(.*?(?:mask|hash)\.(?:hash\.)?(?:v2\.)?[^.]*\.(?:with\.salt\.)?).+", re.DOTALL | re.IGNORECASE
)
_HASH_PROPERTY = re.compile(r"col[^\W_]*[._-].*(?:hash|salt)", re.DOTALL | re.IGNORECASE)
# A private key, or a password inside a longer text (a JAAS line, a URL with an account), under whatever name.
# Forms hold texts of any length, so each pattern here takes time in proportion to it.
_SECRET_TEXT = re.compile(r"PRIVATE KEY-----|passw(?:or)?d\s*=|\w://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)

HIDDEN = "***"
ENV_PREFIX = "MYSQL_CDC_"


def env_name(name: str) -> str:
    """Return the environment variable of a property: ``topic.prefix`` is ``MYSQL_CDC_TOPIC_PREFIX``."""
    return ENV_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def is_secret(name: str) -> bool:
    """Say whether a property's value must not be shown; the one place that decides this.

    Args:
        name: The property, of any family and in any spelling, known or not; or a client's setting.
    """
    if name.startswith(_USER_NAMED_PREFIXES) or _PUBLIC_NAME.search(name):
        return False
    return _SECRET_NAME.search(name) is not None


def holds_secret(name: str) -> bool:
    """Say whether a property's value or its name (the salt of a hash) must not be shown."""
    return is_secret(name) or salt_of(name) is not None


def redact(name: str, value: str) -> str:
    """Return a property's value as it may be shown."""
    if is_secret(name) or _SECRET_TEXT.search(value):
        return HIDDEN
    # The value of a hash that is misspelt may hold its salt.
    return value.replace(salt, HIDDEN) if (salt := salt_of(name)) else value


def hide_salt(name: str) -> str:
    """Return a property name as it may be shown: the salt of a hash becomes ``***``."""
    return name if (salt := salt_of(name)) is None else name[: -len(salt)] + HIDDEN


def salt_of(name: str) -> str | None:
    """Return the salt that a property's name holds, or None."""
    match = _SALTED_NAME.fullmatch(name) if _HASH_PROPERTY.match(name) else None
    return match[0][len(match[1]) :] if match else None


def scrub(text: str, properties: Mapping[str, object]) -> str:
    """Return a text of somebody else's, for example a library's message, without the secrets of some properties.

    Args:
        text: The text.
        properties: Values by property name; secrets may be wrapped.
    """
    for name, value in properties.items():
        secret_text = value.reveal() if isinstance(value, Secret) else str(value)
        if (is_secret(name) or isinstance(value, Secret)) and secret_text:
            text = text.replace(secret_text, HIDDEN).replace(repr(secret_text)[1:-1], HIDDEN)
        if salt := salt_of(name):
            text = text.replace(salt, HIDDEN)
    return text


def closest_name(name: str, candidates: Iterable[str], cutoff: float = 0.82) -> str | None:
    """Return the known name that ends with ``name``, or is nearest to it; None when none is near.

    Args:
        name: The name as given.
        candidates: Names that exist.
        cutoff: Least similarity, 0 to 1.
    """
    by_normalized_name = {_normalized(k): k for k in sorted(candidates)}
    # A name that lacks its beginning, as schema.registry.url; of keys and values, that of values.
    ending = "." + _normalized(name)
    if "." in ending[1:] and (longer := [known for known in by_normalized_name if known.endswith(ending)]):
        return by_normalized_name[max(longer)]
    matches = difflib.get_close_matches(_normalized(name), by_normalized_name, n=1, cutoff=cutoff)
    return by_normalized_name[matches[0]] if matches else None


def _normalized(name: str) -> str:
    return name.strip().lower().replace("_", ".")
