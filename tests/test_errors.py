import pickle

import pytest

from llama_retrieval_ext import errors
from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    DeadlineExceededError,
    DimensionMismatchError,
    InvalidFilterError,
    MissingDependencyError,
    ModelMismatchError,
    RetrievalExtError,
    ScopeError,
    ScopeRequiredError,
    ScopeViolationError,
    ScoreError,
    StoreUnavailableError,
    TooFewLegsError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from tests.cases import cases

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type)
    and issubclass(value, BaseException)
    and not issubclass(value, Warning)
]


def test_every_error_derives_from_the_root(subtests: pytest.Subtests) -> None:
    for error in ALL:
        with subtests.test(error=error):
            assert issubclass(error, RetrievalExtError)
            assert error.__doc__


def test_every_error_is_drawn_in_the_tree(subtests: pytest.Subtests) -> None:
    for error in ALL:
        with subtests.test(error=error):
            assert error.__name__ in (errors.__doc__ or "")


@cases(
    ("error", "builtin"),
    [
        (ConfigurationError, ValueError),
        (InvalidFilterError, ValueError),
        (CompositionError, TypeError),
        (MissingDependencyError, ImportError),
        (ScoreError, ValueError),
        (ScopeError, PermissionError),
        (ScopeRequiredError, PermissionError),
        (ScopeViolationError, PermissionError),
        (DeadlineExceededError, TimeoutError),
        (UnsupportedFilterError, NotImplementedError),
        (UnsupportedModeError, NotImplementedError),
        (DimensionMismatchError, ValueError),
        (ModelMismatchError, ValueError),
        (StoreUnavailableError, ConnectionError),
    ],
)
def test_an_error_is_also_the_builtin_error_that_callers_expect(
    error: type[BaseException], builtin: type[BaseException]
) -> None:
    assert issubclass(error, builtin)


def test_a_missing_extra_is_named_with_the_command_that_brings_it() -> None:
    error = MissingDependencyError("LocalEmbedding", "local")
    assert error.extra == "local"
    assert error.package == "llama-retrieval-ext[local]"
    assert str(error) == (
        "LocalEmbedding needs the extra 'local': in a clone of the repository, "
        "pip install '.[local]'; elsewhere, pip install 'llama-retrieval-ext[local] @ git+URL' "
        "with the repository's URL"
    )


def test_a_missing_package_that_no_extra_brings_is_named_likewise() -> None:
    error = MissingDependencyError("fastembed:NAME", package="llama-index-embeddings-fastembed")
    assert (error.extra, error.package) == ("", "llama-index-embeddings-fastembed")
    assert str(error).endswith("pip install 'llama-index-embeddings-fastembed'")


def test_the_causes_are_a_copy() -> None:
    causes: dict[str, BaseException] = {"leg": OSError("down")}
    error = TooFewLegsError("few", causes)
    causes.clear()
    assert error.causes


@cases(
    "error",
    [
        errors.DuplicateNodeError("taken", "n1"),
        errors.ScopeViolationError("outside", ("n1", "n2")),
        errors.UnsupportedFilterError("cannot", "any"),
        errors.TooFewLegsError("too few", {"a": ValueError("x")}),
        errors.MissingDependencyError("This", "zh"),
        errors.IngestionError("failed", {"d1": ValueError("x")}),
        errors.DeadlineExceededError("late", by_query=False),
    ],
)
def test_an_error_survives_pickling(error: errors.RetrievalExtError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: repr(value) for name, value in vars(again).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }
