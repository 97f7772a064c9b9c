"""Definitions of the types in configurations, from signatures; checks of arguments, JSON Schema."""

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import EnumType
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import BaseModel, JsonValue, ValidationError

from llama_retrieval_ext.checks import nearest, problem
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.parameters import Misfit, Path, Range, arms_of, expected, fit_of
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.scope import Scope, at_time

TYPE: Final = "type"
REF: Final = "ref"
SCOPE: Final = "scope"
_TIMES: Final = ("as_of", "known_at")
_REQUIRED: Final = inspect.Parameter.empty
Definitions: TypeAlias = Mapping[str, "Definition"]


class Problem(NamedTuple):
    """Problem of a configuration, with its path."""

    path: Path
    message: str
    at_key: bool = False  # at the field's name instead of its value


class _MisfitError(Exception):
    """Error for a value in an argument that the declared type does not have."""

    def __init__(self, text: str, path: Path = ()) -> None:
        super().__init__(text)
        self.path = path


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
        arms = [get_origin(arm) or arm for arm in arms_of(self.hint)]
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
        is_timed: Whether ``as_of`` and ``known_at`` are, see `timed`.
        description: What it is, in one sentence.
        fields: Extra fields of the first record of an answer, with their values if an LLM failed.
    """

    name: str
    make: Callable[..., object]
    kind: type
    parameters: Mapping[str, Parameter]
    takes_parts: bool = False
    is_scoped_later: bool = False
    is_timed: bool = False
    description: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def timed(self) -> "Definition":
        """The definition with the time for which queries ask, which ``kb.retriever`` takes."""
        times = dict.fromkeys(_TIMES, Parameter(str | None, None))
        return replace(self, parameters={**self.parameters, **times}, is_timed=True)

    def checked(
        self,
        arguments: Mapping[str, Any],
        definitions: Definitions = MappingProxyType({}),
        path: Path = (),
    ) -> tuple[Mapping[str, Any], list[Problem]]:
        """Return arguments for `build`, and their problems, of a definition at a path."""
        problems: list[Problem] = []
        checked = dict(arguments)
        for name, value in arguments.items():
            if name not in self.parameters:
                names = ", ".join(self.parameters) or "none"
                otherwise = f"its parameters are {names}"
                advice = did_you_mean(name, self.parameters, otherwise=otherwise)
                text = f"{self.name!r} has no parameter {name!r}; {advice}"
                problems.append(Problem((*path, name), text, at_key=True))
                continue
            try:
                checked[name] = self._fitted(name, value, definitions)
            except _MisfitError as error:
                problems.append(Problem((*path, name, *error.path), str(error)))
        for name, parameter in self.parameters.items():
            if parameter.default is _REQUIRED and name not in arguments:
                problems.append(Problem(path, f"{self.name!r} needs the parameter {name!r}"))
        return checked, problems

    def _fitted(self, name: str, value: Any, definitions: Definitions) -> Any:  # noqa: ANN401 - any JSON
        """Return an argument, a mapping as the model that it describes, if its type has it."""
        hint = self.parameters[name].hint
        model = next(filter(_is_model, arms_of(hint)), None)
        try:
            if model is not None and isinstance(value, Mapping):
                return model.model_validate(value)
            misfit = fit_of(hint)(value, _is_a(definitions))
            if misfit is None and self.is_timed and name in _TIMES:
                Scope(**{name: value})  # raises for what is no time
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            text = f"{name!r} of {self.name!r}: {problem(first)}"
            raise _MisfitError(text, first["loc"]) from error
        except ConfigurationError as error:
            raise _MisfitError(f"{name!r} of {self.name!r}: {error}") from error
        if misfit is None:
            return value
        where = ".".join(map(str, (name, *misfit.path)))
        text = f"{where!r} of {self.name!r} must be {_wanted(misfit, definitions)}"
        raise _MisfitError(text, misfit.path)

    def build(self, arguments: Mapping[str, Any], parts: object) -> object:
        """Return the object for checked arguments."""
        rest: list[object] = [parts] if self.takes_parts else []
        named = dict(arguments)
        scope = named.pop(SCOPE, None) if self.is_scoped_later else None
        if self.is_timed:
            scope = at_time(scope, *(named.pop(name, None) for name in _TIMES))
        for name, parameter in self.parameters.items():
            if parameter.is_rest:
                rest.extend(named.pop(name, ()))
        part = self.make(*rest, **named)
        if scope is None:
            return part
        if isinstance(part, BaseRetriever) and not isinstance(part, Retriever):
            part = Pipeline(part, name=self.name)
        return part.for_scope(scope)  # type: ignore[attr-defined]


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
    for parameter in declared:
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            (inside,) = get_args(hint) or (hint,)  # of Unpack[SomeTypedDict]
            keywords = get_type_hints(inside) if hasattr(inside, "__total__") else {}
            parameters |= {key: Parameter(of_key, None) for key, of_key in keywords.items()}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            several = Sequence[hint]  # type: ignore[valid-type]  # from a signature
            parameters[parameter.name] = Parameter(several, (), is_rest=True)
        else:
            parameters[parameter.name] = Parameter(hint, parameter.default)
    kind = make if isinstance(make, type) else hints.get("return", object)
    kind = kind if isinstance(kind, type) else BaseRetriever
    is_scoped_later = issubclass(kind, Retriever) and not takes_parts and SCOPE not in parameters
    if is_scoped_later:
        parameters[SCOPE] = Parameter(Scope | None, None)
    description = (inspect.getdoc(make) or "").partition("\n")[0].strip()
    return Definition(
        *(name, make, kind, parameters, takes_parts, is_scoped_later),
        description=description,
        fields=fields,
    )


def unknown_name(what: str, name: object, names: Collection[str]) -> str:
    """Return the message for a name of a type, retriever etc. that does not exist."""
    advice = did_you_mean(str(name), names, otherwise=f"there are {', '.join(sorted(names))}")
    return f"there is no {what} {name!r}; {advice}"


def did_you_mean(name: str, names: Collection[str], *, otherwise: str) -> str:
    """Return advice for a misspelled name; ``otherwise`` if no known name is similar."""
    near = nearest(name, names)
    return f"did you mean {near!r}?" if near else otherwise


def json_schema(definitions: Definitions) -> dict[str, object]:
    """Return the JSON Schema of nodes."""
    schemas: dict[str, object] = {
        REF: {
            "description": "An object of the application, by the name it is bound under.",
            "type": "object",
            "properties": {REF: {"type": "string"}},
            "required": [REF],
            "additionalProperties": False,
        }
    }
    for name, definition in definitions.items():
        properties: dict[str, object] = {TYPE: {"const": name}}
        for key, parameter in definition.parameters.items():
            is_plain = isinstance(parameter.default, str | int | float | bool)
            default = {"default": parameter.default} if is_plain else {}
            properties[key] = {**_schema(parameter.hint, definitions, schemas), **default}
        needed = [
            key
            for key, parameter in definition.parameters.items()
            if parameter.default is _REQUIRED
        ]
        schemas[name] = {
            "description": definition.description,
            "type": "object",
            "properties": properties,
            "required": [TYPE, *needed],
            "additionalProperties": False,
        }
    tops = [{"$ref": f"#/$defs/{name}"} for name in definitions]
    return {"oneOf": tops, "discriminator": {"propertyName": TYPE}, "$defs": schemas}


_PLAIN: Final[Mapping[Any, Mapping[str, object]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
    object: {},
    JsonValue: {},
}
_LIMITS: Final = {
    "minimum": "least",
    "exclusiveMinimum": "above",
    "maximum": "most",
    "exclusiveMaximum": "below",
}


def _schema(hint: Any, definitions: Definitions, schemas: dict[str, object]) -> dict[str, object]:  # noqa: ANN401, C901, PLR0911 - a type
    """Return the schema of a type; that of a model is added to ``schemas``."""
    origin, inside = get_origin(hint), get_args(hint)
    arms = list(arms_of(hint))
    if len(arms) > 1:
        return {"anyOf": [_schema(arm, definitions, schemas) for arm in arms]}
    if origin is Annotated:
        ranges = [note for note in inside[1:] if isinstance(note, Range)]
        limits = {key: getattr(r, name) for key, name in _LIMITS.items() for r in ranges}
        finite = {key: limit for key, limit in limits.items() if math.isfinite(limit)}
        return {**_schema(inside[0], definitions, schemas), **finite}
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if origin is Literal:
        return {"enum": list(inside)}
    if isinstance(hint, EnumType):
        return {"enum": [f"{hint.__name__}.{name}" for name in hint.__members__]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inside[1], definitions, schemas)}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return {"type": "array", "items": _schema(inside[0], definitions, schemas)}
    if _is_model(hint):
        schema = hint.model_json_schema(ref_template="#/$defs/{model}")
        schemas.update({**schema.pop("$defs", {}), hint.__name__: schema})
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in (*_fitting(hint, definitions), REF)]}


def _is_model(hint: Any) -> bool:  # noqa: ANN401 - a type
    """Return whether a type is a model of settings, which a mapping without a type describes."""
    is_model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return is_model and hint.__module__.startswith("llama_retrieval_ext.config")


def _wanted(misfit: Misfit, definitions: Definitions) -> str:
    """Return what a value must be, with the types of a file that make it."""
    kinds = [arm for arm in arms_of(misfit.hint) if isinstance(arm, type) and arm not in _PLAIN]
    kinds = [kind for kind in kinds if not isinstance(kind, EnumType)]
    value = misfit.value
    if not kinds:
        got = f", got {value!r}" if isinstance(value, str | int | float | None) else ""
        return expected(misfit.hint) + got
    names = [name for kind in kinds for name in _fitting(kind, definitions)]
    made = value.kind if isinstance(value, Placeholder) else type(value)
    near = (
        nearest(made.__name__, names) if made is not None and made.__name__ in definitions else None
    )
    # One class of this package, and no kind of stage, which has many.
    is_public = not names and kinds[0].__module__.startswith("llama_retrieval_ext.")
    file = f"a mapping with 'type' {' or '.join(names)}, or " * bool(names)
    python = f"in Python {kinds[0].__name__}(...), in a file " * is_public
    advice = f"; did you mean {near!r}?" if near else ""
    return f"{expected(misfit.hint)}: {python}{file}a reference (ref: NAME){advice}"


def _is_a(definitions: Definitions) -> Callable[[Any, Any], bool]:
    """Return the test whether a value, or what a placeholder stands for, is of a class."""

    def is_a(value: Any, kind: Any) -> bool:  # noqa: ANN401 - anything
        made = value.kind if isinstance(value, Placeholder) else type(value)
        if made is None or _makes(made, kind):
            return True
        is_ours = isinstance(value, Placeholder) or made.__name__ in definitions
        # The consumer of an application's object checks it.
        return not is_ours and not isinstance(value, str | int | float | list | dict | None)

    return is_a


def _makes(made: type, kind: Any) -> bool:  # noqa: ANN401 - a type, or what stands for one
    if not inspect.isclass(kind) or getattr(kind, "_is_protocol", False):
        return False
    is_any_retriever = made is BaseRetriever and issubclass(kind, BaseRetriever)
    return issubclass(made, kind) or is_any_retriever


def _fitting(kind: Any, definitions: Definitions) -> list[str]:  # noqa: ANN401 - a type
    """Return the names of the definitions that make an object of this class."""
    return [name for name, definition in definitions.items() if _makes(definition.kind, kind)]
