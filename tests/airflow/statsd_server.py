"""A StatsD server on loopback."""

from __future__ import annotations

import socket
import threading


class StatsdServer:
    """Keep the last value of each metric that comes."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.values: dict[str, str] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def settings(self) -> dict[str, str]:
        """Return the environment variables that make Airflow send its metrics here."""
        values = {"ON": "True", "HOST": "127.0.0.1", "PORT": str(self._socket.getsockname()[1]), "PREFIX": "airflow"}
        return {f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in values.items()}

    def stop(self) -> None:
        """Receive no more."""
        self._socket.close()

    def _receive(self) -> None:
        try:
            while True:
                for line in self._socket.recv(65_535).decode().splitlines():
                    name, _, value = line.partition(":")
                    self.values[name] = value
        except OSError:  # closed
            return
