from llama_retrieval_ext.text.segmentation import pieces
from tests.cases import each_case


@each_case(
    ("text", "expected"),
    [
        ("a-b c -d- e.", ["a-b", "c", "d", "e"]),
        ("x == y->z[i++]", ["x", "y", "z", "i++"]),
        ("issue#7 C#8 1#", ["issue", "7", "C#", "8", "1"]),
        ("ASP.NET and .Net, .network", ["ASP.NET", "and", ".Net", "network"]),
        ("AT&T o'clock O’Brien", ["AT&T", "o'clock", "O’Brien"]),  # noqa: RUF001
        ("1,000 1,00 1,2,3", ["1,000", "1", "00", "1", "2", "3"]),
        ("a@b.org/c?d=e", ["a", "b.org", "c", "d", "e"]),
        ("東京タワーへ行くGPT模型", ["東京", "タワー", "へ", "行", "く", "GPT", "模型"]),
        ("한국어를 쓴다", ["한국어를", "쓴다"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("สวัสดี ครับ", ["สวัสดี", "ครับ"]),
        ("2024年", ["2024", "年"]),
    ],
)
def test_text_is_cut_into_runs_and_names(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_a_word_ends_after_128_letters() -> None:
    assert [len(piece) for piece in pieces("a" * 300)] == [128, 128, 44]


def test_a_name_ends_after_eight_words() -> None:
    assert pieces("a.b.c.d.e.f.g.h.i.j") == ["a.b.c.d.e.f.g.h", "i.j"]
