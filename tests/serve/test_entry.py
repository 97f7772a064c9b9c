"""Entry points: what cannot be served is refused, and a missing extra is named."""

import sys
from collections.abc import Callable

import pytest

from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    ScopeRequiredError,
)
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.serve import ApiKeys, create_app, create_mcp_server, serve_mcp
from tests.serve.conftest import ACME, KEYS


def test_an_mcp_server_without_a_scope_or_with_unsafe_options_is_refused(kb: KnowledgeBase) -> None:
    with pytest.raises(ScopeRequiredError):
        create_mcp_server(kb)
    with pytest.raises(ConfigurationError, match="rules are for a graph"):
        create_mcp_server(kb, scope=ACME, rules="rules.yaml")
    with pytest.raises(ConfigurationError, match="without API keys"):
        serve_mcp(kb, scope=ACME, address=("0.0.0.0", 8001))
    with pytest.raises(ConfigurationError, match="keys are for HTTP"):
        serve_mcp(kb, scope=ACME, keys=ApiKeys.parse(KEYS))


@pytest.mark.parametrize(
    ("function", "package", "extra"),
    [(create_app, "fastapi", "serve"), (create_mcp_server, "mcp", "mcp")],
)
def test_a_missing_extra_is_named(
    kb: KnowledgeBase,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., object],
    package: str,
    extra: str,
) -> None:
    for name in [*sys.modules]:
        if name.startswith("llama_retrieval_ext.serve.") or name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as raised:
        function(kb, scope=ACME)
    assert raised.value.extra == extra
