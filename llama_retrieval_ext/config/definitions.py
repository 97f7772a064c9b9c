"""Definitions of the types in configurations: functions and classes, by their signatures."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import BaseModel, Field, ValidationError

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope

# Types of the parameters that several definitions have.
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]

REQUIRED: Final = inspect.Parameter.empty
SCOPE: Final = "scope"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a definition; ``is_rest``: it takes any number of positional arguments."""

    hint: Any
    default: object = REQUIRED
    is_rest: bool = False

    @property
    def takes_tuples(self) -> bool:
        """Whether lists in a configuration become tuples."""
        arms = [get_origin(each) or each for each in arms_of(self.hint)]
        return tuple in arms and not any(
            isinstance(arm, type) and issubclass(list, arm) for arm in arms if arm is not object
        )


@dataclass(frozen=True, eq=False)
class Definition:
    """Definition of a ``type`` in configurations, or of a name in the registry.

    Attributes:
        name: The name.
        make: Creates the object; with ``takes_parts`` it gets `RegistryParts` first.
        kind: The class of the object.
        parameters: The parameters by name.
        takes_parts: Whether ``make`` needs the registry.
        is_scoped_later: Whether ``scope`` is passed to ``for_scope`` of the result.
        description: What it is, in one sentence.
        fields: Extra fields of the first record of an answer, with their values if an LLM failed.
    """

    name: str
    make: Callable[..., object]
    kind: type
    parameters: Mapping[str, Parameter]
    takes_parts: bool = False
    is_scoped_later: bool = False
    description: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)

    def build(self, arguments: Mapping[str, Any], parts: object) -> object:
        """Return the object for checked arguments."""
        rest: list[object] = [parts] if self.takes_parts else []
        named = {name: _typed(each, self.parameters[name]) for name, each in arguments.items()}
        scope = named.pop(SCOPE, None) if self.is_scoped_later else None
        for name, parameter in self.parameters.items():
            if parameter.is_rest:
                rest.extend(named.pop(name, ()))
        part = self.make(*rest, **named)
        return part if scope is None else part.for_scope(scope)  # type: ignore[attr-defined]


def definition_of(
    make: Callable[..., object],
    *,
    name: str,
    takes_parts: bool,
    fields: Mapping[str, object] | None = None,
) -> Definition:
    """Return the definition of a function or class, from its signature."""
    called: Any = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    hints = get_type_hints(called, include_extras=True)
    declared = list(inspect.signature(called).parameters.values())
    declared = declared[isinstance(make, type) + takes_parts :]  # without self and the parts
    parameters: dict[str, Parameter] = {}
    for each in declared:
        hint = hints.get(each.name, Any)
        if each.kind is each.VAR_KEYWORD:
            parameters |= _keywords(hint)
        elif each.kind is each.VAR_POSITIONAL:
            several = Sequence[hint]  # type: ignore[valid-type]  # from a signature
            parameters[each.name] = Parameter(several, (), is_rest=True)
        else:
            parameters[each.name] = Parameter(hint, each.default)
    kind = make if isinstance(make, type) else hints.get("return", object)
    kind = kind if isinstance(kind, type) else BaseRetriever
    is_scoped_later = issubclass(kind, Retriever) and not takes_parts and SCOPE not in parameters
    if is_scoped_later:
        parameters[SCOPE] = Parameter(Scope | None, None)
    return Definition(
        name,
        make,
        kind,
        parameters,
        takes_parts=takes_parts,
        is_scoped_later=is_scoped_later,
        description=(inspect.getdoc(make) or "").partition("\n")[0].strip(),
        fields=fields or {},
    )


def definitions_of(*functions: Callable[..., object]) -> list[Definition]:
    """Return the definitions of functions that take `RegistryParts`, under their own names."""
    return [definition_of(each, name=each.__name__, takes_parts=True) for each in functions]


def arms_of(hint: Any) -> list[Any]:  # noqa: ANN401 - a type, or what typing has for one
    """Return the members of a union, or the type alone."""
    if get_origin(hint) in {Union, UnionType}:
        return [arm for each in get_args(hint) for arm in arms_of(each)]
    return [hint]


def _keywords(hint: Any) -> dict[str, Parameter]:  # noqa: ANN401 - what typing has for a TypedDict
    """Return the parameters of ``**kwargs: Unpack[SomeTypedDict]``."""
    (inside,) = get_args(hint) or (hint,)
    if not hasattr(inside, "__total__"):
        return {}
    hints = get_type_hints(inside)
    return {name: Parameter(each, None) for name, each in hints.items()}


def _typed(value: Any, parameter: Parameter) -> Any:  # noqa: ANN401 - what signatures have
    """Return the value as the model that the parameter expects."""
    if not isinstance(value, Mapping):
        return value
    arms = arms_of(parameter.hint)
    kinds = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, BaseModel)]
    if not kinds:
        return value
    try:
        return kinds[0].model_validate(dict(value))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"{kinds[0].__name__}: {where}: {first['msg']}") from None
