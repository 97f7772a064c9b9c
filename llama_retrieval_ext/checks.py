"""Checks of arguments at the public entry points, for callers without a type checker."""

import difflib
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, get_args, is_typeddict

from llama_retrieval_ext.arguments import RecordsArguments, declared_call, value_expression
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
from llama_retrieval_ext.parameters import Misfit, is_number, misfit

P = ParamSpec("P")
T = TypeVar("T")

# LlamaIndex's word for `top_k`, and the other names that libraries have for a number of hits.
_TWO_WORDS: Final = frozenset({"top_k", "similarity_top_k"})
_NUMBER_OF_HITS: Final = frozenset({*_TWO_WORDS, "topk", "k", "top_n", "n", "limit", "size"})


# Names of arguments in other libraries and designs, with ours in order of preference.
_OTHER_NAMES: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("vector_store", "keyword_store"), ("store", "storage")),
    **dict.fromkeys(("embedder", "embedding"), ("embed_model",)),
    "data_analyzer": ("analyzer",),
    "graph_store": ("graph",),
    **dict.fromkeys(("ner", "retrievers", "select_multi"), ()),  # similar names are others
    "kg_retriever": ("rules",),
    "lambda_param": ("lambda_mult",),
    "llm_caller": ("llm",),
    "process_name": ("process", "processes"),
    "retriever_weights": ("weights",),
    "text": ("query_str", "query"),
    "vector_retriever": ("vector",),
}
_TEXTS: Final = "leave it out: the store itself, or the docstore of the index, has the texts"
# What to write instead of arguments of other libraries and designs that have no counterpart here.
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("doc_store", "document_store"), _TEXTS),
    "conversation_filter": "leave it out, and pass conversation_id= to the call",
    "llm_caller": "leave it out: the parts that write have the model as their llm",
    "max_hops": "write retriever.by_entities(max_hops=...), or GraphRetriever(..., max_hops=...)",
    "ner": "write linker=EntityLinker(graph, ner=...)",
    "ner_extractor": "leave it out: rules recognise the intent, or the selector= does",
    "retrievers": 'write {"name": Route(retriever, "description"), ...} as the routes',
    "select_multi": "leave it out: the selector picks one or several, and max_routes limits them",
    "use_llm": "leave it out: LLMRerank(llm) is the stage with a model, RuleRerank() without",
}
# Number of errors that a message names at most.
MOST_PROBLEMS: Final = 5
# LlamaIndex's methods that take the query alone, with ours that take options.
_WITH_OPTIONS: Final = {"retrieve": "search", "aretrieve": "asearch"}


def of_type(value: T, kind: type[object], what: str, *, instead: str = "") -> T:
    """Return the value if it is an instance of ``kind``, or raise `ConfigurationError`.

    ``what`` names the argument in the message, and ``instead`` describes the correct form; for an
    enumeration it lists the members.
    """
    if isinstance(value, kind):
        return value
    if issubclass(kind, Enum):
        instead = f"write one of {', '.join(map(str, kind))}"
    advice = f"; {instead}" if instead else ""
    raise ConfigurationError(f"{what} must be of type {kind.__name__}, got {value!r}{advice}")


def one_of(value: T, words: Iterable[T], what: str) -> T:
    """Return the value if it is one of some words, or raise `ConfigurationError`."""
    choices = list(words)
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"{what} must be one of {choices}, got {value!r}")
    return value


def is_vector(value: Any) -> bool:  # noqa: ANN401 - what a model returned
    """Return whether a value is a list of finite numbers, of at least one."""
    try:
        # A sum is finite only if every number is, and takes a third of the time of single checks.
        return len(value) > 0 and math.isfinite(sum(value))
    except (TypeError, OverflowError):
        return False


def check_count(count: int, what: str, *, least: int = 1) -> int:
    """Return the number if it is an integer from ``least`` to ``sys.maxsize``, or raise."""
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise ConfigurationError(
            f"{what} must be a whole number of at least {least}, got {count!r}"
        )
    if count > sys.maxsize:  # no engine and no list supports more
        raise ConfigurationError(f"{what} must be at most {sys.maxsize}, got {count}")
    return count


def check_weights(weights: object, what: str) -> Mapping[str, float]:
    """Return weights by name, of 0 or more and not all 0, or raise `ConfigurationError`."""
    if not isinstance(weights, Mapping) or not weights:
        raise ConfigurationError(
            f"{what} must map at least one field to its weight, such as {{'title': 3, 'text': 1}}, "
            f"got {weights!r}"
        )
    for name, weight in weights.items():
        if not is_number(weight) or weight < 0:
            raise ConfigurationError(
                f"{what}: the weight of {name!r} must be a number of 0 or more, got {weight!r}"
            )
    if not any(weights.values()):
        raise ConfigurationError(f"{what}: no weight is above 0, so that nothing can be found")
    return weights


def check_seconds(seconds: float, what: str, *, otherwise: str = "") -> float:
    """Return the number if it is positive and finite, or raise; ``otherwise`` means no limit."""
    if not is_number(seconds) or seconds <= 0:
        advice = f"; {otherwise}" if otherwise else ""
        raise ConfigurationError(
            f"{what} must be a positive number of seconds, got {seconds!r}{advice}"
        )
    return seconds


# Errors from calls with arguments of other types.
_OF_ARGUMENTS: Final = (TypeError, AttributeError)


def checked_call(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, raising `ArgumentError` if a call does not fit its signature.

    A coroutine function stays one. The signature, and the types in it, are examined only after a
    call raises a ``TypeError`` or an ``AttributeError``, so correct calls have almost no overhead.
    If the arguments fit, the error is unchanged.

    Examples:
        >>> @checked_call
        ... def search(query, *, top_k=10): ...
        >>> search("annual leave", topk=3)
        Traceback (most recent call last):
        ...
        llama_retrieval_ext.errors.ArgumentError: search() has no argument 'topk'; write top_k=3

    """
    if getattr(function, "_is_checked", False):
        return function

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.keys() >= _TWO_WORDS:
            raise _two_numbers(*(kwargs[name] for name in sorted(_TWO_WORDS, key=len)))
        try:
            return function(*args, **kwargs)
        except _OF_ARGUMENTS as error:
            raise _explained(error, function, args, kwargs)  # noqa: B904 - which sets the cause

    vars(call)["_is_checked"] = True
    if not inspect.iscoroutinefunction(function):
        return call

    @wraps(call)
    async def acall(*args: P.args, **kwargs: P.kwargs) -> object:
        try:
            return await call(*args, **kwargs)  # type: ignore[misc]  # T is a coroutine
        except _OF_ARGUMENTS as error:
            raise _explained(error, function, args, kwargs)  # noqa: B904 - which sets the cause

    return acall  # type: ignore[return-value]  # likewise


def checked_arguments(kind: type[T]) -> type[T]:
    """Apply `checked_call` to the class's own constructor; place it above ``@dataclass``.

    The constructor of a `RecordsArguments` also checks the types that it declares.
    """
    return _with_checks(kind, declared=issubclass(kind, RecordsArguments))


def declared_arguments(kind: type[T]) -> type[T]:
    """`checked_arguments` for a class whose arguments have the types that it declares."""
    return _with_checks(kind, declared=True)


def _with_checks(kind: type[T], *, declared: bool) -> type[T]:
    constructor = vars(kind).get("__init__")
    # A dataclass with slots is created twice; the second class reuses the first constructor.
    if inspect.isfunction(constructor) and not hasattr(constructor, "__wrapped__"):
        init = declared_call(constructor) if declared else constructor
        type.__setattr__(kind, "__init__", checked_call(init))
    return kind


def checked_methods(kind: type[T]) -> type[T]:
    """Apply `checked_call` to the class's own public methods."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, checked_call(method))
    return kind


class Part(RecordsArguments):
    """Base of parts of pipelines: the signature of the constructor declares the arguments.

    Their types are checked, `ArgumentError` says what to write instead of a call that does not
    fit, and ``repr`` is the expression that creates the part.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        checked_arguments(cls)


def _explained(
    error: Exception,
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Exception:
    """Return the `ArgumentError` for a call that does not fit the signature, or else the error."""
    problem = None if isinstance(error, ArgumentError) else _misfit(function, args, kwargs)
    if problem is None:
        return error
    explained = ArgumentError(problem)
    explained.__cause__ = error
    return explained


def _misfit(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> str | None:
    """Return how a call differs from a signature and its correct form; None if it fits."""
    signature = _signature(function)
    is_constructor = function.__name__ == "__init__"
    name = type(args[0]).__name__ if is_constructor else function.__name__
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        reason = str(error)
    else:
        return _mistyped(name, bound)
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in {"self", "cls"}
    ]
    names = [parameter.name for parameter in parameters if parameter.kind not in _VARIADIC]
    unknown = next((name for name in kwargs if name not in names), None)
    takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
    if unknown is None:
        needed = [
            parameter.name for parameter in parameters if parameter.default is parameter.empty
        ]
        missing = [f"{argument}=..." for argument in needed if repr(argument) in reason]
        return f"{name}(): {reason}; " + (f"write {name}({missing[0]})" if missing else takes)
    value = kwargs[unknown]
    given = {*kwargs, *[*signature.parameters][: len(args)]}
    free = {
        parameter.name: parameter
        for parameter in parameters
        if parameter.name in names and parameter.name not in given
    }
    instead = _suggestion(unknown, value, free) or takes
    if name in _WITH_OPTIONS and len(parameters) == 1:
        options = f"{unknown}={value_expression(value)}"
        instead = f"it takes the query alone; write {_WITH_OPTIONS[name]}(..., {options})"
    return f"{name}() has no argument {unknown!r}; {instead}"


def _suggestion(unknown: str, value: object, free: Mapping[str, inspect.Parameter]) -> str | None:
    """Return what to write for an unknown argument; None if that is not known.

    A similar name is proposed if the difference may be a typing error, or the value fits.
    """
    near, ours = nearest(unknown, free), _OTHER_NAMES.get(unknown)
    if near is None or (ours is not None and near not in ours):
        return _INSTEAD.get(unknown)
    is_typo = bool(difflib.get_close_matches(unknown, [near], cutoff=0.8))
    if ours is None and not is_typo and _misfit_of(value, free[near]):
        return _INSTEAD.get(unknown)
    return f"write {near}={value_expression(value)}"


def _mistyped(name: str, bound: inspect.BoundArguments) -> str | None:
    """Return the first argument of another type than in the signature; None if there is none."""
    for argument, value in bound.arguments.items():
        parameter = bound.signature.parameters[argument]
        if parameter.kind not in _VARIADIC and (wrong := _misfit_of(value, parameter)):
            return f"{name}(): {wrong.message(argument)}"
    return None


def _misfit_of(value: object, parameter: inspect.Parameter) -> Misfit | None:
    is_known = parameter.annotation is not parameter.empty
    return misfit(value, parameter.annotation) if is_known else None


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature, with the keys of ``**options: Unpack[SomeTypedDict]`` as parameters."""
    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        (options,) = get_args(parameter.annotation)[:1] or (None,)
        if parameter.kind is parameter.VAR_KEYWORD and is_typeddict(options):
            names = options.__annotations__
            parameters += [
                parameter.replace(name=n, kind=parameter.KEYWORD_ONLY, default=None) for n in names
            ]
        else:
            parameters.append(parameter)
    return signature.replace(parameters=parameters)


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def nearest(unknown: str, names: Iterable[str]) -> str | None:
    """Return the most similar name; None if no name is similar.

    Examples:
        >>> nearest("similarity_top_k", ["store", "top_k"]), nearest("x", ["store"])
        ('top_k', None)

    """
    candidates = list(names)
    if unknown in _NUMBER_OF_HITS:
        same = next((name for name in candidates if name in _NUMBER_OF_HITS), None)
        if same is not None:
            return same
    ours = next((name for name in _OTHER_NAMES.get(unknown, ()) if name in candidates), None)
    return ours or next(iter(difflib.get_close_matches(unknown, candidates, n=1)), None)


def problems(errors: Sequence[Mapping[str, Any]], fields: Collection[str] = ()) -> str:
    """Return the first errors of pydantic in one line; ``fields`` are those of the model itself."""
    names = [() if len(error["loc"]) > 1 else fields for error in errors]
    return "; ".join(map(problem, errors[:MOST_PROBLEMS], names))


def problem(error: Mapping[str, Any], fields: Collection[str] = ()) -> str:
    """Return an error of pydantic in one line; of an unknown name with the nearest one."""
    place = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        return f"{place}: {' '.join(error['msg'].split())}"
    near = nearest(str(error["loc"][-1]), fields)
    advice = f", there are {', '.join(fields)}" if fields else ""
    return f"{place}: unknown name{advice if near is None else f'; write {near!r}'}"


def one_top_k(number: T, other: T | None, *, default: T | None = None) -> T:
    """Return the number of hits from either ``top_k`` or LlamaIndex's ``similarity_top_k``.

    ``number`` is under the name with a default. `checked_call` rejects both names as keywords; the
    default is needed if ``number`` can be passed by position, and then both raise here.
    """
    if other is None:
        return number
    if default is not None and number != default:
        raise _two_numbers(number, other)
    return other


def _two_numbers(first: object, second: object) -> ArgumentError:
    return ArgumentError(
        f"got {first!r} and {second!r} for top_k and similarity_top_k, which are two names of one "
        "argument; give one"
    )
