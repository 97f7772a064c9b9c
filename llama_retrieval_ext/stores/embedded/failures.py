"""What the engine's errors mean: it raises plain exceptions that differ by their text only."""

from pathlib import Path

from llama_retrieval_ext.errors import StoreClosedError, StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.embedded.lock import in_use


def meaning(error: Exception, directory: Path) -> StoreError:
    """The error of ours for one of the engine's."""
    told = str(error)
    if "WouldBlock" in told:
        return StoreUnavailableError(in_use(directory))
    if "not initialized" in told:
        return StoreClosedError(f"the store {directory} was closed; open it again")
    if "No space left" in told or "Disk quota" in told:
        return StoreUnavailableError(
            f"no room is left for {directory}; what was stored before is safe"
        )
    return StoreUnavailableError(f"the engine failed in {directory}: {told}")
