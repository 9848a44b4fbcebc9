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
    authority = Authority(folder, "ca")
    _, _, server = authority.issue("server")
    client, client_key, _ = authority.issue("client", password=KEY_PASSWORD)
    return Files(authority.certificate, server, client, client_key)


class Authority:
    """Sign certificates.

    Args:
        folder: Where the files are written.
        name: The authority's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name, self._key = folder, name, ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._write(f"{name}.pem", _certificate(name, self._key, name, self._key, "127.0.0.1", 1))

    def issue(
        self, name: str, *, address: str = "127.0.0.1", days: int = 1, password: str = ""
    ) -> tuple[str, str, str]:
        """Write a certificate, its key, and both in one file; return the three paths.

        Args:
            name: Its subject, and the beginning of the files' names.
            address: The IP address that it is for.
            days: Days until it expires; -1 for one that expired yesterday.
            password: Password of the key; in the file with both it has none.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        text = _certificate(name, key, self._name, self._key, address, days)
        return (
            self._write(f"{name}.crt", text),
            self._write(f"{name}.key", _pem(key, password.encode())),
            self._write(f"{name}-both.pem", _pem(key) + text),
        )

    def _write(self, name: str, content: bytes) -> str:
        (self._folder / name).write_bytes(content)
        return str(self._folder / name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    address: str,
    days: int,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=subject == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
    )
    return built.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
