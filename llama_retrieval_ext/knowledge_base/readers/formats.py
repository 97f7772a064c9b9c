"""The reader of each file type."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

from llama_index.core.readers.base import BaseReader

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import UNSUPPORTED
from llama_retrieval_ext.knowledge_base.readers.html import HTMLReader
from llama_retrieval_ext.knowledge_base.readers.mail import MailReader
from llama_retrieval_ext.knowledge_base.readers.office import SlidesReader, WordReader
from llama_retrieval_ext.knowledge_base.readers.open_formats import (
    EPUBReader,
    OpenSlidesReader,
    OpenTextReader,
)
from llama_retrieval_ext.knowledge_base.readers.pdf import PDFReader
from llama_retrieval_ext.knowledge_base.readers.tables import CSVReader
from llama_retrieval_ext.knowledge_base.readers.texts import NotebookReader, RTFReader, TextReader
from llama_retrieval_ext.knowledge_base.readers.workbooks import WorkbookReader

# Size of the content of an office file. Pictures and films hardly shrink, so that a large file may
# have twice its own size.
_MAX_UNPACKED: Final = 200_000_000
_MAX_MAILS: Final = 5  # each is read again with the one that it is attached to
_WORD: Final = (".docx", ".docm", ".dotx", ".dotm", ".doc", ".dot")
_SLIDES: Final = (".pptx", ".pptm", ".ppsx", ".potx", ".ppt", ".pps")
_WORKBOOKS: Final = (".xlsx", ".xlsm", ".xltx", ".xlsb", ".xls", ".ods")
_OPEN: Final[Mapping[str, Callable[[], BaseReader]]] = {
    **dict.fromkeys((".odt", ".ott"), OpenTextReader),
    **dict.fromkeys((".odp", ".otp"), OpenSlidesReader),
    ".epub": EPUBReader,
}
_READERS: Final[Mapping[str, Callable[[], BaseReader]]] = {
    **dict.fromkeys(_WORD, WordReader),
    **dict.fromkeys(_SLIDES, SlidesReader),
    **dict.fromkeys(_WORKBOOKS, WorkbookReader),
    **_OPEN,
    ".pdf": PDFReader,
    ".rtf": RTFReader,
}
_HTML: Final = (
    *(".html", ".htm", ".xhtml", ".xht", ".html4", ".html5", ".shtml", ".shtm", ".phtml"),
    *(".hta", ".dhtml", ".jhtml"),
)
_TEXT_READERS: Final[Mapping[str, Callable[[str], BaseReader]]] = {
    **dict.fromkeys(_HTML, HTMLReader),
    ".csv": CSVReader,
    ".tsv": CSVReader,
    ".ipynb": NotebookReader,
}
# Kinds in which text is packed that no reader of ours unpacks, and what to do with them.
_REFUSED: Final = {".msg": "save it as EML"}


def reader_for(suffix: str, encoding: str = "", *, depth: int = 0) -> BaseReader:
    """Return the reader of a suffix in lower case; this or its use may raise ImportError."""
    if suffix in _REFUSED:
        raise ConfigurationError(f"{UNSUPPORTED}: {suffix}; {_REFUSED[suffix]}")
    if suffix == ".eml":
        if depth > _MAX_MAILS:
            raise ConfigurationError(f"mails are attached more than {_MAX_MAILS} deep, the limit")
        return MailReader(lambda kind: reader_for(kind, encoding, depth=depth + 1), encoding)
    if suffix in _READERS:
        return _READERS[suffix]()
    return _TEXT_READERS.get(suffix, TextReader)(encoding)


def check_unpacked(file: Path) -> None:
    """Raise if an office file unpacks to far more than its size, which readers load as a whole."""
    if file.suffix.lower() not in {*_WORD, *_SLIDES, *_WORKBOOKS, *_OPEN}:
        return
    try:
        with ZipFile(file) as content:
            size = sum(part.file_size for part in content.infolist())
    except (OSError, BadZipFile):
        return  # the reader has the better message
    if size > max(_MAX_UNPACKED, 2 * file.stat().st_size):
        raise ConfigurationError(f"it unpacks to {size:,} bytes; the limit is {_MAX_UNPACKED:,}")


def is_unsupported(reason: str) -> bool:
    """Return whether a file was left out because of its kind, such as a picture."""
    return reason.startswith(UNSUPPORTED)
