"""Cuts documents into passages along their headings, tables and blocks of code."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import accumulate, islice, pairwise, takewhile
from typing import Final, NamedTuple

from llama_index.core.node_parser import NodeParser, SentenceSplitter
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import (
    BaseNode,
    Document,
    MediaResource,
    MetadataMode,
    NodeRelationship,
    TextNode,
)
from pydantic import Field, PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.long_texts import (
    LONG,
    Watch,
    for_long_texts,
    paragraphs_in,
    sentences_in,
)
from llama_retrieval_ext.knowledge_base.readers.outline import Block, Heading, Outline, outline_of
from llama_retrieval_ext.scope import PATH_KEY, SOURCE_KEY, TABLE_KEY

# Characters below which a section is joined with the next. Measured: see
# tests/benchmarks/README.md.
_LEAST: Final = 400
# Metadata of a passage, with PATH_KEY and TABLE_KEY: searches count them, they are not in its text.
TITLE_KEY: Final = "title"

_BETWEEN: Final = " > "
_LONGEST_TITLE: Final = 200
_LONGEST_PATH: Final = 300


class Section(NamedTuple):
    """A part of a document under one heading, with that heading and those above it."""

    start: int
    end: int
    path: tuple[str, ...] = ()


class Passage(NamedTuple):
    """The position of a passage in its document's text, and metadata that say where it stands."""

    start: int
    end: int
    metadata: dict[str, str]


class Piece(NamedTuple):
    """A part of a text that is not cut: a short section, a sentence, a row, a heading."""

    start: int
    end: int
    tokens: int
    is_heading: bool = False


# The header of a block that is the line of a heading; no table has it.
_HEADING: Final = "\0"
_LINE: Final = re.compile(r".*\s*")


class PositionedParser(NodeParser):
    """Base of node parsers that set the positions of their nodes."""

    def _postprocess_parsed_nodes(
        self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]
    ) -> list[BaseNode]:
        # LlamaIndex searches for a passage's text, which may occur several times.
        texts = [node for node in nodes if isinstance(node, TextNode)]
        positions = [(node.start_char_idx, node.end_char_idx) for node in texts]
        nodes = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        for node, (start, end) in zip(texts, positions, strict=True):
            node.start_char_idx, node.end_char_idx = start, end
        return nodes


class PassageParser(PositionedParser):
    """Cuts documents along their outline, and long sections as LlamaIndex's `SentenceSplitter`.

    The metadata of a passage have ``title``, ``heading_path`` and, if it begins inside a table,
    ``table``: its caption and first row. ``start_char_idx`` and ``end_char_idx`` are its position
    in the text. A document without an outline becomes the nodes of a `SentenceSplitter`, without
    one that only repeats the end of another; a ``file_path`` takes room only if it is embedded.
    """

    chunk_size: int = Field(gt=0)
    chunk_overlap: int = Field(ge=0)
    # To be increased when the same document is cut differently: it is then stored anew.
    version: int = Field(default=2, frozen=True)
    _watch: Watch = PrivateAttr(default=float)

    def watched(self, watch: Watch) -> "PassageParser":
        """Return a copy that calls `watch` with the characters of each part of a long text."""
        copy = self.model_copy()
        copy._watch = watch  # noqa: SLF001 - its own
        return copy

    @cached_property
    def _splitter(self) -> SentenceSplitter:
        splitter = SentenceSplitter(chunk_size=self.chunk_size, chunk_overlap=self.chunk_overlap)
        bounded = for_long_texts(splitter, self._watch)
        return bounded if isinstance(bounded, SentenceSplitter) else splitter

    def _parse_nodes(
        self,
        nodes: Sequence[BaseNode],
        show_progress: bool = False,  # noqa: ARG002, FBT001, FBT002 - LlamaIndex's signature
        **_: object,
    ) -> list[BaseNode]:
        texts = [(node, node.get_content(MetadataMode.NONE)) for node in nodes]
        return [
            passage
            for node, text in texts
            for passage in self._built(node, text, list(self._passages(node, text)))
        ]

    def node_groups(
        self, document: Document, ids: Callable[[str], str], size: int
    ) -> Iterator[list[BaseNode]]:
        """Yield the nodes of a document in groups, with ids by their texts in order.

        They are the nodes that a call with the document returns, apart from their ids.
        """
        text = document.text
        source = document.as_related_node_info()
        # Its text would be hashed and searched again for each group; its embedding is of the whole.
        empty = document.model_copy(
            update={"text_resource": MediaResource(text=""), "embedding": None}
        )
        passages = self._passages(document, text)
        identified = ((passage, ids(text[passage.start : passage.end])) for passage in passages)
        before: list[tuple[Passage, str]] = []  # the last of the group before, for its relations
        group = [*islice(identified, size)]
        while group:
            after = [*islice(identified, size)]
            around = [*before, *group, *after[:1]]
            nodes = self._built(empty, text, [passage for passage, _ in around])
            for node, (_, id_) in zip(nodes, around, strict=True):
                node.id_ = id_
                node.relationships[NodeRelationship.SOURCE] = source
            made = self._postprocess_parsed_nodes([*nodes], {document.id_: empty})
            yield made[len(before) :][: len(group)]
            before, group = group[-1:], after

    def _built(self, document: BaseNode, text: str, passages: Sequence[Passage]) -> list[TextNode]:
        texts = [text[start:end] for start, end, _ in passages]
        nodes = build_nodes_from_splits(texts, document, id_func=self.id_func)
        for node, (start, end, metadata) in zip(nodes, passages, strict=True):
            node.start_char_idx, node.end_char_idx, node.metadata = start, end, metadata
        return nodes

    def _passages(self, document: BaseNode, text: str) -> Iterator[Passage]:
        outline = outline_of(document)
        named = document.metadata.get(TITLE_KEY)
        title = "" if named else outline.title[:_LONGEST_TITLE]
        room = self.chunk_size - self._tokens(_own_metadata(document))
        sections = sections_of(text, outline, str(named or outline.title))
        if outline.is_code:
            sections = self._packed(text, sections, room)
        for section in sections:
            path = _BETWEEN.join(section.path)[-_LONGEST_PATH:]
            about = {TITLE_KEY: title, PATH_KEY: path}
            metadata = {key: value for key, value in about.items() if value}
            yield from self._cut(text, section, outline, metadata, room)

    def _packed(self, text: str, sections: Sequence[Section], room: int) -> list[Section]:
        longest = max(
            (_BETWEEN.join(section.path)[-_LONGEST_PATH:] for section in sections), key=len
        )
        left = room - self._tokens(longest)
        sizes = [
            left + 1 if end - start > LONG else self._tokens(text[start:end])
            for start, end, _ in sections
        ]
        return packed(sections, sizes, left)

    def _cut(
        self, text: str, section: Section, outline: Outline, metadata: dict[str, str], room: int
    ) -> Iterator[Passage]:
        first, last = (bisect_left(outline.blocks, (at,)) for at in (section.start, section.end))
        inside = outline.blocks[first:last]
        header = max((block.header for block in inside), key=len, default="")
        if metadata or header:
            room -= self._tokens("\n".join([*metadata.values(), header]))
        if room <= 0:
            raise ConfigurationError(
                f"its metadata take the {self.chunk_size} tokens of a passage; shorten them, or "
                "name some in excluded_embed_metadata_keys and excluded_llm_metadata_keys"
            )
        lines = () if outline.is_code else _heading_lines(text, section, outline)
        pieces = self._pieces(text, section, sorted([*inside, *lines]), room)
        done = -1  # the last one may have nothing new but white space
        for parts in merged(pieces, room, self.chunk_overlap):
            start, end = _stripped(text, parts[0].start, parts[-1].end)
            if any(block.start <= start < block.end for block in inside):  # keep the indentation
                start = max(parts[0].start, text.rfind("\n", 0, start) + 1)
            header = next((block.header for block in inside if block.start < start < block.end), "")
            if done < end and (start < end or not text):
                done = end
                yield Passage(start, end, {**metadata, TABLE_KEY: header} if header else metadata)

    def _pieces(
        self, text: str, section: Section, blocks: Sequence[Block], room: int
    ) -> Iterator[Piece]:
        """Yield the whole section if it fits, else its sentences and the lines of its blocks."""
        start, end = section.start, section.end
        is_long = end - start > LONG
        if blocks and not is_long and (size := self._tokens(text[start:end])) <= room:
            yield Piece(start, end, size)
            return
        headings = [block for block in blocks if block.header == _HEADING]
        size = sum(self._tokens(text[heading.start : heading.end]) for heading in headings)
        room -= min(size, 3 * room // 4)  # headings stay with the text below them
        for block in blocks:
            yield from self._split(text, start, block.start, room)
            start = max(start, block.start)
            if block.header == _HEADING:
                for piece in self._split(text, start, block.end, room):
                    yield piece._replace(is_heading=True)
                start = max(start, block.end)
                continue
            for line in text[start : min(block.end, end)].splitlines(keepends=True):
                yield from self._split(text, start, start + len(line), room)
                start += len(line)
        yield from self._split(text, start, end, room)

    def _split(self, text: str, start: int, end: int, room: int) -> Iterator[Piece]:
        """Yield a part of the text, as a whole if it fits, else by sentences, else by words."""
        if start >= end and text:
            return
        for part in self._parts(text, start, end):
            sentences = self._splitter._split(part, room)  # noqa: SLF001 - it has no public name
            for sentence in sentences:
                start = text.index(sentence.text, start, end)
                yield Piece(start, start + len(sentence.text), sentence.token_size)
                start += len(sentence.text)

    def _parts(self, text: str, start: int, end: int) -> Iterator[str]:
        """Yield a part of the text, of a long one first paragraphs, then sentences.

        `SentenceSplitter` splits in the same order, with all parts in memory.
        """
        if end - start <= LONG:
            yield text[start:end]
            return
        splitter = self._splitter
        split = splitter._chunking_tokenizer_fn  # noqa: SLF001 - as above
        for first, last in paragraphs_in(text, splitter.paragraph_separator, start, end):
            if last - first <= LONG:
                yield text[first:last]
            else:
                yield from sentences_in(text, split, start=first, end=last, watch=self._watch)

    def _tokens(self, text: str) -> int:
        return self._splitter._token_size(text)  # noqa: SLF001 - it has no public name


def _own_metadata(document: BaseNode) -> str:
    """Return the longer of the metadata for the model and for an LLM, here without the path.

    A path that is not embedded must not count: a file that moves keeps its passages.
    """
    metadata = {key: value for key, value in document.metadata.items() if key != SOURCE_KEY}
    pathless = document.model_copy(update={"metadata": metadata})
    embedded = document.get_metadata_str(MetadataMode.EMBED)
    return max(embedded, pathless.get_metadata_str(MetadataMode.LLM), key=len)


def _heading_lines(text: str, section: Section, outline: Outline) -> Iterator[Block]:
    """Yield the lines of the headings in a section."""
    first = bisect_left(outline.headings, (section.start,))
    for heading in outline.headings[first:]:
        if heading.start >= section.end:
            return
        line = _LINE.match(text, heading.start, section.end)
        if heading.text and line is not None:
            yield Block(*line.span(), _HEADING)


def merged(pieces: Iterable[Piece], room: int, overlap: int) -> Iterator[Sequence[Piece]]:
    """Yield the pieces of each passage, at most `room` tokens, as `SentenceSplitter` merges them.

    A passage begins with the last pieces of the one before it, of at most `overlap` tokens.
    """
    passage: list[Piece] = []
    size = 0
    for piece in pieces:
        if piece.tokens > room:
            raise ConfigurationError(f"one character has {piece.tokens} tokens, a passage {room}")
        if size + piece.tokens > room:
            headings = [*takewhile(lambda part: part.is_heading, reversed(passage))][::-1]
            left = room - piece.tokens - sum(heading.tokens for heading in headings)
            if left < 0 or len(headings) == len(passage):
                headings, left = [], room - piece.tokens
            passage = passage[: len(passage) - len(headings)]
            yield passage
            passage = [*_last(passage, min(overlap, left)), *headings]
            size = sum(part.tokens for part in passage)
        passage.append(piece)
        size += piece.tokens
    if passage:
        yield passage


def _last(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Return the last pieces of at most so many tokens."""
    sizes = accumulate(piece.tokens for piece in reversed(pieces))
    count = sum(1 for _ in takewhile(lambda size: size <= most, sizes))
    return [*pieces[len(pieces) - count :]]


def sections_of(text: str, outline: Outline, title: str = "") -> list[Section]:
    """Return the sections of a text, short ones joined with the next; paths omit the title."""
    groups: list[list[Section]] = []
    for section in _sections(text, outline.headings, title):
        if section.start == section.end and text:
            continue
        if groups and _joins(groups[-1], section, is_code=outline.is_code):
            groups[-1].append(section)
        else:
            groups.append([section])
    # A class in source code does not count beside its first method.
    return [_joined(group, "" if outline.is_code else text) for group in groups]


def packed(sections: Sequence[Section], sizes: Sequence[int], room: int) -> list[Section]:
    """Return the sections of source code, neighbours joined while they fit into so many tokens.

    A class that fits into a passage is not cut. The path is that of all of the passage.

    Source:
        "Split, then merge" of Zhang et al., "cAST: Enhancing Code Retrieval-Augmented Generation
        with Structural Chunking via Abstract Syntax Tree", 2025, https://arxiv.org/abs/2506.15655;
        here also of neighbours in different classes, which fills passages as cutting text does.
    """
    joined: list[Section] = []
    left = 0  # tokens that fit into the last one
    for numbers in _uncut(sections, sizes, room):
        group, size = [sections[n] for n in numbers], sum(sizes[n] for n in numbers)
        if joined and size <= left:
            group.insert(0, joined.pop())
        else:
            left = room
        path = reduce(_common, (section.path for section in group))
        joined.append(Section(group[0].start, group[-1].end, path))
        left -= size
    return joined


def _uncut(sections: Sequence[Section], sizes: Sequence[int], room: int) -> Iterator[range]:
    """Yield the sections of each class or function that fits, and the other sections.

    Iterative, because generated code may nest thousands of levels.
    """
    open_groups = [(range(len(sections)), 0)]
    while open_groups:
        group, depth = open_groups.pop()
        if len(group) == 1 or sum(sizes[n] for n in group) <= room:
            yield group
            continue
        inside: list[tuple[range, int]] = []
        for number in group:
            before = sections[number - 1].path[depth : depth + 1] if inside else ()
            if before and before == sections[number].path[depth : depth + 1]:
                inside[-1] = (range(inside[-1][0].start, number + 1), depth + 1)
            else:
                inside.append((range(number, number + 1), depth + 1))
        open_groups += reversed(inside)


def _sections(text: str, headings: Sequence[Heading], title: str) -> Iterator[Section]:
    above: list[Heading] = []
    starts = [*(heading.start for heading in headings), len(text)]
    yield Section(0, starts[0])
    for heading, end in zip(headings, starts[1:], strict=True):
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        path = tuple(outer.text for outer in above if outer.text)
        yield Section(heading.start, end, path[1:] if path[:1] == (title,) else path)


def _joins(group: Sequence[Section], section: Section, *, is_code: bool) -> bool:
    """Return whether sections are joined with the next, being short; in code of one class."""
    is_short = section.start - group[0].start < _LEAST
    return is_short and (not is_code or group[-1].path[:1] in {(), section.path[:1]})


def _joined(group: Sequence[Section], text: str) -> Section:
    """Return sections as one, under the headings that they share.

    A section directly above the next one does not count if it has no text but its heading: a title
    with its first part is that part.
    """
    paths = [
        one.path
        for one, after in pairwise(group)
        # There are words below its first line.
        if after.path[: len(one.path)] != one.path
        or any(map(str.isalnum, text[one.start : one.end].strip().partition("\n")[2]))
    ]
    path = reduce(_common, [*paths, group[-1].path])
    return Section(group[0].start, group[-1].end, path)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Return the headings that two paths share."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(heading for heading, _ in same)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the positions without white space at both ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
