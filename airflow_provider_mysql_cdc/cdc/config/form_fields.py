"""The fields of Airflow's connection forms: which properties they show, in which group, and what people call them.

Airflow 3.3 shows a field's ``schema.section`` as a group, ``schema.description_md`` as Markdown if there is no plain
description, ``schema.values_display`` in place of an enum's values, and a star where ``null`` is no type of the field.
No field has a star, and none has a default: a property that is empty here may be in the task's properties, and a
default that is stored with every connection could never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.field import Field
from airflow_provider_mysql_cdc.cdc.config.registry_fields import registry_form_fields, registry_property_name

REQUIRED = " (required)"


@dataclass(frozen=True, slots=True)
class FormField:
    """Describe one field of a form.

    Args:
        name: The property, which is the key in the connection's extra.
        label: What people call it.
        declared: The property's declaration; None for one of a family, or one that names a connection.
        text: What to write beside it, in Markdown; empty takes the declaration's.
        values: Values to choose from, where no declaration has them.
        default: What holds when the field is empty, where no declaration says it.
        secret: Whether it is hidden, where no declaration says it.
    """

    name: str
    label: str
    declared: Field[Any] | None = None
    text: str = ""
    values: tuple[str, ...] = ()
    default: str = ""
    secret: bool = False

    def to_json(self, section: str) -> dict[str, Any]:
        """Return it as a member of ``conn-fields`` of the provider's metadata.

        Args:
            section: Its group.
        """
        schema: dict[str, Any] = {"type": [self._type(), "null"], "section": section, "description_md": self._text()}
        if self.secret or (self.declared is not None and self.declared.secret):
            schema["format"] = "password"
        if values := self._values():
            default = self._default()
            empty = {"null": f"(empty: {default})" if default else "(empty)"}
            meanings = {value: f"{value}: {meaning}" for value, meaning in values.items() if meaning}
            schema |= {"enum": [*values, None], "values_display": {**meanings, **empty}}
        return {"label": self.label, "schema": schema}

    def _type(self) -> str:
        default = None if self.declared is None else self.declared.default
        return "boolean" if isinstance(default, bool) else "integer" if isinstance(default, int) else "string"

    def _values(self) -> Mapping[str, str]:
        declared = None if self.declared is None else self.declared.enum
        return dict.fromkeys(self.values, "") or declared or {}

    def _default(self) -> str:
        declared = self.declared
        if declared is None or declared.secret or declared.required or declared.derive is not None:
            return self.default
        return self.default if declared.default is None else declared.default_text()

    def _text(self) -> str:
        text = self.text or (self.declared.doc if self.declared is not None else "")
        default = self._default()
        parts = (text, f"Default: `{default}`." if default else "", f"Property `{self.name}`.")
        return " ".join(part for part in parts if part)


Form = Mapping[str, tuple[FormField, ...]]
"""The fields of a form by group, in their order."""


def _declared(name: str, label: str, text: str = "") -> FormField:
    return FormField(name, label, F.BY_NAME[name], text)


def _kafka(name: str, label: str, text: str, **more: Any) -> FormField:
    return FormField(f"kafka.{name}", label, text=text, **more)


MYSQL_CDC_FORM: Form = MappingProxyType(
    {
        "Stream": (
            _declared(F.TOPIC_PREFIX.name, f"Topic prefix{REQUIRED}"),
            _declared(F.SNAPSHOT_MODE.name, "First snapshot"),
            _declared(F.DECIMAL_HANDLING_MODE.name, "Decimal numbers"),
            _declared(F.DRAIN_WRITERS.name, "Writers"),
            _declared(F.DATABASE_SERVER_ID.name, "First replication client id"),
        ),
        "Kafka": (
            _declared(
                F.KAFKA_BOOTSTRAP_SERVERS.name,
                "Brokers (required without a Kafka connection)",
                "Kafka cluster, as a list of host:port.",
            ),
            FormField(
                "kafka_conn_id",
                "Kafka connection",
                text="Id of a connection of type Kafka, whose extra holds brokers and login; then the other fields of "
                "this group about them stay empty.",
            ),
            _kafka(
                "security.protocol",
                "Encryption and login",
                "`ssl` encrypts, `sasl_...` logs in, `sasl_ssl` does both.",
                values=("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
                default="plaintext",
            ),
            _kafka(
                "sasl.mechanism",
                "Login mechanism",
                "How the account logs in, with `sasl_...`.",
                values=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
            ),
            _kafka("sasl.username", "User", "Account for `PLAIN` and `SCRAM`."),
            _kafka("sasl.password", "Password", "Its password.", secret=True),
            _kafka(
                "ssl.ca.location",
                "Trusted authorities (PEM file)",
                "Authorities that may sign the brokers' certificates; empty takes those of the system.",
            ),
            _kafka("ssl.certificate.location", "Client certificate (PEM file)", "For brokers that ask for one."),
            _kafka("ssl.key.location", "Client key (PEM file)", "Key of the client's certificate."),
            _kafka("ssl.key.password", "Password of the client key", "If the key is encrypted.", secret=True),
            _declared(F.TOPIC_CREATION_PARTITIONS.name, "Partitions of new topics"),
            _declared(F.TOPIC_CREATION_REPLICATION_FACTOR.name, "Replicas of new topics"),
            FormField(
                "schema_registry_conn_id",
                "Schema registry connection",
                text="Id of a connection of type Schema registry, for keys or values in Avro.",
            ),
        ),
        "Captured tables": (
            _declared(F.DATABASE_INCLUDE_LIST.name, "Databases"),
            _declared(F.DATABASE_EXCLUDE_LIST.name, "Databases to leave out"),
            _declared(F.TABLE_INCLUDE_LIST.name, "Tables"),
            _declared(F.TABLE_EXCLUDE_LIST.name, "Tables to leave out"),
        ),
        "Encryption to MySQL": (
            _declared(F.DATABASE_SSL_MODE.name, "Encryption"),
            _declared(F.DATABASE_SSL_CA.name, "Trusted authorities (PEM file)"),
            _declared(F.DATABASE_SSL_CERT.name, "Client certificate (PEM file)"),
            _declared(F.DATABASE_SSL_KEY.name, "Client key (PEM file)"),
            _declared(F.DATABASE_SSL_KEY_PASSWORD.name, "Password of the client key"),
        ),
    }
)
"""The form of the connection type ``mysql_cdc``, without Airflow's own fields."""

_REGISTRY = {registry_property_name(declared): declared for declared in registry_form_fields()}


def _registry(name: str, label: str, **more: Any) -> FormField:
    return FormField(name, label, _REGISTRY[name], **more)


REGISTRY_FORM: Form = MappingProxyType(
    {
        "Token": (
            _registry("bearer.auth.credentials.source", "Kind of token", values=("STATIC_TOKEN", "OAUTHBEARER")),
            _registry("bearer.auth.token", "Token"),
            _registry("bearer.auth.issuer.endpoint.url", "Address of the token server"),
            _registry("bearer.auth.client.id", "Client id"),
            _registry("bearer.auth.client.secret", "Client secret"),
            _registry("bearer.auth.scope", "Scope"),
            _registry("bearer.auth.logical.cluster", "Logical cluster"),
            _registry("bearer.auth.identity.pool.id", "Identity pool"),
        ),
        "Encryption": (
            _registry("schema.registry.ssl.ca.location", "Trusted authorities (PEM file)"),
            _registry("schema.registry.ssl.certificate.location", "Client certificate (PEM file)"),
            _registry("schema.registry.ssl.key.location", "Client key (PEM file)"),
            _registry("schema.registry.ssl.key.password", "Password of the client key"),
        ),
        "Requests": (_registry("http.read.timeout.ms", "Longest wait for an answer (ms)"),),
    }
)
"""The form of the connection type ``schema_registry``, without Airflow's own fields."""

STANDARD_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "host": f"MySQL host{REQUIRED}",
        "port": "MySQL port",
        "login": f"User{REQUIRED}",
        "password": "Password",
    }
)
"""What people call Airflow's own fields of such a connection."""


def field_label(attribute: str) -> str:
    """Return what people call one of Airflow's own fields.

    Args:
        attribute: Its name as an attribute of a connection.
    """
    return STANDARD_LABELS[attribute].removesuffix(REQUIRED)


def conn_fields(form: Form) -> dict[str, dict[str, Any]]:
    """Return a form as ``conn-fields`` of the provider's metadata.

    Args:
        form: The form.
    """
    return {field.name: field.to_json(section) for section, fields in form.items() for field in fields}


def form_places(form: Form) -> dict[str, str]:
    """Return where each property of a form is shown, for errors, as ``field Encryption (Kafka)``.

    Args:
        form: The form.
    """
    return {
        field.name: f"field {field.label.removesuffix(REQUIRED)} ({section})"
        for section, fields in form.items()
        for field in fields
    }
