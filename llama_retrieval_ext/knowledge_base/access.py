"""`Access`: the checks of each operation, and what the names of documents mean."""

from pathlib import Path

from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError, StoreClosedError
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.scope import Scope, check_principals, check_scope, isolates
from llama_retrieval_ext.text.normalization import composed
from llama_retrieval_ext.wording import path_tails


class Access:
    """The checks at the start of each operation, shared by the parts of a knowledge base."""

    def __init__(
        self, url: str, *, require_scope: bool, require_principals: bool, is_copy: bool
    ) -> None:
        self.url = url
        self.require_scope = require_scope
        self.require_principals = require_principals
        self.is_copy = is_copy
        self.is_closed = False

    def check_open(self) -> None:
        """Raise if the knowledge base was closed."""
        if self.is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")

    def check(self, scope: Scope | None, *, to_write: bool = False) -> None:
        """Raise if it was closed, or if a required scope or its principals are missing."""
        self.check_open()
        if scope is not None:
            check_scope(scope)
        if self.require_scope and not isolates(scope):
            raise ScopeRequiredError(f"{self.url} requires a scope; pass scope=Scope(...)")
        if self.require_principals and not to_write:
            check_principals(scope, self.url)

    def check_writable(self) -> None:
        """Raise if it was opened with ``read_only=True``."""
        if self.is_copy:
            raise ConfigurationError(
                "this knowledge base was opened to read only; open it without read_only to write"
            )


def documents_named(ledger: Ledger, name: str, scope: Scope | None) -> list[Entry]:
    """Return the documents of a source or id, or of the one source whose path ends with the name.

    So names as views print them are names that every call takes.

    Raises:
        ConfigurationError: The name is empty, or the end of several paths.
    """
    if entries := ledger.find(name, scope):
        return entries
    tail = composed(Path(name.replace("\\", "/")).as_posix())
    # Without a scope, a name means documents in no scope.
    sources = (s.source for s in ledger.sources(scope) if scope is not None or s.scope is None)
    named = sorted({source for source in sources if tail in path_tails(composed(source))})
    if len(named) > 1:
        listed = ", ".join(map(repr, named))
        raise ConfigurationError(f"{name!r} names {len(named)} files; write one of {listed}")
    return ledger.find(named[0], scope) if named else []
