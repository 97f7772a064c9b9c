"""`Schema`: the fields of passages that are searched, counted and compared, declared once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Final, Self

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.checks import check_weights, checked_arguments, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.scope import PATH_KEY
from llama_retrieval_ext.wording import nearest

# Everything that is searched, as one text: a question whose words stand in several fields.
EVERYTHING: Final = "*"
TEXT: Final = "text"
HEADINGS: Final = "headings"
# Chosen once on the sets of ../shared/data, nDCG@10 of keyword search for title 0 / .5 / 1 / 1.25:
# movies .751 / .850 / .855 / .849, musique .567 / .613 / .626 / .626, 2wikimultihop .697 / .718 /
# .721 / .721, cmrc2018 .994 / .995 / .997 / .995; the others have no titles.
_DEFAULT_WEIGHTS: Final = {EVERYTHING: 1.0, "title": 1.0, HEADINGS: 0.5}
# Of the largest weight. On movies nDCG@10 is .869 with half of it, .871 with this, .867 with all,
# chosen on the same questions.
_SHARE_OF_EVERYTHING: Final = 2 / 3
_STOP_WORD_WEIGHT: Final = 0.5
# LlamaIndex's form of metadata in texts.
_TEMPLATE: Final = "{key}: {value}"


@checked_arguments
@dataclass(frozen=True, kw_only=True, repr=False)
class Schema:
    r"""The fields of a knowledge base.

    A field is a part of a passage with a name: ``text``, the passage's own text; ``headings``,
    those above it; or a key of the metadata, such as ``title``, whose value is a string, a number,
    or a list of them. The field ``*`` is everything that is searched, as one text: it finds the
    passages that have all words of a question, in whichever fields.

    The score of keyword search is the sum of the BM25 scores of the fields, times their weights:

    .. math:: s(q, d) = \sum_f w_f \sum_{t \in q} \mathrm{idf}_f(t) \, w_{BM25}(t, d_f)

    Args:
        text: The searched fields, with weights of 0 or more. ``*`` has two thirds of the largest
            weight unless it is given. By default ``{"*": 1, "title": 1, "headings": 0.5}``.
        facets: Metadata keys with values to count; see `KnowledgeBase.facets`.
        numbers: Metadata keys with numbers, which are counted by ranges.
        dates: Metadata keys with dates, likewise.

    Raises:
        ConfigurationError: A name or a weight is invalid, or no weight is above 0.

    Source:
        Weighted sum: Robertson, Zaragoza and Taylor, "Simple BM25 extension to multiple weighted
        fields", CIKM 2004, https://doi.org/10.1145/1031171.1031181, section 3, which they improve
        by BM25F. On movies, nDCG@10 is .833 for the sum and .836 for BM25F, and .862 for the sum
        with ``*``, whose weights, unlike those of BM25F, are those of the query.

    Examples:
        >>> schema = Schema(text={"title": 3, "text": 1}, facets=["genres"], numbers=["year"])
        >>> schema
        Schema(text={'title': 3, 'text': 1, '*': 2}, facets=('genres',), numbers=('year',))
        >>> schema.weights({"title": 1})
        {'title': 1.0}

    """

    text: Mapping[str, float] = field(default_factory=_DEFAULT_WEIGHTS.copy)
    facets: Sequence[str] = ()
    numbers: Sequence[str] = ()
    dates: Sequence[str] = ()
    # Whether the searched fields are those without a schema.
    is_default: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        given = check_weights(self.text, "text")
        _names(given, "text")
        weights = {name: float(weight) for name, weight in given.items()}
        weights.setdefault(EVERYTHING, _SHARE_OF_EVERYTHING * max(weights.values()))
        object.__setattr__(self, "text", weights)
        object.__setattr__(self, "is_default", weights == _DEFAULT_WEIGHTS)
        for what in ("facets", "numbers", "dates"):
            object.__setattr__(self, what, _names(getattr(self, what), what))
        both = [name for name in self.numbers if name in self.dates]
        if both:
            raise ConfigurationError(f"{both[0]!r} is in numbers and in dates; leave it in one")

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict()))

    def __repr__(self) -> str:
        plain = {n: int(w) if w == int(w) else round(w, 4) for n, w in self.text.items()}
        shown: dict[str, object] = {"text": plain}
        lists = {name: getattr(self, name) for name in ("facets", "numbers", "dates")}
        arguments = {**shown, **{name: names for name, names in lists.items() if names}}
        return f"Schema({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    def weighed(self, weights: Mapping[str, float]) -> Self:
        """Return the same fields with other weights, as they were learned."""
        copied = copy(self)
        object.__setattr__(copied, "text", {**self.text, **weights})
        return copied

    @property
    def searched(self) -> tuple[str, ...]:
        """The names of the searched fields, ``*`` included."""
        return tuple(self.text)

    def weights(self, asked: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the weights above 0 of a query: its own, or those of the schema.

        Raises:
            ConfigurationError: A field is not searched, or a weight is invalid.
        """
        if asked is None:
            return {name: weight for name, weight in self.text.items() if weight > 0}
        for name in check_weights(asked, "fields"):
            if name not in self.text:
                raise ConfigurationError(
                    f"fields has {name!r}, which is not searched; the searched fields are "
                    f"{nearest(name, self.text)}; to search another one, declare it in the Schema "
                    "of the knowledge base, then call index_fields()"
                )
        return {name: float(weight) for name, weight in asked.items() if weight > 0}

    def texts(self, node: BaseNode) -> dict[str, str]:
        """Return the texts of a passage by field; `EVERYTHING` has what no other field has.

        A key in ``excluded_embed_metadata_keys`` is searched only if the schema names it.
        """
        hidden = {*node.excluded_embed_metadata_keys, *SCOPE_KEYS}
        if not self.is_default:
            hidden.difference_update(map(_key_of, self.text))
        values = {key: value for key, value in node.metadata.items() if key not in hidden}
        content = node.get_content(MetadataMode.NONE)
        texts = {
            name: content if name == TEXT else text_of(values.pop(_key_of(name), ""))
            for name in self.text
            if name != EVERYTHING
        }
        template = getattr(node, "metadata_template", _TEMPLATE)
        lines = [template.format(key=key, value=value) for key, value in values.items()]
        texts[EVERYTHING] = "\n".join(lines if TEXT in texts else [*lines, content])
        return texts

    def everything(self, node: BaseNode) -> str:
        """Return all that is searched of a passage, as one text."""
        return "\n".join(filter(None, self.texts(node).values()))

    def stop_word_weight(self, name: str) -> float:
        """Return the weight of a stop word in a field: 0 in texts, and if no field is declared.

        In names and titles they tell apart: on movies nDCG@10 is .874 instead of .862.
        """
        return 0.0 if self.is_default or name in {EVERYTHING, TEXT, HEADINGS} else _STOP_WORD_WEIGHT

    def to_dict(self) -> dict[str, object]:
        """Return every field as a JSON value."""
        lists = {"facets": [*self.facets], "numbers": [*self.numbers], "dates": [*self.dates]}
        return {"text": dict(self.text), **lists}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Return the schema in data, such as that of `to_dict`, a YAML file or a request.

        Raises:
            ConfigurationError: A name is unknown, or a value invalid.
        """
        of_type(data, Mapping, "a schema", instead="write {'text': {'title': 3}, 'facets': []}")
        names = [field.name for field in fields(cls) if field.init]
        for name in data:
            if name not in names:
                raise ConfigurationError(
                    f"a schema has no {name!r}; write {nearest(str(name), names)}"
                )
        return cls(**data)  # type: ignore[arg-type]  # checked there


def keys_of(names: Iterable[str]) -> list[str]:
    """Return the metadata keys of fields; `TEXT` and `EVERYTHING` have none."""
    return [_key_of(name) for name in names if name not in {TEXT, EVERYTHING}]


def text_of(value: object) -> str:
    r"""Return the text of a metadata value: strings and numbers, each on a line; else empty.

    Examples:
        >>> text_of(["Tom Hanks", 2000]), text_of(None), text_of({"name": "Tom"})
        ('Tom Hanks\n2000', '', '')

    """
    if isinstance(value, str):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    return "\n".join(str(one) for one in values if isinstance(one, str) or is_number(one))


def _key_of(name: str) -> str:
    return PATH_KEY if name == HEADINGS else name


def _names(names: Iterable[object], what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigurationError(f"{what} must be a list of metadata keys, got {names!r}")
    kept = tuple(names)
    for name in kept:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"{what}: a field has a name, got {name!r}")
        if name in SCOPE_KEYS:
            raise ConfigurationError(f"{what}: {name!r} belongs to the scope, and is not searched")
    return tuple(dict.fromkeys(kept))  # type: ignore[arg-type]  # strings, as checked


# The fields that are searched without a schema.
DEFAULT_SCHEMA: Final = Schema()
