"""Judge property names, take properties out of a Kafka Connect configuration, and know its placeholders.

Placeholders of Kafka Connect's config providers, as ``${file:/secrets/db.properties:password}``.

A worker fills them in. Here a form would read any file of the machine with them, so they are refused, with what to
write instead: each property has a variable, and a password a place in the Airflow connection.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

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


def _json_object(value: object, name: str) -> Mapping[str, Any]:
    """Return a member of a configuration document; an absent one is empty."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} of the configuration is not a JSON object", remedy="Correct the JSON text")
    return value or {}


def connect_properties(document: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a Kafka Connect configuration.

    Args:
        document: JSON text or the object: ``{"name": .., "config": {..}}``, a bare configuration, or Strimzi's
            KafkaConnector resource.

    Raises:
        ConfigError: It is none of these.
    """
    try:
        data = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError) as e:
        raise ConfigError("The configuration is not JSON", why=str(e), remedy="Correct the JSON text") from e
    if isinstance(data, Mapping) and isinstance(data.get("spec"), Mapping):
        spec, meta = _json_object(data["spec"], "spec"), _json_object(data.get("metadata"), "metadata")
        spec_settings = {
            "name": meta.get("name"),
            "connector.class": spec.get("class"),
            "tasks.max": spec.get("tasksMax"),
        }
        data = {
            "name": meta.get("name"),
            "config": {
                **{k: v for k, v in spec_settings.items() if v},
                **_json_object(spec.get("config"), "spec.config"),
            },
        }
    if not isinstance(data, Mapping):
        raise ConfigError(
            "The configuration is not a JSON object", remedy='Give {"name": .., "config": {..}} or the properties alone'
        )
    if isinstance(data.get("config"), Mapping):
        return {"name": data.get("name"), **data["config"]}
    return dict(data)


_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[\w-]+):(?P<path>[^}]*)\}")


def has_placeholder(text: str) -> bool:
    """Return whether a property's value has a placeholder that a worker would fill in."""
    return _PLACEHOLDER.search(text, 0, text.rfind("}") + 1) is not None


def replacement(name: str, text: str, variable: str) -> str:
    """Return what to write in place of a value with placeholders.

    Args:
        name: The property's name of today.
        text: Its value.
        variable: The environment variable that sets the property.
    """
    value = _PLACEHOLDER.sub(lambda found: _shell(found["provider"], found["path"]), text)
    places = "Take it out of the properties"
    if name == "database.password":
        places += " and put the value into the password of the Airflow connection"
    elif name == "database.user":
        places += " and put the value into the login of the Airflow connection"
    else:
        places += " and put the value into the extra of the Airflow connection"
    return f'{places}, or set it in the environment: export {variable}="{value}"'


def _shell(provider: str, path: str) -> str:
    """Return what gives a placeholder's value in a shell; of an unknown provider the placeholder's key."""
    file, _, key = path.rpartition(":")
    if provider in ("env", "environment"):
        return f"${{{key or path}}}"
    if provider in ("dir", "directory"):
        return f"$(cat {file}/{key})"
    if provider == "file":
        return f"$(sed -n 's/^{re.escape(key)} *= *//p' {file})"
    return f"<the value of {key or path} in {provider}>"
