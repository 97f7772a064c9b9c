"""Texts in other notations and encodings: read right, or left out with a reason."""

import base64
import json
import os
from email.message import EmailMessage
from pathlib import Path

import pytest

from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from tests.cases import cases
from tests.knowledge_base.readers.test_files import texts

KOREAN = "도서관은 아침 아홉 시에 문을 엽니다. 연차 휴가는 이십오 일입니다. 직원은 매년 신청합니다."
JAPANESE = "図書館は朝九時に開きます。年次休暇は二十五日です。職員は毎年三月までに申請します。"
CHINESE = "图书馆早上九点开门。年假是二十五天。员工每年三月以前必须申请休假，否则假期会失效。"  # noqa: RUF001
TAIWAN = "圖書館早上九點開門。年假是二十五天。員工每年三月以前必須申請休假。"
THAI = "ห้องสมุดเปิดเวลาเก้าโมงเช้า พนักงานมีวันลาพักร้อนยี่สิบห้าวัน"
GREEK = "Ώρα εννέα ανοίγει το βιβλιοπωλείο. Άδεια είκοσι πέντε ημερών για όλους."  # noqa: RUF001
RUSSIAN = "Библиотека открывается в девять часов утра. Отпуск составляет двадцать пять дней."


@cases(
    ("text", "encodings", "is_read"),
    [
        (KOREAN, "euc_kr cp949 iso2022_kr utf-16-le utf-32-be", True),
        (JAPANESE, "euc_jp cp932 iso2022_jp utf-16-be", True),
        (CHINESE, "gb2312 gbk gb18030 hz utf-16-le", True),
        (TAIWAN, "big5 utf-16-be", True),
        (RUSSIAN, "utf-16-le utf-32-le", True),
        (GREEK, "utf-16-le utf-16-be utf-32-be", True),
        (KOREAN[:8], "euc_kr utf-7", False),
        (JAPANESE[:3], "utf-16-le", False),
        (CHINESE[:18], "gb18030", False),
        (THAI, "tis_620 cp874 utf-7", False),
        (GREEK, "cp1253 iso8859_7 cp737 cp869 mac_greek", False),
        ("ﾄｼｮｶﾝﾊ ｱｻ 9ｼﾞﾆ ﾋﾗｷﾏｽ｡ ﾈﾝｼﾞｷｭｳｶﾊ 25ﾆﾁﾃﾞｽ｡", "cp932 euc_jp", False),
        (
            "東京都千代田区霞が関一丁目一番一号 法務省大臣官房秘書課平成年度予算要求",
            "euc_jp",
            False,
        ),
        ("It opens at “nine” for €5.", "utf-7 cp1252 mac_roman", False),
        (RUSSIAN, "cp1251 koi8_r iso8859_5 cp866 mac_cyrillic utf-7", False),  # codespell:ignore
        ("El niño español mañana", "latin-1 cp1252 mac_roman cp850 utf-7", False),
    ],
)
def test_text_is_read_in_its_encoding_or_left_out(
    tmp_path: Path, text: str, encodings: str, is_read: bool
) -> None:
    for encoding in encodings.split():
        for name in ("a.txt", "a.py"):
            (tmp_path / name).write_bytes(text.encode(encoding))
            documents = read_documents(tmp_path / name)
            assert [document.text for document in documents] == [text] * is_read, encoding
            assert is_read or "encoding" in documents.left_out[tmp_path / name]
            assert read_documents(tmp_path / name, encoding=encoding)[0].text == text


def test_xml_is_read_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    text = "<?xml version='1.0' encoding='ISO-8859-1'?><p>Müller</p>"
    (tmp_path / "a.xml").write_bytes(text.encode("latin-1"))
    assert texts(tmp_path / "a.xml") == [text]


@cases(
    ("name", "content", "rows"),
    [
        ("a.csv", "item;price\nrope;12,5\n", ["item: rope\nprice: 12,5"]),
        ("a.csv", "sep=|\r\nitem|price\r\nrope|1\r\n", ["item: rope\nprice: 1"]),
        ("a.tsv", "item\tprice\nrope\t12,5\n", ["item: rope\nprice: 12,5"]),
        ("a.csv", 'a;b\n1,5;2,5\n"x;y";3\n', ["a: 1,5\nb: 2,5", "a: x;y\nb: 3"]),
        ("a.csv", "Prices\nitem,price\nrope,1\n", ["Prices", "item: rope\nprice: 1"]),
        ("a.csv", "item;price\n", ["item | price"]),
        ("a.csv", "item,tags\nrope,a;b\n", ["item: rope\ntags: a;b"]),
        (
            "a.csv",
            "text\nWe came; we saw.\nIt rained; it poured; we left.\n",
            ["text: We came; we saw.", "text: It rained; it poured; we left."],
        ),
    ],
)
def test_table_is_read_by_its_own_delimiter(
    tmp_path: Path, name: str, content: str, rows: list[str]
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert texts(tmp_path / name) == rows


def test_mail_is_read_with_its_attachments(tmp_path: Path) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["Date"] = (
        "Grüße",
        "ann@example.org",
        "2 Jun 2023 08:00 +0200",
    )
    mail.set_content("Die Bücherei öffnet um neun.", cte="base64")
    mail.add_attachment(
        b"\x89PNG\r\n\x1a\n\0" * 99, maintype="image", subtype="png", filename="a.png"
    )
    mail.add_attachment(b"name\nAnn\n", maintype="text", subtype="csv", filename="staff.csv")
    inner = EmailMessage()
    inner["Subject"] = "Forwarded"
    inner.set_content("It rained.")
    mail.add_attachment(inner)
    (tmp_path / "a.eml").write_bytes(bytes(mail))
    documents = read_documents(tmp_path)
    assert [document.text for document in documents] == [
        (
            "Grüße\n\nDie Bücherei öffnet um neun.\n\n[Attachment: a.png]"
            "\n\n[Attachment: staff.csv]"
            "\n\n[Attachment: message.eml]"
        ),
        "name: Ann",
        "Forwarded\n\nIt rained.",
    ]
    assert documents[0].metadata["sender"] == "ann@example.org"
    assert documents[1].metadata["attachment"] == "staff.csv"
    assert documents.left_out == {
        tmp_path / "a.eml": "this kind of file is not supported: .png (attachment a.png)"
    }


MULTIPART = 'Subject: Leave\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{0}"\n\n'


def test_part_of_a_mail_that_cannot_be_read_is_named_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    parts = (
        b"Content-Type: text/plain; charset=utf-8\n\nEl ni\xf1o espa\xf1ol ma\xf1ana\n",
        b"Content-Type: text/plain\n\n25 days.\n",
        b"Content-Type: image/png\nContent-ID: <1>\n\n\x89PNG\0\n",
    )
    body = b"--x\n" + b"--x\n".join(parts) + b"--x--\n"
    (tmp_path / "a.eml").write_bytes(MULTIPART.format("x").encode() + body)
    documents = read_documents(tmp_path)
    assert documents[0].text.startswith(
        "Leave\n\n[Attachment: text.txt]\n\n[Attachment: image.png]"
    )
    assert documents[1].text.strip() == "25 days."
    reason = documents.left_out[tmp_path / "a.eml"]
    assert "encoding= reads it in another one (body); this kind" in reason
    assert reason.endswith("not supported: .png (attachment image.png)")
    assert "El niño español" in read_documents(tmp_path, encoding="latin-1")[0].text


@pytest.mark.parametrize("depth", [120, 3000])
@pytest.mark.slow
def test_mail_whose_parts_are_nested_too_deep_is_left_out(tmp_path: Path, depth: int) -> None:
    levels = (MULTIPART.format(f"b{level}") + f"--b{level}\n" for level in range(depth))
    (tmp_path / "a.eml").write_text("".join(levels))
    assert set(read_documents(tmp_path).left_out.values()) == {
        "its parts are nested deeper than 100"
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", ""), ("a.md", " \n"), ("a.html", "<p></p>"), ("a.eml", ""), ("a.csv", "")],
)
def test_file_without_text_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_documents(tmp_path).left_out == {tmp_path / name: "no text"}


def test_notebook_is_read_cell_by_cell_without_pictures(tmp_path: Path) -> None:
    output = {"data": {"text/plain": ["42"], "image/png": base64.b64encode(b"x" * 999).decode()}}
    cells = [
        {"cell_type": "markdown", "source": ["# Leave\n", 'It is "25" days.']},
        {"cell_type": "code", "source": "6 * 7", "outputs": [output]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert texts(tmp_path / "a.ipynb") == [
        '# Leave\nIt is "25" days.\n\n```\n6 * 7\n```\n\n```\n42\n```'
    ]


def test_rtf_is_read_without_its_control_words(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_text(r"{\rtf1\ansi {\b K\u252?ndigung} in drei Mon\'61ten}")
    assert texts(tmp_path / "a.rtf") == ["Kündigung in drei Monaten"]


def test_rtf_has_notes_text_boxes_and_letters_of_the_character_set_of_each_font(
    tmp_path: Path,
) -> None:
    fonts = r"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}{\f2\fcharset128 Gothic;}}"
    note = r"{\footnote\plain except for {\b \'7b}}"
    box = r"{\shp{\*\shpinst\shpleft1{\sp{\sn a}{\sv b}}{\shptxt\plain box}}{\shprslt box}}"
    words = r"caf\'e9{\f1 \'e4\'e0} {\f2 \'83e\'83\'58\u12488?\u-10179?\u-8704?}"
    file = tmp_path / "a.rtf"
    file.write_text(
        rf"{{\rtf1\ansi\ansicpg1252{fonts}\f0 {words}{note}{box}\i0\*\cs7 end \f2 \'81}}"
    )
    documents = read_documents(file)
    assert documents[0].text == "caféда テスト😀 [Note: except for {]\nboxend \ufffd"  # noqa: RUF001
    assert "1 of its characters" in documents.left_out[file]


def test_bytes_in_letters_are_no_text(tmp_path: Path) -> None:
    data = base64.encodebytes(os.urandom(3000)).decode()
    pem = f"-----BEGIN KEY-----\n{data}-----END KEY-----"
    uri = f"![a](data:image/png;base64,{base64.b64encode(os.urandom(99)).decode()})"
    dna = ("ACGT" * 15 + "\n") * 9
    (tmp_path / "a.md").write_text(f"before\n{pem}\n{uri}\n{dna}{data}after\n")
    text = "before\n-----BEGIN KEY-----\n-----END KEY-----\n![a](data:image/png;base64,)\n"
    (read,) = texts(tmp_path / "a.md")
    assert read.startswith(text + dna)
    assert read.endswith("after\n")
    assert len(read) < len(text + dna) + 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no FIFOs")
def test_what_is_no_file_or_has_no_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere.md")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "a.msg").write_bytes(b"PK")
    (tmp_path / "a.odt").write_bytes(b"PK")
    reasons = {path.name: reason for path, reason in read_documents(tmp_path).left_out.items()}
    assert reasons == {
        "gone.md": "it is a symbolic link to a file that does not exist",
        "pipe.txt": "it is not a regular file",
        "empty.csv": "no text",
        "a.msg": "this kind of file is not supported: .msg; save it as EML",
        "a.odt": "it is damaged, or not a file of kind ODT",
    }
    pipe = read_documents(tmp_path / "pipe.txt")
    assert pipe.left_out[tmp_path / "pipe.txt"] == "it is not a regular file"


YAML = (
    "---\ntitle: Leave\ntags: [hr, law]\ndate: 2024-05-01\ndraft: false\nauthor: {name: Ann}\n---\n"
)
TOML = '+++\ntitle = "Leave"\ntags = ["hr", "law"]\ndate = 2024-05-01\ndraft = false\n+++\n'


@cases("block", [YAML, TOML, YAML.replace("\n", "\r\n")])
def test_scalars_and_lists_become_metadata(tmp_path: Path, block: str) -> None:
    (tmp_path / "a.md").write_bytes(f"{block}# Leave\n25 days.".encode())
    (document,) = read_documents(tmp_path)
    assert document.text == "# Leave\n25 days."
    expected = {"title": "Leave", "tags": ["hr", "law"], "date": "2024-05-01", "draft": False}
    assert expected.items() <= document.metadata.items()
    assert "author" not in document.metadata


@cases("value", ["12:30", "012", "0o12", "1_000", "1e3", "2024-13-45"])
def test_what_two_versions_of_yaml_read_differently_stays_as_it_is_written(
    tmp_path: Path, value: str
) -> None:
    (tmp_path / "a.md").write_text(f"---\nat: {value}\nn: 7\n1: [{value}]\n? [a]\n: b\n---\ntext")
    (document,) = read_documents(tmp_path)
    assert {"at": value, "n": 7, "1": [value]}.items() <= document.metadata.items()
    assert document.text == "text"


@cases(
    "text",
    [
        "---\n- a list\n---\ntext",
        "---\nkey: [unfinished\n---\ntext",
        "---\nno end",
        "text\n---\ntitle: x\n---\n",
        f"---\nsummary: {'x' * 501}\n---\ntext",
        "---\n" + "a: [" * 5_000 + "\n---\ntext",
    ],
)
def test_other_beginnings_stay_in_the_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    (document,) = read_documents(tmp_path)
    assert document.text == text


def test_a_text_cannot_say_who_sees_it_or_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\nallowed: [all]\nfile_path: /x\ntenant_id: b\n---\ntext")
    (document,) = read_documents(tmp_path)
    assert set(document.metadata) == {"file_path", "file_name"}
    assert document.metadata["file_path"] == str(tmp_path / "a.md")
