"""Properties of the Avro converters: the schema registry, subjects, and what Confluent's converter lets one choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from airflow_provider_mysql_cdc.cdc.config import parse_value as parse
from airflow_provider_mysql_cdc.cdc.config.event_fields import AVRO_CONVERTER, KEY_CONVERTER, VALUE_CONVERTER
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Decides, Field, Group, Lookup
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import is_ticdc
from airflow_provider_mysql_cdc.cdc.model.registry_settings import OAuthClient, RegistrySettings
from airflow_provider_mysql_cdc.cdc.model.secret import Secret

Part = Literal["key", "value"]
PARTS: tuple[Part, Part] = ("key", "value")
SUBJECTS = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_STRATEGIES = "io.confluent.kafka.serializers.subject."
IN_HEADERS = "HeaderSchemaIdSerializer"
PLACES = ("PrefixSchemaIdSerializer", IN_HEADERS)
_PLACES = "io.confluent.kafka.serializers.schema.id."
_SOURCES = ("URL", "USER_INFO")
_OTHER_BEARER = "set OAUTHBEARER (client credentials) or STATIC_TOKEN"


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
        found = (getattr(self, f.name) for f in fields(self))
        return tuple(f for f in found if f is not None)


def _urls(value: str) -> str:
    urls = [url.strip().rstrip("/") for url in value.split(",") if url.strip()]
    for url in urls:
        split = urlsplit(url)
        try:
            valid = split.scheme in ("http", "https") and split.hostname and split.port != 0
        except ValueError:
            valid = False
        if not valid or split.query or split.fragment:
            raise ValueError("must be a list of http:// or https:// addresses, without anything behind their path")
    return ",".join(urls)


def _class_of(package: str, names: tuple[str, ...]) -> Callable[[str], str]:
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
    if value.strip() and not parse.is_pem(value.strip()):
        raise ValueError("Java's key stores cannot be read; convert it to PEM")
    return value


class _Maker:
    """Declare the properties of one part."""

    def __init__(self, part: Part) -> None:
        self.part = part

    def __call__(
        self,
        name: str,
        parser: Any,
        default: Any,
        doc: str,
        *,
        also: tuple[str | Alias, ...] = (),
        decides: Decides = Decides.NOTHING,
        **more: Any,
    ) -> Field[Any]:
        prefix = f"{self.part}.converter."
        aliases = tuple(Alias(prefix + a.name, a.convert) if isinstance(a, Alias) else Alias(prefix + a) for a in also)
        return Field(prefix + name, parser, default, doc, Group.REGISTRY, aliases=aliases, decides=decides, **more)


def _converter_fields(part: Part) -> ConverterFields:
    of = _Maker(part)
    ssl = "schema.registry.ssl."
    return ConverterFields(
        url=of(
            "schema.registry.url",
            _urls,
            "",
            f"Addresses of the schema registry for {part}s, comma-separated: Confluent's, or one that speaks its API "
            "(of Apicurio's registry `http://host:port/apis/ccompat/v7`).",
        ),
        register=of(
            "auto.register.schemas",
            parse.boolean,
            True,
            "Register the schema of a table version before its first record; with `false` it must have been registered "
            "by somebody else.",
        ),
        use_latest=of(
            "use.latest.version",
            parse.boolean,
            False,
            "Take the id of the subject's latest schema, which must mean the same fields, types and units to a reader: "
            "names of Connect (`connect.name`) may be missing there, but not be others; defaults and texts may "
            "differ. Rows from before a change of the table get the last version that fits. Nothing is registered.",
        ),
        normalize=of(
            "normalize.schemas", parse.boolean, False, "Ask the registry to put schemas into its normal form."
        ),
        subjects=of(
            f"{part}.subject.name.strategy",
            _class_of(_STRATEGIES, SUBJECTS),
            SUBJECTS[0],
            f"Subject of a {part}'s schema: `TopicNameStrategy` (`<topic>-{part}`), `RecordNameStrategy` (the schema's "
            "name) or `TopicRecordNameStrategy` (`<topic>-<name>`), with or without Confluent's package before it.",
            # The ledger knows ids of keys by their subjects, and some registries give each subject ids of its own.
            decides=Decides.EVENTS if part == "key" else Decides.NOTHING,
        ),
        ids=of(
            f"{part}.schema.id.serializer",
            _class_of(_PLACES, PLACES),
            PLACES[0],
            f"Where the id of a {part}'s schema stands: `PrefixSchemaIdSerializer` (before the bytes) or "
            f"`HeaderSchemaIdSerializer` (its GUID in the header `__{part}_schema_id`, and nothing before the bytes; "
            "the registry has to give GUIDs, as Confluent's does since 8.0), with or without Confluent's package "
            "before it.",
            decides=Decides.EVENTS,
        ),
        auth_source=of(
            "basic.auth.credentials.source",
            _one_of(*_SOURCES),
            "URL",
            "Where user and password stand: `URL` (in the address) or `USER_INFO` (in `basic.auth.user.info`).",
            refused={"sasl_inherit": "set USER_INFO and basic.auth.user.info"},
        ),
        user_info=of(
            "basic.auth.user.info",
            _user_info,
            None,
            "`user:password` for the registry.",
            also=("schema.registry.basic.auth.user.info",),
            secret=True,
        ),
        bearer_source=of(
            "bearer.auth.credentials.source",
            _one_of("STATIC_TOKEN", "OAUTHBEARER"),
            "",
            "`STATIC_TOKEN`: the token of `bearer.auth.token` is sent. `OAUTHBEARER`: one that a token server gives "
            "for client credentials (`bearer.auth.issuer.endpoint.url`, `.client.id`, `.client.secret`, `.scope`).",
            refused=dict.fromkeys(("oauthbearer_azure_imds", "sasl_oauthbearer_inherit", "custom"), _OTHER_BEARER),
        ),
        token=of("bearer.auth.token", parse.optional_secret, None, "Bearer token for the registry.", secret=True),
        cluster=of("bearer.auth.logical.cluster", str.strip, "", "Logical cluster, beside a token (Confluent Cloud)."),
        pool=of("bearer.auth.identity.pool.id", parse.optional_text, None, "Identity pool, beside a token."),
        issuer=of("bearer.auth.issuer.endpoint.url", _urls, "", "Address at which the token server gives tokens."),
        client_id=of("bearer.auth.client.id", parse.optional_text, None, "Id of the client at the token server."),
        client_secret=of(
            "bearer.auth.client.secret", parse.optional_secret, None, "Its secret at the token server.", secret=True
        ),
        scope=of("bearer.auth.scope", parse.optional_text, None, "Scope of the tokens that are asked for."),
        ssl_ca=of(
            f"{ssl}ca.location",
            parse.optional_text,
            None,
            "PEM file with the authorities that may sign the registry's certificate; without it, those that the "
            "package certifi brings.",
            also=(Alias(f"{ssl}truststore.location", _pem_store),),
            ours=True,
        ),
        ssl_cert=of(
            f"{ssl}certificate.location",
            parse.optional_text,
            None,
            "PEM file with the client's certificate, and with its key where no other property names it.",
            also=(Alias(f"{ssl}keystore.location", _pem_store),),
            ours=True,
        ),
        ssl_key=of(f"{ssl}key.location", parse.optional_text, None, "PEM file with the client's key.", ours=True),
        ssl_key_password=of(
            f"{ssl}key.password", parse.optional_secret, None, "Password of the client's key.", secret=True
        ),
        timeout_ms=of(
            "http.read.timeout.ms",
            parse.integer(1, parse.INT32_MAX),
            10_000,
            "Longest wait for an answer of the registry in milliseconds. Confluent's default is 60000; here a Kafka "
            "transaction may be open meanwhile.",
        ),
        retries=of(
            "max.retries",
            parse.integer(0, 100),
            3,
            "How often a request is sent again when the registry cannot be reached, or answers 408, 429 or 5xx.",
        ),
        retry_wait_ms=of(
            "retries.wait.ms", parse.integer(0, 3_600_000), 1000, "Longest wait before the first of them."
        ),
        retry_max_wait_ms=of(
            "retries.max.wait.ms", parse.integer(0, 3_600_000), 20_000, "Longest wait before any of them."
        ),
        meta_data=of(
            "connect.meta.data",
            parse.boolean,
            True,
            "Put what Connect knows and Avro does not (`connect.name`, `connect.version`, ..) into the schema.",
            decides=Decides.EVENTS,
        ),
        keep_null=None
        if part == "key"
        else of(
            "ignore.default.for.nullables",
            parse.boolean,
            True,
            "Write NULL as null where the column has a default. Confluent's default is `false`, with which a NULL "
            "arrives as the default; here it is `true`, because a value must not change on its way.",
            decides=Decides.EVENTS,
        ),
    )


KEY_AVRO = _converter_fields("key")
VALUE_AVRO = _converter_fields("value")
# TiCDC's name for it (CFG-127).
VALUE_AVRO = replace(VALUE_AVRO, url=replace(VALUE_AVRO.url, aliases=(Alias("schema-registry"),), refs=("CFG-127",)))
OF_PART: dict[Part, ConverterFields] = {"key": KEY_AVRO, "value": VALUE_AVRO}
CONVERTER_OF: dict[Part, Field[str]] = {"key": KEY_CONVERTER, "value": VALUE_CONVERTER}


_PATIENCE = ("timeout_ms", "retries", "retry_wait_ms", "retry_max_wait_ms")
_ABOUT_SCHEMAS = ("register", "use_latest", "normalize", "subjects", "ids", "meta_data", "keep_null")


def reaching_names(*, patience: bool = True) -> frozenset[str]:
    """Return the names, without the converter's before them, of the properties that say how to reach a registry.

    Args:
        patience: Whether those belong to them that say how long to wait and how often to ask.
    """
    left_out = (*_ABOUT_SCHEMAS, *(() if patience else _PATIENCE))
    return frozenset(without_converter(f) for f in _but(left_out))


def form_of_registry() -> list[Field[Any]]:
    """Return those of them that a form asks for beside address, user and password."""
    return _but((*_ABOUT_SCHEMAS, *_PATIENCE[1:], "url", "auth_source", "user_info"))


def without_converter(declared: Field[Any]) -> str:
    """Return a property's name without the converter's before it."""
    return declared.name.partition(".converter.")[2]


def _but(left_out: tuple[str, ...]) -> list[Field[Any]]:
    return [getattr(KEY_AVRO, f.name) for f in fields(ConverterFields) if f.name not in left_out]


def is_avro(get: Lookup, part: Part) -> bool:
    """Say whether keys or values are written as Avro."""
    return is_ticdc(get) or get[CONVERTER_OF[part]] == AVRO_CONVERTER


def fields_of(get: Lookup, part: Part) -> ConverterFields:
    """Return the properties that count for keys or for values; TiCDC has one registry for both."""
    return OF_PART["value" if is_ticdc(get) else part]


def registry_problems(get: Lookup, part: Part) -> list[tuple[Field[Any], str, str]]:
    """Return what is missing or does not go together in the settings of an Avro converter: property, what, fix."""
    if part == "key" and is_ticdc(get):
        return []  # keys have the registry of values
    of = fields_of(get, part)
    found: list[tuple[Field[Any], str, str]] = []
    if not get[of.url]:
        found.append((of.url, f"is required and missing; {part}s are written as Avro", "Set it: where the registry is"))
    if get.given(of.auth_source) and get[of.auth_source] == "USER_INFO" and get[of.user_info] is None:
        found.append((of.user_info, "is missing", f"Set it, or remove {of.auth_source.name}"))
    found += _bearer_problems(get, of)
    if (get[of.ssl_key] or get[of.ssl_key_password]) and not get[of.ssl_cert]:
        found.append((of.ssl_cert, "is missing; there is a key", "Set it: the client's certificate"))
    return found


def _bearer_problems(get: Lookup, of: ConverterFields) -> list[tuple[Field[Any], str, str]]:
    """Return what is wrong about tokens: property, what, fix."""
    source = get[of.bearer_source]
    client: tuple[Field[Any], ...] = (of.issuer, of.client_id, of.client_secret, of.scope)
    needed: tuple[Field[Any], ...]
    needed = {"STATIC_TOKEN": (of.token,), "OAUTHBEARER": client}.get(source, ())
    found = [(f, "is missing", f"Set it, or remove {of.bearer_source.name}") for f in needed if not get[f]]
    idle = client if source != "OAUTHBEARER" else (of.token,)
    other = f"{of.bearer_source.name}={source or '(not set)'}"
    found += [(f, f"cannot stand beside {other}", "Keep one of the two") for f in idle if get[f]]
    if get[of.user_info] is not None and (given := next((f for f in (of.token, of.client_secret) if get[f]), None)):
        found.append((given, f"cannot stand beside {of.user_info.name}", "Keep one of the two"))
    return found


def registry_settings(get: Lookup, part: Part) -> RegistrySettings | None:
    """Return how to reach the registry of keys or of values, or None when they are not Avro.

    Args:
        get: Reads properties.
        part: ``key`` or ``value``.
    """
    if not is_avro(get, part):
        return None
    of = fields_of(get, part)
    urls = [_without_account(url) for url in get[of.url].split(",")]
    in_url = next((account for _, account in urls if account), None)
    return RegistrySettings(
        url=",".join(url for url, _ in urls),
        user_info=get[of.user_info] or (Secret(in_url) if in_url else None),
        token=get[of.token],
        cluster=get[of.cluster],
        pool=get[of.pool],
        oauth=_oauth(get, of),
        ssl_ca=get[of.ssl_ca],
        ssl_cert=get[of.ssl_cert],
        ssl_key=get[of.ssl_key],
        ssl_key_password=get[of.ssl_key_password],
        timeout_s=get[of.timeout_ms] / 1000,
        retries=get[of.retries],
        retry_wait_ms=get[of.retry_wait_ms],
        retry_max_wait_ms=get[of.retry_max_wait_ms],
        register=get[of.register],
        use_latest=get[of.use_latest],
        normalize=get[of.normalize],
        guids_for=of.ids.name if get[of.ids] == IN_HEADERS else "",
    )


def _oauth(get: Lookup, of: ConverterFields) -> OAuthClient | None:
    secret = get[of.client_secret]
    if get[of.bearer_source] != "OAUTHBEARER" or secret is None:
        return None
    return OAuthClient(get[of.issuer], get[of.client_id] or "", secret, get[of.scope] or "")


def _without_account(url: str) -> tuple[str, str | None]:
    """Return an address and the account in it, decoded (AVRO-03: both are URL-encoded)."""
    from urllib.parse import unquote

    split = urlsplit(url)
    account, _, host = split.netloc.rpartition("@")
    if not account:
        return url, None
    user, _, password = account.partition(":")
    return urlunsplit(split._replace(netloc=host)), f"{unquote(user)}:{unquote(password)}"
