"""What came in place of an answer of a schema registry: a page of a proxy, or JSON of another form."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import RegistryConnectionError
from airflow_provider_mysql_cdc.cdc.model.registry_settings import RegistrySettings

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
