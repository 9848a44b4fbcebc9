"""Certificates for a server on loopback and for its client, signed by an authority that nobody else trusts."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "open sesame"


@dataclass(frozen=True)
class Files:
    """Where certificates and keys lie.

    Args:
        ca: The authority's certificate.
        server: The server's certificate and key.
        client: The client's certificate.
        client_key: Its key, under ``KEY_PASSWORD``.
    """

    ca: str
    server: str
    client: str
    client_key: str

    def context(self, *, clients: bool) -> ssl.SSLContext:
        """Return the server's side of TLS.

        Args:
            clients: Whether clients have to show a certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        context.load_verify_locations(self.ca)
        context.verify_mode = ssl.CERT_REQUIRED if clients else ssl.CERT_NONE
        return context


def make_files(folder: Path) -> Files:
    """Write the files into a folder."""
    ca, server, client = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    (folder / "ca.pem").write_bytes(_certificate("ca", ca, "ca", ca))
    (folder / "server.pem").write_bytes(_certificate("server", server, "ca", ca) + _pem(server))
    (folder / "client.pem").write_bytes(_certificate("client", client, "ca", ca))
    (folder / "client.key").write_bytes(_pem(client, KEY_PASSWORD.encode()))
    return Files(*(str(folder / n) for n in ("ca.pem", "server.pem", "client.pem", "client.key")))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=subject == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    )
    return built.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
