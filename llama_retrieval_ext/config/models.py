"""pydantic models of definitions: checks of configurations and their JSON Schema."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

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
from llama_retrieval_ext.config.definitions import REQUIRED, Definition, Parameter, arms_of

TYPE: Final = "type"
REF: Final = "ref"
ENV: Final = "env"
# ``map`` and ``text`` escape mappings and texts that would be parsed as one of these.
MAP: Final = "map"
TEXT: Final = "text"
TUPLE: Final = "tuple"
ESCAPES: Final = (REF, ENV, MAP, TEXT, TUPLE)

_OURS: Final = "llama_retrieval_ext.config"
# Names of nodes in a schema under construction; pydantic would search them in its own models.
_NODES: Final = "x-nodes"

# Classes by their names in `_NODES`.
_kinds: dict[str, Any] = {}

Path: TypeAlias = tuple[str | int, ...]
Definitions: TypeAlias = Mapping[str, Definition]


class Problem(NamedTuple):
    """Problem of a configuration, with its path."""

    path: Path
    message: str
    at_key: bool = False  # at the field's name instead of its value


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Object that a validation does not build; ``kind`` is its class, None if it is unknown."""

    kind: type | None


def is_node(value: object) -> bool:
    """Return whether a mapping names a type."""
    return isinstance(value, Mapping) and isinstance(value.get(TYPE), str)


def walk(data: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield a configuration and everything in it, with paths; escaped mappings too."""
    yield path, data
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, Mapping):
        items = data.items()
    elif isinstance(data, list | tuple):
        items = enumerate(data)
    for name, value in items:
        yield from walk(value, (*path, name))


def unknown_name(what: str, name: object, known: Collection[str]) -> str:
    """Return the message for a name of a type, retriever etc. that does not exist."""
    advice = did_you_mean(str(name), known, otherwise=f"there are {', '.join(sorted(known))}")
    return f"there is no {what} {name!r}; {advice}"


def did_you_mean(name: str, known: Collection[str], *, otherwise: str) -> str:
    """Return advice for a misspelled name; ``otherwise`` if no known name is similar."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else otherwise


def json_schema(known: Definitions, roots: Collection[str]) -> dict[str, object]:
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
        schema = _model(definition).model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        schema["properties"] = {TYPE: {"const": name}, **schema.get("properties", {})}
        schema["required"] = [TYPE, *schema.get("required", [])]
        definitions[name] = _with_refs(schema, known)
    tops = [{"$ref": f"#/$defs/{name}"} for name in roots]
    return {"oneOf": tops, "discriminator": {"propertyName": TYPE}, "$defs": definitions}


def _with_refs(schema: Any, known: Definitions) -> Any:  # noqa: ANN401 - any JSON
    """Return the schema with references to nodes."""
    if isinstance(schema, list):
        return [_with_refs(each, known) for each in schema]
    if not isinstance(schema, dict):
        return schema
    replaced = {key: _with_refs(each, known) for key, each in schema.items() if key != _NODES}
    if _NODES in schema:
        names = [*_fitting(_kinds[schema[_NODES]], known), REF]
        replaced["anyOf"] = [{"$ref": f"#/$defs/{name}"} for name in names]
    return replaced


def problems_of(
    definition: Definition,
    arguments: Mapping[str, Any],
    known: Definitions = MappingProxyType({}),
    path: Path = (),
) -> Iterator[Problem]:
    """Yield the problems of arguments, which are values, built objects or placeholders."""
    try:
        _model(definition).model_validate(dict(arguments), context=known)
    except ValidationError as error:
        errors: dict[Path, list[ErrorDetails]] = {}
        for each in error.errors(include_url=False, include_input=False):
            errors.setdefault(_path_in(arguments, each["loc"]), []).append(each)
        deepest = [p for p in errors if not any(q[: len(p)] == p and q != p for q in errors)]
        for field_path in deepest:
            yield _problem(definition, path, field_path, errors[field_path])


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
    messages = dict.fromkeys(each["msg"].replace("Input should be", "must be") for each in errors)
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


@cache
def _model(definition: Definition) -> type[BaseModel]:
    """Return the model of the parameters of a definition."""
    fields: dict[str, Any] = {
        name: (_configured(parameter.hint), _default(parameter))
        for name, parameter in definition.parameters.items()
    }
    return create_model(
        definition.name,
        __config__=ConfigDict(extra="forbid", strict=True, protected_namespaces=()),
        __doc__=definition.description or None,
        **fields,
    )


def _default(parameter: Parameter) -> Any:  # noqa: ANN401 - pydantic's
    default = parameter.default
    if default is REQUIRED:
        return Field()
    return Field(default=default if isinstance(default, str | int | float | bool) else None)


def _configured(hint: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type in a configuration for a type in a signature."""
    arms = arms_of(hint)
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
    _kinds[word] = kind
    schema: dict[str, Any] = {_NODES: word}
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
        near = nearest(made.__name__, names) if is_ours else None
        raise PydanticCustomError(
            "node",
            "must be {expected}a reference (ref: NAME) to a {word}{advice}",
            {
                "expected": f"a mapping with 'type' {' or '.join(names)}, or " if names else "",
                "word": word,
                "advice": f"; did you mean {near!r}?" if near else "",
            },
        )

    return check


def _as_list(value: Any) -> Any:  # noqa: ANN401 - anything
    return list(value) if isinstance(value, tuple) else value
