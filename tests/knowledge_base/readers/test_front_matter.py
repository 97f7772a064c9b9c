"""Front matter becomes metadata and leaves the text."""

from pathlib import Path

import pytest

from llama_retrieval_ext.knowledge_base.readers.files import read_documents

YAML = (
    "---\ntitle: Leave\ntags: [hr, law]\ndate: 2024-05-01\ndraft: false\nauthor: {name: Ann}\n---\n"
)
TOML = '+++\ntitle = "Leave"\ntags = ["hr", "law"]\ndate = 2024-05-01\ndraft = false\n+++\n'


@pytest.mark.parametrize("block", [YAML, TOML, YAML.replace("\n", "\r\n")])
def test_scalars_and_lists_become_metadata(tmp_path: Path, block: str) -> None:
    (tmp_path / "a.md").write_bytes(f"{block}# Leave\n25 days.".encode())
    (document,) = read_documents(tmp_path)
    assert document.text == "# Leave\n25 days."
    expected = {"title": "Leave", "tags": ["hr", "law"], "date": "2024-05-01", "draft": False}
    assert expected.items() <= document.metadata.items()
    assert "author" not in document.metadata


@pytest.mark.parametrize("value", ["12:30", "012", "0o12", "1_000", "1e3", "2024-13-45"])
def test_what_two_versions_of_yaml_read_differently_stays_as_it_is_written(
    tmp_path: Path, value: str
) -> None:
    (tmp_path / "a.md").write_text(f"---\nat: {value}\nn: 7\n1: [{value}]\n? [a]\n: b\n---\ntext")
    (document,) = read_documents(tmp_path)
    assert {"at": value, "n": 7, "1": [value]}.items() <= document.metadata.items()
    assert document.text == "text"


@pytest.mark.parametrize(
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
