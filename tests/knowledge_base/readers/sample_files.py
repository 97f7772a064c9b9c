"""Files of formats that no library here writes."""

import zipfile
from pathlib import Path

_CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    'content-types"><Default Extension="xml" ContentType="application/xml"/><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    "{}</Types>"
)


_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_KINDS = {"header1": "header"}
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_pdf(
    path: Path, *pages: str, title: str = "", catalog: str = "", objects: tuple[str, ...] = ()
) -> None:
    """A PDF of pages with lines of text.

    Entries of a page stand behind ``%%``; objects have the numbers from 100; a text that begins
    with ``<`` or ``[`` is in the font of object 100.
    """
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = {
        1: f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        2: f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    }
    frame = "/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R /F2 100 0 R >> >>"
    for number, page in enumerate(pages):
        text, _, more = page.partition("%%")
        operators = {"<": "{} Tj", "[": "{} TJ"}
        shown = " T* ".join(
            operators.get(line[:1], "({}) Tj").format(line) for line in text.split("\n")
        )
        font = "/F2" if text[:1] in operators else "/F1"
        stream = f"BT {font} 12 Tf 14 TL 72 720 Td {shown} ET" if text else "0 0 9 9 re f"
        annotations = f"/Type /Page /Parent 2 0 R {frame} {more}"
        bodies[4 + 2 * number] = f"<< {annotations} /Contents {5 + 2 * number} 0 R >>"
        length = len(stream.encode("cp1252"))
        bodies[5 + 2 * number] = f"<< /Length {length} >>\nstream\n{stream}\nendstream"
    bodies |= dict(enumerate(objects, start=100))
    bodies[99] = f"<< /Title ({title}) >>"
    written, table = b"%PDF-1.4\n", ""
    for number, body in bodies.items():
        table += f"{number} 1\n{len(written):010} 00000 n \n"
        written += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252")
    trailer = f"trailer\n<< /Size {max(bodies) + 1} /Root 1 0 R /Info 99 0 R >>\n"
    end = f"xref\n0 1\n0000000000 65535 f \n{table}{trailer}startxref\n{len(written)}\n%%EOF\n"
    path.write_bytes(written + end.encode())


def write_styled_docx(
    path: Path,
    body: str,
    styles: dict[str, str],
    *,
    main: str = "document",
    namespace: str = "",
    **more: str,
) -> None:
    """A DOCX with this body, in which ``w:`` is Word's namespace, and style names by id.

    `more` are further parts, such as ``footnotes``.
    """
    named = "".join(
        f'<w:style w:styleId="{id_}"><w:name w:val="{name}"/></w:style>'
        for id_, name in styles.items()
    )
    parts = {
        "document": f"<w:body>{body}<w:sectPr><w:headerReference w:type='default' "
        "r:id='header1'/></w:sectPr></w:body>",
        "styles": f"<w:docDefaults/>{named}",
        "header1": "<w:p><w:r><w:t>Confidential</w:t></w:r></w:p>",
        **more,
    }
    files = {name: f"word/{main if name == 'document' else name}.xml" for name in parts}
    kinds = {name: _KINDS.get(name, name) for name in parts}
    types = "".join(
        f'<Override PartName="/{files[name]}" ContentType="application/vnd.openxmlformats-office'
        f'document.wordprocessingml.{"document.main" if name == "document" else kind}+xml"/>'
        for name, kind in kinds.items()
    )
    related = "".join(
        f'<Relationship Id="{name}" Type="{_OFFICE}/{kind}" Target="{name}.xml"/>'
        for name, kind in kinds.items()
        if name != "document"
    )
    root = f'<Relationship Id="r" Type="{_OFFICE}/officeDocument" Target="{files["document"]}"/>'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES.format(types))
        for name, content in (("_rels/.rels", root), (f"word/_rels/{main}.xml.rels", related)):
            xml = f'<Relationships xmlns="{_RELATIONS}">{content}</Relationships>'
            archive.writestr(name, xml)
        for name, content in parts.items():
            tag = {"header": "hdr"}.get(kinds[name], name)
            spaces = f'xmlns:w="{namespace or _WORD}" xmlns:r="{_OFFICE}"'
            archive.writestr(files[name], f"<w:{tag} {spaces}>{content}</w:{tag}>")


def word_paragraph(text: str, style: str = "") -> str:
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def word_table(*rows: tuple[str, ...]) -> str:
    lines = ("".join(f"<w:tc>{word_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{line}</w:tr>' for line in lines)}</w:tbl>"
