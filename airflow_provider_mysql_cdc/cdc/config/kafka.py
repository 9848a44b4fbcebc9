"""From Kafka properties as people have them (Java's or librdkafka's) to settings for confluent_kafka.

From Kafka properties as people have them (Java's or librdkafka's) to settings for confluent_kafka.

Six families set them. What stands later in this list wins::

    schema.history.internal.producer.*   connection and security only
    schema.history.internal.consumer.*   connection and security only, for consumers and administration
    producer.override.*                  connection and security, for all clients
    kafka.*                              all clients
    producer.override.*, admin.override.*   that kind of client
    signal.consumer.*                    the consumer of signals

Names of librdkafka's settings.

Source: librdkafka's own list (``rd_kafka_conf_properties_show``), release 2.16, without its callbacks. A test
compares it with the installed library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import is_pem
from airflow_provider_mysql_cdc.cdc.config.property_names import closest_name


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRODUCER_SETTINGS = _names(
    """
    acks batch.num.messages batch.size compression.codec compression.level compression.type delivery.report.only.error
    delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms message.send.max.retries
    message.timeout.ms partitioner produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queuing.strategy
    request.required.acks request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms
    transactional.id
    """
)
CONSUMER_SETTINGS = _names(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
    queued.max.messages.kbytes queued.min.messages session.timeout.ms share.acknowledgement.mode
    """
)
COMMON_SETTINGS = _names(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback builtin.features
    client.dns.lookup client.id client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification enabled_events https.ca.location
    https.ca.pem internal.termination.signal log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
    """
)
ALL_SETTINGS = PRODUCER_SETTINGS | CONSUMER_SETTINGS | COMMON_SETTINGS

TOPIC_SETTINGS = _names(
    """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms
    follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas
    local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
    min.compaction.lag.ms min.insync.replicas preallocate remote.copy.disable remote.log.delete.on.disable
    remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
    """
)
"""Topic settings of Kafka 4; a broker may know more, so this list only serves to spot misprints."""


HISTORY_PRODUCER_PREFIX = "schema.history.internal.producer."
HISTORY_CONSUMER_PREFIX = "schema.history.internal.consumer."
PRODUCER_OVERRIDE_PREFIX = "producer.override."
ADMIN_OVERRIDE_PREFIX = "admin.override."
KAFKA_PREFIX = "kafka."
SIGNAL_CONSUMER_PREFIX = "signal.consumer."
PREFIXES = (
    HISTORY_PRODUCER_PREFIX,
    HISTORY_CONSUMER_PREFIX,
    PRODUCER_OVERRIDE_PREFIX,
    ADMIN_OVERRIDE_PREFIX,
    KAFKA_PREFIX,
    SIGNAL_CONSUMER_PREFIX,
)


class KafkaRole(StrEnum):
    """Kind of Kafka client."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


_SECURITY_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.", "client.dns.lookup")

FIXED_SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "bootstrap.servers": ((), "give the cluster once, as kafka.bootstrap.servers"),
    "metadata.broker.list": ((), "give the cluster once, as kafka.bootstrap.servers"),
    "transactional.id": ((), "each writer has its own, made of topic.prefix and its number"),
    "transaction.timeout.ms": ((), "use the property transaction.timeout.ms"),
    "enable.idempotence": (("true",), "without it events could be lost or doubled"),
    "acks": (("all", "-1"), "a transaction needs the acknowledgement of all replicas"),
    "request.required.acks": (("all", "-1"), "a transaction needs the acknowledgement of all replicas"),
    "partitioner": ((), "the partition is computed as Java's client does"),
    "isolation.level": (("read_committed",), "only committed records are read"),
    "enable.auto.commit": (("false",), "no consumer group is used"),
    "group.id": ((), "no consumer group is used"),
    "delivery.report.only.error": ((), "the writer needs every report"),
}
"""Settings that are not free: accepted values, and why."""

_FIXED_SIGNAL_REASONS = {
    "bootstrap.servers": "give the cluster as signal.kafka.bootstrap.servers",
    "group.id": "use signal.kafka.groupId",
}
"""The same for the consumer of signals, where it is something else."""

JAVA_REFUSED: dict[str, str] = {
    "partitioner.class": "the partition is computed as Java's default partitioner does",
    "key.serializer": "use key.converter",
    "value.serializer": "use value.converter",
    "key.deserializer": "it has no counterpart here",
    "value.deserializer": "it has no counterpart here",
    "interceptor.classes": "Java classes cannot be loaded here",
    "metric.reporters": "Java classes cannot be loaded here",
    "sasl.login.callback.handler.class": "no Java classes here; for OAuth use sasl.oauthbearer.method=oidc",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded here",
    "sasl.login.class": "Java classes cannot be loaded here",
    "security.providers": "Java classes cannot be loaded here; see ssl.providers",
    "ssl.engine.factory.class": "Java classes cannot be loaded here",
    "ssl.truststore.password": "PEM files have no password; convert the trust store to PEM and set ssl.ca.location",
    "ssl.protocol": "librdkafka negotiates the newest version both sides know",
    "ssl.enabled.protocols": "librdkafka negotiates the newest version both sides know",
    "ssl.provider": "set ssl.providers (OpenSSL's) where one is needed",
    "max.block.ms": "the writer waits for room in its queue; use delivery.timeout.ms for the longest life of a record",
    "default.api.timeout.ms": "use socket.timeout.ms",
    "enable.metrics": "use statistics.interval.ms",
}
"""Java settings without a counterpart in librdkafka, with what to do instead."""


def _kilobytes(value: str) -> str:
    return str(max(1, int(value) // 1024))


def _ssl_algorithm(value: str) -> str:
    return value or "none"


JAVA_RENAMED: dict[str, tuple[str, Callable[[str], str]]] = {
    "buffer.memory": ("queue.buffering.max.kbytes", _kilobytes),
    "max.request.size": ("message.max.bytes", str),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", lambda v: "0" if v == "-1" else v),
    "send.buffer.bytes": ("socket.send.buffer.bytes", lambda v: "0" if v == "-1" else v),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", str),
    "socket.connection.setup.timeout.max.ms": ("socket.connection.setup.timeout.ms", str),
    "ssl.endpoint.identification.algorithm": ("ssl.endpoint.identification.algorithm", _ssl_algorithm),
    "ssl.truststore.certificates": ("ssl.ca.pem", str),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", str),
    "ssl.keystore.key": ("ssl.key.pem", str),
    "sasl.oauthbearer.token.endpoint.url": ("sasl.oauthbearer.token.endpoint.url", str),
}
"""Java settings with another name or form in librdkafka."""

_NO_EFFECT = frozenset(
    {"ssl.truststore.type", "ssl.keystore.type", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"}
)
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*)", re.DOTALL)
_JAAS_OPTION = re.compile(r"([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_PLAIN_MODULES = ("PlainLoginModule", "ScramLoginModule")


@dataclass(slots=True, repr=False)
class TranslatedSettings:
    """Collect a family's settings in librdkafka's names.

    Args:
        prefix: Prefix of the family's properties.
        settings: Settings by librdkafka name.
        problems: What cannot be used.
    """

    prefix: str
    settings: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, name: str, value: str, what: str, fix: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(self.prefix + name, what, fix, value))


def translate_settings(prefix: str, properties: Mapping[str, str]) -> TranslatedSettings:
    """Translate one family.

    Args:
        prefix: The family's prefix, for messages.
        properties: Property text by name without the prefix, in Java's or librdkafka's names.
    """
    out = TranslatedSettings(prefix)
    for name, value in properties.items():
        if name in _NO_EFFECT:
            continue
        if name in _SPECIAL_TRANSLATIONS:
            _SPECIAL_TRANSLATIONS[name](out, properties, value)
        elif name in JAVA_REFUSED:
            hint = JAVA_REFUSED[name]
            out.refuse(name, value, "librdkafka has no such setting", hint[0].upper() + hint[1:])
        elif name in JAVA_RENAMED:
            _translate_renamed(out, name, value)
        elif name in FIXED_SETTINGS:
            _check_fixed(out, name, value)
        elif name in ALL_SETTINGS:
            out.settings[name] = value
        else:
            closest = closest_name(name, ALL_SETTINGS | set(JAVA_RENAMED) | set(_SPECIAL_TRANSLATIONS))
            fix = (
                f"Write {prefix}{closest}, if that is meant"
                if closest
                else "librdkafka's CONFIGURATION.md lists its settings"
            )
            out.refuse(name, value, "librdkafka has no such setting", fix)
    return out


def _translate_renamed(out: TranslatedSettings, name: str, value: str) -> None:
    target, convert = JAVA_RENAMED[name]
    try:
        out.settings.setdefault(target, convert(value.strip()))
    except ValueError:
        out.refuse(name, value, "must be a whole number", f"Correct it, or set {out.prefix}{target}")


def _check_fixed(out: TranslatedSettings, name: str, value: str) -> None:
    accepted, why = FIXED_SETTINGS[name]
    if out.prefix == SIGNAL_CONSUMER_PREFIX:
        why = _FIXED_SIGNAL_REASONS.get(name, why)
    if value.strip().lower() not in accepted:
        out.refuse(name, value, f"cannot be set here: {why}", "Remove it")


def _security_protocol(out: TranslatedSettings, properties: Mapping[str, str], value: str) -> None:
    protocols = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
    if value.strip().lower() not in protocols:
        out.refuse("security.protocol", value, f"must be one of {', '.join(protocols)}", "Correct it")
    else:
        out.settings["security.protocol"] = value.strip().lower()


def _translate_jaas(out: TranslatedSettings, properties: Mapping[str, str], value: str) -> None:
    name = "sasl.jaas.config"
    match = _JAAS.fullmatch(value.strip())
    module = match[1].rpartition(".")[2] if match else ""
    if match is None or module not in _PLAIN_MODULES:
        what = f"the login module {module} cannot be used here" if module else "is not a JAAS login line"
        fix = "Set sasl.mechanism and sasl.username/sasl.password, sasl.kerberos.* or sasl.oauthbearer.* instead"
        out.refuse(name, value, what, fix)
        return
    options = {m[1]: next(g for g in m.groups()[1:] if g is not None) for m in _JAAS_OPTION.finditer(match[2])}
    if "username" not in options or "password" not in options:
        out.refuse(name, value, "holds no username and password", "Set sasl.username and sasl.password instead")
        return
    for option in ("username", "password"):
        text = re.sub(r"\\(.)", r"\1", options[option])
        out.settings.setdefault(f"sasl.{option}", text)
    if module == "PlainLoginModule" and not {"sasl.mechanism", "sasl.mechanisms"} & set(properties):
        out.settings["sasl.mechanism"] = "PLAIN"


def _translate_truststore(out: TranslatedSettings, properties: Mapping[str, str], value: str) -> None:
    if properties.get("ssl.truststore.type", "").upper() == "PEM" or is_pem(value):
        out.settings.setdefault("ssl.ca.location", value)
        return
    out.refuse(
        "ssl.truststore.location",
        value,
        "librdkafka cannot read Java trust stores",
        f"Convert it with keytool -exportcert -rfc and set {out.prefix}ssl.ca.location to the PEM file",
    )


def _translate_keystore(out: TranslatedSettings, properties: Mapping[str, str], value: str) -> None:
    kind = properties.get("ssl.keystore.type", "").upper()
    if kind == "PKCS12" or (not kind and value.lower().endswith((".p12", ".pfx"))):
        out.settings["ssl.keystore.location"] = value
    elif kind == "PEM" or (not kind and is_pem(value)):
        out.settings.setdefault("ssl.certificate.location", value)
        out.settings.setdefault("ssl.key.location", value)
    else:
        out.refuse(
            "ssl.keystore.location",
            value,
            "librdkafka cannot read JKS key stores",
            "Convert it with keytool -importkeystore -deststoretype PKCS12 and give the .p12 file",
        )


_SPECIAL_TRANSLATIONS: dict[str, Callable[[TranslatedSettings, Mapping[str, str], str], None]] = {
    "security.protocol": _security_protocol,
    "sasl.jaas.config": _translate_jaas,
    "ssl.truststore.location": _translate_truststore,
    "ssl.keystore.location": _translate_keystore,
}


def merge_settings(families: Mapping[str, Mapping[str, str]], role: KafkaRole | None) -> dict[str, str]:
    """Return the settings of one kind of client, without ``bootstrap.servers``.

    Args:
        families: Translated settings by family prefix.
        role: The kind of client, or None for any: then settings of every kind are kept.
    """
    merged: dict[str, str] = {}
    overlay(merged, security_settings(families.get(HISTORY_PRODUCER_PREFIX, {})))
    if role in (KafkaRole.CONSUMER, KafkaRole.ADMIN):
        overlay(merged, security_settings(families.get(HISTORY_CONSUMER_PREFIX, {})))
    overlay(merged, security_settings(families.get(PRODUCER_OVERRIDE_PREFIX, {})))
    overlay(merged, families.get(KAFKA_PREFIX, {}))
    overlay(merged, families.get(_OVERRIDE_PREFIX.get(role, ""), {}))
    excluded = _EXCLUDED_SETTINGS.get(role, frozenset())
    return {k: v for k, v in merged.items() if k not in excluded}


_OVERRIDE_PREFIX: dict[KafkaRole | None, str] = {
    None: PRODUCER_OVERRIDE_PREFIX,
    KafkaRole.PRODUCER: PRODUCER_OVERRIDE_PREFIX,
    KafkaRole.ADMIN: ADMIN_OVERRIDE_PREFIX,
}
_EXCLUDED_SETTINGS: dict[KafkaRole | None, frozenset[str]] = {
    KafkaRole.PRODUCER: CONSUMER_SETTINGS,
    KafkaRole.CONSUMER: PRODUCER_SETTINGS,
    KafkaRole.ADMIN: PRODUCER_SETTINGS | CONSUMER_SETTINGS,
}
_SYNONYMS = {
    "sasl.mechanisms": "sasl.mechanism",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
"""librdkafka's own aliases: one spelling is kept, so that two of them never contradict each other."""


def merge_signal_settings(families: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the settings of the consumer of signals, without ``bootstrap.servers``.

    Args:
        families: Translated settings by family prefix.
    """
    merged = merge_settings(families, KafkaRole.CONSUMER)
    overlay(merged, families.get(SIGNAL_CONSUMER_PREFIX, {}))
    return {k: v for k, v in merged.items() if k not in PRODUCER_SETTINGS}


def overlay(target: dict[str, str], settings: Mapping[str, str]) -> None:
    """Lay settings over others, under one spelling."""
    for name, value in settings.items():
        target[_SYNONYMS.get(name, name)] = value


def security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that say how to reach the cluster and who one is."""
    return {k: v for k, v in settings.items() if k.startswith(_SECURITY_PREFIXES)}
