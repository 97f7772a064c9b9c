"""The reader of e-mails, and of what is attached to them."""

from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Final

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import RetrievalExtError, describe
from llama_retrieval_ext.knowledge_base.readers.document_list import DocumentList
from llama_retrieval_ext.knowledge_base.readers.encodings import UNSUPPORTED, decoded
from llama_retrieval_ext.knowledge_base.readers.texts import without_base64

_HEADERS: Final = {"subject": "title", "from": "sender", "to": "recipients", "date": "date"}
_MAX_PARTS: Final = 1_000


class MailReader(BaseReader):
    """Reads a mail as a document, and each attachment whose kind is read as further ones.

    The metadata have ``title`` (its subject), ``sender``, ``recipients`` and ``date``; those of an
    attachment ``attachment``, its name.
    """

    def __init__(self, reader_for: Callable[[str], BaseReader]) -> None:
        self._reader_for = reader_for

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> DocumentList:
        """Return the documents of a file."""
        message = message_from_bytes(file.read_bytes(), policy=policy.default)
        headers = {
            name: " ".join(str(message[header]).split())
            for header, name in _HEADERS.items()
            if message[header]
        }
        metadata = {**(extra_info or {}), **headers}
        body = message.get_body(("plain", "html"))
        documents = [] if body is None else self._read(body, "body", metadata)[0]
        first = documents[0].text if documents else ""
        names, reasons = [], []
        for number, part in enumerate(_attachments(message, body)):
            name = PurePath(
                (part.get_filename() or f"{part.get_content_type()}").replace("\\", "/")
            ).name
            names.append(name)
            if number >= _MAX_PARTS:
                reasons.append(f"attachments after the first {_MAX_PARTS:,}")
                break
            try:
                read, why = self._read(part, name, {**metadata, "attachment": name})
                documents += read
                reasons += [f"{why} (attachment {name})"] if why else []
            except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this part
                why = str(error) if isinstance(error, RetrievalExtError) else describe(error)
                reasons.append(f"{why} (attachment {name})")
        shown = [
            headers.get("title", ""),
            first.strip(),
            *(f"[Attachment: {name}]" for name in names),
        ]
        text = "\n\n".join(filter(None, shown))
        whole = [Document(text=text, metadata=metadata)] if text else []
        whole += documents[bool(first) :]
        return DocumentList(
            whole, {file: "; ".join(sorted(reasons, key=_is_unsupported))} if reasons else {}
        )

    def _read(
        self, part: MIMEPart, name: str, metadata: dict[str, object]
    ) -> tuple[list[Document], str]:
        kind = part.get_content_type()
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes):
            data = bytes(part.get_content())
        suffix = PurePath(name).suffix.lower()
        if kind == "message/rfc822":
            suffix = ".eml"
        elif kind == "text/html":
            suffix = ".html"
        elif kind.startswith("text/") and (not suffix or suffix == ".txt" or name == "body"):
            text = _text(data, part.get_content_charset() or "")
            return [Document(text=without_base64(text), metadata=metadata)], ""
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"part{suffix}"
            file.write_bytes(data)
            found = self._reader_for(suffix).load_data(file, extra_info=metadata)
            reason = getattr(found, "left_out", {}).get(file, "")
        return list(found), reason


def _is_unsupported(reason: str) -> bool:
    return reason.startswith(UNSUPPORTED)


def _attachments(message: EmailMessage, body: MIMEPart | None) -> list[MIMEPart]:
    """Return the parts that are neither the body nor another version of it, in their order."""
    attachments: list[MIMEPart] = []
    open_parts: list[Any] = [message]
    while open_parts:
        part = open_parts.pop()
        if part.get_content_maintype() == "multipart" and isinstance(part.get_payload(), list):
            open_parts += reversed(part.get_payload())
        elif part is not body and part is not message:
            is_mail = part.get_content_type() == "message/rfc822"
            if is_mail or part.is_attachment() or part.get_filename():
                attachments.append(part)
    return attachments


def _text(data: bytes, charset: str) -> str:
    try:
        text = data.decode(charset or "utf-8")
    except (LookupError, ValueError):
        text = decoded(data)
    return text.replace("\r\n", "\n").replace("\r", "\n")
