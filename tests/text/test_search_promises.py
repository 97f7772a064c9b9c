"""What finds what: the cases that LlamaIndex's keyword search misses, and their kin."""

from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import each_case

DEFAULT = Tokenizer()


def found(query: str, document: str, *, by: Tokenizer = DEFAULT) -> float:
    """The share of the query's tokens that the document has."""
    wanted = by.query_tokens(query)
    return sum(token in by.tokens(document) for token in wanted) / len(wanted)


@each_case(
    ("query", "document"),
    [
        ("知识图谱", "大语言模型的知识图谱检索增强生成技术"),
        ("火", "发生火灾时应当报警"),
        ("臺灣的軟體", "台湾的软体"),
        ("后来的头发", "後來的頭髮"),
        ("検索", "日本語の文書を検索する"),
        ("データ", "データベースの設計"),
        ("ﾃﾞｰﾀ", "データベース"),
        ("검색", "검색한다"),
        ("물", "물을 마신다"),
        ("C", "Written in C for speed"),
        ("R", "Statistics with R"),
        ("C++", "Modern C++ in depth"),
        ("c++", "C++17 features"),
        ("Ｃ＋＋", "C++"),  # noqa: RUF001
        ("C#", "From Java to C#"),
        (".NET", "The .NET runtime"),
        ("1.2.3", "Release 1.2.3 is out"),
        ("3.12", "New in Python 3.12.1"),
        ("1000", "about 1,000 people"),
    ],
)
def test_k3_what_stock_bm25_cannot_see_is_found(query: str, document: str) -> None:
    assert found(query, document) == 1.0


@each_case("query", ["not", "to be or not to be", "what is it", "The Who", "I", "what ___"])
def test_k5_a_query_of_stop_words_keeps_them(query: str) -> None:
    assert found(query, f"He said: {query}.") == 1.0


def test_k5_documents_keep_stop_words_whatever_the_list() -> None:
    text = "what is not in the list"
    lists = [Tokenizer(stop_words=words) for words in ("english", "none", ("list",))]
    assert lists[0].tokens(text) == lists[1].tokens(text) == lists[2].tokens(text)


@each_case(
    ("query", "document"),
    [
        ("userName", "user_name = 1"),
        ("user name", "getUserName()"),
        ("username", "userName"),
        ("http server", "class HTTPServer2:"),
        ("HTTPServer2", "http_server_2"),
        ("os.path", "import os.path"),
        ("path join", "os.path.join(a, b)"),
        ("email", "by e-mail"),
        ("nodejs", "Node.js"),
        ("UTF-8", "utf8"),
        ("john.smith@acme.com", "write to <John.Smith@ACME.com>!"),
        ("docs.python.org", "https://docs.python.org/3/library/"),
        ("ecole", "L'École primaire"),
        ("école", "ECOLE PRIMAIRE"),
        ("strasse", "Hauptstraße Straße"),
        ("IT", "the IT department"),
        ("women", "women's rights"),
        ("parsing", "it parses"),
        ("हिन्दी", "मेरी हिन्दी है"),
    ],
)
def test_a_name_is_found_in_its_other_spellings(query: str, document: str) -> None:
    assert found(query, document) == 1.0


@each_case(
    ("query", "document"),
    [
        ("C", "C++ and C# only"),
        ("C++", "plain C"),
        ("R", "right"),
        ("火山", "山火"),
        ("123", "1.2.3"),
        ("1.2", "11.2"),
        ("タワー", "たわー"),
    ],
)
def test_what_only_looks_alike_is_not_found(query: str, document: str) -> None:
    assert found(query, document) < 1.0


def test_words_in_capitals_are_no_stop_words() -> None:
    assert DEFAULT.query_tokens("What's IT about?") == ["it"]
    assert DEFAULT.query_tokens("What is IT's budget?") == ["it", "budget"]
    assert DEFAULT.query_tokens("How do I parse it?") == ["pars"]


def test_own_stop_words_replace_the_english_ones() -> None:
    german = Tokenizer(language="german", stop_words=("der", "die", "Das"))
    assert german.query_tokens("das Haus the") == ["haus", "the"]


def test_without_splitting_a_name_is_one_word() -> None:
    plain = Tokenizer(split_identifiers=False, language="none")
    assert plain.tokens("getUserName user_name os.path") == [
        "getusername",
        "user_name",
        "os",
        "path",
    ]
    assert found("c++ 1.2.3", "C++ at 1.2.3", by=plain) == 1.0


def test_chinese_words_bring_their_characters() -> None:
    words = Tokenizer(cjk="words")
    assert "规定" in words.tokens("安全生产法规定")
    assert found("火", "发生火灾时", by=words) == 1.0
    assert words.tokens("東京タワーへ")[-4:] == ["ー", "タワ", "ワー", "へ"]
