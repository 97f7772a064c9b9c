"""Readers of files that are text, or whose text is inside of another notation."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import read_text
from llama_retrieval_ext.knowledge_base.readers.front_matter import front_matter, has_front_matter
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument, markdown_outline

# Bytes in letters: in a URI, between the lines of PEM, or in four and more lines of one length.
_DATA: Final = re.compile(
    r"(data:[\w.+-]+/[\w.+;=-]+;base64,)[A-Za-z0-9+/=\s]{64,}?(?![A-Za-z0-9+/=])"
    r"|(-----BEGIN [A-Z0-9 ]+-----\n)(?:[A-Za-z0-9+/=]{1,80}\n)+(?=-----END )"
    r"|(?:^(?=[A-Za-z+/]*\d)(?=[A-Z\d+/]*[a-z])(?=[a-z\d+/]*[A-Z])[A-Za-z0-9+/]{60,80}\n){4,}"
    r"(?:[A-Za-z0-9+/]{1,80}={0,2}$)?",
    re.MULTILINE,
)


class TextReader(BaseReader):
    """Reads a text file as one document; ``encoding`` is that of `read_text`.

    Bytes in base64 are left out: of data URIs, PEM, and of blocks of lines.
    """

    def __init__(self, encoding: str = "") -> None:
        self._encoding = encoding

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        metadata: dict[str, object] = {}
        text = without_base64(read_text(file, self._encoding))
        if has_front_matter(file.suffix.lower()):
            metadata, text = front_matter(text)
        return [Document(text=text, metadata={**metadata, **(extra_info or {})})]


class NotebookReader(BaseReader):
    """Reads a Jupyter notebook as Markdown: its cells in order, and what they printed."""

    def __init__(self, encoding: str = "") -> None:
        self._encoding = encoding

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        try:
            notebook = json.loads(read_text(file, self._encoding))
            cells = notebook.get("cells") or [
                cell for sheet in notebook.get("worksheets", ()) for cell in sheet["cells"]
            ]
            text = without_base64("\n\n".join(part for cell in cells for part in _parts(cell)))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise ConfigurationError(f"it is not a notebook of Jupyter: {error}") from error
        outline = markdown_outline(text)
        return [OutlinedDocument(text=text, metadata=dict(extra_info or {}), outline=outline)]


class RTFReader(BaseReader):
    """Reads the text of an RTF file as one document."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        from striprtf.striprtf import rtf_to_text  # noqa: PLC0415 - an extra

        data = file.read_text(encoding="latin-1")  # other characters are escaped
        if not data.lstrip().startswith("{\\rtf"):
            raise ConfigurationError("it does not begin as RTF does, with {\\rtf")
        text = rtf_to_text(data).strip()
        return [Document(text=text, metadata=dict(extra_info or {}))] if text else []


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
