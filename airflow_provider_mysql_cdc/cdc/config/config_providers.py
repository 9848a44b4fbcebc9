"""Placeholders of Kafka Connect's config providers, as ``${file:/secrets/db.properties:password}``.

A worker fills them in. Here a form would read any file of the machine with them, so they are refused, with what to
write instead: each property has a variable, and a password a place in the Airflow connection.
"""

from __future__ import annotations

import re

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
