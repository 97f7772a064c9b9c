"""What every part of a pipeline shares: it says what is wrong when a foreign part stands before it.

LlamaIndex's retrievers and postprocessors know no ``>>``, so the part behind them answers for both.
"""

from typing import TYPE_CHECKING

from llama_retrieval_ext.arguments import CheckedArguments
from llama_retrieval_ext.errors import ConfigurationError


class Operand(CheckedArguments):
    """A part of a pipeline."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # For a type checker nothing fits in front unless a subclass says so.
    if not TYPE_CHECKING:

        def __rrshift__(self, other: object) -> object:
            from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - knows all kinds

            return then(other, self)


def undefined(stage: object, kind: type, signature: str) -> ConfigurationError:
    """The error for a call of a function that a stage's class does not define.

    Args:
        stage: An instance of the class.
        kind: The kind of stage, which has the function and, with ``_plan``, its other form.
        signature: The function's.
    """
    name, function = type(stage).__name__, signature.partition("(")[0]
    plan = f"{function}_plan"
    if getattr(type(stage), plan) is not getattr(kind, plan):
        return ConfigurationError(
            f"{name} has no {function}: it waits for something, so it defines {plan}, which a "
            "pipeline runs; put it into one"
        )
    return ConfigurationError(
        f"{name} defines neither {function} nor {plan}; write `def {signature}` in {name}"
    )
