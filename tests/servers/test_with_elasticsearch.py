"""A command beside a server has a place of its own there, and leaves nothing."""

import json
import sys
from urllib.request import urlopen

import pytest

from tests.servers.elasticsearch import URL_VARIABLE, elasticsearch_url
from tests.servers.with_elasticsearch import KB_URL_VARIABLE, main

__all__ = ["elasticsearch_url"]

FILL = f"""
import os, sys
from llama_index.core import Document, MockEmbedding
from llama_retrieval_ext import KnowledgeBase

with KnowledgeBase.open(os.environ[{KB_URL_VARIABLE!r}], embed_model=MockEmbedding(4)) as kb:
    kb.add([Document(text="annual leave")], show_progress=False)
sys.exit(3)
"""


@pytest.mark.slow
def test_indices_that_a_command_makes_on_a_server_are_removed(
    elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, elasticsearch_url)
    assert main([sys.executable, "-c", FILL]) == 3
    with urlopen(f"{elasticsearch_url}/_cluster/health/switching-*") as answer:
        assert json.load(answer)["active_primary_shards"] == 0


def test_a_call_without_a_command_shows_the_usage() -> None:
    with pytest.raises(SystemExit, match=r"usage: .* COMMAND"):
        main([])
