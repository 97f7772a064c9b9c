from llama_retrieval_ext.text.normalization import dominant_script
from tests.cases import each_case


@each_case(
    ("text", "script"),
    [
        ("What is retrieval?", "latin"),
        ("火灾发生后怎么办?", "han"),
        ("请用 Python 和 sentence_transformers 写一个检索函数", "han"),
        ("what does 火 mean in Chinese?", "latin"),
        ("火事が起きたらどうする", "kana"),
        ("データベース", "kana"),
        ("ﾃﾞｰﾀﾍﾞｰｽ", "kana"),
        ("优衣库の官方旗舰店", "han"),
        ("화재가 나면", "hangul"),
        ("Что делать при пожаре?", "cyrillic"),
        ("Τι είναι;", "greek"),  # noqa: RUF001
        ("ما هو", "arabic"),
        ("מה זה", "hebrew"),
        ("आग क्या है", "devanagari"),
        ("ไฟไหม้", "thai"),
        ("தீ என்றால் என்ன", "tamil"),
        ("Ի՞նչ է", "armenian"),
        ("", "none"),
        ("42 + 1 = ?", "none"),
        ("🔥\ud800\0", "none"),
    ],
)
def test_the_script_of_a_text_is_told(text: str, script: str) -> None:
    assert dominant_script(text) == script


def test_the_end_of_a_long_text_is_not_read() -> None:
    assert dominant_script("word " * 400 + "火" * 100_000) == "latin"
