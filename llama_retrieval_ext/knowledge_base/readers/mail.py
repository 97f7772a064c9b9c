"""The reader of e-mails, and of what is attached to them."""

from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from mimetypes import guess_extension
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Final

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError, describe
from llama_retrieval_ext.knowledge_base.readers.document_list import DocumentList
from llama_retrieval_ext.knowledge_base.readers.encodings import UNSUPPORTED, decoded
from llama_retrieval_ext.knowledge_base.readers.texts import without_base64

_HEADERS: Final = {"subject": "title", "from": "sender", "to": "recipients", "date": "date"}
_MAX_PARTS: Final = 1_000
_MAX_DEPTH: Final = 100


class MailReader(BaseReader):
    """Reads a mail as a document, and each attachment whose kind is read as further ones.

    The metadata have ``title`` (its subject), ``sender``, ``recipients`` and ``date``; those of an
    attachment ``attachment``, its name. `encoding` is that of parts that declare none, or a wrong
    one.
    """

    def __init__(self, reader_for: Callable[[str], BaseReader], encoding: str = "") -> None:
        self._reader_for = reader_for
        self._encoding = encoding

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> DocumentList:
        """Return the documents of a file."""
        try:
            message = message_from_bytes(file.read_bytes(), policy=policy.default)
            body = message.get_body(("plain", "html"))
            parts = [*([] if body is None else [body]), *_attachments(message, body)]
        except RecursionError:
            raise ConfigurationError(f"its parts are nested deeper than {_MAX_DEPTH}") from None
        headers = {
            name: " ".join(str(message[header]).split())
            for header, name in _HEADERS.items()
            if message[header]
        }
        metadata = {**(extra_info or {}), **headers}
        shown, attached, reasons = [headers.get("title", "")], [], []
        for part in parts[:_MAX_PARTS]:
            name = "" if part is body else _name(part)
            shown += [f"[Attachment: {name}]"] if name else []
            more = {"attachment": name} if name else {}
            try:
                documents, reason = self._read(part, name, {**metadata, **more})
            except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this part
                documents = []
                reason = str(error) if isinstance(error, RetrievalExtError) else describe(error)
            reasons += [f"{reason} ({f'attachment {name}' if name else 'body'})"] if reason else []
            if name:
                attached += documents
            else:
                shown += [document.text.strip() for document in documents]
        if len(parts) > _MAX_PARTS:
            reasons.append(f"only the first {_MAX_PARTS:,} of its parts are read")
        text = "\n\n".join(filter(None, shown))
        whole = [Document(text=text, metadata=metadata)] if text else []
        reasons.sort(key=lambda reason: reason.startswith(UNSUPPORTED))
        return DocumentList([*whole, *attached], {file: "; ".join(reasons)} if reasons else {})

    def _read(
        self, part: MIMEPart, name: str, metadata: dict[str, object]
    ) -> tuple[list[Document], str]:
        kind = part.get_content_type()
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes):
            data = bytes(part.get_content())
        suffix = {"message/rfc822": ".eml", "text/html": ".html"}.get(
            kind, PurePath(name).suffix.lower()
        )
        if kind.startswith("text/") and suffix in ("", ".txt"):
            text = self._text(data, part.get_content_charset() or "")
            return [Document(text=without_base64(text), metadata=metadata)], ""
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"part{suffix}"
            file.write_bytes(data)
            documents = self._reader_for(suffix).load_data(file, extra_info=metadata)
            reason = getattr(documents, "left_out", {}).get(file, "")
        return list(documents), reason

    def _text(self, data: bytes, charset: str) -> str:
        try:
            text = data.decode(charset or "utf-8")
        except (LookupError, ValueError):
            text = decoded(data, self._encoding)
        return text.replace("\r\n", "\n").replace("\r", "\n")


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
