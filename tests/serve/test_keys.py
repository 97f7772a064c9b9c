"""Files of keys are small."""

from pathlib import Path

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.serve.keys import ApiKeys


def test_a_large_file_of_keys_is_refused_at_once(tmp_path: Path) -> None:
    text = "keys:\n" + "- {name: a, key: 0123456789abcdef, everything: true}\n" * 100_000
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="longer than 1,000,000 bytes"):
        ApiKeys.load(tmp_path / "keys.yaml")
