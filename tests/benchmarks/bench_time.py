"""Facts with dates against an oracle, and questions over versions of documents.

``python -m tests.benchmarks.bench_time [GRAPH_URL]`` prints the table of the page on time.
"""

import sys
from time import perf_counter

from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, open_graph
from tests.graph.facts import Facts, wrong_answers

# Topics of a handbook, each with the values of three editions.
TOPICS = {
    "annual leave": ("20 days", "25 days", "28 days"),
    "sick leave": ("a note after 3 days", "a note after 2 days", "no note"),
    "the travel allowance": ("30 euros a day", "40 euros a day", "55 euros a day"),
    "the probation period": ("six months", "five months", "three months"),
    "remote work": ("not allowed", "two days a week", "four days a week"),
    "the notice period": ("four weeks", "six weeks", "eight weeks"),
    "overtime pay": ("110 percent", "125 percent", "150 percent"),
    "parental leave": ("10 weeks", "14 weeks", "20 weeks"),
    "\u5e74\u5047": ("\u4e94\u5929", "\u5341\u5929", "\u5341\u4e94\u5929"),
    "\u62a5\u9500\u6807\u51c6": (
        "\u6bcf\u5929\u4e00\u767e\u5143",
        "\u6bcf\u5929\u4e8c\u767e\u5143",
        "\u6bcf\u5929\u4e09\u767e\u5143",
    ),
    "\u8bd5\u7528\u671f": ("\u516d\u4e2a\u6708", "\u4e09\u4e2a\u6708", "\u4e00\u4e2a\u6708"),
    "\u52a0\u73ed\u5de5\u8d44": (
        "\u4e00\u70b9\u4e8c\u500d",
        "\u4e00\u70b9\u4e94\u500d",
        "\u4e24\u500d",
    ),
}
EDITIONS = ((2018, 2021), (2021, 2024), (2024, None))


def questions_over_versions() -> tuple[int, int]:
    """Return how often the right edition is first, of questions with and without a time."""
    right = count = 0
    with KnowledgeBase.open("embedded::memory:", embed_model="local") as kb:
        for topic, values in TOPICS.items():
            for (start, end), value in zip(EDITIONS, values, strict=True):
                is_chinese = not topic.isascii()
                text = (
                    f"{topic}\u4e3a{value}\u3002"
                    if is_chinese
                    else f"For {topic} the rule is: {value}."
                )
                dates = (
                    f"\u81ea{start}\u5e741\u67081\u65e5\u8d77\u65bd\u884c\u3002"
                    if is_chinese
                    else f" Effective 1 January {start}."
                )
                last = "" if end is None else f" Valid until 31 December {end - 1}."
                document = Document(id_=f"{topic} {start}", text=f"{text}{dates}{last}")
                kb.add([document], validity="text", show_progress=False)
        for topic in TOPICS:
            question = (
                f"{topic}\u662f\u591a\u5c11"
                if not topic.isascii()
                else f"What is the rule for {topic}?"
            )
            times = [(f"{start}-06-01", start) for start, _ in EDITIONS]
            for as_of, start in [*times, ("now", 2024), (None, 2024)]:
                best = kb.search(question, as_of=as_of, top_k=10)[0].node.ref_doc_id
                right += best == f"{topic} {start}"
                count += 1
    return right, count


def main(url: str) -> None:
    facts = Facts(seed=1, count=10_000)
    with open_graph(url) as graph:
        graph.clear(scope=None)
        started = perf_counter()
        wrong = wrong_answers(graph, facts, questions=5_000)
        seconds = perf_counter() - started
        graph.clear(scope=None)
    print(f"{url}: {len(facts.edges)} facts, 5000 questions, {len(wrong)} wrong, {seconds:.0f} s")
    right, count = questions_over_versions()
    print(f"versions of documents: {right} of {count} right first")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "graph::memory:")
