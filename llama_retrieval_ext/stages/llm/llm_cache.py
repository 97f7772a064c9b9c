"""What a language model has said, kept for the next time it is asked the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from llama_index.core.base.llms.types import CompletionResponse

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.memo import Memo


class AnswerCache:
    """The last answers by what was asked; safe to share between threads and event loops.

    Who asks while somebody else waits for the same answer waits with them. Failures are not kept,
    nor is what `asked` is told not to keep.

    Args:
        size: How many answers are kept; the one that was not wanted for longest goes first.
    """

    def __init__(self, *, size: int = 256) -> None:
        self.size = size
        self._lock = Lock()
        self._said: OrderedDict[Hashable, str] = OrderedDict()
        self._in_the_making: dict[Hashable, Memo] = {}

    # A copy, perhaps in another process, has heard nothing: a model is known by its id.
    def __getstate__(self) -> dict[str, object]:
        return {"size": self.size}

    def __setstate__(self, state: dict[str, int]) -> None:
        AnswerCache.__init__(self, **state)

    def known(self, key: Hashable) -> str | None:
        """The answer that is kept; None where there is none."""
        with self._lock:
            if key not in self._said:
                return None
            self._said.move_to_end(key)
            return self._said[key]

    def asked(
        self,
        key: Hashable,
        call: Callable[[], Call[CompletionResponse]],
        *,
        keep: Callable[[str], bool],
    ) -> Plan[str]:
        """The plan for an answer that is not known.

        Args:
            key: What is asked, of whom.
            call: Asks it.
            keep: Whether an answer is worth keeping.
        """
        with self._lock:
            making = self._in_the_making.setdefault(key, Memo())
        try:
            response: CompletionResponse = yield from making.get(key, call)
            said = response.text or ""
            if keep(said):
                self._keep(key, said)
        finally:
            with self._lock:
                if self._in_the_making.get(key) is making:
                    del self._in_the_making[key]
        return said

    def _keep(self, key: Hashable, said: str) -> None:
        with self._lock:
            self._said[key] = said
            self._said.move_to_end(key)
            while len(self._said) > self.size:
                self._said.popitem(last=False)
