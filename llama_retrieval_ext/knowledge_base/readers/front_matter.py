"""Front matter: the metadata that stand before a text, in YAML or TOML."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias

import yaml

from llama_retrieval_ext.errors import RetrievalExtError
from llama_retrieval_ext.scope import (
    ALLOWED_KEY,
    KB_KEY,
    PAGE_KEY,
    PATH_KEY,
    SOURCE_KEY,
    TABLE_KEY,
    TENANT_KEY,
)
from llama_retrieval_ext.text.yaml_nodes import Reader, composed

_Value: TypeAlias = str | int | float | bool
_BLOCK: Final = re.compile(
    r"\A\ufeff?(---|\+\+\+)[ \t]*\n(.{0,20000}?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
# A text cannot say where it stands or who may see it.
_RESERVED: Final = {
    *(TENANT_KEY, KB_KEY, ALLOWED_KEY),
    *(SOURCE_KEY, PAGE_KEY, PATH_KEY, TABLE_KEY, "file_name"),
}
# Metadata take room in each passage.
_LONGEST: Final = 500


# Suffixes of texts, in lower case, whose writers use it.
_SUFFIXES: Final = {
    *(".md", ".markdown", ".mdown", ".mdx", ".mkd", ".qmd", ".rmd", ".rst", ".adoc", ".asciidoc"),
    *(".textile", ".txt"),
}


def has_front_matter(suffix: str) -> bool:
    """Return whether files with this suffix may begin with front matter."""
    return suffix in _SUFFIXES


def front_matter(text: str) -> tuple[dict[str, object], str]:
    r"""Return the scalars and lists of a front matter, and the text behind it.

    Fields in fields are dropped; numbers that YAML 1.1 and 1.2 read differently stay texts. What
    is no front matter stays in the text, as do values that are longer than 500 characters.

    Examples:
        >>> front_matter("---\ntitle: Leave\ntags: [hr]\ndate: 2024-05-01\n---\n25 days.")
        ({'title': 'Leave', 'tags': ['hr'], 'date': '2024-05-01'}, '25 days.')
        >>> front_matter("---\nA rule above.\n---\n25 days.")
        ({}, '---\nA rule above.\n---\n25 days.')

    """
    block = _BLOCK.match(text)
    if block is None:
        return {}, text
    try:
        fields = _yaml_fields(block[2]) if block[1] == "---" else tomllib.loads(block[2])
    except (RetrievalExtError, ValueError, RecursionError):
        return {}, text
    metadata = {str(key): _metadata(value) for key, value in fields.items()}
    is_whole = all(len(str(value)) <= _LONGEST for value in metadata.values())
    shown: dict[str, object] = {
        key: value
        for key, value in metadata.items()
        if key not in _RESERVED and value not in (None, []) and len(str(value)) <= _LONGEST
    }
    return shown, text[block.end() :].lstrip("\n") if is_whole else text


class _Reader(Reader):
    """Takes numbers that YAML 1.1 and 1.2 read differently, as 12:30, as they are written."""

    what = "front matter"

    def value(self, node: yaml.Node) -> Any:  # noqa: ANN401 - whatever YAML has
        try:
            return super().value(node)
        except RetrievalExtError:
            if isinstance(node, yaml.ScalarNode):
                return node.value
            raise


def _yaml_fields(block: str) -> Mapping[str, object]:
    reader = _Reader("front matter")
    root = composed(block, reader)
    if not isinstance(root, yaml.MappingNode):
        raise reader.error(root, "front matter has fields")
    return {
        key.value: reader.data(value)
        for key, value in root.value
        if isinstance(key, yaml.ScalarNode) and not isinstance(value, yaml.MappingNode)
    }


def _metadata(value: object) -> _Value | list[_Value] | None:
    """Return a scalar or a list of scalars; None for what is neither."""
    if isinstance(value, list):
        scalars = (_scalar(item) for item in value)
        return [scalar for scalar in scalars if scalar is not None]
    return _scalar(value)


def _scalar(value: object) -> _Value | None:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool) else None
