"""Says that a part of an answer is missing: in its result, and as a LlamaIndex event."""

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent

from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.trace import Degradation, describe

_dispatcher = get_dispatcher(__name__)


class RetrievalDegradedEvent(BaseEvent):
    """A part of an answer failed and was left out.

    Attributes:
        where: The leg or stage, behind the legs it is in: ``outer/inner``.
        reason: What went wrong there.
    """

    where: str
    reason: str

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the event."""
        return "RetrievalDegradedEvent"


def note_degraded(where: str, reason: BaseException | str) -> None:
    """Note that the current answer lacks a part.

    Args:
        where: The leg or stage; the legs on the way to it are put before it.
        reason: What went wrong there.
    """
    told = reason if isinstance(reason, str) else describe(reason)
    frame = current_frame()
    if frame is not None:
        where = "/".join((*frame.legs, where))
        frame.session.degraded.append(Degradation(where, told))
    _dispatcher.event(RetrievalDegradedEvent(where=where, reason=told))
