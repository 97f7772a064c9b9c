"""Records of constructor arguments, and the expressions derived from them.

`arguments_of` is derived from the signature of a constructor. ``repr``, ``outline()``, Mermaid
charts and configuration files are all derived from it, so they cannot contradict each other.
"""

import ast
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cached_property, partial, singledispatch, wraps
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, ParamSpec, get_type_hints

from llama_retrieval_ext.parameters import Fit, check_arguments, fit_of

P = ParamSpec("P")

# The attribute that holds the arguments of the constructor's call.
_RECORD: Final = "_constructor_call"
# Collections of more live objects than this are written as ``[...]``.
_MOST_HANDLES: Final = 4
_LITERALS: Final = (str, bytes, bool, int, float, complex, type(None))


class NamedEnum(Enum):
    """Enumeration whose members print as code: ``Normalisation.Z_SCORE``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class RecordsArguments:
    """Base of objects whose ``repr`` is the expression that creates them.

    The constructor of each subclass must be wrapped by `checks.checked_arguments`. A dataclass
    needs no record: its fields are its arguments.
    """

    __slots__ = ()

    # Arguments that are not stored, such as large data; `_current_arguments` may supply them.
    _unrecorded: ClassVar[frozenset[str]] = frozenset()

    def _current_arguments(self) -> Mapping[str, object]:
        """Return the current values of arguments that can change after construction."""
        return {}

    def __repr__(self) -> str:
        return call_expression(self)


def declared_call(init: Callable[P, None]) -> Callable[P, None]:
    """Return the constructor, wrapped to check its arguments and store them for `arguments_of`."""
    signature = _Constructor(init)

    @wraps(init)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        instance, *positional = args
        arguments = signature.bound(positional, kwargs) if positional or kwargs else {}
        check_arguments(instance, arguments, signature.fits)
        # None for slots: such an object is a dataclass, whose fields suffice.
        values = getattr(instance, "__dict__", None)
        if isinstance(instance, RecordsArguments) and values is not None and _RECORD not in values:
            unrecorded = instance._unrecorded  # noqa: SLF001 - of this module
            # The outermost call counts.
            values[_RECORD] = {n: arguments[n] for n in arguments if n not in unrecorded}
        init(*args, **kwargs)

    return call


class _Constructor:
    """The parameters of a constructor, looked at when it is first called."""

    def __init__(self, init: Callable[..., None]) -> None:
        self._init = init

    @cached_property
    def fits(self) -> Mapping[str, Fit]:
        """The checks of the parameters' types; not of those that only type checkers import."""
        try:
            hints = get_type_hints(self._init, include_extras=True)
        except NameError:
            hints = self._init.__annotations__
        return {name: fit_of(hint) for name, hint in hints.items() if name != self._variadic}

    @cached_property
    def _parameters(self) -> Sequence[inspect.Parameter]:
        return tuple(inspect.signature(self._init).parameters.values())[1:]

    @cached_property
    def _positional(self) -> Sequence[str]:
        kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        return [parameter.name for parameter in self._parameters if parameter.kind in kinds]

    @cached_property
    def _variadic(self) -> str | None:
        return _rest(self._parameters)

    def bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name; ``*parameter`` is one tuple."""
        names = self._positional
        bound = dict(zip(names, args, strict=False))
        if self._variadic is not None and len(args) > len(names):
            bound[self._variadic] = tuple(args[len(names) :])
        return bound | dict(kwargs)


def record_argument(instance: RecordsArguments, name: str, value: object) -> None:
    """Replace an argument in the record of an object by an equivalent value."""
    vars(instance)[_RECORD] = {**vars(instance)[_RECORD], name: value}  # copies share the record


def arguments_of(part: object) -> Mapping[str, object]:
    """Return the constructor arguments that differ from their defaults, in order of the signature.

    These are the current values. ``*parameter`` is one tuple; the entries of ``**parameter`` are
    under their own names. Empty for an object that has no record and is no dataclass.

    Examples:
        >>> from llama_retrieval_ext import RRF
        >>> dict(arguments_of(RRF(k=10, min_success=2))), dict(arguments_of(RRF()))
        ({'k': 10, 'min_success': 2}, {})

    """
    return {
        name: value
        for name, value in _all_arguments(part).items()
        if not _is_default(value, _signature(type(part)).defaults.get(name, MISSING))
    }


def call_expression(part: object, *, without: Collection[str] = ()) -> str:
    """Return the call that creates an object, without arguments that equal their defaults.

    The required arguments are written by position if one of them is more than a literal, as in
    ``Leg('law', retriever)``; all others by name.
    """
    arguments = arguments_of(part)
    positional = _positional(type(part), arguments)
    written: list[str] = []
    for name, value in arguments.items():
        if name in without:
            positional = ()
        elif name in positional:
            written.append(value_expression(value))
        elif name == _rest(_signature(type(part)).parameters):
            written.extend(map(value_expression, value if isinstance(value, tuple) else ()))
        else:
            written.append(f"{name}={value_expression(value)}")
    return f"{type(part).__name__}({', '.join(written)})"


@singledispatch
def value_expression(value: object) -> str:
    """Return the expression that creates a value.

    A live object, such as a store, a model or a retriever of another package, is written as its
    class with an ellipsis: ``MMR(embed_model=FakeEmbedding(...))``; a function as its name.
    """
    if inspect.isroutine(value) or isinstance(value, type | partial):
        return function_name(value)
    return repr(value) if _prints_expression(value) else handle_expression(value)


@value_expression.register(str)
@value_expression.register(bytes)
@value_expression.register(complex)
@value_expression.register(int)
@value_expression.register(type(None))
@value_expression.register(Enum)
def _literal_expression(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


@value_expression.register
def _float_expression(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float('{value}')"


def handle_expression(value: object) -> str:
    """Return the class name of a live object with an ellipsis, such as ``FakeEmbedding(...)``."""
    return f"{type(value).__name__}(...)"


def function_name(function: object) -> str:
    """Return the name of a function; for a ``partial``, the name of the wrapped function."""
    if isinstance(function, partial):
        return function_name(function.func)
    name: object = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else handle_expression(function)


def _all_arguments(part: object) -> dict[str, object]:
    current = part._current_arguments() if isinstance(part, RecordsArguments) else {}  # noqa: SLF001 - of this module
    arguments = {**_recorded(part), **current}
    order = [parameter.name for parameter in _signature(type(part)).parameters]
    others = [name for name, value in arguments.items() if name not in order and value is not None]
    return {name: arguments[name] for name in (*order, *others) if name in arguments}


def _recorded(part: object) -> dict[str, object]:
    recorded: dict[str, object] | None = getattr(part, _RECORD, None)
    if recorded is not None:
        return recorded
    names = [parameter.name for parameter in _signature(type(part)).parameters]
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def takes_argument(kind: type, name: str) -> bool:
    """Return whether the constructor of a class has a parameter of this name."""
    return any(parameter.name == name for parameter in _signature(kind).parameters)


class _Signature(NamedTuple):
    """The parameters of a constructor without ``self``, and the defaults of those with one."""

    parameters: tuple[inspect.Parameter, ...] = ()
    defaults: Mapping[str, object] = MappingProxyType({})


_signatures: dict[type, _Signature] = {}


def _signature(kind: type) -> _Signature:
    if kind not in _signatures:
        _signatures[kind] = _new_signature(kind)
    return _signatures[kind]


def _new_signature(kind: type) -> _Signature:
    constructor: Callable[..., None] = kind.__init__  # type: ignore[misc]  # looked at, not called
    if constructor is object.__init__:
        return _Signature()
    parameters = tuple(inspect.signature(constructor).parameters.values())[1:]
    defaults = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    }
    if is_dataclass(kind):
        factories = {field.name: field.default_factory for field in fields(kind)}
        defaults |= {
            name: factory()
            for name, factory in factories.items()
            if name in defaults and factory is not MISSING
        }
    return _Signature(parameters, defaults)


def _is_default(value: object, default: object) -> bool:
    if value is default:
        return True
    is_flag = isinstance(default, bool)
    if default is MISSING or default is None or isinstance(value, bool) != is_flag:
        return False
    if type(value) is type(default) and isinstance(value, RecordsArguments):
        return arguments_of(value) == arguments_of(default)
    return bool(value == default)


def _positional(kind: type, arguments: Mapping[str, object]) -> Sequence[str]:
    """Return the names of the arguments to write by position."""
    required = [
        parameter.name
        for parameter in _signature(kind).parameters
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        and parameter.default is parameter.empty
    ]
    values = [arguments[name] for name in required if name in arguments]
    is_plain = all(isinstance(value, (*_LITERALS, Enum)) for value in values)
    return () if is_plain or len(values) < len(required) else required


def _rest(parameters: Sequence[inspect.Parameter]) -> str | None:
    """Return the name of the ``*parameter``."""
    kind = inspect.Parameter.VAR_POSITIONAL
    return next((parameter.name for parameter in parameters if parameter.kind is kind), None)


@value_expression.register(Mapping)
def _mapping_expression(value: Mapping[object, object]) -> str:
    if len(value) > _MOST_HANDLES and _is_handle(next(iter(value.values()))):
        return "{...}"
    pairs = (f"{value_expression(key)}: {value_expression(item)}" for key, item in value.items())
    return f"{{{', '.join(pairs)}}}"


@value_expression.register(list)
@value_expression.register(tuple)
@value_expression.register(AbstractSet)
def _collection_expression(value: "Collection[object]") -> str:
    if len(value) > _MOST_HANDLES and _is_handle(next(iter(value))):
        return "[...]"
    items = ", ".join(map(value_expression, value))
    if isinstance(value, tuple):
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, frozenset):
        return f"frozenset({{{items}}})" if value else "frozenset()"
    if isinstance(value, AbstractSet):
        return f"{{{items}}}" if value else "set()"
    return f"[{items}]"


def _is_handle(value: object) -> bool:
    return not isinstance(value, RecordsArguments) and value_expression(value).endswith("(...)")


def _prints_expression(value: object) -> bool:
    """Return whether a value's class defines its own ``repr`` and this is a valid expression."""
    owner = next(kind for kind in type(value).__mro__ if "__repr__" in vars(kind))
    if owner is object or owner.__module__.partition(".")[0] in {"pydantic", "llama_index"}:
        return False
    try:
        ast.parse(repr(value), mode="eval")
    except SyntaxError:
        return False
    return True
