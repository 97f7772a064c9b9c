"""Reads from an index whose shards are on their way: just made, or on a server that restarts."""

from collections.abc import Callable
from typing import Final, TypeVar

from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.stores.elasticsearch.failures import ShardsAwayError
from llama_retrieval_ext.stores.elasticsearch.request import Json, Pause, Request, Steps

T = TypeVar("T")

# Some five seconds in all: a shard of a new index takes tenths of one, or longer on a busy machine.
# To have the engine wait takes a right to look at the cluster, which not every user has.
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)


def answer(asked: Request, meaning: Callable[[Json], T]) -> Steps[T]:
    """What the answer to a request means; asked again for a while where shards are not there yet.

    Args:
        asked: A request that only reads.
        meaning: Makes of the JSON what is wanted of it, or raises.

    Raises:
        ShardsAwayError: They did not come, or the time of the query does not allow to wait.
    """
    for pause_s in _PAUSES_S:
        try:
            return meaning((yield asked))
        except ShardsAwayError:
            if not _time_for(pause_s):
                raise
        yield Pause(pause_s)
    return meaning((yield asked))


def _time_for(pause_s: float) -> bool:
    frame = current_frame()
    left = None if frame is None else frame.remaining_s()
    return left is None or pause_s < left
