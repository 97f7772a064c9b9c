"""What the backends share whose engine, or whose store, takes one search at a time."""

from collections.abc import Sequence

from llama_retrieval_ext.stores.backend import Asked


class OneByOne:
    """Says that there is no request for several searches; they go out side by side."""

    def batch(self, asked: Sequence[Asked]) -> None:
        """None: there is no such request."""
        del asked
