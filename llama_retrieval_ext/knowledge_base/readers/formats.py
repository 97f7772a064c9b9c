"""The reader of each file type, and of e-mails, whose attachments are of any type."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from functools import partial
from mimetypes import guess_extension
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Final
from zipfile import BadZipFile, ZipFile, is_zipfile

from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError, describe
from llama_retrieval_ext.knowledge_base.readers.encodings import UNSUPPORTED, decode_text, decoded
from llama_retrieval_ext.knowledge_base.readers.html import read_html
from llama_retrieval_ext.knowledge_base.readers.office import read_slides, read_word
from llama_retrieval_ext.knowledge_base.readers.open_formats import (
    read_epub,
    read_open_slides,
    read_open_text,
)
from llama_retrieval_ext.knowledge_base.readers.pdf import read_pdf
from llama_retrieval_ext.knowledge_base.readers.tables import read_csv, read_workbook
from llama_retrieval_ext.knowledge_base.readers.texts import (
    DocumentList,
    FileReader,
    read_notebook,
    read_plain_text,
    read_rtf,
    without_base64,
)

_HEADERS: Final = {"subject": "title", "from": "sender", "to": "recipients", "date": "date"}
_MAX_PARTS: Final = 1_000
_MAX_DEPTH: Final = 100


def read_mail(file: Path, encoding: str = "", *, read_attached: FileReader) -> DocumentList:
    """Read a mail as a document, and each attachment whose kind is read as further ones.

    The metadata have ``title`` (its subject), ``sender``, ``recipients`` and ``date``; those of an
    attachment ``attachment``, its name. `encoding` is that of parts that declare none, or a wrong
    one.
    """
    try:
        message = message_from_bytes(file.read_bytes(), policy=policy.default)
        body = message.get_body(("plain", "html"))
        parts = [*([] if body is None else [body]), *_attachments(message, body)]
    except RecursionError:
        raise ConfigurationError(f"its parts are nested deeper than {_MAX_DEPTH}") from None
    metadata = {
        name: " ".join(str(message[header]).split())
        for header, name in _HEADERS.items()
        if message[header]
    }
    shown, attached, reasons = [metadata.get("title", "")], [], []
    for part in parts[:_MAX_PARTS]:
        name = "" if part is body else _name(part)
        shown += [f"[Attachment: {name}]"] if name else []
        try:
            documents, reason = _read_part(part, name, encoding, read_attached)
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this part
            documents = []
            reason = str(error) if isinstance(error, RetrievalExtError) else describe(error)
        reasons += [f"{reason} ({f'attachment {name}' if name else 'body'})"] if reason else []
        if not name:
            shown += [document.text.strip() for document in documents]
            continue
        for document in documents:
            document.metadata = {**metadata, "attachment": name, **document.metadata}
        attached += documents
    if len(parts) > _MAX_PARTS:
        reasons.append(f"only the first {_MAX_PARTS:,} of its parts are read")
    text = "\n\n".join(filter(None, shown))
    whole = [Document(text=text, metadata=metadata)] if text else []
    reasons.sort(key=lambda reason: reason.startswith(UNSUPPORTED))
    return DocumentList([*whole, *attached], {file: "; ".join(reasons)})


def _read_part(
    part: MIMEPart, name: str, encoding: str, read_attached: FileReader
) -> tuple[list[Document], str]:
    kind = part.get_content_type()
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        data = bytes(part.get_content())
    suffix = {"message/rfc822": ".eml", "text/html": ".html"}.get(
        kind, PurePath(name).suffix.lower()
    )
    if kind.startswith("text/") and suffix in ("", ".txt"):
        try:
            text = data.decode(part.get_content_charset() or "utf-8")
        except (LookupError, ValueError):
            text = decoded(data, encoding)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return [Document(text=without_base64(text))], ""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"part{suffix}"
        file.write_bytes(data)
        documents = read_attached(file)
        return [*documents], getattr(documents, "left_out", {}).get(file, "")


def _name(part: MIMEPart) -> str:
    """Return the name of a file without folders, or one by its kind."""
    suffix = guess_extension(part.get_content_type()) or ""
    name = part.get_filename() or f"{part.get_content_maintype()}{suffix}"
    return PurePath(name.replace("\\", "/")).name or "unnamed"


def _attachments(message: EmailMessage, body: MIMEPart | None) -> list[MIMEPart]:
    """Return the parts that are neither the body nor another version of it, in their order."""
    attachments: list[MIMEPart] = []
    open_parts: list[tuple[Any, int, bool]] = [(message, 0, False)]
    while open_parts:
        part, depth, is_version = open_parts.pop()
        if depth > _MAX_DEPTH:
            raise RecursionError
        if part.get_content_maintype() == "multipart" and isinstance(part.get_payload(), list):
            is_version = is_version or part.get_content_subtype() == "alternative"
            inside = ((child, depth + 1, is_version) for child in part.get_payload())
            open_parts += reversed([*inside])
        elif part is not body and part.get_content_maintype() != "multipart":
            is_file = part.get_content_maintype() != "text" or bool(part.get_filename())
            if is_file or not is_version:
                attachments.append(part)
    return attachments


# Size of the content of an office file. Pictures and films hardly shrink, so that a large file may
# have twice its own size.
_MAX_UNPACKED: Final = 200_000_000
_MAX_MAILS: Final = 5  # each is read again with the one that it is attached to
_WORD: Final = (".docx", ".docm", ".dotx", ".dotm", ".doc", ".dot")
_SLIDES: Final = (".pptx", ".pptm", ".ppsx", ".potx", ".ppt", ".pps")
_WORKBOOKS: Final = (".xlsx", ".xlsm", ".xltx", ".xlsb", ".xls", ".ods")
_OPEN: Final[Mapping[str, FileReader]] = {
    **dict.fromkeys((".odt", ".ott"), read_open_text),
    **dict.fromkeys((".odp", ".otp"), read_open_slides),
    ".epub": read_epub,
}
_READERS: Final[Mapping[str, FileReader]] = {
    **dict.fromkeys(_WORD, read_word),
    **dict.fromkeys(_SLIDES, read_slides),
    **dict.fromkeys(_WORKBOOKS, read_workbook),
    **_OPEN,
    ".pdf": read_pdf,
    ".rtf": read_rtf,
}
_HTML: Final = (
    *(".html", ".htm", ".xhtml", ".xht", ".html4", ".html5", ".shtml", ".shtm", ".phtml"),
    *(".hta", ".dhtml", ".jhtml"),
)
_TEXT_READERS: Final[Mapping[str, Callable[..., list[Document]]]] = {
    **dict.fromkeys(_HTML, read_html),
    ".csv": read_csv,
    ".tsv": read_csv,
    ".ipynb": read_notebook,
}
# Kinds in which text is packed that no reader of ours unpacks, and what to do with them.
_REFUSED: Final = {".msg": "save it as EML"}


# What programs save under the suffix of an office file, by the first bytes.
_COMPOUND: Final = b"\xd0\xcf\x11\xe0"  # DOC, XLS, PPT, and others with a password
_RTF: Final = b"{\\rtf"
_PAGE: Final = re.compile(rb"\s*<(!doctype html|html|table|meta|body|div)\b", re.IGNORECASE)
_LEGACY: Final = {".doc": ".txt", ".xls": ".csv"}  # what else is text under their suffixes
_HEAD_BYTES: Final = 4_096


def read_file(file: Path, encoding: str = "", *, depth: int = 0) -> list[Document]:
    """Read a file as its suffix says, an office file as its content says; `depth` in mails.

    Raises:
        ConfigurationError: It is of no kind that is read, or damaged; the message says why.
        ImportError: Its reader needs an extra.
    """
    suffix = file.suffix.lower()
    if suffix in _REFUSED:
        raise ConfigurationError(f"{UNSUPPORTED}: {suffix}; {_REFUSED[suffix]}")
    if suffix == ".eml":
        if depth > _MAX_MAILS:
            raise ConfigurationError(f"mails are attached more than {_MAX_MAILS} deep, the limit")
        return read_mail(
            file, encoding, read_attached=partial(read_file, encoding=encoding, depth=depth + 1)
        )
    if suffix in (*_WORD, *_SLIDES, *_WORKBOOKS, *_OPEN):
        suffix = _content_suffix(file, suffix, encoding)
    if suffix in _READERS:
        return _READERS[suffix](file)
    return _TEXT_READERS.get(suffix, read_plain_text)(file, encoding=encoding)


def _content_suffix(file: Path, suffix: str, encoding: str) -> str:
    """Return the suffix of the content of an office file, which may be a text or a page.

    Raise if it is damaged, encrypted, or unpacks to far more than its size, as readers load it.
    """
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
        if head.startswith(_COMPOUND):
            if "EncryptedPackage".encode("utf-16-le") in head + opened.read():
                raise ConfigurationError("it is encrypted; save it without a password")
            return suffix
    if head.startswith(_RTF):
        return ".rtf"
    if _PAGE.match(head.removeprefix(BOM_UTF8)):
        return ".html"
    if is_zipfile(file):
        _check_parts(file)
        return suffix
    if suffix in _LEGACY and head and decode_text(file.read_bytes(), encoding) is not None:
        return _LEGACY[suffix]
    raise ConfigurationError(f"it is damaged, or not a file of kind {suffix[1:].upper()}")


def _check_parts(file: Path) -> None:
    """Raise if a part of an office file is damaged, or all are far larger than the file."""
    try:
        with ZipFile(file) as content:
            size = sum(part.file_size for part in content.infolist())
            if size > max(_MAX_UNPACKED, 2 * file.stat().st_size):
                limit = f"the limit is {_MAX_UNPACKED:,}"
                raise ConfigurationError(f"it unpacks to {size:,} bytes; {limit}")
            damaged = content.testzip()  # or larger than it states
    except BadZipFile as error:
        raise ConfigurationError(f"it is damaged: {error}") from None
    if damaged is not None:
        raise ConfigurationError(f"it is damaged: its part {damaged!r} is not what was packed")


def is_one_text(suffix: str) -> bool:
    """Return whether files with a suffix in lower case are read as plain text, as one document."""
    return suffix not in {*_READERS, *_TEXT_READERS, ".eml"}


def is_unsupported(reason: str) -> bool:
    """Return whether a file was left out because of its kind, such as a picture."""
    return reason.startswith(UNSUPPORTED)
