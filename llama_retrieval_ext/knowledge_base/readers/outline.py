"""The outline of a document: its title, headings or classes, tables and blocks; its sections."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise, takewhile
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeVar

from llama_index.core.schema import BaseNode, Document, MetadataMode

from llama_retrieval_ext.knowledge_base.readers.code import LANGUAGES, definitions
from llama_retrieval_ext.scope import source_in

# A line may be of any length; so many characters of one say what it is about.
_LONGEST: Final = 200


class Heading(NamedTuple):
    """A heading: the position of its line in the text, its level from 1, and its words.

    Without words it ends what is below the heading before it of its level.
    """

    start: int
    level: int
    text: str


class Block(NamedTuple):
    """A table or block of code, cut only between lines; ``header`` belongs to each part."""

    start: int
    end: int
    header: str = ""


class Outline(NamedTuple):
    """The structure of a text; positions are in ascending order."""

    title: str = ""
    headings: tuple[Heading, ...] = ()
    blocks: tuple[Block, ...] = ()
    is_code: bool = False


class OutlinedDocument(Document):
    """A document whose reader knows its outline, which its text alone does not show."""

    outline: Outline = Outline()

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)


class TextLine(NamedTuple):
    """A line of a file: a heading with its level, a row of a numbered table, or a caption.

    `box` is the number of boxes around it, such as a note. `ends` is the one, counted from
    outside, whose headings end before the line; 0 for none.
    """

    text: str
    level: int = 0
    table: int = 0
    is_caption: bool = False
    box: int = 0
    ends: int = 0


# Levels of headings, which are below those of the boxes around them.
_LEVELS: Final = 10


def outlined(lines: Iterable[TextLine]) -> tuple[str, Outline]:
    """Return the text of lines and its outline; the first row of a table is its header."""
    texts: list[str] = []
    headings: list[Heading] = []
    blocks: dict[int, Block] = {}
    start, caption = 0, ""
    for line in lines:
        end = start + len(line.text)
        if line.ends:
            headings.append(Heading(start, line.ends * _LEVELS + 1, ""))
        if line.level and line.text.strip():
            level = line.box * _LEVELS + line.level
            headings.append(Heading(start, level, " ".join(line.text.split())))
        if line.table in blocks:
            blocks[line.table] = blocks[line.table]._replace(end=end)
        elif line.table:
            blocks[line.table] = Block(start, end, _header(caption, line.text))
        if line.text.strip():
            caption = line.text if line.is_caption else ""
        texts.append(line.text)
        start = end + 1
    title = title_in(tuple(heading for heading in headings if heading.level <= _LEVELS))
    return "\n".join(texts), Outline(title, tuple(headings), tuple(blocks.values()))


def outlined_document(lines: Iterable[TextLine], metadata: Mapping[str, Any]) -> OutlinedDocument:
    """Return lines as a document with an outline; metadata that are empty are left out."""
    text, outline = outlined(lines)
    shown = {key: value for key, value in metadata.items() if value}
    return OutlinedDocument(text=text, metadata=shown, outline=outline)


def outline_of(document: BaseNode) -> Outline:
    """Return the outline of a document: its reader's, or that of Markdown, reST or source code."""
    if isinstance(document, OutlinedDocument):
        return document.outline
    suffix, text = suffix_of(document), document.get_content(MetadataMode.NONE)
    if suffix in LANGUAGES:
        return code_outline(text, suffix)
    find = _OUTLINES.get(suffix)
    return Outline() if find is None else find(text)


def suffix_of(document: BaseNode) -> str:
    """Return the suffix of a document's file in lower case; empty without one."""
    name = document.metadata.get("file_name") or source_in(document.metadata)
    return PurePath(name).suffix.lower() if isinstance(name, str) else ""


_CLOSING: Final = re.compile(r"(?:[\s})\];,]|end\b)*")


def code_outline(text: str, suffix: str) -> Outline:
    """Return the classes and functions of a source text as headings; it is cut between lines."""
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]
    headings: list[Heading] = []
    for definition in definitions(text, suffix):
        # Blank lines and closing brackets belong to what they follow.
        closing = _CLOSING.match(text, lines[min(definition.last, len(lines) - 1)])
        end = len(text) if closing is None else closing.end()
        end = text.rfind("\n", 0, end) + 1 if end < len(text) else end
        headings.append(Heading(lines[definition.first], definition.level, definition.name))
        headings.append(Heading(end, definition.level, ""))
    if not headings:
        return Outline()
    # At one position, what ends comes before what begins.
    headings.sort(key=lambda heading: (heading.start, bool(heading.text), heading.level))
    starts = sorted({0, *(heading.start for heading in headings), len(text)})
    blocks = tuple(Block(*pair) for pair in pairwise(starts))
    return Outline("", tuple(headings), blocks, is_code=True)


_FENCED: Final = re.compile(
    r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,}).*(?:\n.*)*?(?:\n {0,3}\1[`~]*[ \t]*$|\Z)"
    r"|^ {0,3}<!--[\s\S]*?(?:-->|\Z)",
    re.MULTILINE,
)
_FRONT_MATTER: Final = re.compile(r"\A---\n(?:.*\n)*?---[ \t]*$", re.MULTILINE)
_TITLE_LINE: Final = re.compile(r"^title:(.+)$", re.MULTILINE)
_HEADING: Final = re.compile(
    r"^ {0,3}(?P<marks>#{1,6})[ \t]+(?P<text>.+)$"
    r"|(?:\A|^[ \t]*\n)(?P<over>\S.*)\n(?P<line>=+|-{3,})[ \t]*$",
    re.MULTILINE,
)
_PIPES: Final = re.compile(
    r"^(?P<header>[^|\n]*\|.*\n[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$)"
    r"(?:\n[^|\n]*\|.*)*",
    re.MULTILINE,
)
_CAPTION: Final = re.compile(r"[*_ ]*(?:table|tab\.|tableau|tabelle|表)|.*[:：]$", re.IGNORECASE)  # noqa: RUF001


def markdown_outline(text: str) -> Outline:
    """Return the outline of a Markdown text; headings and tables in blocks of code do not count."""
    front = _FRONT_MATTER.search(text)
    code = [] if front is None else [Block(*front.span())]
    behind = 0 if front is None else front.end()
    code += [Block(*match.span()) for match in _FENCED.finditer(text, behind)]
    headings = tuple(_outside(code, map(_heading, _HEADING.finditer(text))))
    tables: list[Block] = []
    for match in _PIPES.finditer(text):
        before = text[max(0, match.start() - 2 * _LONGEST) : match.start()].rstrip()
        line = before.rpartition("\n")[2].strip()
        header = _header(line if _CAPTION.match(line) else "", match["header"])
        tables.append(Block(*match.span(), header))
    tables = [*_outside(code, tables)]
    named = None if front is None else _TITLE_LINE.search(front[0])
    title = title_in(headings) if named is None else named[1].strip(" \t\"'")
    return Outline(title, headings, tuple(sorted(code + tables)))


def _heading(match: re.Match[str]) -> Heading:
    if match["marks"]:
        words = match["text"].strip()
        open_words = words.rstrip("#")
        if not open_words or open_words[-1].isspace():  # `C#` keeps its own
            words = open_words.rstrip()
        return Heading(match.start(), len(match["marks"]), words)
    return Heading(match.start("over"), 1 if match["line"][0] == "=" else 2, match["over"].strip())


def _header(caption: str, row: str) -> str:
    return "\n".join(line[:_LONGEST] for line in (caption, row) if line)


_Found = TypeVar("_Found", Heading, Block)


def _outside(blocks: list[Block], parts: Iterable[_Found]) -> Iterator[_Found]:
    """Yield what is not in one of the blocks, both in ascending order."""
    ahead = iter(blocks)
    block = next(ahead, None)
    for part in parts:
        while block is not None and block.end <= part.start:
            block = next(ahead, None)
        if block is None or part.start < block.start:
            yield part


def title_in(headings: tuple[Heading, ...]) -> str:
    """Return the first heading if it stands above all others, else nothing."""
    first, *others = headings or (Heading(0, 0, ""),)
    return first.text if all(heading.level > first.level for heading in others) else ""


_UNDERLINED: Final = re.compile(r"^(\S.*)\n([=\-~^\"'*+#`:._])\2{2,}[ \t]*$", re.MULTILINE)


def rst_outline(text: str) -> Outline:
    """Return the headings of a reStructuredText; levels are in the order of their underlines."""
    levels: dict[str, int] = {}
    headings: list[Heading] = []
    for match in _UNDERLINED.finditer(text):
        words = match[1].strip()
        if match.end() - match.end(1) > len(words) and any(map(str.isalnum, words)):
            level = levels.setdefault(match[2], len(levels) + 1)
            headings.append(Heading(match.start(), level, words))
    return Outline(title_in(tuple(headings)), tuple(headings))


# Headings of a line: AsciiDoc and MediaWiki by signs, Org by stars, LaTeX and man pages by names.
_MARKED: Final[Mapping[tuple[str, ...], str]] = {
    (".adoc", ".asciidoc"): r"^(?P<mark>={1,6})[ \t]+(?P<text>\S.*)$",
    (".wiki", ".mediawiki"): r"^(?P<mark>={1,6})(?P<text>[^=\n]+)=+[ \t]*$",
    (".org",): r"^(?P<mark>\*{1,20})[ \t]+(?P<text>\S.*)$",
    (".tex", ".ltx"): r"^[ \t]*\\(?P<mark>part|chapter|(?:sub){0,2}section|paragraph)\*?"
    r"(?:\[[^\]\n]*\])?\{(?P<text>[^\n]+)\}",
    (".man", *map(".{}".format, range(1, 10))): r"^\.(?P<mark>SH|SS)[ \t]+\"?(?P<text>[^\"\n]+)",
}
_NAMED_LEVELS: Final[Mapping[str, int]] = {
    **{name: level for level, name in enumerate(("part", "chapter", "section"), start=1)},
    "subsection": 4,
    "subsubsection": 5,
    "paragraph": 6,
    "SH": 1,
    "SS": 2,
}


def marked_outline(pattern: re.Pattern[str], text: str) -> Outline:
    """Return the headings that a pattern finds; their levels are those of their marks."""
    headings = tuple(
        Heading(line.start(), _NAMED_LEVELS.get(line["mark"], len(line["mark"])), words)
        for line in pattern.finditer(text)
        if (words := line["text"].strip())
    )
    return Outline(title_in(headings), headings)


_OUTLINES: Final[Mapping[str, Callable[[str], Outline]]] = {
    **dict.fromkeys(
        (".md", ".markdown", ".mdown", ".mdx", ".mkd", ".qmd", ".rmd"), markdown_outline
    ),
    ".rst": rst_outline,
    **{
        suffix: partial(marked_outline, re.compile(pattern, re.MULTILINE))
        for suffixes, pattern in _MARKED.items()
        for suffix in suffixes
    },
}


# Characters below which a section is joined with the next. Measured: see
# tests/benchmarks/README.md.
_LEAST: Final = 400


class Section(NamedTuple):
    """A part of a document under one heading, with that heading and those above it."""

    start: int
    end: int
    path: tuple[str, ...] = ()


def sections_of(text: str, outline: Outline, title: str = "") -> list[Section]:
    """Return the sections of a text, short ones joined with the next; paths omit the title."""
    if not outline.headings:
        return [Section(0, len(text))]
    groups: list[list[Section]] = []
    for section in _sections(text, outline.headings, title):
        if section.start == section.end and text:
            continue
        group = groups[-1] if groups else []
        is_short = bool(group) and section.start - group[0].start < _LEAST
        # In code, only sections of one class are joined.
        if is_short and (not outline.is_code or group[-1].path[:1] in {(), section.path[:1]}):
            group.append(section)
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
