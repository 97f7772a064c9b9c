"""The errors of the package, in one class hierarchy.

::

    RetrievalExtError
    ├─ ConfigurationError (ValueError)          a bad argument
    │  ├─ ConfigFileError                       an invalid configuration file
    │  ├─ GraphRequiredError                    a knowledge base opened without its graph
    │  ├─ ModelRequiredError                    a new knowledge base opened without a model
    │  ├─ InvalidFilterError                    an invalid metadata filter
    │  └─ ArgumentError (TypeError)             a call that does not fit the signature
    ├─ CompositionError (TypeError)             two stages that cannot be combined
    ├─ MissingDependencyError (ImportError)     an extra that is not installed
    ├─ ScoreError (ValueError)                  a score that is None or not finite
    ├─ ScopeError (PermissionError)
    │  ├─ ScopeRequiredError                    a query without a required scope
    │  └─ ScopeViolationError                   a hit from outside the scope or the filters
    ├─ ExecutionError
    │  ├─ DeadlineExceededError (TimeoutError)  a deadline or a leg's time limit passed
    │  ├─ CircuitOpenError                      a leg is skipped after repeated failures
    │  ├─ TooFewLegsError                       fewer legs answered than required
    │  └─ GenerationError                       an LLM failed and there is no fallback
    ├─ SyncRefusedError                         a source that cannot be trusted to be complete
    ├─ StoreError
    │  ├─ DuplicateNodeError
    │  ├─ UnsupportedFilterError (NotImplementedError)
    │  ├─ UnsupportedModeError (NotImplementedError)
    │  ├─ DimensionMismatchError (ValueError)
    │  ├─ ModelMismatchError (ValueError)
    │  ├─ StoreFormatError                      a directory without a store, or a newer one
    │  ├─ StoreClosedError
    │  └─ StoreUnavailableError (ConnectionError)
    ├─ RuleError                                an invalid rule
    │  ├─ RuleSyntaxError (ValueError)          a rule file with a syntax error
    │  └─ RuleCycleError                        rules that depend on each other
    └─ IngestionError                           documents that could not be added

Each leaf also inherits the built-in that callers expect, so ``except ValueError`` keeps working.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

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
    "ModelRequiredError",
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
    "SyncRefusedError",
    "TooFewLegsError",
    "UnstableIdWarning",
    "UnsupportedFilterError",
    "UnsupportedModeError",
]


class RetrievalExtError(Exception):
    """Base class of all errors of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form, with attributes, for process pools."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[RetrievalExtError], args: tuple[object, ...], attributes: dict[str, object]
) -> RetrievalExtError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigurationError(RetrievalExtError, ValueError):
    """An argument has an invalid value; the message describes the valid ones."""


class ConfigFileError(ConfigurationError):
    """A configuration file is invalid.

    Attributes:
        file: Name of the file; empty for a text.
        problems: One line of text for each problem: line, column, field, and the correction; or
            why it cannot be read.
    """

    def __init__(self, file: str, problems: Sequence[str]) -> None:
        super().__init__("\n".join(f"{file or 'configuration'}, {problem}" for problem in problems))
        self.file = file
        self.problems = tuple(problems)


class ModelRequiredError(ConfigurationError):
    """A new knowledge base is opened without an embedding model."""


class GraphRequiredError(ConfigurationError):
    """A knowledge base that has a graph is opened without it.

    Attributes:
        graph: The URL of the graph.
    """

    def __init__(self, message: str, graph: str) -> None:
        super().__init__(message)
        self.graph = graph


class InvalidFilterError(ConfigurationError):
    """A metadata filter is invalid; raised before it reaches a store."""


class ArgumentError(ConfigurationError, TypeError):
    """A call does not fit the signature; the message names the correct argument."""


class CompositionError(RetrievalExtError, TypeError):
    """Two stages cannot be combined; the message contains the corrected expression."""


class MissingDependencyError(RetrievalExtError, ImportError):
    """A feature needs an extra or a package that is not installed.

    Attributes:
        extra: Name of the extra that installs the missing package; empty if there is none.
        package: The missing requirement.
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


def optional_module(name: str, feature: str, extra: str = "", *, package: str = "") -> ModuleType:
    """Import a module of an optional package; raise `MissingDependencyError` if that is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("llama_retrieval_ext"):  # our own mistake
            raise
        raise MissingDependencyError(feature, extra, package=package) from error


class UnstableIdWarning(UserWarning):
    """A document has a random id from its reader; adding it again creates a duplicate."""


class ScoreError(RetrievalExtError, ValueError):
    """A score is None or not finite."""


class ScopeError(RetrievalExtError, PermissionError):
    """An operation would break, or broke, the isolation of tenants or knowledge bases."""


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
    """The execution of a plan failed.

    Not a ``RuntimeError``: LlamaIndex treats any of those as an error about nested event loops.
    """


class DeadlineExceededError(ExecutionError, TimeoutError):
    """The deadline of a query, or of one of its legs, has passed.

    Attributes:
        by_query: Whether it was the query's deadline; False for the leg's own time limit.
    """

    def __init__(self, message: str, *, by_query: bool = True) -> None:
        super().__init__(message)
        self.by_query = by_query


class CircuitOpenError(ExecutionError):
    """A leg is skipped for a while because it failed repeatedly."""


class TooFewLegsError(ExecutionError):
    """Fewer legs answered than the composite requires.

    Attributes:
        causes: The error of each failed leg, by its name.
    """

    def __init__(self, message: str, causes: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.causes = dict(causes)


class GenerationError(ExecutionError):
    """A language model failed, timed out, or gave no usable answer, and there is no fallback."""


class SyncRefusedError(RetrievalExtError):
    """A source is missing, unreadable or has lost too much; nothing was written or deleted."""


class StoreError(RetrievalExtError):
    """Base class of errors of a store."""


class DuplicateNodeError(StoreError):
    """A node id is already in use in another scope.

    Attributes:
        node_id: The duplicate id.
    """

    def __init__(self, message: str, node_id: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class UnsupportedFilterError(StoreError, NotImplementedError):
    """A backend does not support this filter.

    Attributes:
        operator: The unsupported operator, as in LlamaIndex's ``FilterOperator``.
    """

    def __init__(self, message: str, operator: str) -> None:
        super().__init__(message)
        self.operator = operator


class UnsupportedModeError(StoreError, NotImplementedError):
    """A backend does not support this kind of search."""


class DimensionMismatchError(StoreError, ValueError):
    """The dimension of a vector differs from that of the store."""


class ModelMismatchError(StoreError, ValueError):
    """A knowledge base was created with another embedding model."""


class StoreFormatError(StoreError):
    """A directory contains no store of this package, or one from a newer version."""


class StoreClosedError(StoreError):
    """The store was used after ``close()``."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The engine is unreachable, locked, or out of space."""


class IngestionError(RetrievalExtError):
    """Some documents of a batch could not be added; the others were added.

    Attributes:
        failures: The error of each document, by its id.
    """

    def __init__(self, message: str, failures: Mapping[str, BaseException]) -> None:
        super().__init__(message)
        self.failures = dict(failures)


class RuleError(RetrievalExtError):
    """A rule of a graph is invalid; the message gives the reason."""


class RuleSyntaxError(RuleError, ValueError):
    """A rule file has a syntax error.

    Attributes:
        file: Name of the file; empty for a text.
        line: Line of the error, from 1.
        column: Column of the error, from 1.
    """

    def __init__(self, message: str, *, file: str, line: int, column: int) -> None:
        super().__init__(f"{file or 'rules'}, line {line}, column {column}: {message}")
        self.file = file
        self.line = line
        self.column = column


class RuleCycleError(RuleError):
    """Rules depend on each other's conclusions.

    Attributes:
        rules: Ids of the rules, with the first repeated at the end.
    """

    def __init__(self, message: str, rules: tuple[str, ...]) -> None:
        super().__init__(message)
        self.rules = rules


def describe(error: BaseException) -> str:
    """Return the type and message of an error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
