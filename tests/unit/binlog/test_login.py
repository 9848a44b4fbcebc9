"""What the account's password meets on its way: a server without TLS, one that asks for it in clear, broken ones."""

from __future__ import annotations

import hashlib
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kit.cases import for_each
from kit.fake_mysql import OK, PLAIN, SSL, Client, answering, error, greeting, packet, serving, switch
from pymysql.connections import Connection

from airflow_provider_mysql_cdc.cdc.binlog import connect as connect_module
from airflow_provider_mysql_cdc.cdc.binlog import login
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, prepare_session
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    SourceAuthError,
    SourceConnectionError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

MARK = "gräßlich-geheim-łódź"
MODES = ["required", "verify_ca", "verify_identity"]
START = BinlogOffset("binlog.000001", 4)


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each conversation with the login, and begin the next one at once."""
    monkeypatch.setattr(connect_module, "prepare_session", lambda conn, where: "")
    monkeypatch.setattr(connect_module, "LOGIN_DELAYS_S", [0.0] * len(connect_module.LOGIN_DELAYS_S))


def settings(port: int, mode: str = "disabled", password: str = MARK) -> ConnectionSettings:
    return ConnectionSettings(
        "127.0.0.1", port, "cdc", Secret(password), ssl_mode=mode, connect_timeout_s=5, query_timeout_s=5
    )


def chain(found: BaseException) -> list[BaseException]:
    """Return an error with everything that hangs on it."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [found]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in seen:
            seen.append(one)
            waiting += [one.__cause__, one.__context__, getattr(one, "original_exception", None)]
    return seen


def shows(found: BaseException, secret: str) -> list[str]:
    """Return the places of an error in which a secret can be read; the test's own frame is none of them."""
    found = found.with_traceback(found.__traceback__ and found.__traceback__.tb_next)
    forms = {secret, ascii(secret)[1:-1], repr(secret.encode())[2:-1], repr(secret.encode("utf-16-le"))[2:-1]}
    places = {
        **{f"{type(e).__name__} str": str(e) for e in chain(found)},
        **{f"{type(e).__name__} repr": repr(e) for e in chain(found)},
        **{f"{type(e).__name__} args": repr(e.args) for e in chain(found)},
        **{f"{type(e).__name__} attributes": repr(vars(e)) for e in chain(found)},
        "traceback": "".join(traceback.format_exception(found)),
        "traceback with locals": "".join(
            traceback.TracebackException.from_exception(found, capture_locals=True).format()
        ),
    }
    return [place for place, text in places.items() if any(form in text for form in forms)]


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("FAULT-21", "STRM-36")
@for_each("mode", MODES)
@for_each("replication", [False, True], ids=["query", "replication"])
def test_a_server_without_tls_gets_nothing_when_encryption_is_demanded(mode: str, replication: bool) -> None:
    with serving(answering(OK, OK, OK)) as (port, client):
        with pytest.raises(SourceConnectionError, match="no encrypted connection") as caught:
            connect(settings(port, mode), replication=replication)
        assert not caught.value.can_retry
    assert not client.received


@pytest.mark.req("FAULT-21")
@pytest.mark.parametrize("mode", MODES)
def test_a_dump_is_not_opened_without_tls_when_encryption_is_demanded(mode: str) -> None:
    with serving(answering(OK, OK, OK)) as (port, client), pytest.raises(SourceConnectionError, match="encrypted"):
        open_stream(settings(port, mode), START, server_id=7)
    assert not client.received


@pytest.mark.req("STRM-36")
@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_the_other_modes_take_a_server_without_tls(mode: str) -> None:
    with serving(answering(OK, OK, OK)) as (port, client):
        connect(settings(port, mode)).close()
    assert b"cdc" in client.received


@pytest.mark.req("FAULT-21")
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_leaves_the_connection_plain_is_found_out(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login.SecureConnection, "_get_server_information", Connection._get_server_information)
    careful = Connection._request_authentication

    def careless(self: Connection) -> None:  # as pymysql before 1.2
        self.ssl = False
        careful(self)

    monkeypatch.setattr(Connection, "_request_authentication", careless)
    with (
        serving(answering(OK, OK, OK)) as (port, _),
        pytest.raises(SourceConnectionError, match="no encrypted connection"),
    ):
        connect(settings(port, mode))


# -- the password -----------------------------------------------------------------------------------------------------


def native(password: bytes, salt: bytes) -> bytes:
    first = hashlib.sha1(password).digest()
    second = hashlib.sha1(salt + hashlib.sha1(first).digest()).digest()
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


@for_each("password", ["äöü", "łódź", "пароль", "密码", "🔑", "broken\udcff"])
def test_a_password_goes_over_the_wire_as_utf8(password: str) -> None:
    expected = native(password.encode("utf-8", "surrogateescape"), b"0123456789abcdefghij")
    with serving(answering(OK, OK, OK)) as (port, client):
        connect(settings(port, password=password)).close()
    assert expected in client.received


@for_each("plugin", [b"mysql_clear_password", b"dialog"])
@for_each("mode", ["disabled", "preferred"])
def test_a_password_is_not_sent_in_clear_over_a_plain_connection(plugin: bytes, mode: str) -> None:
    with (
        serving(answering(switch(plugin, b"\x04Password: "), OK, OK, OK)) as (port, client),
        pytest.raises(SourceAuthError, match="in clear"),
    ):
        connect(settings(port, mode))
    assert MARK.encode() not in client.received


# -- broken servers ---------------------------------------------------------------------------------------------------


def answering_out_of_turn(client: Client) -> None:
    client.send(greeting())
    client.receive()
    client.sequence = 77
    client.send(OK)


def sha2_then_denied(client: Client) -> None:
    answering(b"\x01\x03", first=SHA2)(client)
    client.sequence += 1
    client.send(error(1045, b"Access denied"))


SHA2 = greeting(plugin=b"caching_sha2_password")
PEM = b"\x01-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
SERVERS: dict[str, Callable[[Client], None]] = {
    "closes": lambda client: client.sock.close(),
    "not mysql": lambda client: client.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "short greeting": answering(first=b"\x0a9.9"),
    "greeting without salt": answering(first=greeting()[:12]),
    "greeting of another protocol": answering(first=b"\x09" + greeting()[1:]),
    "version without numbers": answering(OK, OK, first=greeting(version=b"abc")),
    "version that is no text": answering(OK, OK, first=greeting(version=b"\xff\xfe")),
    "plugin that is no text": answering(OK, OK, first=greeting(plugin=b"\xff\xfe")),
    "empty greeting": answering(first=b""),
    "full": answering(first=error(1040, b"Too many connections")),
    "blocked": answering(first=error(1129, b"Host is blocked")),
    "error without text": answering(first=b"\xff"),
    "denied": answering(error(1045, b"Access denied for user 'cdc'@'localhost' (using password: YES)")),
    "denied in another charset": answering(error(1045, "отказано".encode("cp1251"))),
    "error number 0": answering(error(0, b"?")),
    "locked": answering(error(3118, b"Access denied. Account is locked.")),
    "sequence": answering_out_of_turn,
    "cut packet": lambda client: client.sock.sendall(packet(greeting(), 0)[:20]),
    "empty answer": answering(b""),
    "unexpected answer": answering(b"\x55\x55"),
    "unknown plugin": answering(switch(b"authentication_of_mars")),
    "plugin without name": answering(b"\xfe"),
    "plugin name in other bytes": answering(switch(b"\xff\xfe")),
    "old password": answering(switch(b"mysql_old_password")),
    "ed25519": answering(switch(b"client_ed25519")),
    "clear text": answering(switch(b"mysql_clear_password")),
    "dialog": answering(switch(b"dialog", b"\x04Password: ")),
    "dialog, other prompt": answering(switch(b"dialog", b"\x04PIN: ")),
    "switch twice": answering(switch(b"mysql_native_password"), switch(b"mysql_native_password")),
    "switch without salt": answering(switch(b"caching_sha2_password", b""), b"\x01\x04", PEM),
    "sha2, no key": answering(b"\x01\x04", b"\x55", first=SHA2),
    "sha2, broken key": answering(b"\x01\x04", PEM, first=SHA2),
    "sha2, unknown": answering(b"\x01\x09", first=SHA2),
    "sha2, nothing": answering(b"\x01", first=SHA2),
    "sha2, then denied": sha2_then_denied,
    "sha256, broken key": answering(PEM, first=greeting(plugin=b"sha256_password")),
    "broken TLS": answering(b"no TLS", first=greeting(capabilities=PLAIN | SSL)),
}


@pytest.mark.req("FAULT-03")
@for_each(("server", "mode"), [*((server, "disabled") for server in SERVERS), ("broken TLS", "preferred")])
def test_every_failure_has_a_name_and_shows_no_password(server: str, mode: str) -> None:
    with serving(SERVERS[server]) as (port, client), pytest.raises(CdcError) as caught:
        connect(settings(port, mode))
    assert shows(caught.value, MARK) == []
    assert MARK.encode() not in client.received


@for_each(
    "changed",
    [
        {"host": "no.such.host.invalid"},
        {"host": "a" * 70 + ".invalid"},
        {"host": "a..b"},
        {"host": "nul\0byte"},
        {"user": "half\ud800"},
        {"password": Secret("half\ud800" + MARK)},
        {"driver_options": (("foobar", 1),)},
        {"driver_options": (("read_timeout", -1),)},
        {"driver_options": (("unix_socket", "/nowhere/mysql.sock"),)},
        {"ssl_mode": "required", "ssl_ca": "/nowhere/ca.pem"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_show_no_password(changed: dict[str, object]) -> None:
    fields = {"host": "127.0.0.1", "port": 1, "user": "cdc", "password": Secret(MARK), "connect_timeout_s": 5.0}
    with pytest.raises(CdcError) as caught:
        connect(ConnectionSettings(**{**fields, **changed}))  # type: ignore[arg-type]
    assert shows(caught.value, MARK) == []


@pytest.mark.parametrize("answers", [(), (error(1115, b"Unknown character set"),)], ids=["closes", "charset"])
def test_a_failure_of_the_first_statement_has_a_name_too(
    answers: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_module, "prepare_session", prepare_session)
    with serving(answering(OK, *answers)) as (port, client), pytest.raises(CdcError) as caught:
        connect(settings(port))
    assert shows(caught.value, MARK) == [] and b"SET NAMES utf8mb4" in client.received


KEY_MARK = "key-word-łódź"


@pytest.fixture(scope="module")
def encrypted_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"another-word"),
    )
    file = tmp_path_factory.mktemp("key") / "client.pem"
    file.write_bytes(key)
    return file


@pytest.mark.parametrize("password", [None, "", "wrong", KEY_MARK, "long" * 300])
def test_an_encrypted_client_key_is_never_asked_for_on_the_terminal(password: str | None, encrypted_key: Path) -> None:
    given = ConnectionSettings(
        "127.0.0.1",
        1,
        "cdc",
        Secret(MARK),
        ssl_mode="required",
        ssl_cert=str(encrypted_key),
        ssl_key=str(encrypted_key),
        ssl_key_password=None if password is None else Secret(password),
    )
    with pytest.raises(ConfigError, match="certificate or key") as caught:
        connect(given)
    assert shows(caught.value, MARK) == []
    assert not password or len(password) < 10 or shows(caught.value, password) == []


@pytest.mark.req("FAULT-06", "STRM-34")
@pytest.mark.parametrize("replication", [False, True])
def test_a_server_that_accepts_and_says_nothing_is_left_in_time(replication: bool) -> None:
    left = threading.Event()
    with serving(lambda client: [left.wait(20)].clear()) as (port, _):
        limits = replace(settings(port), connect_timeout_s=15, silence_timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(SourceConnectionError):
            connect(limits, replication=replication)
        assert time.monotonic() - began < 10
        left.set()


@pytest.mark.req("FAULT-06")
def test_the_whole_login_has_the_time_of_one_connection() -> None:
    """A server that answers each packet just in time would otherwise hold a job for the limit times its packets."""
    left = threading.Event()

    def talk(client: Client) -> None:
        for payload in (greeting(), switch(b"mysql_native_password", b"0123456789abcdefghij\0"), OK):
            left.wait(0.7)
            client.send(payload)
            client.receive()

    with serving(talk) as (port, _):
        limits = replace(settings(port), connect_timeout_s=15, silence_timeout_s=1)
        with pytest.raises(SourceConnectionError):
            connect(limits)
        left.set()


@pytest.mark.req("SETUP-34")
def test_mariadb_is_named_and_gets_no_account() -> None:
    hello = greeting(version=b"5.5.5-10.11.19-MariaDB-0+deb12u1-log")
    with serving(answering(OK, first=hello)) as (port, client):
        with pytest.raises(SourceSettingError, match="the server is MariaDB") as caught:
            connect(settings(port))
        assert not client.received
    assert caught.value.where == f"127.0.0.1:{port}" and "10.11.19" in caught.value.why and not caught.value.retriable
