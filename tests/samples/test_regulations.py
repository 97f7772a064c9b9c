import re
import sys
from collections import Counter
from pydoc_data.topics import topics

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.samples.python_topics import python_topics
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


def test_date_and_source_of_a_sample_article_are_not_embedded() -> None:
    document = zh_safety_laws()[0]
    embedded = document.get_content(metadata_mode=MetadataMode.EMBED)
    assert "中华人民共和国安全生产法" in embedded
    assert "LawRefBook" not in embedded
    assert "2021-06-10" not in embedded


def test_a_python_topic_document_has_topic_and_version() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for document in python_topics():
        assert document.metadata == {
            "topic": document.doc_id.removeprefix("python/"),
            "python": version,
        }


def test_a_python_topic_loses_only_underlines_of_headings_and_empty_lines() -> None:
    for document in python_topics():
        original = topics[document.metadata["topic"]]
        kept = re.sub(r"(?m)^[*=~-]{3,}$", "", original).split()
        assert document.text.split() == kept
