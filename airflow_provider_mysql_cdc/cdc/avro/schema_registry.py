"""Get the ids of schemas from a schema registry, through confluent_kafka's client.

It comes with the extra ``avro`` of this package, and takes a second to import (HTTP, OAuth), so it is imported by the
one process of a job that needs it: the driver.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from airflow_provider_mysql_cdc.cdc.avro.registry_schemas import (
    LastAnswer,
    canonical_form,
    differences,
    equivalent_schemas,
    listed,
    meaning_conflicts,
    parsed_schema,
)
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    IncompatibleSchemaError,
    RegistryAuthError,
    RegistryConnectionError,
    RegistryError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import RegistrySettings, SchemaId

MAX_ID = 2**31 - 1
"""Confluent's wire format has four bytes for an id, a signed int of Java's."""
_MAX_LISTED, _MAX_ERROR_CHARS = 10, 500
# Error code of Confluent's API for an id without a schema; 404 alone may be of something else that answers.
_SCHEMA_NOT_FOUND = 40403
# Number of versions before the latest one that are compared.
_MAX_OLDER_VERSIONS = 20


class SchemaRegistry:
    """Get schema ids from one registry.

    Args:
        settings: Its address, credentials and subject settings.

    Raises:
        ConfigError: The client is not installed, or cannot be created with these settings.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        try:
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
            from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
        except ImportError as error:
            raise ConfigError(
                "the client of the schema registry is not installed",
                why=str(error),
                remedy="install airflow-provider-mysql-cdc[avro] where the Spark driver runs (docs/avro.md)",
            ) from error
        self._schema_type, self._registry_error_type, self._token_error_type = (
            Schema,
            SchemaRegistryError,
            OAuthTokenError,
        )
        try:
            self._client: Any = SchemaRegistryClient(client_settings(settings))
        except (ValueError, TypeError, OSError) as error:  # OSError: a file of certificates or the key in it
            raise ConfigError(
                "the client of the schema registry cannot be created",
                where=settings.url,
                why=f"{type(error).__name__}: {error}",
                remedy="correct the properties of the registry (docs/avro.md); certificate files must exist on the "
                "machine of the Spark driver",
            ) from error
        self._answer = LastAnswer(self._client, settings)

    def schema_id(self, subject: str, text: str, about: str) -> SchemaId:
        """Return the id of a schema, registered first with auto.register.schemas; with its GUID if headers carry GUIDs.

        Args:
            subject: Its subject.
            text: Its JSON text.
            about: Whose records it is for, for errors: a table or a topic.

        Raises:
            IncompatibleSchemaError: The registry rejects it; or use.latest.version is true, and the subject has no such
                version.
            RegistryError: It is not registered, and must not be; or the answer cannot be used.
            RegistryAuthError: The registry rejects the credentials.
            RegistryConnectionError: The registry cannot be reached, or fails.
        """
        schema, settings = self._schema_type(text, "AVRO"), self._settings
        self._answer.forget()
        try:
            if settings.use_latest:
                registered = self._latest(subject, text, about)
            elif settings.register:
                registered = self._register(subject, schema)
            else:
                registered = self._client.lookup_schema(subject, schema, normalize_schemas=settings.normalize)
        except CdcError:
            raise
        except Exception as error:
            raise self._registry_error(error, subject, text, about) from error
        schema_id = registered.schema_id
        # JSON's true is an int for Python.
        if type(schema_id) is not int or not 0 <= schema_id <= MAX_ID:
            raise RegistryError(
                "the schema registry returned an id that Confluent's wire format cannot hold",
                where=self._location(subject, about),
                why=f"the id is {schema_id!r:.100}, not a number of 32 bits",
                remedy="configure the registry to assign ids of 32 bits (Apicurio: content ids)",
            )
        return SchemaId(schema_id, self._guid(registered, subject, about) if settings.guids_for else None)

    def _register(self, subject: str, schema: Any) -> Any:
        """Register a schema; return the answer, of which clients before 2.9 return the id alone."""
        client, normalize = self._client, self._settings.normalize
        if not hasattr(client, "register_schema_full_response"):
            return SimpleNamespace(schema_id=client.register_schema(subject, schema, normalize_schemas=normalize))
        return client.register_schema_full_response(subject, schema, normalize_schemas=normalize)

    def _guid(self, registered: Any, subject: str, about: str) -> str:
        """Return the GUID in an answer; Confluent's registry has them since 8.0, its client since 2.11."""
        guid = getattr(registered, "guid", None)
        try:
            return str(UUID(guid))
        except (TypeError, ValueError, AttributeError):
            property_name = self._settings.guids_for
            raise RegistryError(
                f"the schema registry returned no GUID for the schema, but {property_name} puts GUIDs into headers",
                where=self._location(subject, about),
                why=f"its answer for id {registered.schema_id} has {'none' if guid is None else f'{guid!r:.100}'}: "
                "registries other than Confluent's (Apicurio's among them), Confluent's before 8.0 and "
                "confluent-kafka before 2.11 do not return GUIDs",
                remedy=f"remove {property_name}, so that each record begins with its schema id, or use a "
                "registry that returns GUIDs",
            ) from None

    def schema_text(self, schema_id: str) -> str | None:
        """Return the text of a registered schema; None if the registry has no such schema.

        Args:
            schema_id: Its id, a number, or its GUID.

        Raises:
            RegistryError: The answer cannot be used, or the client cannot request GUIDs.
            RegistryAuthError: The registry rejects the credentials.
            RegistryConnectionError: The registry cannot be reached, or fails.
        """
        is_number = schema_id.isdecimal()
        if not is_number and not hasattr(self._client, "get_schema_by_guid"):
            raise RegistryError(
                "the client of the schema registry cannot request a schema by its GUID",
                where=f"schema {schema_id}, registry {self._settings.url}",
                remedy="install confluent-kafka 2.11 or later where the Spark driver runs",
            )
        self._answer.forget()
        try:
            read = self._client.get_schema if is_number else self._client.get_schema_by_guid
            text = read(int(schema_id) if is_number else schema_id).schema_str
            if not isinstance(text, str):
                raise TypeError(f"{text!r:.100} is not the text of a schema")
            return text
        except Exception as error:
            if isinstance(error, self._registry_error_type) and error.error_code == _SCHEMA_NOT_FOUND:
                return None
            raise self._registry_error(error, f"(schema {schema_id})", "null", "records of a topic") from error

    def subject_count(self) -> int:
        """Return how many subjects the registry has; success shows that address and credentials are right.

        Raises:
            RegistryError: The answer cannot be used.
            RegistryAuthError: The registry rejects the credentials.
            RegistryConnectionError: The registry cannot be reached, or fails.
        """
        self._answer.forget()
        try:
            return len(listed(self._client.get_subjects(), str))
        except Exception as error:
            raise self._registry_error(error, "(all)", "null", "its subjects") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _latest(self, subject: str, text: str, about: str) -> Any:
        """Return the subject's latest version, or for rows from before that version the last one that fits them."""
        table_schema, latest = json.loads(text), self._client.get_latest_version(subject)
        latest_schema = parsed_schema(latest)
        if equivalent_schemas(latest_schema, table_schema):
            return latest
        older = (v for v in listed(self._client.get_versions(subject), int) if v != latest.version)
        for version in sorted(older, reverse=True)[:_MAX_OLDER_VERSIONS]:
            registered = self._client.get_version(subject, version)
            if equivalent_schemas(parsed_schema(registered), table_schema):
                return registered
        raise IncompatibleSchemaError(
            "neither the subject's latest schema nor an earlier version is the table's schema",
            where=f"{self._location(subject, about)}, latest version {latest.version}",
            why="use.latest.version=true does not register schemas; " + _mismatch(latest_schema, table_schema),
            remedy="register the table's schema as a new version of the subject, or set use.latest.version=false and "
            "auto.register.schemas=true; then run the task again",
        )

    def _location(self, subject: str, about: str) -> str:
        return f"{about}, subject {subject}, registry {self._settings.url}"

    def _registry_error(self, error: Exception, subject: str, text: str, about: str) -> CdcError:
        location = self._location(subject, about)
        if isinstance(error, self._token_error_type):
            client = self._settings.oauth
            return RegistryConnectionError(
                "the token server returned no token for the schema registry",
                where=f"{location}, token server {client.issuer if client else ''}",
                why=f"{error}"[:_MAX_ERROR_CHARS],
                remedy="correct bearer.auth.client.id, bearer.auth.client.secret and bearer.auth.scope, or check "
                "that the token server runs; no record with this schema was written",
            )
        if not isinstance(error, self._registry_error_type):
            if (form_error := self._answer.error(location, error)) is not None:
                return form_error
            return RegistryConnectionError(
                "the schema registry cannot be reached",
                where=location,
                why=f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS],
                remedy="check that it runs, and check its address, the TLS files and the network; no record with "
                "this schema was written",
            )
        status, response = (
            int(error.http_status_code),
            f"HTTP {error.http_status_code}, {error.error_message}"[:_MAX_ERROR_CHARS],
        )
        if status in (401, 403):
            return RegistryAuthError(
                "the schema registry rejected the credentials",
                where=location,
                why=response,
                remedy="correct basic.auth.user.info, the token's properties or the client's certificate, or grant the "
                "account read and write access to this subject",
            )
        if status in (409, 422):
            return IncompatibleSchemaError(
                "the schema registry rejected the table's schema",
                where=location,
                why=f"{response}; {self._differences_from_latest(subject, text)}",
                remedy=_ways_out(subject),
            )
        if status == 404:
            return RegistryError(
                "the schema registry does not have the table's schema",
                where=location,
                why=f"{response}; {self._differences_from_latest(subject, text)}",
                remedy="register it, set auto.register.schemas=true, or correct the registry's URL, which must end "
                "before /subjects",
            )
        return RegistryConnectionError(
            "the schema registry answered with an error",
            where=location,
            why=response,
            remedy="read the registry's log; no record with this schema was written",
            retriable=status >= 500 or status in (408, 429),
        )

    def _differences_from_latest(self, subject: str, text: str) -> str:
        """Return how a schema differs from the subject's latest, as far as the registry reports it."""
        try:
            latest_schema = parsed_schema(self._client.get_latest_version(subject))
            return _join_differences(differences(latest_schema, json.loads(text)))
        except Exception:
            return "the subject has no schema to compare with"


def _ways_out(subject: str) -> str:
    """Return what lets the stream go on after a registry has refused a schema; each is carried out in a test."""
    return (
        "leave the changed columns out (column.exclude.list), if they are not part of the key; or delete the subject "
        f"without permanent=true (DELETE /subjects/{subject}), which changes no compatibility level and keeps the ids "
        "of earlier records readable, so that this schema becomes its first version; or relax the subject's "
        f"compatibility level until the run is through (PUT /config/{subject}); then run the task again: it continues "
        "after the last committed records. Changing the table again (a default for the new column, or the type before) "
        "helps a snapshot, but not a stream: it has rows under this schema"
    )


def _mismatch(registered: Any, own: Any) -> str:
    """Return how a registered schema differs from the table's: in its columns, or in what their values stand for."""
    if canonical_form(registered) == canonical_form(own):
        return _join_differences(meaning_conflicts(registered, own))
    return _join_differences(differences(registered, own))


def _join_differences(texts: list[str]) -> str:
    if not texts:
        return "no column differs from the subject's latest schema"
    more = f"; and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return "; ".join(texts[:_MAX_LISTED]) + more


def client_settings(settings: RegistrySettings) -> dict[str, Any]:
    """Return the settings of confluent_kafka's client, **secrets in clear**.

    Args:
        settings: How to reach the registry.
    """
    secrets = {
        "basic.auth.user.info": settings.user_info,
        "bearer.auth.token": settings.token,
        "ssl.key.password": settings.ssl_key_password,
    }
    texts = {
        "ssl.ca.location": settings.ssl_ca,
        "ssl.certificate.location": settings.ssl_cert,
        "ssl.key.location": settings.ssl_key,
    }
    bearer: dict[str, str | None] = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.logical.cluster": settings.cluster,
        "bearer.auth.identity.pool.id": settings.pool,
    }
    if (client := settings.oauth) is not None:
        bearer |= {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": client.issuer,
            "bearer.auth.client.id": client.id,
            "bearer.auth.client.secret": client.secret.reveal(),
            "bearer.auth.scope": client.scope,
        }
    return {
        "url": settings.url,
        "timeout": settings.timeout_s,
        "max.retries": settings.retries,
        "retries.wait.ms": settings.retry_wait_ms,
        "retries.max.wait.ms": settings.retry_max_wait_ms,
        # A version that another client registers meanwhile is used immediately.
        "cache.latest.ttl.sec": 0,
        **{name: value.reveal() for name, value in secrets.items() if value},
        **{name: value for name, value in texts.items() if value},
        **({name: value for name, value in bearer.items() if value is not None} if settings.token or client else {}),
    }
