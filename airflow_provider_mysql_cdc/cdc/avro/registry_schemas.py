"""What a schema registry answers: how two schemas differ to a reader, and answers that are no schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import RegistryConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import RegistrySettings

FORM_ERRORS = (ValueError, TypeError, AttributeError, LookupError)
"""Exceptions with which confluent_kafka's client, or the reader of its result, ends at an answer of another form."""
_MAX_SHOWN = 200


class LastAnswer:
    """Keep the last answer that confluent_kafka's client has received.

    Args:
        client: The client (``SchemaRegistryClient``).
        settings: The registry's settings, whose secrets no message shows.
    """

    def __init__(self, client: Any, settings: RegistrySettings) -> None:
        self._settings = settings
        self._response: Any = None
        # httpx.Client in confluent_kafka 2.6 and later; without it, messages do not contain what was received.
        session = getattr(getattr(client, "_rest_client", None), "session", None)
        with suppress(AttributeError, KeyError, TypeError):
            session.event_hooks["response"].append(self._keep)  # type: ignore[union-attr]

    def _keep(self, response: Any) -> None:
        self._response = response

    def forget(self) -> None:
        """Forget the last answer, before the next request."""
        self._response = None

    def error(self, location: str, error: Exception) -> RegistryConnectionError | None:
        """Return the error for an answer that no schema registry gives; None if the exception has another cause.

        Args:
            location: Table, subject and address, for the message.
            error: The exception of the client or of the reader.
        """
        if not isinstance(error, FORM_ERRORS):
            return None
        return RegistryConnectionError(
            "what answered is not a schema registry, or not one of Confluent's API",
            where=location,
            why=f"{self._received()} ({type(error).__name__}: {error})"[: 3 * _MAX_SHOWN],
            remedy="check the address, which must end before /subjects, and what is between (a proxy, a login page); "
            "no record with this schema was written",
        )

    def _received(self) -> str:
        if self._response is None:
            return "the answer cannot be read"
        text = ""
        with suppress(Exception):  # whatever was received, the error about it is raised
            text = " ".join(self._without_secrets(str(self._response.text)).split())
        kind = self._response.headers.get("content-type", "no content type")
        shown = repr(text[:_MAX_SHOWN]) if text else "nothing"
        return f"{self._response.url} returned HTTP {self._response.status_code}, {kind}: {shown}"

    def _without_secrets(self, text: str) -> str:
        settings = self._settings
        secrets = [s.reveal() for s in (settings.user_info, settings.token, settings.ssl_key_password) if s]
        if settings.oauth is not None:
            secrets.append(settings.oauth.secret.reveal())
        if settings.user_info is not None:
            secrets.append(settings.user_info.reveal().partition(":")[2])
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def parsed_schema(registered: Any) -> Any:
    """Return the schema in an answer, parsed.

    Args:
        registered: The answer.

    Raises:
        ValueError, TypeError: It is not an Avro schema as JSON text.
    """
    schema = json.loads(registered.schema.schema_str)
    if not isinstance(schema, dict | list | str):
        raise TypeError(f"{schema!r:.100} is not an Avro schema")
    return schema


def listed(answer: Any, kind: type[int] | type[str]) -> list[Any]:
    """Return an answer that is a list of versions or of subjects.

    Args:
        answer: The answer.
        kind: Type of its members.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(answer, list) or not all(type(member) is kind for member in answer):
        raise TypeError(f"{answer!r:.100} is not a list of {kind.__name__}")
    return answer


_LOGICAL_PROPERTIES = ("logicalType", "precision", "scale")
_IMAGES = ("before", "after")


def canonical_form(schema: Any, namespace: str = "") -> Any:
    """Return a schema without what changes neither bytes nor values: names in full, no defaults, texts or properties.

    Args:
        schema: The parsed schema.
        namespace: The namespace around it.

    Source: Avro specification 1.11, "Parsing Canonical Form", and beyond it the logical types.
    """
    if isinstance(schema, list):
        return [canonical_form(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _full_name(schema, namespace)
    kind = schema["type"]
    if not isinstance(kind, str):
        return canonical_form(kind, namespace)
    out: dict[str, Any] = {"type": kind}
    if "name" in schema:
        out["name"] = _full_name(schema["name"], schema.get("namespace", namespace))
        namespace = out["name"].rpartition(".")[0]
    if kind == "record":
        out["fields"] = [{"name": f["name"], "type": canonical_form(f["type"], namespace)} for f in schema["fields"]]
    out |= {name: canonical_form(schema[name], namespace) for name in ("items", "values") if name in schema}
    out |= {name: schema[name] for name in ("symbols", "size", *_LOGICAL_PROPERTIES) if name in schema}
    return kind if len(out) == 1 else out


def equivalent_schemas(registered: Any, own: Any) -> bool:
    """Return whether a reader of a registered schema reads the bytes of our own, and takes its values for the same.

    Args:
        registered: The parsed schema in the registry.
        own: The parsed schema by which values are written.
    """
    return canonical_form(registered) == canonical_form(own) and not meaning_conflicts(registered, own)


def meaning_conflicts(registered: Any, own: Any) -> list[str]:
    """Return the columns whose values a reader of a registered schema would take for something else, one text each.

    What a number or a text stands for (milliseconds or microseconds, signed or not) says the type's name of Connect, or
    TiDB's. Somebody who registers schemas may have left the name out; a name that our schema does not have is another
    meaning.

    Args:
        registered: The parsed schema in the registry.
        own: The parsed schema by which values are written; of the same shape (``canonical_form``).
    """
    pairs = zip(_meanings(registered, ""), _meanings(own, ""), strict=True)
    texts = (
        f"{path or 'the value'} is {old} in the registry, {new or 'a plain value without such a name'} in the table"
        for (_, old), (path, new) in pairs
        if old is not None and old != new
    )
    return list(dict.fromkeys(texts))


def _meanings(schema: Any, path: str) -> Iterator[tuple[str, str | None]]:
    """Yield column and meaning of each type in a schema, in its order; equal shapes yield as many."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _meanings(branch, path)
        return
    if isinstance(schema, str):
        yield path, None
        return
    if not isinstance(schema["type"], str):
        yield from _meanings(schema["type"], path)
        return
    # Records and enumerations are known by the names that they have in Avro.
    yield path, None if "name" in schema else _semantic(schema)
    for member in schema.get("fields", ()):
        yield from _meanings(member["type"], _member_path(path, member["name"]))
    for name in ("items", "values"):
        if name in schema:
            yield from _meanings(schema[name], path)


def _member_path(path: str, name: str) -> str:
    return path if name in _IMAGES else f"{path}.{name}" if path else f"column {name}"


def _semantic(kind: Mapping[str, Any]) -> str | None:
    return kind.get("connect.name") or (kind.get("connect.parameters") or {}).get("tidb_type")


_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def differences(old: Any, new: Any) -> list[str]:
    """Return how the columns of two schemas differ, one text each.

    Args:
        old: The schema that the registry has, parsed.
        new: The one that it refuses.
    """
    before, after = dict(_columns(old)), dict(_columns(new))
    out = []
    for name in dict.fromkeys([*before, *after]):
        old_type, new_type = before.get(name), after.get(name)
        if old_type is None:
            out.append(f"{name} is new: {new_type}")
        elif new_type is None:
            out.append(f"{name} is gone, it was {old_type}")
        elif old_type != new_type:
            out.append(f"{name} was {old_type}, is {new_type}")
    return out


def _columns(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield what a person calls the columns of a key or of an event, with their types; then its other members."""
    fields: Mapping[str, Any] = {f["name"]: f for f in schema["fields"]} if isinstance(schema, dict) else {}
    row = _record(fields["before"]["type"]) if set(_IMAGES) <= fields.keys() else None
    for column in (row or {}).get("fields", ()):
        yield f"column {column['name']}", _describe_member(column)
    for name, member in fields.items():
        if row is None or name not in _IMAGES:
            yield (f"column {name}" if row is None else f"member {name}"), _describe_member(member)


def _record(kind: Any) -> dict[str, Any] | None:
    branches = kind if isinstance(kind, list) else [kind]
    return next((b for b in branches if isinstance(b, dict) and b.get("type") == "record"), None)


def _describe_member(member: Mapping[str, Any]) -> str:
    kind = member["type"]
    branches = kind if isinstance(kind, list) else [kind]
    text = " or ".join(map(_type_text, branches))
    return text if "default" not in member else f"{text} with default {member['default']!r}"


def _type_text(kind: Any) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    if kind.get("logicalType") == "decimal":
        return f"decimal({kind['precision']},{kind['scale']})"
    type_name = kind.get("name") or _semantic(kind) or kind.get("logicalType")
    return f"{kind['type']} {type_name}" if type_name else str(kind["type"])
