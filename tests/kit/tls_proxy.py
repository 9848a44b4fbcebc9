"""A proxy with TLS in front of a server of HTTP/2, and a certificate that only its own root signs."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class TlsProxy:
    """A running proxy.

    Args:
        port: Its port on loopback.
        certificate: File with its certificate, which signs itself.
    """

    port: int
    certificate: Path


@contextmanager
def tls_proxy(target_port: int, folder: Path) -> Iterator[TlsProxy]:
    """Run a proxy that ends TLS and passes on what is inside.

    Args:
        target_port: Port on loopback that takes the connections.
        folder: For certificate and key.
    """
    certificate = _certificate(folder)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "key.pem")
    context.set_alpn_protocols(["h2"])

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(lambda r, w: _pass_on(r, w, target_port), "127.0.0.1", 0, ssl=context)

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result(30)
    try:
        yield TlsProxy(server.sockets[0].getsockname()[1], certificate)
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(signed.public_bytes(pem))
    return folder / "certificate.pem"
