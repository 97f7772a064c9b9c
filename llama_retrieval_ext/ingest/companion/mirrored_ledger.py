"""`MirroredLedger`: the ledger of a knowledge base on a server."""

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.ingest.companion.mirror import Mirror
from llama_retrieval_ext.ingest.ledger import Ledger, strangers

_LOOK_AGAIN_S: Final = 0.1
_TOLD_AFTER_S: Final = 2.0
_logger = logging.getLogger(__name__)


class MirroredLedger(Ledger):
    """A ledger whose lasting place is beside the store, where every machine finds it.

    Args:
        mirror: Its tables.
        held: How many nodes the store holds.
        patience_s: After so long without a sign of it another writer counts as dead. It gives one
            before and after each batch.
    """

    def __init__(self, mirror: Mirror, *, held: Callable[[], int], patience_s: float = 0.0) -> None:
        super().__init__(mirror)
        self._mirror = mirror
        self._held = held
        self._patience_s = patience_s

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

    def refresh_to_write(self) -> None:
        """See what others have written, once none is writing, or who was is dead.

        Raises:
            StoreUnavailableError: The server does not answer.
            StoreClosedError: Since it was opened, somebody has removed it.
            ModelMismatchError: Likewise, somebody has set it up with another model.
            ConfigurationError: Likewise, with other settings.
        """
        seen, since = "", 0.0
        is_told = False
        while True:
            self.refresh()
            self._check_there()
            motion = self._mirror.another_s_motion()
            if motion != seen:
                seen, since = motion, monotonic()
            if not motion or monotonic() - since >= self._patience_s:
                self._mirror.claim()
                return
            if not is_told and monotonic() - since > _TOLD_AFTER_S:
                _logger.warning(
                    "another process is writing to this knowledge base, or died while it was: "
                    "waiting, for %g seconds without a sign of it",
                    self._patience_s,
                )
                is_told = True
            sleep(_LOOK_AGAIN_S)

    def check_unwritten(self, where: str) -> None:
        """Nothing, unless somebody is writing; who began to, and gives no sign, is dead.

        Args:
            where: The knowledge base, for messages.

        Raises:
            StoreUnavailableError: Somebody is, or the server does not answer.
        """
        motion = self._mirror.motion_now()
        until = monotonic() + self._patience_s
        while motion and monotonic() < until:
            sleep(_LOOK_AGAIN_S)
            if self._mirror.motion_now() != motion:
                raise StoreUnavailableError(
                    f"{where} is being written to by another process; do this again when it is done"
                )

    def record_dimension(self, dimension: int) -> None:
        """Keep the dimension of the vectors, before the first is stored.

        Raises:
            StoreFormatError: The store is not empty: since it was opened its ledger was removed.
            StoreClosedError: Since it was opened, somebody has removed it.
            ConfigurationError: Likewise, somebody has set it up otherwise.
            ModelMismatchError: Likewise, with another embedding model.
        """
        held = self._held()
        if held and self.dimension() is None:
            raise strangers("the store", held)
        self.refresh()
        self._check_there()
        super().record_dimension(dimension)

    def at_rest(self) -> int | None:
        """How many nodes the store must hold; None while something is being written."""
        in_motion, n_nodes = self._mirror.counts()
        return None if in_motion else n_nodes

    def is_current(self) -> bool:
        """Whether nobody has written since it was last read."""
        return self._mirror.is_current()

    def _check_there(self) -> None:
        if not self._mirror.is_there:
            raise StoreClosedError(
                "the knowledge base was removed since it was opened; open it again to make a new "
                "one"
            )
