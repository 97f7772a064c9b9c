"""Adds to what the result of an answer says beside its hits."""

from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.trace import Detail, DetailValue


def note_details(*, is_total: bool = False, **values: DetailValue) -> None:
    """Add to the details of the current answer; what one stage notes twice adds up.

    Args:
        is_total: Whether the short name has the sum over all stages, or the outermost's value.
        values: Lists or counts, by name.
    """
    frame = current_frame()
    if frame is not None:
        frame.session.details.extend(
            Detail(frame.legs, name, value, is_total) for name, value in values.items()
        )
