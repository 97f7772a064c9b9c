"""Calls of a plan."""

from llama_retrieval_ext.execution.plan import Call


async def test_then_maps_the_result_of_the_blocking_and_the_async_call() -> None:
    async def ten() -> int:
        return 10

    call = Call(lambda: 1, ten).then(lambda number: number + 1)
    assert call.function() == 2
    assert call.coroutine is not None
    assert await call.coroutine() == 11


def test_then_of_a_blocking_call_is_a_blocking_call() -> None:
    assert Call(lambda: 1).then(str).coroutine is None
