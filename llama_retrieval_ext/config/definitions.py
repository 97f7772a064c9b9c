"""Definitions of the types in configurations, by signatures; checks of arguments, JSON Schema."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from llama_retrieval_ext.checks import nearest
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope

# Types of the parameters that several definitions have.
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]

TYPE: Final = "type"
REF: Final = "ref"
SCOPE: Final = "scope"
_REQUIRED: Final = inspect.Parameter.empty
_OURS: Final = "llama_retrieval_ext.config"
# The class of a node, in a schema under construction.
_NODES: Final = "x-nodes"

Path: TypeAlias = tuple[str | int, ...]
Definitions: TypeAlias = Mapping[str, "Definition"]


class Problem(NamedTuple):
    """Problem of a configuration, with its path."""

    path: Path
    message: str
    at_key: bool = False  # at the field's name instead of its value


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Object that a validation does not build; ``kind`` is its class, None if it is unknown."""

    kind: type | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a definition; ``is_rest``: it takes any number of positional arguments."""

    hint: Any
    default: object = _REQUIRED
    is_rest: bool = False

    @property
    def takes_tuples(self) -> bool:
        """Whether lists in a configuration become tuples."""
        arms = [get_origin(each) or each for each in _arms_of(self.hint)]
        return tuple in arms and not any(
            isinstance(arm, type) and issubclass(list, arm) for arm in arms if arm is not object
        )

    @property
    def field(self) -> tuple[Any, Any]:
        """The type and default of the field of the model."""
        default = self.default
        if default is _REQUIRED:
            return _configured(self.hint), Field()
        is_plain = isinstance(default, str | int | float | bool)
        return _configured(self.hint), Field(default=default if is_plain else None)


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

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model of the parameters."""
        fields: dict[str, Any] = {name: each.field for name, each in self.parameters.items()}
        return create_model(
            self.name,
            __config__=ConfigDict(extra="forbid", strict=True, protected_namespaces=()),
            __doc__=self.description or None,
            **fields,
        )

    def checked(
        self,
        arguments: Mapping[str, Any],
        known: Definitions = MappingProxyType({}),
        path: Path = (),
    ) -> tuple[Mapping[str, Any], list[Problem]]:
        """Return arguments for `build` and their problems.

        Args:
            arguments: Values, built objects or placeholders.
            known: The definitions of classes.
            path: The path of the definition in a configuration.
        """
        try:
            parsed = vars(self.model.model_validate(dict(arguments), context=known))
        except ValidationError as error:
            return {}, list(_problems(self, arguments, path, error))
        models = {key: parsed[key] for key in arguments if isinstance(parsed[key], BaseModel)}
        return {**arguments, **models}, []

    def build(self, arguments: Mapping[str, Any], parts: object) -> object:
        """Return the object for checked arguments."""
        rest: list[object] = [parts] if self.takes_parts else []
        named = dict(arguments)
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
    fields: Mapping[str, object] = MappingProxyType({}),
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
    description = (inspect.getdoc(make) or "").partition("\n")[0].strip()
    return Definition(
        name, make, kind, parameters, takes_parts, is_scoped_later, description, fields
    )


def _arms_of(hint: Any) -> list[Any]:  # noqa: ANN401 - a type, or what typing has for one
    """Return the members of a union, or the type alone."""
    if get_origin(hint) in {Union, UnionType}:
        return [arm for argument in get_args(hint) for arm in _arms_of(argument)]
    return [hint]


def _keywords(hint: Any) -> dict[str, Parameter]:  # noqa: ANN401 - what typing has for a TypedDict
    """Return the parameters of ``**kwargs: Unpack[SomeTypedDict]``."""
    (inside,) = get_args(hint) or (hint,)
    if not hasattr(inside, "__total__"):
        return {}
    return {name: Parameter(each, None) for name, each in get_type_hints(inside).items()}


def unknown_name(what: str, name: object, known: Collection[str]) -> str:
    """Return the message for a name of a type, retriever etc. that does not exist."""
    advice = did_you_mean(str(name), known, otherwise=f"there are {', '.join(sorted(known))}")
    return f"there is no {what} {name!r}; {advice}"


def did_you_mean(name: str, known: Collection[str], *, otherwise: str) -> str:
    """Return advice for a misspelled name; ``otherwise`` if no known name is similar."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else otherwise


def json_schema(known: Definitions) -> dict[str, object]:
    """Return the JSON Schema of nodes."""
    definitions: dict[str, object] = {
        REF: {
            "description": "An object of the application, by the name it is bound under.",
            "type": "object",
            "properties": {REF: {"type": "string"}},
            "required": [REF],
            "additionalProperties": False,
        }
    }
    for name, definition in known.items():
        schema = definition.model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        schema["properties"] = {TYPE: {"const": name}, **schema.get("properties", {})}
        schema["required"] = [TYPE, *schema.get("required", [])]
        definitions[name] = _with_refs(schema, known)
    tops = [{"$ref": f"#/$defs/{name}"} for name in known]
    return {"oneOf": tops, "discriminator": {"propertyName": TYPE}, "$defs": definitions}


def _with_refs(schema: Any, known: Definitions) -> Any:  # noqa: ANN401 - any JSON
    """Return the schema with references to nodes."""
    if isinstance(schema, list):
        return [_with_refs(name, known) for name in schema]
    if not isinstance(schema, dict):
        return schema
    replaced = {key: _with_refs(each, known) for key, each in schema.items() if key != _NODES}
    if _NODES in schema:
        names = [*_fitting(schema[_NODES], known), REF]
        replaced["anyOf"] = [{"$ref": f"#/$defs/{name}"} for name in names]
    return replaced


def _problems(
    definition: Definition, arguments: Mapping[str, Any], path: Path, error: ValidationError
) -> Iterator[Problem]:
    errors: dict[Path, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False, include_input=False):
        errors.setdefault(_path_in(arguments, each["loc"]), []).append(each)
    for field_path, at_field in errors.items():
        if not any(other[: len(field_path)] == field_path != other for other in errors):
            yield _problem(definition, path, field_path, at_field)


def _problem(
    definition: Definition, path: Path, field_path: Path, errors: Sequence[ErrorDetails]
) -> Problem:
    first = errors[0]
    what, where = f"{definition.name!r}", (*path, *field_path)
    field = str(first["loc"][-1]) if first["loc"] else ""
    if first["type"] == "missing":
        return Problem(where, f"{what} needs the parameter {field!r}")
    if first["type"] == "extra_forbidden":
        names = ", ".join(definition.parameters) or "none"
        advice = did_you_mean(field, definition.parameters, otherwise=f"its parameters are {names}")
        return Problem(where, f"{what} has no parameter {field!r}; {advice}", at_key=True)
    messages = dict.fromkeys(error["msg"].replace("Input should be", "must be") for error in errors)
    text = " or ".join(messages).replace(" or must be ", " or ")
    name = ".".join(str(each) for each in field_path)
    return Problem(where, f"{name!r} of {what}: {text}")


def _path_in(data: Any, location: Sequence[str | int]) -> Path:  # noqa: ANN401 - any JSON
    """Return pydantic's location as a path in the data, without union members."""
    path: list[str | int] = []
    for part in location:
        known: Any = dict(enumerate(data)) if isinstance(data, list | tuple) else data
        if isinstance(known, Mapping) and part in known:
            data = known[part]
            path.append(part)
    return tuple(path)


def _configured(hint: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type in a configuration for a type in a signature."""
    arms = _arms_of(hint)
    if len(arms) > 1:
        return reduce(or_, (_configured(arm) for arm in arms))
    if get_origin(hint) is Annotated:
        inside, *extras = get_args(hint)
        return Annotated[(_configured(inside), *extras)]
    if hint in {object, Any}:
        return Any
    if get_origin(hint) is Literal or hint in {int, bool, float, None, type(None), JsonValue}:
        return hint
    return hint if hint is str else _collection(hint)


def _collection(hint: Any) -> Any:  # noqa: ANN401 - a type
    origin, inside = get_origin(hint), get_args(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value: Any = _configured(inside[1])
        return dict[str, value]
    if isinstance(origin, type) and (origin is tuple or issubclass(list, origin)):
        item: Any = _configured(inside[0])
        return Annotated[list[item], BeforeValidator(_as_list)]
    return _node(hint)


def _node(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of an object of this class, which a configuration names or refers to."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__.startswith(_OURS):
        return kind
    word = getattr(kind, "__name__", str(kind))
    schema: dict[str, Any] = {_NODES: kind}
    if isinstance(kind, type) and issubclass(kind, Enum):
        schema = {"enum": [f"{word}.{each.name}" for each in kind]}
    return Annotated[Any, AfterValidator(_checked(kind, word)), WithJsonSchema(schema)]


def _is_a(kind: type, expected: Any) -> bool:  # noqa: ANN401 - a type, or what stands for one
    if not inspect.isclass(expected) or getattr(expected, "_is_protocol", False):
        return False
    if issubclass(kind, expected):
        return True
    return kind is BaseRetriever and issubclass(expected, BaseRetriever)


def _fitting(kind: Any, known: Definitions) -> list[str]:  # noqa: ANN401 - a type
    """Return the names of the definitions that make an object of this class."""
    return [name for name, each in known.items() if _is_a(each.kind, kind)]


def _checked(
    kind: Any,  # noqa: ANN401 - a type
    word: str,
) -> Callable[[Any, ValidationInfo], Any]:
    def check(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - anything
        known: Definitions = info.context or {}
        made = value.kind if isinstance(value, Placeholder) else type(value)
        if made is None or _is_a(made, kind):
            return value
        is_ours = isinstance(value, Placeholder) or made.__name__ in known
        if not is_ours and not isinstance(value, str | int | float | list | dict | None):
            return value  # an application object; its consumer checks it
        if isinstance(kind, type) and issubclass(kind, Enum):
            members = " or ".join(f"'{word}.{each.name}'" for each in kind)
            raise PydanticCustomError("member", "must be {members}", {"members": members})
        names = _fitting(kind, known)
        # One class of this package, and no kind of stage, which has many.
        is_public = not names and kind.__module__.startswith("llama_retrieval_ext.")
        near = nearest(made.__name__, names) if is_ours else None
        raise PydanticCustomError(
            "node",
            "must be a {word}: {expected}a reference (ref: NAME){advice}",
            {
                "expected": f"in Python {word}(...), in a file " * is_public
                or f"a mapping with 'type' {' or '.join(names)}, or " * bool(names),
                "word": word,
                "advice": f"; did you mean {near!r}?" if near else "",
            },
        )

    return check


def _as_list(value: Any) -> Any:  # noqa: ANN401 - anything
    return list(value) if isinstance(value, tuple) else value
