"""pydantic models of definitions: checks of configurations and their JSON Schema."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


def is_node(value: object) -> bool:
    """Return whether a mapping names a type."""
    return isinstance(value, Mapping) and isinstance(value.get(TYPE), str)


def _item(container: Any, key: object) -> Any:  # noqa: ANN401 - any JSON, or `Literal`
    return container[key]


def problems(data: object, known: Definitions, path: Path = ()) -> Iterator[Problem]:
    """Yield the problems of a configuration, without creating its objects."""
    for each_path, each in walk(data, path):
        if isinstance(each, Mapping) and is_node(each):
            yield from _problems_of_node(each, known, each_path)


def walk(data: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield a configuration and everything in it, with paths."""
    yield path, data
    for child_path, value in inside(data, path):
        yield from walk(value, child_path)


def inside(data: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the fields of a mapping, also of an escaped one, or the items of a list, with paths."""
    if isinstance(data, Mapping):
        fields: Mapping[str, object] = data
        if list(data) == [MAP] and isinstance(data[MAP], Mapping):
            path, fields = (*path, MAP), data[MAP]
        yield from (((*path, name), value) for name, value in fields.items())
    elif isinstance(data, list | tuple):
        yield from (((*path, number), value) for number, value in enumerate(data))


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


def _problems_of_node(data: Mapping[str, Any], known: Definitions, path: Path) -> Iterator[Problem]:
    definition = known.get(data[TYPE])
    if definition is None:
        yield Problem((*path, TYPE), unknown_name("type", data[TYPE], known))
        return
    yield from problems_of(definition, {k: v for k, v in data.items() if k != TYPE}, known, path)


def problems_of(
    definition: Definition,
    arguments: Mapping[str, Any],
    known: Definitions = MappingProxyType({}),
    path: Path = (),
) -> Iterator[Problem]:
    """Yield the problems of the arguments of a definition, without those inside nodes."""
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
        is_item = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if is_item or (isinstance(data, Mapping) and part in data):
            data = _item(data, part)
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
    return _Text if hint is str else _collection(hint)


def _collection(hint: Any) -> Any:  # noqa: ANN401 - a type
    origin, inside = get_origin(hint), get_args(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value: Any = _configured(inside[1])
        return Annotated[dict[str, value], BeforeValidator(_unescaped(MAP))]
    if isinstance(origin, type) and (origin is tuple or issubclass(list, origin)):
        item: Any = _configured(inside[0])
        return Annotated[list[item], BeforeValidator(_without_tuple)]
    return _node(hint)


def _node(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of a node of this class, or of a reference to an application object."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = tuple(f"{kind.__name__}.{each.name}" for each in kind)
        return Annotated[
            Any, AfterValidator(_checked_member(kind)), WithJsonSchema({"enum": names})
        ]
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__.startswith(_OURS):
        return kind
    word = getattr(kind, "__name__", str(kind))
    _kinds[word] = kind
    return Annotated[Any, AfterValidator(_checked_node(kind, word)), WithJsonSchema({_NODES: word})]


def _fitting(kind: Any, known: Definitions) -> list[str]:  # noqa: ANN401 - a type
    """Return the names of the definitions that make an object of this class."""
    if not inspect.isclass(kind) or getattr(kind, "_is_protocol", False):
        return []
    return [
        name
        for name, each in known.items()
        if issubclass(each.kind, kind)
        or (each.kind is BaseRetriever and issubclass(kind, BaseRetriever))
    ]


def _checked_node(
    kind: Any,  # noqa: ANN401 - a type
    word: str,
) -> Callable[[Any, ValidationInfo], Any]:
    def check(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any JSON
        known: Definitions = info.context or {}
        name = _item(value, TYPE) if is_node(value) else None
        if name is not None:
            if name not in known:  # the node's own check reports it
                return value
        elif isinstance(value, Mapping) and list(value) == [REF] and isinstance(value[REF], str):
            return value
        elif not isinstance(value, str | int | float | list | dict | None):
            return value  # an application object in a call; its consumer checks it
        names = _fitting(kind, known)
        if name in names:
            return value
        near = None if name is None else nearest(str(name), names)
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


def _checked_member(kind: type[Enum]) -> Callable[[Any], Any]:
    names = {f"{kind.__name__}.{each.name}": each for each in kind}

    def check(value: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, kind) or (isinstance(value, str) and value in names):
            return value
        raise PydanticCustomError("member", "must be {names}", {"names": _any_of(names)})

    return check


def _any_of(names: Collection[str]) -> str:
    return " or ".join(map(repr, names))


def _without_tuple(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping) and list(value) == [TUPLE]:
        return value[TUPLE]
    return list(value) if isinstance(value, tuple) else value


def _unescaped(key: str) -> Callable[[Any], Any]:
    def unescape(value: Any) -> Any:  # noqa: ANN401 - any JSON
        is_escape = isinstance(value, Mapping) and list(value) == [key]
        return value[key] if is_escape and isinstance(value[key], dict | str) else value

    return unescape


_Text: TypeAlias = Annotated[str, BeforeValidator(_unescaped(TEXT))]
