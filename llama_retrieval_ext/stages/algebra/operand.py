"""What every part of a pipeline shares: it says what is wrong when a foreign part stands before it.

LlamaIndex's retrievers and postprocessors know no ``>>``, so the part behind them answers for both.
"""

from typing import TYPE_CHECKING

from llama_retrieval_ext.arguments import CheckedArguments


class Operand(CheckedArguments):
    """A part of a pipeline."""

    __slots__ = ()

    # For a type checker nothing fits in front unless a subclass says so.
    if not TYPE_CHECKING:

        def __rrshift__(self, other: object) -> object:
            from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - knows all kinds

            return then(other, self)
