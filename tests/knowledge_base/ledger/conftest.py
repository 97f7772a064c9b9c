"""A ledger on a server that is simulated in memory."""

import pytest

from tests.knowledge_base.ledger.memory_server import Server


@pytest.fixture
def server() -> Server:
    return Server()
