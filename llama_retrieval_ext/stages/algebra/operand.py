"""What every part of a pipeline shares: it says what is wrong when a foreign part stands before it.

LlamaIndex's retrievers and postprocessors know no ``>>``, so the part behind them answers for both.
"""

from typing import TYPE_CHECKING

from llama_retrieval_ext.errors import ConfigurationError


class Operand:
    """A part of a pipeline."""

    __slots__ = ()

    # For a type checker nothing fits in front unless a subclass says so.
    if not TYPE_CHECKING:

        def __rrshift__(self, other: object) -> object:
            from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - knows all kinds

            return then(other, self)


def undefined(stage: object, function: str, plan: str) -> ConfigurationError:
    """The error for a class that defines neither of two functions, one of which it needs.

    Args:
        stage: An instance of the class.
        function: The signature of the pure function.
        plan: The name of the function that returns a plan.
    """
    name = type(stage).__name__
    return ConfigurationError(
        f"{name} defines neither {function.partition('(')[0]} nor {plan}; write "
        f"`def {function}` in {name}"
    )
