"""Where a server is and how to log in, from which both of its clients are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from elastic_transport import NodeConfig
from elasticsearch import AsyncElasticsearch, Elasticsearch

DEFAULT_TIMEOUT_S: Final = 30.0
# A connection that the server has closed meanwhile is noticed when it is used.
_RETRIES: Final = 2


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster.

    Args:
        hosts: URLs of its nodes, or what a client that exists already has in their place.
        options: What the clients are told besides: credentials, certificates. Never shown.
        timeout_s: Seconds a request may take; the deadline of a query may leave it less.
    """

    hosts: tuple[str | NodeConfig, ...]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def of_client(cls, client: AsyncElasticsearch | Elasticsearch) -> Self:
        """The connection that a client has, for clients of our own."""
        hosts = tuple(node.config for node in client.transport.node_pool.all())
        # The client keeps the credentials it was given nowhere else.
        return cls(hosts, {"headers": dict(client._headers)})  # noqa: SLF001

    @property
    def where(self) -> str:
        """The hosts, for messages; never credentials."""
        names = [
            host if isinstance(host, str) else f"{host.scheme}://{host.host}:{host.port}"
            for host in self.hosts
        ]
        return ", ".join(names)

    def client(self) -> Elasticsearch:
        """A client for threads."""
        return Elasticsearch(list(self.hosts), **self._arguments())

    def async_client(self) -> AsyncElasticsearch:
        """A client for the event loop it is first used on."""
        return AsyncElasticsearch(list(self.hosts), **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {**self.options, "request_timeout": self.timeout_s, "max_retries": _RETRIES}
