"""`Neo4jConnection`: statements over a Neo4j server's driver, for threads and event loops."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import neo4j
from neo4j.exceptions import AuthError, ConstraintError, DriverError, Neo4jError, ServiceUnavailable

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DeadlineExceededError,
    DuplicateNodeError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.cypher import Rows
from llama_retrieval_ext.stores.engine.connection import AsyncClient
from llama_retrieval_ext.urls import bracketed, seconds, secret

T = TypeVar("T")
Send: TypeAlias = Callable[[neo4j.AsyncDriver], Coroutine[Any, Any, T]]
Statement: TypeAlias = tuple[str, Mapping[str, object]]
"""Cypher and its parameters."""

DEFAULT_TIMEOUT_S: Final = 30.0
# Errors because of another transaction: it has deleted a matched row, created the same index, or
# waits for the same rows, for longer than the driver tries again.
_OVERTAKEN: Final = (
    "Neo.ClientError.Statement.EntityNotFound",
    "Neo.ClientError.Schema.EquivalentSchemaRuleAlreadyExists",
    "Neo.TransientError.Transaction.DeadlockDetected",
)
_SCHEMES: Final = {"neo4j": "neo4j", "neo4js": "neo4j+s", "bolt": "bolt", "bolts": "bolt+s"}
_OPTIONS: Final = ("user_env", "password_env", "timeout_s")
_ADVICE: Final = (
    "write neo4j://host:7687/database?user_env=NAME&password_env=NAME, neo4js:// for TLS, or "
    "bolt:// for one server; the database may be left out"
)


@dataclass(frozen=True)
class Neo4jAddress:
    """Address of a database, and the environment variables with its credentials."""

    uri: str
    database: str | None = None
    user_env: str | None = None
    password_env: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def parse(cls, url: str) -> "Neo4jAddress":
        """Parse a URL and return the address.

        Raises:
            ConfigurationError: The URL is invalid or contains credentials; these are not repeated.

        Examples:
            >>> Neo4jAddress.parse("neo4js://db.example.com/safety").uri
            'neo4j+s://db.example.com:7687'

        """
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or "@" in parts.netloc:
            raise ConfigurationError(
                "a URL is shown in messages and kept in files, so it must not hold credentials; "
                "put them into environment variables and write ?user_env=NAME&password_env=NAME"
            )
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigurationError(f"got a URL without a host; {_ADVICE}")
        try:
            port = parts.port or 7687
        except ValueError as error:
            raise ConfigurationError(
                f"the URL's port is no number up to 65535; {_ADVICE}"
            ) from error
        options = _options(parts.query)
        limit = seconds(options["timeout_s"]) if "timeout_s" in options else DEFAULT_TIMEOUT_S
        uri = f"{_SCHEMES[parts.scheme]}://{bracketed(parts.hostname)}:{port}"
        names = (options.get("user_env"), options.get("password_env"))
        return cls(uri, parts.path.strip("/") or None, *names, limit)

    def auth(self) -> tuple[str, str] | None:
        """Read the credentials from the environment and return them; no object stores them."""
        if self.user_env is None and self.password_env is None:
            return None
        return secret(self.user_env or ""), secret(self.password_env or "")


@dataclass
class Neo4jConnection:
    """Connection that runs each statement in one transaction with a time limit.

    All statements go through one async driver on a loop of its own, those of threads as well: only
    there a statement can be cancelled when its time is over, with its connection. ``where`` names
    the server in messages.
    """

    driver: Callable[[], neo4j.AsyncDriver]
    where: str
    database: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    _client: AsyncClient[neo4j.AsyncDriver] = field(init=False)

    def __post_init__(self) -> None:
        closed = f"the graph at {self.where} was closed; open it again"
        self._client = AsyncClient(self.driver, lambda: StoreClosedError(closed))

    @classmethod
    def open(cls, address: Neo4jAddress) -> "Neo4jConnection":
        """Return a connection to an address; nothing is sent yet."""
        # Out-of-memory errors count as transient; the driver would retry for half a minute. Its
        # last wait is not bounded, so the limit leaves room for one.
        options: dict[str, Any] = {
            "auth": address.auth(),
            "connection_timeout": min(5.0, address.timeout_s),
            "connection_acquisition_timeout": min(10.0, address.timeout_s),
            "initial_retry_delay": 0.1,
            "max_transaction_retry_time": min(2.0, address.timeout_s / 4),
            "notifications_min_severity": "OFF",
        }
        return cls(
            lambda: neo4j.AsyncGraphDatabase.driver(address.uri, **options),
            address.uri,
            address.database,
            address.timeout_s,
        )

    def read(self, statement: str, parameters: Mapping[str, object]) -> Call[Rows]:
        """Run a read-only statement; the server refuses a statement that writes."""
        # Safe: identifiers in the statement are checked, and values are parameters.
        text, values = with_lists_in_a_map(statement, parameters)
        query = neo4j.Query(text, timeout=self.timeout_s)  # pyright: ignore[reportArgumentType]
        kind = neo4j.RoutingControl.READ

        async def send(driver: neo4j.AsyncDriver) -> Rows:
            result = await driver.execute_query(
                query, values, routing_=kind, database_=self.database
            )
            return [record.data() for record in result.records]

        return self._call(send)

    def write(
        self,
        statement: str,
        parameters: Mapping[str, object],
        then: Callable[[Rows], Statement | None] = lambda _: None,
    ) -> Call[None]:
        """Run a statement, and the one that ``then`` returns for its rows, in one transaction."""

        @neo4j.unit_of_work(timeout=self.timeout_s)
        async def work(transaction: neo4j.AsyncManagedTransaction) -> None:
            current: Statement | None = (statement, parameters)
            while current is not None:
                text, values = with_lists_in_a_map(*current)
                result = await transaction.run(text, values)  # pyright: ignore[reportArgumentType]
                current = then(await result.data())

        async def send(driver: neo4j.AsyncDriver) -> None:
            bookmarks = driver.execute_query_bookmark_manager
            async with driver.session(
                database=self.database, bookmark_manager=bookmarks
            ) as session:
                while True:  # until the time of the call is over
                    try:
                        return await session.execute_write(work)
                    except Neo4jError as error:
                        if error.code not in _OVERTAKEN:
                            raise

        return self._call(send)

    def close(self) -> None:
        """Close the driver; a second call does nothing."""
        self._client.close()

    def _call(self, send: Send[T]) -> Call[T]:
        return Call(
            lambda: self._client.run_blocking(self._in_time(send)),
            lambda: self._client.run(self._in_time(send)),
        )

    def _in_time(self, send: Send[T]) -> Send[T]:
        """Return the function with the limit of the connection, and of the query in progress.

        The server's own limit does not help if the connection is silent.
        """
        left_s = current_context().remaining_s()
        limit_s = self.timeout_s if left_s is None else min(left_s, self.timeout_s)

        async def limited(driver: neo4j.AsyncDriver) -> T:
            limit = asyncio.timeout(limit_s)
            try:
                async with limit:
                    with self._errors():
                        return await send(driver)
            except (TimeoutError, StoreUnavailableError) as error:
                if not limit.expired():
                    raise
                if limit_s < self.timeout_s:
                    raise DeadlineExceededError("the time of the query ran out") from error
                raise self._late_error() from error

        return limited

    def _late_error(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self.where} did not answer within {self.timeout_s:g} s; raise timeout_s"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the driver's errors."""
        try:
            yield
        except AuthError as error:
            raise StoreUnavailableError(
                f"{self.where} refuses the credentials; name them in the URL: {_ADVICE}"
            ) from error
        except (ServiceUnavailable, TimeoutError) as error:
            raise StoreUnavailableError(f"{self.where} cannot be reached: {error}") from error
        except ConstraintError as error:
            raise DuplicateNodeError(
                f"{self.where} has a uniqueness constraint that the rows violate: {error.message}",
                "",
            ) from error
        except Neo4jError as error:
            if "TransactionTimedOut" in (error.code or ""):
                raise self._late_error() from error
            raise StoreError(f"{self.where} refuses the request: {error.message}") from error
        except DriverError as error:
            raise StoreUnavailableError(f"the driver of {self.where} failed: {error}") from error


def with_lists_in_a_map(
    statement: str, parameters: Mapping[str, object]
) -> tuple[str, dict[str, Any]]:
    """Return a statement and its parameters, with the lists as values of one map.

    Neo4j plans a statement again for each order of magnitude of the length of a parameter that is a
    list, and for each combination of them: a second each for the statement that writes.

    Examples:
        >>> with_lists_in_a_map("UNWIND $ids AS id MATCH (n {id: id, k: $k})", {"ids": [], "k": 1})
        ('UNWIND $lists.ids AS id MATCH (n {id: id, k: $k})', {'k': 1, 'lists': {'ids': []}})

    """
    lists = {name: value for name, value in parameters.items() if isinstance(value, list)}
    if not lists:
        return statement, dict(parameters)
    text = re.sub(rf"\$({'|'.join(lists)})\b", r"$lists.\1", statement)
    others = {name: value for name, value in parameters.items() if name not in lists}
    return text, {**others, "lists": lists}


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options).difference(_OPTIONS))
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}; it may have {', '.join(_OPTIONS)}"
        )
    return options
