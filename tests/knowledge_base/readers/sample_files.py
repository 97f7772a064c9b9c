"""Files of formats that no library here writes."""

import zipfile
from pathlib import Path

_CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    'content-types"><Default Extension="xml" ContentType="application/xml"/></Types>'
)


_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_pdf(path: Path, *pages: str) -> None:
    """A PDF of one line a page; readers rebuild the table of offsets that it lacks."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    frame = "/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R {frame} /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    written, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n"
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    path.write_bytes(written + f"{head}{table}{trailer}%%EOF\n".encode())


def write_styled_docx(path: Path, body: str, styles: dict[str, str]) -> None:
    """A DOCX with this body, in which ``w:`` is Word's namespace, and style names by id."""
    named = "".join(
        f'<w:style w:styleId="{id_}"><w:name w:val="{name}"/></w:style>'
        for id_, name in styles.items()
    )
    parts = {
        "document": f"<w:body>{body}</w:body>",
        "styles": f"<w:docDefaults/>{named}",
        "header1": "<w:p><w:r><w:t>Confidential</w:t></w:r></w:p>",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES)
        for name, content in parts.items():
            xml = f'<w:{name} xmlns:w="{_WORD}">{content}</w:{name}>'
            archive.writestr(f"word/{name}.xml", xml)


def word_paragraph(text: str, style: str = "") -> str:
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def word_table(*rows: tuple[str, ...]) -> str:
    lines = ("".join(f"<w:tc>{word_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{line}</w:tr>' for line in lines)}</w:tbl>"
