from collections import Counter
from importlib.resources import files

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.samples.regulations import zh_safety_laws


def test_sample_laws_are_complete_with_unique_ids() -> None:
    articles = zh_safety_laws()
    assert len({article.doc_id for article in articles}) == len(articles)
    assert Counter(article.metadata["law"] for article in articles) == {
        "中华人民共和国安全生产法": 119,
        "中华人民共和国消防法": 74,
        "建设工程安全生产管理条例": 71,
        "安全生产许可证条例": 24,
    }


def test_a_sample_article_has_its_law_and_number() -> None:
    for document in zh_safety_laws():
        metadata = document.metadata
        assert document.doc_id == f"{metadata['law']}#{metadata['article']}"
        assert document.text.startswith(f"{metadata['article']} ")
        assert metadata["source"].startswith("LawRefBook/Laws: ")
        assert metadata["date"] in metadata["source"]


def test_sample_articles_contain_known_answers() -> None:
    by_id = {document.doc_id: document.text for document in zh_safety_laws()}
    assert "有效期为3年" in by_id["安全生产许可证条例#第九条"]
    assert "专项施工方案" in by_id["建设工程安全生产管理条例#第二十六条"]


def test_date_and_source_of_a_sample_article_are_not_embedded() -> None:
    document = zh_safety_laws()[0]
    embedded = document.get_content(metadata_mode=MetadataMode.EMBED)
    assert "中华人民共和国安全生产法" in embedded
    assert "LawRefBook" not in embedded
    assert "2021-06-10" not in embedded


def test_changing_a_sample_article_changes_no_other() -> None:
    first = zh_safety_laws()
    first[0].metadata["law"] = "changed"
    first[0].excluded_embed_metadata_keys.append("law")
    assert first[1].excluded_embed_metadata_keys == ["date", "source"]
    assert zh_safety_laws()[0].metadata["law"] == "中华人民共和国安全生产法"
    assert zh_safety_laws()[0].excluded_embed_metadata_keys == ["date", "source"]


def test_the_source_of_sample_laws_is_documented() -> None:
    note = (files("llama_retrieval_ext.samples") / "SOURCE.md").read_text(encoding="utf-8")
    assert "LawRefBook/Laws" in note
    for law in {document.metadata["law"] for document in zh_safety_laws()}:
        assert law in note
