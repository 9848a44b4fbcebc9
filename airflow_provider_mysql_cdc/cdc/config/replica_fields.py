"""Properties of the replica that a verification reads tables from."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import SslMode
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.model.secret import Secret

_CONNECTION = "The operator's argument `replica_conn_id` sets it."

VERIFY_REPLICA_HOSTNAME: Field[str | None] = Field(
    "verify.replica.hostname",
    parse_value.optional_text,
    None,
    "Host of a replica of the source from which a verification reads the rows of tables; absent for the source itself. "
    f"{_CONNECTION}",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_PORT: Field[int] = Field(
    "verify.replica.port",
    parse_value.integer(1, 65535),
    3306,
    f"Its port. {_CONNECTION}",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_USER: Field[str | None] = Field(
    "verify.replica.user",
    parse_value.optional_text,
    None,
    "Account on it; that of the source is never sent to it. It needs SELECT on the tables, RELOAD and REPLICATION "
    f"CLIENT. {_CONNECTION}",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_PASSWORD: Field[Secret] = Field(
    "verify.replica.password",
    parse_value.secret,
    Secret(""),
    f"Password of that account. {_CONNECTION}",
    Group.VERIFY,
    secret=True,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_SSL_MODE: Field[SslMode] = Field(
    "verify.replica.ssl.mode",
    parse_value.choice(SslMode),
    SslMode.PREFERRED,
    "Encryption of the connection to it, as `database.ssl.mode`.",
    Group.VERIFY,
    enum=SslMode.docs(),
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_SSL_CA: Field[str | None] = Field(
    "verify.replica.ssl.ca",
    parse_value.optional_text,
    None,
    "PEM file with the authorities that may sign its certificate.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_SSL_CERT: Field[str | None] = Field(
    "verify.replica.ssl.cert",
    parse_value.optional_text,
    None,
    "PEM file with the client's certificate for it.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_SSL_KEY: Field[str | None] = Field(
    "verify.replica.ssl.key",
    parse_value.optional_text,
    None,
    "PEM file with the client's key for it.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_SSL_KEY_PASSWORD: Field[Secret | None] = Field(
    "verify.replica.ssl.key.password",
    parse_value.optional_secret,
    None,
    "Password of that key.",
    Group.VERIFY,
    secret=True,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
VERIFY_REPLICA_TIMEOUT_MS: Field[int] = Field(
    "verify.replica.timeout.ms",
    parse_value.integer(0),
    600_000,
    "Longest wait in milliseconds until the replica has applied what the stream has read.",
    Group.VERIFY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
