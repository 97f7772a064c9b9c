"""Notes in the result what a language model has made of the query."""

from collections.abc import Sequence

from llama_retrieval_ext.execution.frame import current_frame


def note_made(name: str, texts: Sequence[str], *, count_name: str, count: int) -> None:
    """Add to ``SearchResult.details``; several stages of one answer add up.

    Args:
        name: Under which the texts go.
        texts: What was made.
        count_name: Under which the count goes.
        count: What to add to it.
    """
    frame = current_frame()
    if frame is None:
        return
    details = frame.session.details
    # New values, not longer ones: a leg that was given up must not write into a finished result.
    known, counted = details.get(name), details.get(count_name)
    details[name] = [*(known if isinstance(known, list) else []), *texts]
    details[count_name] = (counted if isinstance(counted, int) else 0) + count
