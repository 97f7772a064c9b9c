"""`MirroredLedger`: the ledger of a knowledge base on a server."""

from llama_retrieval_ext.ingest.companion.mirror import Mirror
from llama_retrieval_ext.ingest.ledger import Ledger
from llama_retrieval_ext.ingest.manifest import Manifest


class MirroredLedger(Ledger):
    """A ledger whose lasting place is beside the store, where every machine finds it.

    Args:
        mirror: Its tables.
    """

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(mirror)
        self._mirror = mirror
        self._admitted: tuple[Manifest, str] | None = None

    def admit(self, asked: Manifest, where: str) -> bool:
        """Let in who opens the knowledge base; False if it is not set up yet.

        Raises:
            StoreFormatError: It was written by a newer version.
            ModelMismatchError: It was made with another embedding model.
            ConfigurationError: It was made with other settings.
        """
        self._admitted = asked, where
        return super().admit(asked, where)

    def refresh(self) -> None:
        """See what others have written.

        Raises:
            StoreUnavailableError: The server does not answer.
            ModelMismatchError: Since it was opened, somebody has set it up with another model.
            ConfigurationError: Likewise, with other settings.
        """
        self._mirror.refresh()
        recorded = self.manifest()
        if recorded is not None and self._admitted is not None:
            recorded.opened(*self._admitted)

    def at_rest(self) -> int | None:
        """How many nodes the store must hold; None while something is being written."""
        return self._mirror.at_rest()

    def is_current(self) -> bool:
        """Whether nobody has written since it was last read."""
        return self._mirror.is_current()
