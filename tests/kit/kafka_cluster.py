"""Three Kafka nodes on loopback, each broker and controller, and what befalls them: killed, frozen, elected uncleanly.

A second listener of each node is behind a proxy that can lose the reply to a request; who bootstraps there gets the
addresses of all three proxies.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from stacklib import java, kafka, processes
from stacklib.ports import any_free

NODES = (1, 2, 3)
END_TXN = 26
"""Number of the request that ends a transaction (Kafka protocol, "Api Keys")."""
_JVM = ("-Xmx224m", "-Xmn96m")
_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}
_WAIT_S = 120.0
_CONTROLLER = re.compile(r"^(\S+) .*-heartbeat-channel-manager\]: Recorded new .* \(id: (\d+) ", re.MULTILINE)
"""What a node logs as soon as it knows another active controller: when, and which."""


class LossyProxy:
    """Forward Kafka's requests to one broker, and lose replies when told to.

    Args:
        port: The broker's port.

    Attributes:
        lost: Replies lost so far; the connection breaks with each, as the client knows no other end of it.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._armed: int | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self, api_key: int | None) -> None:
        """Lose the reply to the next request of a kind, which the broker gets; None loses none."""
        self._armed = api_key

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    near.close()
                    continue
                awaited: set[int] = set()
                for source, target, passes in (
                    (near, far, lambda body, of=awaited: self._passes_request(body, of)),
                    (far, near, lambda body, of=awaited: self._passes_reply(body, of)),
                ):
                    threading.Thread(target=_forward, args=(source, target, passes), daemon=True).start()

    def _passes_request(self, body: bytes, awaited: set[int]) -> bool:
        api_key, _, correlation = struct.unpack(">hhi", body[:8])
        if api_key == self._armed:
            self._armed = None
            awaited.add(correlation)
        return True

    def _passes_reply(self, body: bytes, awaited: set[int]) -> bool:
        is_lost = struct.unpack(">i", body[:4])[0] in awaited
        self.lost += is_lost
        return not is_lost


def _forward(source: socket.socket, target: socket.socket, passes: Callable[[bytes], bool]) -> None:
    with suppress(OSError, EOFError):
        reader = source.makefile("rb")
        while head := reader.read(4):
            body = reader.read(struct.unpack(">i", head)[0])
            if not passes(body):
                break
            target.sendall(head + body)
    for sock in (source, target):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class KafkaCluster:
    """Start, end and ask three nodes.

    Args:
        folder: Folder of their data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._id = folder, kafka.kafka_uuid()
        taken: set[int] = set()
        self._ports: dict[tuple[str, int], int] = {}
        for key in ((name, node) for name in ("PLAINTEXT", "BEHIND", "CONTROLLER") for node in NODES):
            self._ports[key] = any_free(frozenset(taken))
            taken.add(self._ports[key])
        self.proxies = {node: LossyProxy(self._ports["BEHIND", node]) for node in NODES}
        self.addresses = self._addresses("PLAINTEXT")
        self.lossy_addresses = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())
        self.admin = AdminClient({"bootstrap.servers": self.addresses, "log_level": 0})

    def _addresses(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self._ports[listener, node]}" for node in NODES)

    def _home(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    def start(self, *nodes: int) -> None:
        """Start nodes at once, and wait until they answer: a node alone would wait for a second controller."""
        errors: list[BaseException] = []

        def run(node: int) -> None:
            listeners = {name: f"{name}://127.0.0.1:{self._ports[name, node]}" for name, n in self._ports if n == node}
            advertised = [listeners["PLAINTEXT"], f"BEHIND://127.0.0.1:{self.proxies[node].port}"]
            more = {
                "node.id": str(node),
                "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._ports['CONTROLLER', n]}" for n in NODES),
                "listeners": ",".join(listeners.values()),
                "advertised.listeners": ",".join(advertised),
                "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
                **_SETTINGS,
            }
            ports = self._ports["PLAINTEXT", node], self._ports["CONTROLLER", node]
            try:
                kafka.start(java.find_java(), self._home(node), *ports, _JVM, more, self._id)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(node,)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def kill(self, node: int) -> None:
        """End a node with kill -9."""
        assert processes.stop("kafka", kafka.record(self._home(node)), seconds=0)

    def stop(self, node: int) -> None:
        """Stop a node, which hands over what it leads."""
        assert processes.stop("kafka", kafka.record(self._home(node)))

    def freeze(self, node: int) -> None:
        """Suspend a node; its connections stay open."""
        self._signal(node, signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        """Let a suspended node go on."""
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: signal.Signals) -> None:
        identity = processes.load(kafka.record(self._home(node)))
        assert identity is not None and processes.alive(identity)
        os.kill(identity.pid, number)

    def heal(self) -> None:
        """Start what does not run, and wait until each partition has all its replicas."""
        self.start(*(node for node in NODES if not kafka.running(self._home(node))))
        for proxy in self.proxies.values():
            proxy.lose_next(None)
        self.wait(lambda: all(len(p.isrs) == len(p.replicas) for p in self._partitions()))

    def discard(self) -> None:
        """End everything at once."""
        for node in NODES:
            if kafka.running(self._home(node)):
                self.kill(node)
            self.proxies[node].close()

    def wait(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + _WAIT_S
        while True:
            with suppress(KafkaException):
                if holds():
                    return
            assert time.monotonic() < deadline, "the cluster does not get there"
            time.sleep(0.1)

    def _partitions(self) -> Iterator[Any]:
        metadata = self.admin.list_topics(timeout=5)
        assert len(metadata.brokers) <= len(NODES)
        for topic in metadata.topics.values():
            yield from topic.partitions.values()

    def topics(self, name: str) -> list[str]:
        """Return the topics with a name in theirs."""
        return [topic for topic in self.admin.list_topics(timeout=10).topics if name in topic]

    def partition(self, topic: str, number: int = 0) -> Any:
        """Return what a client knows of a partition: leader, replicas, isrs."""
        found: list[Any] = []

        def look() -> bool:
            partition = self.admin.list_topics(topic, timeout=5).topics[topic].partitions.get(number)
            found[:] = [] if partition is None else [partition]
            return partition is not None

        self.wait(look)
        return found[0]

    def leader(self, topic: str, number: int = 0) -> int:
        """Return the node that leads a partition, once one does."""
        self.wait(lambda: self.partition(topic, number).leader in NODES)
        return int(self.partition(topic, number).leader)

    def coordinator(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of an id (TransactionStateManager.partitionFor)."""
        hashed = 0
        for character in transactional_id:
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        hashed = abs(hashed - (1 << 32) if hashed >> 31 else hashed)
        topic = "__transaction_state"
        self.wait(lambda: self.admin.list_topics(topic, timeout=5).topics[topic].partitions)
        return self.leader(topic, hashed % len(self.admin.list_topics(topic, timeout=5).topics[topic].partitions))

    def controller(self) -> int:
        """Return the active controller: brokers name any node to clients, so their logs are asked."""
        logs = ((self._home(node) / "kafka.log").read_text(encoding="utf-8", errors="replace") for node in NODES)
        return int(max(found for log in logs for found in _CONTROLLER.findall(log))[1])

    def elect(self, topic: str, number: int = 0, *, unclean: bool = False) -> None:
        """Elect the preferred leader of a partition; or any living replica, whatever it lacks."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

        def elected() -> bool:
            answer = self.admin.elect_leaders(kind, [TopicPartition(topic, number)]).result(60)
            (error,) = answer.values()
            return error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED

        self.wait(elected)

    def lose_end(self, topic: str, lagging: int) -> None:
        """Make a node that is down the leader of a topic of two replicas, without what the other one has got since.

        Args:
            topic: A topic of one partition.
            lagging: The node.
        """
        (other,) = set(self.partition(topic).replicas) - {lagging}
        assert self.partition(topic).isrs == [other], "the other one alone has the end"
        self.kill(other)
        self.start(lagging)
        self.wait(lambda: self.partition(topic).leader != other)
        self.elect(topic, unclean=True)
        assert self.leader(topic) == lagging
        self.heal()


@contextmanager
def kafka_cluster(folder: Path) -> Iterator[KafkaCluster]:
    """Yield three running nodes; they end with the block."""
    cluster = KafkaCluster(folder)
    try:
        cluster.start(*NODES)
        yield cluster
    finally:
        cluster.discard()
