"""Pipelines as YAML: writing, reading, and validation with line numbers and advice.

::

    version: 1
    pipeline:
      type: Pipeline
      source: {type: hybrid, dense_weight: 0.6}
      refines:
        - {type: RuleRerank}
        - {type: Top, k: 5}

A ``type`` is a name of the registry or a public class of a stage or retriever; ``{ref: NAME}`` is
an object of the application. ``{env: NAME}``, in the settings of an embedding model or a store, is
the value of an environment variable. A file is only data: nothing in it is imported, and templates
and references (``&``, ``*``) are refused.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, ClassVar, Final, NamedTuple

import yaml
from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.config.definitions import Problem, did_you_mean, json_schema
from llama_retrieval_ext.config.registry import HasParts, Registry, registry_for
from llama_retrieval_ext.config.spec import Builder, BuildError, is_node, to_data, walk
from llama_retrieval_ext.errors import ConfigFileError, RetrievalExtError
from llama_retrieval_ext.parameters import Path
from llama_retrieval_ext.text.yaml_nodes import Reader, composed, position

VERSION: Final = 1
_PIPELINE: Final = "pipeline"
_FIELDS: Final = ("version", _PIPELINE)
_SECRET: Final = re.compile(r"(?i)(^|_)(api_?key|token|secret|password|passwd|credentials?)($|_)")
_TAGS: Final = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class ConfigText(NamedTuple):
    """YAML text as data, with line and column of every value and key by its path."""

    data: Any
    positions: dict[Path, tuple[int, int]]
    keys: dict[Path, tuple[int, int]]


def to_yaml(
    part: object,
    source: Registry | HasParts | None = None,
    *,
    live: Mapping[str, object] | None = None,
) -> str:
    """Return a pipeline, or a part of one, as YAML.

    Args:
        part: A stage or retriever.
        source: The knowledge base, or a registry with the objects, that the text refers to.
        live: Further objects that are not data, such as stores and models, by their names in the
            text.

    Raises:
        ConfigurationError: The part contains an object that is neither data nor named.

    Examples:
        >>> from llama_retrieval_ext import RRF, Top
        >>> print(to_yaml(RRF(k=10) >> Top(3)))
        version: 1
        pipeline:
          type: FusionChain
          fusion:
            type: RRF
            k: 10
          refines:
          - type: Top
            k: 3
        <BLANKLINE>

    """
    bound = {} if source is None else registry_for(source).live
    document = {"version": VERSION, _PIPELINE: to_data(part, live={**bound, **(live or {})})}
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def from_yaml(text: str, source: Registry | HasParts, *, file: str = "") -> Any:  # noqa: ANN401 - a part
    """Return the part that a YAML text describes.

    Args:
        text: YAML, as `to_yaml` writes it.
        source: The knowledge base, whose defaults count, or the registry of allowed names.
        file: Its name in messages.

    Raises:
        ConfigFileError: The text is invalid; each problem has its line and field.
    """
    read, registry = read_yaml(text, file=file), registry_for(source)
    if mistakes := validation(read, registry):
        raise ConfigFileError(file, _lines(mistakes, read))
    builder = Builder(registry.definitions, registry.live, registry.parts)
    try:
        return builder.value(read.data[_PIPELINE], (_PIPELINE,))
    except BuildError as error:
        raise ConfigFileError(file, _lines([error.problem], read)) from error.cause


def load_pipeline(path: str | FilePath, source: Registry | HasParts) -> BaseRetriever:
    """Return the retriever that a file describes.

    Args:
        path: A YAML file.
        source: The knowledge base, whose defaults count, or the registry of allowed names.

    Raises:
        ConfigFileError: The file cannot be read, is invalid, or describes no retriever.
    """
    part = from_yaml(read_file(path), source, file=str(path))
    if not isinstance(part, BaseRetriever):
        raise ConfigFileError(str(path), [f"pipeline: a retriever is needed, got {part!r}"])
    return part


def read_file(path: str | FilePath) -> str:
    """Return the text of a file."""
    try:
        with FilePath(path).open("rb") as file:
            return file.read(_Reader.max_bytes + 1).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigFileError(str(path), [f"the file cannot be read: {reason}"]) from error


def validate_yaml(text: str, source: Registry | HasParts, *, file: str = "") -> list[str]:
    """Return the problems of a YAML text, without opening or creating its objects.

    Args:
        text: YAML.
        source: The knowledge base, or the registry of allowed names.
        file: Its name in messages.

    Returns:
        One line of text per problem, with line, column and field; empty if the text is valid.
    """
    try:
        read = read_yaml(text, file=file)
    except ConfigFileError as error:
        return list(error.problems)
    return _lines(validation(read, registry_for(source)), read)


def pipeline_schema(registry: Registry) -> dict[str, object]:
    """Return the JSON Schema of configuration files, for editors."""
    schema = json_schema(registry.definitions)
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llama-retrieval-ext pipeline",
        "type": "object",
        "properties": {"version": {"const": VERSION}, _PIPELINE: schema},
        "required": list(_FIELDS),
        "additionalProperties": False,
        "$defs": definitions,
    }


def read_yaml(text: str, *, file: str = "") -> ConfigText:
    """Return a YAML text as data, with the place of every key and value."""
    if "\0" in text:
        raise ConfigFileError(file, ["line 1: the text has a NUL character"])
    reader, read = _Reader(file), ConfigText({}, {}, {})
    return read._replace(data=_data(composed(text, reader), (), reader, read))


def validation(read: ConfigText, registry: Registry) -> list[Problem]:
    """Return the problems of a document."""
    mistakes = [*_problems_of_document(read.data), *_secrets(read.data)]
    if mistakes:
        return mistakes
    builder = Builder(registry.definitions)
    builder.value(read.data[_PIPELINE], (_PIPELINE,))
    return builder.problems


class _Reader(Reader):
    what: ClassVar[str] = "a configuration"
    example: ClassVar[str] = "'version: 1' and 'pipeline:'"
    max_bytes: ClassVar[int] = 200_000
    max_depth: ClassVar[int] = 60

    def error(self, at: object, message: str) -> RetrievalExtError:
        line, column = position(at)
        return ConfigFileError(self.file, [f"line {line}, column {column}: {message}"])


class _Dumper(yaml.SafeDumper):
    """Dumper without aliases: repeated values are written in full."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's
        return True


def _data(node: yaml.Node, path: Path, reader: _Reader, read: ConfigText) -> Any:  # noqa: ANN401
    read.positions[path] = position(node)
    if isinstance(node, yaml.ScalarNode):
        value = reader.value(node)
        if value is not None and not isinstance(value, str | int | float):
            raise reader.error(node, f"{type(value).__name__} is no value here; put it in quotes")
        return value
    if node.tag not in _TAGS:
        raise reader.error(node, "tags (!) are not allowed in a configuration")
    if isinstance(node, yaml.SequenceNode):
        return [_data(item, (*path, n), reader, read) for n, item in enumerate(node.value)]
    fields: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = reader.value(key_node)
        if not isinstance(key, str):
            raise reader.error(key_node, f"a field's name is text; write '{key}' in quotes")
        if key in fields:
            raise reader.error(key_node, f"the field {key!r} is there twice")
        read.keys[*path, key] = position(key_node)
        fields[key] = _data(value_node, (*path, key), reader, read)
    return fields


def _problems_of_document(data: object) -> Iterator[Problem]:
    if not isinstance(data, Mapping):
        yield Problem((), "a configuration has the fields version and pipeline")
        return
    for name in data:
        if name not in _FIELDS:
            advice = did_you_mean(name, _FIELDS, otherwise="it has version and pipeline")
            yield Problem((name,), f"a configuration has no field {name!r}; {advice}", at_key=True)
    version = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        message = f"write version: {VERSION} into the file, which is all that this package reads"
        yield Problem(("version",) if "version" in data else (), message)
    if not is_node(data.get(_PIPELINE)):
        path: Path = (_PIPELINE,) if _PIPELINE in data else ()
        yield Problem(path, "'pipeline' is a mapping with 'type', such as {type: hybrid}")


def _secrets(data: object) -> Iterator[Problem]:
    """Yield secrets in plain text; messages do not repeat their values."""
    for path, value in walk(data):
        name = path[-1] if path else None
        if isinstance(value, str) and isinstance(name, str) and _SECRET.search(name):
            advice = f"write {name}: {{env: NAME}} with the name of an environment variable"
            yield Problem(path, f"a secret must not stand in a file; {advice}")


def _lines(mistakes: list[Problem], read: ConfigText) -> list[str]:
    """Return the problems as text, in the order of the file."""
    lines: list[str] = []
    for mistake in sorted(mistakes, key=lambda mistake: _position(mistake, read)):
        line, column = _position(mistake, read)
        field = ".".join(map(str, mistake.path)) or "document"
        lines.append(f"line {line}, column {column}, {field}: {mistake.message}")
    return lines


def _position(problem: Problem, read: ConfigText) -> tuple[int, int]:
    """Return line and column of a problem; for an unknown path, of its nearest parent."""
    positions, path = read.keys if problem.at_key else read.positions, problem.path
    while path and path not in positions and path not in read.positions:
        path = path[:-1]
    return positions.get(path) or read.positions.get(path) or (1, 1)
