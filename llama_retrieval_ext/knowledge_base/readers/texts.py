"""Readers of files that are text, with front matter, or whose text is in another notation."""

import codecs
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError
from llama_retrieval_ext.knowledge_base.readers.encodings import read_text
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument, markdown_outline
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

# The reason why a file without text is left out.
NO_TEXT: Final = "no text"


class DocumentList(list[Document]):
    """The documents that `read_documents`, or the reader of one file, returns.

    Attributes:
        left_out: Reasons why files, or parts of a file whose other parts are documents, could not
            be read, by their path.
    """

    def __init__(self, documents: Iterable[Document], left_out: Mapping[Path, str]) -> None:
        super().__init__(documents)
        self.left_out = {file: reason for file, reason in left_out.items() if reason}


# Returns the documents of a file, whose metadata are what is read in it.
FileReader: TypeAlias = Callable[[Path], list[Document]]


def undecoded(text: str) -> str:
    """Return how many characters of a text could not be decoded, as a reason; empty for none."""
    n_wrong = text.count("\ufffd")
    reason = f"{n_wrong} of its characters are not in the encoding that it declares"
    return reason if n_wrong else ""


# Bytes in letters: in a URI, between the lines of PEM, or in four and more lines of one length.
_DATA: Final = re.compile(
    r"(data:[\w.+-]+/[\w.+;=-]+;base64,)[A-Za-z0-9+/=\s]{64,}?(?![A-Za-z0-9+/=])"
    r"|(-----BEGIN [A-Z0-9 ]+-----\n)(?:[A-Za-z0-9+/=]{1,80}\n)+(?=-----END )"
    r"|(?:^(?=[A-Za-z+/]*\d)(?=[A-Z\d+/]*[a-z])(?=[a-z\d+/]*[A-Z])[A-Za-z0-9+/]{60,80}\n){4,}"
    r"(?:[A-Za-z0-9+/]{1,80}={0,2}$)?",
    re.MULTILINE,
)


def read_plain_text(file: Path, encoding: str = "") -> list[Document]:
    """Read a text file as one document; ``encoding`` is that of `read_text`.

    Bytes in base64 are left out: of data URIs, PEM, and of blocks of lines.
    """
    metadata: dict[str, object] = {}
    text = without_base64(read_text(file, encoding))
    if file.suffix.lower() in _WITH_FRONT_MATTER:
        metadata, text = front_matter(text)
    return [Document(text=text, metadata=metadata)]


def read_notebook(file: Path, encoding: str = "") -> list[Document]:
    """Read a Jupyter notebook as Markdown: its cells in order, and what they printed."""
    try:
        notebook = json.loads(read_text(file, encoding))
        cells = notebook.get("cells") or [
            cell for sheet in notebook.get("worksheets", ()) for cell in sheet["cells"]
        ]
        text = without_base64("\n\n".join(part for cell in cells for part in _parts(cell)))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigurationError(f"it is not a notebook of Jupyter: {error}") from error
    return [OutlinedDocument(text=text, outline=markdown_outline(text))]


# Codecs by the number of a character set in RTF; other ones are that of the file.
_CHARSETS: Final = {
    "128": "cp932",
    "129": "cp949",
    "134": "gb18030",
    "136": "big5hkscs",
    "161": "cp1253",
    "162": "cp1254",
    "163": "cp1258",
    "177": "cp1255",
    "178": "cp1256",
    "186": "cp1257",
    "204": "cp1251",
    "222": "cp874",
    "238": "cp1250",
}
_RTF_FONT: Final = re.compile(r"\{\\f(\d+)[^{}]{0,200}?\\fcharset(\d+)")
_RTF_TOKEN: Final = re.compile(
    r"\\[\\{}]|\\u-?\d+ ?(?:\\'[0-9a-fA-F]{2})*|(?P<brace>[{}])|\\f(?P<font>\d+) ?"
    r"|(?:\\\*)?\\(?P<part>footnote|annotation|shp|shpgrp|shpinst|shptxt)(?![a-z]) ?"
    r"|(?P<star>(?<![{\s])\\\*)"
    r"|(?P<bytes>(?:\\'[0-9a-fA-F]{2})+)(?P<next>[^\\{}\s]?)"
)
_RTF_PARTS: Final = {"footnote": " [Note: ", "annotation": " [Comment: ", "shptxt": "\\par "}


def read_rtf(file: Path) -> DocumentList:
    """Read the text of an RTF file as one document, with its notes, comments and text boxes."""
    from striprtf.striprtf import rtf_to_text  # noqa: PLC0415 - an extra

    data = file.read_text(encoding="latin-1")  # other characters are escaped
    if not data.lstrip().startswith("{\\rtf"):
        raise ConfigurationError("it does not begin as RTF does, with {\\rtf")
    text = rtf_to_text(_with_letters(data)).strip()
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # emoji are halves
    return DocumentList([Document(text=text)] if text else [], {file: undecoded(text)})


def _with_letters(data: str) -> str:
    """Return RTF whose bytes are letters by the character set of their font, with its notes."""
    page = re.search(r"\\ansicpg(\d+)", data)
    usual = "cp1252"
    with suppress(LookupError):
        usual = codecs.lookup(f"cp{page[1]}").name if page else usual
    codec_of = {font: _CHARSETS.get(charset, usual) for font, charset in _RTF_FONT.findall(data)}
    groups = [(usual, "")]  # of each open group: the codec, and what its end stands for

    def shown(match: re.Match[str]) -> str:
        codec, end = groups[-1]
        if match["brace"] == "{":
            groups.append((codec, ""))
        elif match["brace"]:
            del groups[max(len(groups) - 1, 1) :]
            return f"{end}}}"
        elif match["font"]:
            groups[-1] = (codec_of.get(match["font"], usual), end)
        elif match["part"] or match["star"]:  # a star has a meaning at the start of a group only
            words = _RTF_PARTS.get(match["part"], "")
            groups[-1] = (codec, "]" if "[" in words else "")
            return words
        elif match["bytes"]:
            written = bytes.fromhex(match["bytes"].replace("\\'", ""))
            try:
                text = written.decode(codec) + match["next"]
            except UnicodeError:  # the last byte of a character may be written as a letter
                text = (written + match["next"].encode("latin-1")).decode(codec, "replace")
            return re.sub(r"([\\{}])", r"\\\1", text)
        return match[0]

    return _RTF_TOKEN.sub(shown, data)


def without_base64(text: str) -> str:
    """Return a text without the bytes that are written as letters in it."""
    return _DATA.sub(lambda match: match[1] or match[2] or "", text)


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = _joined(cell.get("source") or cell.get("input") or "")
    is_code = cell.get("cell_type") == "code"
    if source.strip():
        yield f"```\n{source}\n```" if is_code else source
    for output in cell.get("outputs", ()):
        data = output.get("data", output)
        printed = _joined(data.get("text/plain") or output.get("text") or "")
        lines = [printed, *filter(None, [output.get("evalue")])]
        if any(line.strip() for line in lines):
            yield "```\n" + "\n".join(lines).strip("\n") + "\n```"


def _joined(source: object) -> str:
    return "".join(source) if isinstance(source, list) else str(source)


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
_WITH_FRONT_MATTER: Final = {
    *(".md", ".markdown", ".mdown", ".mdx", ".mkd", ".qmd", ".rmd", ".rst", ".adoc", ".asciidoc"),
    *(".textile", ".txt"),
}


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
