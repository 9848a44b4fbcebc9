"""A Kafka broker of a test module's own with one listener for each way to connect: TLS, accounts, both or neither.

It has certificates that are in order, for another address, and expired; accounts of SCRAM and PLAIN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kit.tls_files import Authority

USER, PASSWORD = "cdc", "open-word"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "OTHERNAME": "SSL",
    "EXPIRED": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
}
"""Security protocol by listener; SSL alone asks clients for a certificate."""


@dataclass
class PrivateKafka:
    """Start and stop one broker.

    Args:
        folder: Folder of its data and certificates.
        ports: Port by listener, and of the controller.
    """

    folder: Path
    ports: Mapping[str, int]
    authority: Authority = field(init=False)
    stranger: Authority = field(init=False)

    def __post_init__(self) -> None:
        self.authority, self.stranger = Authority(self.folder, "ca"), Authority(self.folder, "stranger")
        self.servers = {
            "SSL": self.authority.issue("server"),
            "SASL_SSL": self.authority.issue("server-sasl"),
            "OTHERNAME": self.authority.issue("elsewhere", address="192.0.2.1"),
            "EXPIRED": self.authority.issue("expired", days=-1),
        }

    @classmethod
    def create(cls, folder: Path) -> PrivateKafka:
        """Choose free ports and write certificates."""
        from stacklib.ports import any_free

        ports: dict[str, int] = {}
        for name in (*_PROTOCOLS, "CONTROLLER"):
            ports[name] = any_free(frozenset(ports.values()))
        return cls(folder, ports)

    def _lines(self) -> dict[str, str]:
        addresses = {name: f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()}
        lines = {
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(text for name, text in addresses.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**_PROTOCOLS, "CONTROLLER": "PLAINTEXT"}.items()
            ),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.ssl.ssl.client.auth": "required",
            # Less than the package asks for by default, as where somebody else runs the brokers.
            "transaction.max.timeout.ms": "30000",
            # Until then the controller takes a broker that restarts for a second one with its id.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        for name, (_, _, both) in self.servers.items():
            prefix = f"listener.name.{name.lower()}.ssl."
            lines |= {f"{prefix}keystore.type": "PEM", f"{prefix}keystore.location": both}
        prefix = "listener.name.ssl.ssl.truststore."
        lines |= {f"{prefix}type": "PEM", f"{prefix}location": self.authority.certificate}
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}."
            lines[f"{prefix}plain.sasl.jaas.config"] = f'{_PLAIN} required user_{USER}="{PASSWORD}";'
            for number in ("256", "512"):
                lines[f"{prefix}scram-sha-{number}.sasl.jaas.config"] = f"{_SCRAM} required;"
        return lines

    def start(self) -> None:
        """Start it, and create the accounts of SCRAM."""
        from stacklib import java
        from stacklib import kafka as stack_kafka

        ports = self.ports["PLAINTEXT"], self.ports["CONTROLLER"]
        stack_kafka.start(java.find_java(), self.folder, *ports, more=self._lines())
        admin = AdminClient({"bootstrap.servers": self.address("PLAINTEXT")})
        # A request may name an account only once.
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            new = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([new])[USER].result(20)

    def stop(self) -> None:
        """End it at once."""
        from stacklib import kafka as stack_kafka
        from stacklib import processes

        processes.stop("kafka", stack_kafka.record(self.folder), seconds=0)

    def address(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"

    def settings(self, listener: str, **more: str) -> dict[str, str]:
        """Return client settings that a listener accepts.

        Args:
            listener: Its name.
            more: Settings that differ, with _ for each dot; an empty one is left out.
        """
        protocol = _PROTOCOLS[listener]
        settings = {"bootstrap.servers": self.address(listener), "security.protocol": protocol.lower()}
        if "SSL" in protocol:
            settings["ssl.ca.location"] = self.authority.certificate
        if protocol.startswith("SASL"):
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        settings |= {name.replace("_", "."): value for name, value in more.items()}
        return {name: value for name, value in settings.items() if value}
