"""Kafka Connect's REST interface: requests that only read, with a user and a password that nothing shows."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_TIMEOUT_S = 15.0
_NO_ANSWER = "Kafka Connect does not answer as its REST interface does"
_OTHER_WAYS = (
    "check its address; without one, give the offset by --offsets-topic or --offsets-file. GET "
    "/connectors/NAME/offsets needs Kafka Connect 3.6 or later"
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answer a redirect as an error: the password would go along to whatever address it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ConnectRest:
    """Ask one Kafka Connect.

    Args:
        url: Its address, without user and password.
        authorization: Value of the header that has them; empty for none.
    """

    url: str
    authorization: str = field(default="", repr=False)

    @classmethod
    def at(cls, address: str, user: str = "", password: str = "") -> ConnectRest:
        """Return the interface at an address.

        Args:
            address: As ``http://HOST:8083`` or ``https://USER:PASSWORD@HOST:8083``.
            user: The user, where the address has none.
            password: Its password.

        Raises:
            ConfigError: It is no address of this kind.
        """
        if (parts := _address(address)) is None:
            raise ConfigError(
                "this is not an address of Kafka Connect",
                where="--connect-url" if "@" in address else address,
                remedy="write it as http://HOST:8083; a user and a password before HOST as USER:PASSWORD@, with "
                "@ : / % in them as %40 %3A %2F %25",
            )
        account, _, host = parts.netloc.rpartition("@")
        if account:
            user, password = (urllib.parse.unquote(part) for part in account.partition(":")[::2])
        basic = base64.b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
        url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        return cls(url, basic and f"Basic {basic}")

    def connector(self, name: str, part: str) -> str:
        """Return the address of a part of a connector.

        Args:
            name: The connector's name.
            part: As ``offsets``.
        """
        return f"{self.url}/connectors/{urllib.parse.quote(name, safe='')}/{part}"

    def get(self, address: str) -> Any:
        """Return an answer; None where Kafka Connect does not know the connector.

        Args:
            address: Of this interface.

        Raises:
            ConfigError: Kafka Connect does not answer.
        """
        headers = {"Authorization": self.authorization} if self.authorization else {}
        request = urllib.request.Request(address, headers=headers)
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise _refused(address, error.code, error.read(500).decode("utf-8", "replace")) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ConfigError(
                _NO_ANSWER, where=address, why=str(error), remedy=_OTHER_WAYS, retriable=isinstance(error, OSError)
            ) from None


def _address(text: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(text.strip())
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_one and not parts.query and not parts.fragment else None


def _refused(where: str, code: int, why: str) -> ConfigError:
    remedies = {
        401: "check user and password",
        403: "allow the user to read connectors and their offsets",
        409: "Kafka Connect is distributing its tasks: run this again in a minute",
    }
    remedy = remedies.get(code, _OTHER_WAYS)
    return ConfigError(_NO_ANSWER, where=where, why=f"HTTP {code}: {why}", remedy=remedy, retriable=code == 409)
