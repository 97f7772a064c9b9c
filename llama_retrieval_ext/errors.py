"""Every error the package raises, in one tree.

::

    RetrievalExtError
    ├─ ConfigurationError (ValueError)          a bad argument
    │  ├─ ConfigFileError                       a configuration file that cannot be used
    │  ├─ GraphRequiredError                    a knowledge base without the graph that it has
    │  ├─ InvalidFilterError                    a filter that cannot mean anything
    │  └─ ArgumentError (TypeError)             a call that does not fit the signature
    ├─ CompositionError (TypeError)             two stages that do not fit
    ├─ MissingDependencyError (ImportError)     an extra that is not installed
    ├─ ScoreError (ValueError)                  a None or non-finite score entered a formula
    ├─ ScopeError (PermissionError)
    │  ├─ ScopeRequiredError                    a query without a scope where one is required
    │  └─ ScopeViolationError                   a hit from outside the scope or the filters
    ├─ ExecutionError
    │  ├─ DeadlineExceededError (TimeoutError)  a deadline or a leg's time ran out
    │  ├─ CircuitOpenError                      a leg that failed often and is skipped for a while
    │  ├─ TooFewLegsError                       fewer legs answered than must
    │  └─ GenerationError                       an LLM failed where only it could answer
    ├─ StoreError
    │  ├─ DuplicateNodeError
    │  ├─ UnsupportedFilterError (NotImplementedError)
    │  ├─ UnsupportedModeError (NotImplementedError)
    │  ├─ DimensionMismatchError (ValueError)
    │  ├─ ModelMismatchError (ValueError)
    │  ├─ StoreFormatError                      a directory that holds no store, or a newer one
    │  ├─ StoreClosedError
    │  └─ StoreUnavailableError (ConnectionError)
    ├─ RuleError                                a rule that cannot be used
    │  ├─ RuleSyntaxError (ValueError)          a rule file that cannot be read
    │  └─ RuleCycleError                        rules that need each other's conclusions
    └─ IngestionError                           documents that could not be added

Each leaf also inherits the built-in that callers expect, so ``except ValueError`` keeps working.
"""

from collections.abc import Mapping, Sequence

__all__ = [
    "ArgumentError",
    "CircuitOpenError",
    "CompositionError",
    "ConfigFileError",
    "ConfigurationError",
    "DeadlineExceededError",
    "DimensionMismatchError",
    "DuplicateNodeError",
    "ExecutionError",
    "GenerationError",
    "GraphRequiredError",
    "IngestionError",
    "InvalidFilterError",
    "MissingDependencyError",
    "ModelMismatchError",
    "RetrievalExtError",
    "RuleCycleError",
    "RuleError",
    "RuleSyntaxError",
    "ScopeError",
    "ScopeRequiredError",
    "ScopeViolationError",
    "ScoreError",
    "StoreClosedError",
    "StoreError",
    "StoreFormatError",
    "StoreUnavailableError",
    "TooFewLegsError",
    "UnstableIdWarning",
    "UnsupportedFilterError",
    "UnsupportedModeError",
]


class RetrievalExtError(Exception):
    """Root of every error raised by this package."""

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, so that errors with attributes survive a process pool."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[RetrievalExtError], args: tuple[object, ...], attributes: dict[str, object]
) -> RetrievalExtError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigurationError(RetrievalExtError, ValueError):
    """An argument has a value that cannot work; the message says which would."""


class ConfigFileError(ConfigurationError):
    """A configuration file that cannot be used.

    Attributes:
        file: Its name; empty for a text.
        problems: What is wrong, a line of text each: line, column, field, and what to write.
    """

    def __init__(self, file: str, problems: Sequence[str]) -> None:
        super().__init__("\n".join(f"{file or 'configuration'}, {each}" for each in problems))
        self.file = file
        self.problems = tuple(problems)


class GraphRequiredError(ConfigurationError):
    """A knowledge base has a graph, and is opened without it.

    Attributes:
        graph: The URL of the graph.
    """

    def __init__(self, message: str, graph: str) -> None:
        super().__init__(message)
        self.graph = graph


class InvalidFilterError(ConfigurationError):
    """A metadata filter that cannot mean anything, refused before it reaches a store."""


class ArgumentError(ConfigurationError, TypeError):
    """A call does not fit the signature; the message names the argument to write instead."""


class CompositionError(RetrievalExtError, TypeError):
    """Two stages that do not fit; the message holds the corrected expression."""


class MissingDependencyError(RetrievalExtError, ImportError):
    """A feature whose extra, or whose package where no extra brings it, is not installed.

    Attributes:
        extra: Name of the extra that brings the missing package; empty when none does.
        package: The requirement that is missing.
    """

    def __init__(self, feature: str, extra: str = "", *, package: str = "") -> None:
        self.extra = extra
        self.package = package or f"llama-retrieval-ext[{extra}]"
        if package:
            needed = f"the package {package!r}: pip install '{package}'"
        else:
            # The package is on no index, so its name alone is not installable.
            needed = (
                f"the extra {extra!r}: in a clone of the repository, pip install '.[{extra}]'; "
                f"elsewhere, pip install '{self.package} @ git+URL' with the repository's URL"
            )
        super().__init__(f"{feature} needs {needed}")


class UnstableIdWarning(UserWarning):
    """A document whose reader made up a random id: added again, it would be there twice."""


class ScoreError(RetrievalExtError, ValueError):
    """A score that is None or not finite entered a formula."""


class ScopeError(RetrievalExtError, PermissionError):
    """The isolation of tenants and knowledge bases was, or would be, broken."""


class ScopeRequiredError(ScopeError):
    """A query without a scope reached a knowledge base that requires one."""


class ScopeViolationError(ScopeError):
    """A store returned a hit from outside the query's scope or filters; it was dropped.

    Attributes:
        node_ids: The dropped hits.
    """

    def __init__(self, message: str, node_ids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.node_ids = node_ids


class ExecutionError(RetrievalExtError):
    """A plan could not be carried out.

    No ``RuntimeError``: LlamaIndex takes any of those for a complaint about nested loops.
    """


class DeadlineExceededError(ExecutionError, TimeoutError):
    """The time of a query, or of one of its legs, ran out.

    Attributes:
        by_query: Whether it was the query's time, rather than the leg's own.
    """

    def __init__(self, message: str, *, by_query: bool = True) -> None:
        super().__init__(message)
        self.by_query = by_query


class CircuitOpenError(ExecutionError):
    """A leg is skipped for a while because it failed repeatedly."""


class TooFewLegsError(ExecutionError):
    """Fewer legs answered than the composite needs.

    Attributes:
        causes: What went wrong in each leg, by its name.
    """

    def __init__(self, message: str, causes: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.causes = dict(causes)


class GenerationError(ExecutionError):
    """A language model failed, was late, or gave no usable answer, and nothing can stand in."""


class StoreError(RetrievalExtError):
    """Something is wrong with, or in, a store."""


class DuplicateNodeError(StoreError):
    """A node id is already in use in another scope.

    Attributes:
        node_id: The id in question.
    """

    def __init__(self, message: str, node_id: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class UnsupportedFilterError(StoreError, NotImplementedError):
    """A backend cannot evaluate this filter, and it must not be dropped silently.

    Attributes:
        operator: The operator that is not supported, as in LlamaIndex's ``FilterOperator``.
    """

    def __init__(self, message: str, operator: str) -> None:
        super().__init__(message)
        self.operator = operator


class UnsupportedModeError(StoreError, NotImplementedError):
    """A backend does not serve this kind of search."""


class DimensionMismatchError(StoreError, ValueError):
    """A vector does not have the dimension of the store."""


class ModelMismatchError(StoreError, ValueError):
    """A knowledge base was made with another embedding model."""


class StoreFormatError(StoreError):
    """A directory that holds no store of ours, or one from a newer version."""


class StoreClosedError(StoreError):
    """The store was used after ``close()``."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The engine cannot be reached, is locked, or has no room left."""


class IngestionError(RetrievalExtError):
    """Documents could not be added; the rest of the batch was.

    Attributes:
        failures: What went wrong with each document, by its id.
    """

    def __init__(self, message: str, failures: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.failures = dict(failures)


class RuleError(RetrievalExtError):
    """A rule of a graph that cannot be used; the message says what is wrong with it."""


class RuleSyntaxError(RuleError, ValueError):
    """A rule file that cannot be read.

    Attributes:
        file: Its name; empty for a text.
        line: Where in it, from 1.
        column: Likewise.
    """

    def __init__(self, message: str, *, file: str, line: int, column: int) -> None:
        super().__init__(f"{file or 'rules'}, line {line}, column {column}: {message}")
        self.file = file
        self.line = line
        self.column = column


class RuleCycleError(RuleError):
    """Rules that need each other's conclusions.

    Attributes:
        rules: Their ids, the first again at the end.
    """

    def __init__(self, message: str, rules: tuple[str, ...]) -> None:
        super().__init__(message)
        self.rules = rules


def describe(error: BaseException) -> str:
    """Return an error in one line: its type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
