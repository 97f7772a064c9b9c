"""Links between passages without an LLM: titles they name, entities they mention, shared phrases.

What a passage says is stored as it is; what links it is derived from all passages that a scope can
see. So frequencies and cut-offs are never those of another tenant, and never out of date.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import CHUNK_LABEL, Edge, GraphNode, Partition
from llama_retrieval_ext.graph.entity_linking import NER, NameFinder, names_found
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.text.gazetteer import Gazetteer
from llama_retrieval_ext.text.normalization import CJK, HAN, RANGES, normal
from llama_retrieval_ext.text.segmentation import has_cjk
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS
from llama_retrieval_ext.text.traditional_chinese import simplified

DOCUMENT_KEY: Final = "ref_doc_id"
DOCUMENT_LABEL: Final = "document"
MENTIONS: Final = "MENTIONS"
PART_OF: Final = "PART_OF"

Words: TypeAlias = tuple[str, ...]

# Of a name: words and characters.
_LONGEST_NAME: Final = 24
_SHORTEST_NAME: Final = 3
_GRAM: Final = 3


@dataclass(frozen=True, kw_only=True)
class PassageLinks:
    """Which evidence links passages, each kind with its switch.

    Args:
        titles: Whether a passage is linked to those whose title it names.
        entities: Whether passages are linked by entities: what ``entity_fields``, ``gazetteer`` and
            ``ner`` find, and whatever else the graph says that a passage mentions.
        phrases: Whether passages are linked by rare phrases that they share.
        title_fields: Metadata fields with the title of a passage or of its document.
        entity_fields: Metadata fields whose values, strings or lists of them, are entities.
        gazetteer: Names of known entities.
        ner: Finds entities in a text: an object with ``extract(text)``, or a function.

    Raises:
        ConfigurationError: A field of names is one string, or ``ner`` cannot be called.

    Examples:
        >>> PassageLinks(entity_fields=["tags"]).entity_fields
        ('tags',)

    """

    titles: bool = True
    entities: bool = True
    phrases: bool = True
    title_fields: Sequence[str] = ("title", "heading", "header_path", "file_name")
    entity_fields: Sequence[str] = ()
    gazetteer: Sequence[str] = ()
    ner: NameFinder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("title_fields", "entity_fields", "gazetteer"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise ConfigurationError(f"{name} must be a list of strings, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        if not (self.ner is None or callable(self.ner) or isinstance(self.ner, NER)):
            raise ConfigurationError(
                f"ner must have a method extract(text) or be a function, got {self.ner!r}"
            )

    def titles_of(self, metadata: Mapping[str, object]) -> list[str]:
        """Return the titles that metadata give, without folders, suffixes and heading levels.

        Examples:
            >>> PassageLinks().titles_of({"file_name": "rules.md", "header_path": "/A/Cranes/"})
            ['Cranes', 'rules']

        """
        values = ((key, metadata.get(key)) for key in self.title_fields)
        found = (_TITLES.get(key, str)(value) for key, value in values if isinstance(value, str))
        return [title for title in dict.fromkeys(found) if title.strip()]

    def entities_of(self, text: str, metadata: Mapping[str, object]) -> list[str]:
        """Return the entities of a passage by metadata, gazetteer and NER, each once, sorted."""
        if not self.entities:
            return []
        found: set[str] = set()
        for key in self.entity_fields:
            value = metadata.get(key)
            values = [value] if isinstance(value, str) else value
            if isinstance(values, list | tuple):
                found.update(each for each in values if isinstance(each, str))
        if self._known is not None:
            found.update(id_ for match in self._known.find(text) for id_ in match.ids)
        if self.ner is not None:
            found.update(names_found(self.ner, text))
        return sorted({each.strip() for each in found} - {""})

    @cached_property
    def _known(self) -> Gazetteer | None:
        return Gazetteer((name, name) for name in self.gazetteer) if self.gazetteer else None


def _stem(file_name: str) -> str:
    return re.split(r"[\\/]", file_name)[-1].rpartition(".")[0] or file_name


def _heading(path: str) -> str:
    return path.strip("/ ").split("/")[-1]


_TITLES: Final[Mapping[str, Callable[[str], str]]] = {"file_name": _stem, "header_path": _heading}


class GraphRows(NamedTuple):
    """What `WritableGraph.upsert` takes."""

    nodes: list[GraphNode]
    edges: list[Edge]


def passage_rows(passages: Iterable[BaseNode], links: PassageLinks) -> GraphRows:
    """Return passages, their documents and entities as rows of a graph.

    Args:
        passages: Nodes as they go to the vector store, tenant and knowledge base in their metadata.
        links: Which entities to look for.

    Returns:
        One node a passage, under its id in the vector store, with its metadata and text; one entity
        a document that has an id, and one an entity, with edges from the passages to both.
    """
    nodes: dict[tuple[Partition, str], GraphNode] = {}
    edges: list[Edge] = []
    for passage in passages:
        own = _passage_node(passage)
        home = own.partition
        where = {key: own.properties[key] for key in (TENANT_KEY, KB_KEY) if key in own.properties}
        nodes[home, own.id] = own
        document = own.properties.get(DOCUMENT_KEY)
        if isinstance(document, str):
            title = next(iter(links.titles_of(own.properties)), document)
            node = GraphNode(f"{DOCUMENT_LABEL}:{document}", DOCUMENT_LABEL, title, where)
            nodes.setdefault((home, node.id), node)
            edges.append(Edge.of(own.id, PART_OF, node.id, where))
        for name in links.entities_of(own.text or "", own.properties):
            nodes.setdefault((home, name), GraphNode(name, properties=where))
            edges.append(Edge.of(own.id, MENTIONS, name, where))
    return GraphRows(list(nodes.values()), edges)


def _passage_node(passage: BaseNode) -> GraphNode:
    properties = dict(passage.metadata)
    if passage.ref_doc_id is not None:
        properties[DOCUMENT_KEY] = passage.ref_doc_id
    text = passage.get_content(metadata_mode=MetadataMode.NONE)
    return GraphNode(passage.node_id, CHUNK_LABEL, properties=properties, text=text)


# Words and names

# A word, or one character of a script without spaces.
_WORD: Final = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
_UPPER: Final = "".join(
    character
    for low, high in re.findall(
        r"(.)-(.)", "".join(RANGES[script] for script in ("latin", "cyrillic", "greek", "armenian"))
    )
    for character in map(chr, range(ord(low), ord(high) + 1))
    if character.isupper()
)
_CAPITALISED: Final = rf"(?:[{_UPPER}][\w'’\-]*|\d+)"  # noqa: RUF001 - both apostrophes
_JOINING: Final = "of|the|and|de|la|von|van|du|di|al|for|in|der|des|del"
_SEQUENCE: Final = re.compile(
    rf"{_CAPITALISED}(?:[^\S\n]+(?:(?:{_JOINING})[^\S\n]+)*{_CAPITALISED})*"
)
_QUOTED: Final = re.compile(r"《([^《》\n]{2,40})》|「([^「」\n]{2,40})」")
_RUN: Final = re.compile(rf"[{HAN}]{{{_GRAM},}}")
# Begin many sentences, and are no names.
# fmt: off
_OPENERS: Final = ENGLISH_STOP_WORDS | {
    "after", "before", "during", "while", "until", "since", "under", "over", "between", "out", "up",
    "down", "however", "although", "though", "because", "due", "according", "also", "both", "each",
    "all", "any", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "first", "second", "third", "new", "most", "more", "many", "some", "other", "another", "if",
    "only", "despite", "later", "soon", "today", "see", "note",
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
}
# fmt: on


def words(text: str) -> Words:
    """Return the words of a text, casefolded; each character of a CJK run is one.

    Examples:
        >>> words("The Gold-Rush, 臺灣")
        ('the', 'gold', 'rush', '台', '湾')

    """
    plain = normal(text).casefold()
    return tuple(_WORD.findall(simplified(plain) if has_cjk(plain) else plain))


def title_words(title: str) -> list[Words]:
    """Return what stands for a title in a text: its words, and those without disambiguation.

    Examples:
        >>> title_words("Alien (film)")
        [('alien', 'film'), ('alien',)]

    """
    plain = re.sub(r"\s*[(（][^()（）]*[)）]\s*$", "", title)  # noqa: RUF001 - Chinese brackets
    forms = dict.fromkeys((words(title), words(plain)))
    return [form for form in forms if _can_be_name(form)]


def _can_be_name(name: Words) -> bool:
    letters = "".join(name)
    is_long = len(letters) + len(name) - 1 >= _SHORTEST_NAME
    return is_long and len(name) <= _LONGEST_NAME and not letters.isdigit()


class Match(NamedTuple):
    """A name in a text.

    Attributes:
        place: What the name stands for.
        start: Its first word in the text, from 0.
        end: The word behind it.
    """

    place: int
    start: int
    end: int


class Names:
    """Names as sequences of words, found in texts.

    Args:
        names: What each name stands for.

    Examples:
        >>> names = Names({("new", "york"): 1, ("new",): 2})
        >>> names.find(words("From New York to new shores"))
        [Match(place=1, start=1, end=3), Match(place=2, start=4, end=5)]

    """

    def __init__(self, names: Mapping[Words, int]) -> None:
        self._names = {name: place for name, place in names.items() if name}
        lengths: dict[tuple[str, str], set[int]] = defaultdict(set)
        for name in self._names:
            if len(name) > 1:
                lengths[name[0], name[1]].add(len(name))
        self._single = {name[0]: at for name, at in self._names.items() if len(name) == 1}
        self._lengths = {pair: sorted(own, reverse=True) for pair, own in lengths.items()}

    def __len__(self) -> int:
        return len(self._names)

    def get(self, name: Words) -> int | None:
        """Return what a name stands for, None if it is not known."""
        return self._names.get(name)

    def find(self, text: Words) -> list[Match]:
        """Return what a text names, in order; the longest name where several begin, no overlaps."""
        found: list[Match] = []
        for match in self.find_all(text):
            if not found or match.start >= found[-1].end:
                found.append(match)
        return found

    def find_all(self, text: Words) -> Iterator[Match]:
        """Yield what a text names, names inside other names included; longest first at a word."""
        lengths, names, single = self._lengths, self._names, self._single
        for start, pair in enumerate(zip(text, (*text[1:], ""), strict=False)):
            for length in lengths.get(pair, ()):
                place = names.get(text[start : start + length])
                if place is not None:
                    yield Match(place, start, start + length)
            if pair[0] in single:
                yield Match(single[pair[0]], start, start + 1)


def phrases(text: str) -> set[Words]:
    """Return the phrases of a text that may be names: in capitals, or in Chinese quotation marks.

    Examples:
        >>> sorted(phrases("In Rome, Boso the Elder read 《安全生产法》."))
        [('boso', 'the', 'elder'), ('rome',), ('安', '全', '生', '产', '法')]

    """
    text = normal(text)
    found = {words(first or second) for first, second in _QUOTED.findall(text)}
    for sequence in _SEQUENCE.findall(text):
        parts = sequence.split()
        if len(parts) > 2 * _LONGEST_NAME:  # a heading in capitals, a table: no name
            continue
        while parts and parts[0].casefold() in _OPENERS:
            del parts[0]
        while parts and parts[-1].casefold() in _OPENERS:
            del parts[-1]
        found.add(words(" ".join(parts)))
    return {phrase for phrase in found if _can_be_name(phrase)}


def recurring(texts: Sequence[str], most: int) -> list[set[Words]]:
    """Return the sequences of Chinese characters that each text shares with others.

    A sequence is as long as it recurs as a whole: neighbouring groups of three characters that
    equally many texts have are one.

    Args:
        texts: One a passage. Linear time.
        most: In how many texts a sequence may be.

    Examples:
        >>> recurring(["深基坑支护", "支护深基坑", "吊装"], most=2)
        [{('深', '基', '坑')}, {('深', '基', '坑')}, set()]

    """
    runs = [_RUN.findall(simplified(normal(text))) for text in texts]
    counts: Counter[str] = Counter()
    for own in runs:
        counts.update({gram for run in own for gram in _grams(run)})
    return [
        {phrase for run in own for phrase in _joined(run, counts, most)} if own else set()
        for own in runs
    ]


def _grams(run: str) -> list[str]:
    return [run[at : at + _GRAM] for at in range(len(run) - _GRAM + 1)]


def _joined(run: str, counts: Mapping[str, int], most: int) -> Iterator[Words]:
    grams = _grams(run)
    start = 0
    for at, gram in enumerate(grams):
        if at + 1 == len(grams) or counts[grams[at + 1]] != counts[gram]:
            if 1 < counts[gram] <= most and at + _GRAM - start <= _LONGEST_NAME:
                yield tuple(run[start : at + _GRAM])
            start = at + 1
