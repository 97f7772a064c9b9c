"""Chinese words by rjieba, the only place that imports it."""

from collections.abc import Callable

from llama_retrieval_ext.errors import MissingDependencyError


def chinese_segmenter() -> Callable[[str], list[str]]:
    """A function from Chinese text to its words, in rjieba's search mode.

    Search mode gives a long word and the words in it: 中华人民共和国, and also 中华, 人民, 共和国.

    Returns:
        The function; threads may share it.

    Raises:
        MissingDependencyError: rjieba is not installed.

    Examples:
        >>> chinese_segmenter()("安全生产法规定")
        ['安全', '生产', '法', '规定']

    """
    try:
        import rjieba  # noqa: PLC0415 - an extra, loaded when asked for
    except ModuleNotFoundError as error:
        raise MissingDependencyError("segmenting Chinese into words", "zh") from error
    cut: Callable[[str], list[str]] = rjieba.cut_for_search
    return cut
