"""Properties of the Avro converters: the schema registry, subjects, and what Confluent's converter lets one choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.event_fields import AVRO_CONVERTER, KEY_CONVERTER, VALUE_CONVERTER
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Group, Lookup, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import is_ticdc
from airflow_provider_mysql_cdc.cdc.model.connection import OAuthClient, RegistrySettings, Secret

ConverterPart = Literal["key", "value"]
PARTS: tuple[ConverterPart, ConverterPart] = ("key", "value")
RECORD_NAME_STRATEGY = "RecordNameStrategy"
SUBJECT_STRATEGIES = ("TopicNameStrategy", RECORD_NAME_STRATEGY, "TopicRecordNameStrategy")
_STRATEGY_PACKAGE = "io.confluent.kafka.serializers.subject."
HEADER_ID_SERIALIZER = "HeaderSchemaIdSerializer"
ID_SERIALIZERS = ("PrefixSchemaIdSerializer", HEADER_ID_SERIALIZER)
_ID_SERIALIZER_PACKAGE = "io.confluent.kafka.serializers.schema.id."
_CREDENTIAL_SOURCES = ("URL", "USER_INFO")
_BEARER_HINT = "set OAUTHBEARER (client credentials) or STATIC_TOKEN"


@dataclass(frozen=True, slots=True)
class ConverterFields:
    """Hold the properties of one converter, of keys or of values; see their texts."""

    url: Field[str]
    register: Field[bool]
    use_latest: Field[bool]
    normalize: Field[bool]
    subjects: Field[str]
    ids: Field[str]
    auth_source: Field[str]
    user_info: Field[Secret | None]
    bearer_source: Field[str]
    token: Field[Secret | None]
    cluster: Field[str]
    pool: Field[str | None]
    issuer: Field[str]
    client_id: Field[str | None]
    client_secret: Field[Secret | None]
    scope: Field[str | None]
    ssl_ca: Field[str | None]
    ssl_cert: Field[str | None]
    ssl_key: Field[str | None]
    ssl_key_password: Field[Secret | None]
    timeout_ms: Field[int]
    retries: Field[int]
    retry_wait_ms: Field[int]
    retry_max_wait_ms: Field[int]
    meta_data: Field[bool]
    keep_null: Field[bool] | None

    def all(self) -> tuple[Field[Any], ...]:
        """Return the properties in their order."""
        declared = (getattr(self, f.name) for f in fields(self))
        return tuple(f for f in declared if f is not None)


def _urls(value: str) -> str:
    urls = [url.strip().rstrip("/") for url in value.split(",") if url.strip()]
    for url in urls:
        split = urlsplit(url)
        try:
            valid = split.scheme in ("http", "https") and split.hostname and split.port != 0
        except ValueError:
            valid = False
        if not valid or split.query or split.fragment:
            raise ValueError("must be a list of http:// or https:// addresses, without a query or fragment")
    return ",".join(urls)


def _class_name_in(package: str, names: tuple[str, ...]) -> Callable[[str], str]:
    def read(value: str) -> str:
        name = value.strip().removeprefix(package)
        if name not in names:
            raise ValueError(f"must be one of {', '.join(names)} (of {package}*)")
        return name

    return read


def _one_of(*names: str) -> Any:
    def read(value: str) -> str:
        if value.strip().upper() not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value.strip().upper()

    return read


def _user_info(value: str) -> Secret | None:
    if value and ":" not in value:
        raise ValueError("must be of the form user:password")
    return Secret(value) if value else None


def _pem_store(value: str) -> str:
    if value.strip() and not parse_value.is_pem(value.strip()):
        raise ValueError("Java's key stores cannot be read; convert it to PEM")
    return value


class _FieldFactory:
    """Declare the properties of one part."""

    def __init__(self, part: ConverterPart) -> None:
        self.part = part

    def __call__(
        self,
        name: str,
        parser: Any,
        default: Any,
        doc: str,
        *,
        other_names: tuple[str | Alias, ...] = (),
        pin_scope: PinScope = PinScope.NOTHING,
        **options: Any,
    ) -> Field[Any]:
        prefix = f"{self.part}.converter."
        aliases = tuple(
            Alias(prefix + a.name, a.convert) if isinstance(a, Alias) else Alias(prefix + a) for a in other_names
        )
        return Field(
            prefix + name, parser, default, doc, Group.REGISTRY, aliases=aliases, pin_scope=pin_scope, **options
        )


def _converter_fields(part: ConverterPart) -> ConverterFields:
    make_field = _FieldFactory(part)
    ssl = "schema.registry.ssl."
    return ConverterFields(
        url=make_field(
            "schema.registry.url",
            _urls,
            "",
            f"Addresses of the schema registry for {part}s, comma-separated: Confluent's, or one that speaks its API "
            "(of Apicurio's registry `http://host:port/apis/ccompat/v7`).",
        ),
        register=make_field(
            "auto.register.schemas",
            parse_value.boolean,
            True,
            "Register the schema of a table version before its first record; with `false` it must be registered "
            "already.",
            set_by=SetBy.RUN,
        ),
        use_latest=make_field(
            "use.latest.version",
            parse_value.boolean,
            False,
            "Take the id of the subject's latest schema, which must mean the same fields, types and units to a reader: "
            "names of Connect (`connect.name`) may be missing there, but not be others; defaults and texts may "
            "differ. Rows from before a change of the table get the last version that fits. Nothing is registered.",
            set_by=SetBy.RUN,
        ),
        normalize=make_field(
            "normalize.schemas",
            parse_value.boolean,
            False,
            "Ask the registry to put schemas into its normal form.",
            set_by=SetBy.RUN,
        ),
        subjects=make_field(
            f"{part}.subject.name.strategy",
            _class_name_in(_STRATEGY_PACKAGE, SUBJECT_STRATEGIES),
            SUBJECT_STRATEGIES[0],
            f"Subject of a {part}'s schema: `TopicNameStrategy` (`<topic>-{part}`), `RecordNameStrategy` (the schema's "
            "name) or `TopicRecordNameStrategy` (`<topic>-<name>`), with or without Confluent's package before it.",
            # The ledger knows ids of keys by their subjects, and some registries give each subject ids of its own.
            pin_scope=PinScope.EVENTS if part == "key" else PinScope.NOTHING,
        ),
        ids=make_field(
            f"{part}.schema.id.serializer",
            _class_name_in(_ID_SERIALIZER_PACKAGE, ID_SERIALIZERS),
            ID_SERIALIZERS[0],
            f"Where the id of a {part}'s schema stands: `PrefixSchemaIdSerializer` (before the bytes) or "
            f"`HeaderSchemaIdSerializer` (its GUID in the header `__{part}_schema_id`, and nothing before the bytes; "
            "the registry has to give GUIDs, as Confluent's does since 8.0), with or without Confluent's package "
            "before it.",
            pin_scope=PinScope.EVENTS,
        ),
        auth_source=make_field(
            "basic.auth.credentials.source",
            _one_of(*_CREDENTIAL_SOURCES),
            "URL",
            "Where user and password stand: `URL` (in the address) or `USER_INFO` (in `basic.auth.user.info`).",
            refused={"sasl_inherit": "set USER_INFO and basic.auth.user.info"},
        ),
        user_info=make_field(
            "basic.auth.user.info",
            _user_info,
            None,
            "`user:password` for the registry.",
            other_names=("schema.registry.basic.auth.user.info",),
            secret=True,
        ),
        bearer_source=make_field(
            "bearer.auth.credentials.source",
            _one_of("STATIC_TOKEN", "OAUTHBEARER"),
            "",
            "`STATIC_TOKEN`: the token of `bearer.auth.token` is sent. `OAUTHBEARER`: one that a token server gives "
            "for client credentials (`bearer.auth.issuer.endpoint.url`, `.client.id`, `.client.secret`, `.scope`).",
            refused=dict.fromkeys(("oauthbearer_azure_imds", "sasl_oauthbearer_inherit", "custom"), _BEARER_HINT),
        ),
        token=make_field(
            "bearer.auth.token", parse_value.optional_secret, None, "Bearer token for the registry.", secret=True
        ),
        cluster=make_field(
            "bearer.auth.logical.cluster", str.strip, "", "Logical cluster, sent with a token (Confluent Cloud)."
        ),
        pool=make_field(
            "bearer.auth.identity.pool.id", parse_value.optional_text, None, "Identity pool, sent with a token."
        ),
        issuer=make_field("bearer.auth.issuer.endpoint.url", _urls, "", "Address of the token server."),
        client_id=make_field(
            "bearer.auth.client.id", parse_value.optional_text, None, "Id of the client at the token server."
        ),
        client_secret=make_field(
            "bearer.auth.client.secret",
            parse_value.optional_secret,
            None,
            "Its secret at the token server.",
            secret=True,
        ),
        scope=make_field("bearer.auth.scope", parse_value.optional_text, None, "Scope of the requested tokens."),
        ssl_ca=make_field(
            f"{ssl}ca.location",
            parse_value.optional_text,
            None,
            "PEM file with the authorities that may sign the registry's certificate; without it, those that the "
            "package certifi brings.",
            other_names=(Alias(f"{ssl}truststore.location", _pem_store),),
            provider_specific=True,
        ),
        ssl_cert=make_field(
            f"{ssl}certificate.location",
            parse_value.optional_text,
            None,
            "PEM file with the client's certificate, and with its key where no other property names it.",
            other_names=(Alias(f"{ssl}keystore.location", _pem_store),),
            provider_specific=True,
        ),
        ssl_key=make_field(
            f"{ssl}key.location",
            parse_value.optional_text,
            None,
            "PEM file with the client's key.",
            provider_specific=True,
        ),
        ssl_key_password=make_field(
            f"{ssl}key.password", parse_value.optional_secret, None, "Password of the client's key.", secret=True
        ),
        timeout_ms=make_field(
            "http.read.timeout.ms",
            parse_value.integer(1, parse_value.INT32_MAX),
            10_000,
            "Longest wait for an answer of the registry in milliseconds. Confluent's default is 60000; here a Kafka "
            "transaction may be open meanwhile.",
            set_by=SetBy.RUN,
        ),
        retries=make_field(
            "max.retries",
            parse_value.integer(0, 100),
            3,
            "How often a request is sent again when the registry cannot be reached, or answers 408, 429 or 5xx.",
            set_by=SetBy.RUN,
        ),
        retry_wait_ms=make_field(
            "retries.wait.ms",
            parse_value.integer(0, 3_600_000),
            1000,
            "Longest wait before the first of them.",
            set_by=SetBy.RUN,
        ),
        retry_max_wait_ms=make_field(
            "retries.max.wait.ms",
            parse_value.integer(0, 3_600_000),
            20_000,
            "Longest wait before any of them.",
            set_by=SetBy.RUN,
        ),
        meta_data=make_field(
            "connect.meta.data",
            parse_value.boolean,
            True,
            "Put what Connect knows and Avro does not (`connect.name`, `connect.version`, ..) into the schema.",
            pin_scope=PinScope.EVENTS,
            set_by=SetBy.RUN,
        ),
        keep_null=None
        if part == "key"
        else make_field(
            "ignore.default.for.nullables",
            parse_value.boolean,
            True,
            "Write NULL as null where the column has a default. Confluent's default is `false`, with which a NULL "
            "arrives as the default; here it is `true`, because a value must not change on its way.",
            pin_scope=PinScope.EVENTS,
            set_by=SetBy.RUN,
        ),
    )


KEY_AVRO = _converter_fields("key")
VALUE_AVRO = _converter_fields("value")
# TiCDC's name for it (CFG-127).
VALUE_AVRO = replace(VALUE_AVRO, url=replace(VALUE_AVRO.url, aliases=(Alias("schema-registry"),), refs=("CFG-127",)))
CONVERTER_FIELDS: dict[ConverterPart, ConverterFields] = {"key": KEY_AVRO, "value": VALUE_AVRO}
CONVERTER_CLASS_FIELD: dict[ConverterPart, Field[str]] = {"key": KEY_CONVERTER, "value": VALUE_CONVERTER}


_RETRY_FIELDS = ("timeout_ms", "retries", "retry_wait_ms", "retry_max_wait_ms")
_SCHEMA_FIELDS = ("register", "use_latest", "normalize", "subjects", "ids", "meta_data", "keep_null")


def connection_names(*, with_retries: bool = True) -> frozenset[str]:
    """Return the names, without the converter's before them, of the properties that say how to reach a registry.

    Args:
        with_retries: Whether those belong to them that say how long to wait and how often to ask.
    """
    excluded = (*_SCHEMA_FIELDS, *(() if with_retries else _RETRY_FIELDS))
    return frozenset(registry_property_name(f) for f in _fields_except(excluded))


def registry_form_fields() -> list[Field[Any]]:
    """Return those of them that a form asks for beside address, user and password."""
    return _fields_except((*_SCHEMA_FIELDS, *_RETRY_FIELDS[1:], "url", "auth_source", "user_info"))


def registry_property_name(declared: Field[Any]) -> str:
    """Return a property's name without the converter's before it."""
    return declared.name.partition(".converter.")[2]


def _fields_except(excluded: tuple[str, ...]) -> list[Field[Any]]:
    return [getattr(KEY_AVRO, f.name) for f in fields(ConverterFields) if f.name not in excluded]


def is_avro(get: Lookup, part: ConverterPart) -> bool:
    """Say whether keys or values are written as Avro."""
    return is_ticdc(get) or get[CONVERTER_CLASS_FIELD[part]] == AVRO_CONVERTER


def fields_of(get: Lookup, part: ConverterPart) -> ConverterFields:
    """Return the properties that count for keys or for values; TiCDC has one registry for both."""
    return CONVERTER_FIELDS["value" if is_ticdc(get) else part]


def registry_problems(get: Lookup, part: ConverterPart) -> list[tuple[Field[Any], str, str]]:
    """Return what is missing or does not go together in the settings of an Avro converter: property, what, fix."""
    if part == "key" and is_ticdc(get):
        return []  # keys have the registry of values
    converter = fields_of(get, part)
    problems: list[tuple[Field[Any], str, str]] = []
    if not get[converter.url]:
        problems.append(
            (converter.url, f"is required and missing; {part}s are written as Avro", "Set it: where the registry is")
        )
    if (
        get.is_set(converter.auth_source)
        and get[converter.auth_source] == "USER_INFO"
        and get[converter.user_info] is None
    ):
        problems.append((converter.user_info, "is missing", f"Set it, or remove {converter.auth_source.name}"))
    problems += _bearer_problems(get, converter)
    if (get[converter.ssl_key] or get[converter.ssl_key_password]) and not get[converter.ssl_cert]:
        problems.append((converter.ssl_cert, "is missing; there is a key", "Set it: the client's certificate"))
    return problems


def _bearer_problems(get: Lookup, converter: ConverterFields) -> list[tuple[Field[Any], str, str]]:
    """Return what is wrong about tokens: property, what, fix."""
    source = get[converter.bearer_source]
    client: tuple[Field[Any], ...] = (converter.issuer, converter.client_id, converter.client_secret, converter.scope)
    required: tuple[Field[Any], ...]
    required = {"STATIC_TOKEN": (converter.token,), "OAUTHBEARER": client}.get(source, ())
    problems = [(f, "is missing", f"Set it, or remove {converter.bearer_source.name}") for f in required if not get[f]]
    ineffective = client if source != "OAUTHBEARER" else (converter.token,)
    other = f"{converter.bearer_source.name}={source or '(not set)'}"
    problems += [(f, f"cannot be combined with {other}", "Keep one of the two") for f in ineffective if get[f]]
    if get[converter.user_info] is not None and (
        conflicting := next((f for f in (converter.token, converter.client_secret) if get[f]), None)
    ):
        problems.append((conflicting, f"cannot be combined with {converter.user_info.name}", "Keep one of the two"))
    return problems


def registry_settings(get: Lookup, part: ConverterPart) -> RegistrySettings | None:
    """Return how to reach the registry of keys or of values, or None when they are not Avro.

    Args:
        get: Reads properties.
        part: ``key`` or ``value``.
    """
    if not is_avro(get, part):
        return None
    converter = fields_of(get, part)
    urls = [_split_account(url) for url in get[converter.url].split(",")]
    in_url = next((account for _, account in urls if account), None)
    return RegistrySettings(
        url=",".join(url for url, _ in urls),
        user_info=_account(get, converter, Secret(in_url) if in_url else None),
        token=get[converter.token],
        cluster=get[converter.cluster],
        pool=get[converter.pool],
        oauth=_oauth_client(get, converter),
        ssl_ca=get[converter.ssl_ca],
        ssl_cert=get[converter.ssl_cert],
        ssl_key=get[converter.ssl_key],
        ssl_key_password=get[converter.ssl_key_password],
        timeout_s=get[converter.timeout_ms] / 1000,
        retries=get[converter.retries],
        retry_wait_ms=get[converter.retry_wait_ms],
        retry_max_wait_ms=get[converter.retry_max_wait_ms],
        register=get[converter.register],
        use_latest=get[converter.use_latest],
        normalize=get[converter.normalize],
        guids_for=converter.ids.name if get[converter.ids] == HEADER_ID_SERIALIZER else "",
    )


def _account(get: Lookup, converter: ConverterFields, in_url: Secret | None) -> Secret | None:
    """Return the account: that of the source that was named, else whichever was given."""
    if in_url is not None and get.is_set(converter.auth_source) and get[converter.auth_source] == "URL":
        return in_url
    return get[converter.user_info] or in_url


def _oauth_client(get: Lookup, converter: ConverterFields) -> OAuthClient | None:
    secret = get[converter.client_secret]
    if get[converter.bearer_source] != "OAUTHBEARER" or secret is None:
        return None
    return OAuthClient(get[converter.issuer], get[converter.client_id] or "", secret, get[converter.scope] or "")


def _split_account(url: str) -> tuple[str, str | None]:
    """Return an address and the account in it, decoded (AVRO-03: both are URL-encoded)."""
    from urllib.parse import unquote

    split = urlsplit(url)
    account, _, host = split.netloc.rpartition("@")
    if not account:
        return url, None
    user, _, password = account.partition(":")
    return urlunsplit(split._replace(netloc=host)), f"{unquote(user)}:{unquote(password)}"
