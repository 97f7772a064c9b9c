"""Cuts documents into passages along their headings, tables and blocks of code."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, islice, takewhile
from typing import Any, Final, NamedTuple, TypeVar

from llama_index.core.node_parser import NodeParser, SentenceSplitter
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.node_parser.text import utils
from llama_index.core.schema import (
    BaseNode,
    Document,
    MediaResource,
    MetadataMode,
    NodeRelationship,
    TextNode,
    TransformComponent,
)
from pydantic import Field, PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.outline import (
    Block,
    Outline,
    Section,
    outline_of,
    packed,
    sections_of,
)
from llama_retrieval_ext.scope import PATH_KEY, SOURCE_KEY, TABLE_KEY

A = TypeVar("A")
T = TypeVar("T")
Split = Callable[[str], list[str]]
# Gets the number of characters that a step of the work has finished.
Watch = Callable[[float], object]

# Characters above which a text is cut part by part, and its passages are embedded and written in
# groups. No passage, of some hundred tokens, is as long.
LONG: Final = 2_000_000
# Characters per block, which NLTK searches in a fiftieth of its time limit.
_BLOCK: Final = 250_000
# Where a block without a sentence's end is cut: `SentenceSplitter` also cuts after these, in turn.
_ENDS: Final = tuple(re.compile(end) for end in (r"[,.;。？！]", r"\n", r"\s"))  # noqa: RUF001
_DEFAULT: Final = utils.split_by_sentence_tokenizer().__qualname__


def in_blocks(split: Split, *, block: int = _BLOCK, watch: Watch = float) -> Split:
    """Return a function that splits a text into the same sentences, one block at a time.

    Args:
        split: Returns the sentences of a text; joined they are the text.
        block: Number of characters that `split` gets at once.
        watch: Called after each block but the last.
    """
    return lambda text: list(sentences_in(text, split, block=block, watch=watch))


def sentences_in(
    text: str,
    split: Split,
    *,
    start: int = 0,
    end: int | None = None,
    block: int = _BLOCK,
    watch: Watch = float,
) -> Iterator[str]:
    """Yield the sentences of a part of a text; arguments as of `in_blocks`."""
    end = len(text) if end is None else end
    while end - start > block:
        part = text[start : start + block]
        # What ends a block may look like a sentence, so the last two are searched again.
        whole = split_by(split, part)[:-2] or [part[: _cut(part)]]
        yield from whole
        size = sum(map(len, whole))
        start += size
        watch(size)
    yield from split_by(split, text[start:end])


def paragraphs_in(text: str, separator: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the parts between separators; a part begins with its separator."""
    cut = text.find(separator, start, end)
    while cut >= 0:
        if cut > start:
            yield start, cut
        start = cut
        cut = text.find(separator, start + len(separator), end)
    yield start, end


def _cut(block: str) -> int:
    """Return the position at which to cut a block that has no end of a sentence."""
    for pattern in _ENDS:
        last = max((match.end() for match in pattern.finditer(block)), default=0)
        if last:
            return last
    return len(block)


def for_long_texts(transformation: TransformComponent, watch: Watch = float) -> TransformComponent:
    """Return a transformation that finds sentences by LlamaIndex's default in blocks, as a copy.

    Others are returned unchanged. `watch` is called as by `in_blocks`.
    """
    bounded = partial(in_blocks, watch=watch)
    if isinstance(transformation, SentenceSplitter):
        functions: list[Split] = transformation._split_fns  # noqa: SLF001 - it has no public name
        if any(map(_is_default, functions)):
            transformation = transformation.model_copy()
            transformation._split_fns = [  # noqa: SLF001 - as above
                bounded(function) if _is_default(function) else function for function in functions
            ]
    elif _is_default(getattr(transformation, "sentence_splitter", None)):
        split: Any = getattr(transformation, "sentence_splitter")  # noqa: B009 - of several classes
        transformation = transformation.model_copy(update={"sentence_splitter": bounded(split)})
    return transformation


def _is_default(function: object) -> bool:
    return getattr(function, "__qualname__", "") == _DEFAULT


def split_by(split: Callable[[A], T], given: A) -> T:
    """Return the result of a function that splits texts; retry if NLTK rejects its files.

    NLTK rejects files with several hard links, which uv creates when it installs a package.
    LlamaIndex's sentence splitter reads such a file at its first use only, and does not need it.
    """
    try:
        return split(given)
    except PermissionError:
        return split(given)


# Metadata of a passage, with PATH_KEY and TABLE_KEY: searches count them, they are not in its text.
TITLE_KEY: Final = "title"

_BETWEEN: Final = " > "
_LONGEST_TITLE: Final = 200
_LONGEST_PATH: Final = 300


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
        positions = [
            (node, node.start_char_idx, node.end_char_idx)
            for node in nodes
            if isinstance(node, TextNode)
        ]
        nodes = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        for node, start, end in positions:
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
        copy._watch = watch  # noqa: SLF001 - of this class
        vars(copy).pop("_splitter", None)  # it has the other one
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
        built: list[BaseNode] = []
        for node in nodes:
            text = node.get_content(MetadataMode.NONE)
            built += self._built(node, text, list(self._passages(node, text)))
        return built

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
        # A path that is not embedded must not count: a file that moves keeps its passages.
        pathless = document.model_copy(update={"metadata": {**document.metadata}})
        pathless.metadata.pop(SOURCE_KEY, None)
        embedded = document.get_metadata_str(MetadataMode.EMBED)
        longer = max(embedded, pathless.get_metadata_str(MetadataMode.LLM), key=len)
        room = self.chunk_size - self._tokens(longer)
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
        first = bisect_left(outline.blocks, (section.start,))
        inside = outline.blocks[first : bisect_left(outline.blocks, (section.end,))]
        header = max((block.header for block in inside), key=len) if inside else ""
        if metadata or header:
            room -= self._tokens("\n".join([*metadata.values(), header]))
        if room <= 0:
            raise ConfigurationError(
                f"its metadata take the {self.chunk_size} tokens of a passage; shorten them, or "
                "name some in excluded_embed_metadata_keys and excluded_llm_metadata_keys"
            )
        has_headings = outline.headings and not outline.is_code
        lines = _heading_lines(text, section, outline) if has_headings else ()
        pieces = self._pieces(text, section, sorted([*inside, *lines]), room)
        done = -1  # the last one may have nothing new but white space
        for parts in merged(pieces, room, self.chunk_overlap):
            part = text[parts[0].start : parts[-1].end]
            start = parts[0].start + len(part) - len(part.lstrip())
            end = parts[0].start + len(part.rstrip())
            header = ""
            if inside:
                if any(block.start <= start < block.end for block in inside):  # with indentation
                    start = max(parts[0].start, text.rfind("\n", 0, start) + 1)
                headers = (block.header for block in inside if block.start < start < block.end)
                header = next(headers, "")
            if done < end and (start < end or not text):
                done = end
                yield Passage(start, end, {**metadata, TABLE_KEY: header} if header else metadata)

    def _pieces(
        self, text: str, section: Section, blocks: Sequence[Block], room: int
    ) -> Iterator[Piece]:
        """Yield the whole section if it fits, else its sentences and the lines of its blocks."""
        start, end = section.start, section.end
        if blocks:
            if end - start <= LONG and (size := self._tokens(text[start:end])) <= room:
                yield Piece(start, end, size)
                return
            size = sum(self._tokens(text[b.start : b.end]) for b in blocks if b.header == _HEADING)
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
        is_long = end - start > LONG
        for part in self._parts(text, start, end) if is_long else (text[start:end],):
            sentences = self._splitter._split(part, room)  # noqa: SLF001 - it has no public name
            for sentence in sentences:
                start = text.index(sentence.text, start, end)
                yield Piece(start, start + len(sentence.text), sentence.token_size)
                start += len(sentence.text)

    def _parts(self, text: str, start: int, end: int) -> Iterator[str]:
        """Yield the paragraphs of a long part of the text, and the sentences of long ones.

        `SentenceSplitter` splits in the same order, with all parts in memory.
        """
        splitter = self._splitter
        split = splitter._chunking_tokenizer_fn  # noqa: SLF001 - as above
        for first, last in paragraphs_in(text, splitter.paragraph_separator, start, end):
            if last - first <= LONG:
                yield text[first:last]
            else:
                yield from sentences_in(text, split, start=first, end=last, watch=self._watch)

    def _tokens(self, text: str) -> int:
        return self._splitter._token_size(text)  # noqa: SLF001 - it has no public name


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
            sizes = accumulate(part.tokens for part in reversed(passage))
            n_repeated = bisect_right([*sizes], min(overlap, left))
            passage = [*passage[len(passage) - n_repeated :], *headings]
            size = sum(part.tokens for part in passage)
        passage.append(piece)
        size += piece.tokens
    if passage:
        yield passage
