"""Source code is cut along its classes and functions, and none of it is lost."""

from pathlib import Path

import pytest
from llama_index.core.schema import Document, TextNode

import llama_retrieval_ext
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers import code
from llama_retrieval_ext.knowledge_base.readers.code import definitions
from llama_retrieval_ext.knowledge_base.readers.outline import Section, packed
from tests.cases import cases

pytest.importorskip("tree_sitter_language_pack", reason="the extra code is not installed")

BODY = "".join(f"    total = total + rate({number});\n" for number in range(30))
JAVA = f"""package shop;

/** An order. */
@Entity
public class Order {{
  private int id;

  /** What it costs. */
  public int total() {{
{BODY}  }}

  public int weight() {{
{BODY}  }}
}}
"""
JAVASCRIPT = f"""import {{ rate }} from "./rate.js";

/** An order. */
export class Order extends Thing {{
  // in cents
  total() {{
{BODY}  }}

  weight() {{
{BODY}  }}
}}

function free(a) {{
{BODY}}}
"""
GO = f"""package shop

// Order is an order.
type Order struct {{
\tid int
}}

// Total is what it costs.
func (o *Order) Total() int {{
{BODY}}}
"""
OTHERS = {
    ".ts": ("interface I { a: string }\nabstract class C { m(): void {} }", "I C m"),
    ".rs": ("#[derive(Debug)]\nimpl S {\n    fn run(&self) {}\n}\nfn main() {}", "S run main"),
    ".cpp": ("namespace n {\nclass A { int f() { return 1; } };\n}\nint A::g() {}", "n A f A::g"),
    ".cs": ("namespace N { class C { void M() { } } }", "N C M"),
    ".rb": ("module M\n  class C\n    def m(x)\n    end\n  end\nend", "M C m"),
    ".php": ("<?php\nclass P { function q() { return 1; } }", "P q"),
    ".kt": ("class K { fun f(): Int { return 1 } }\nfun g() {}", "K f g"),
    ".swift": ("protocol P { func a() }\nclass S { func f() -> Int { return 1 } }", "P a S f"),
    ".scala": ("object O { def f(x: Int) = x }", "O f"),
    ".lua": ("local function f(x)\n  return x\nend", "f"),
    ".c": (
        "struct o { int id; };\nstruct o *f(struct o *x) { struct o y; }\nunion u { int a; };",
        "o f u",
    ),
}
OWN = sorted(Path(llama_retrieval_ext.__file__).parent.glob("knowledge_base/*.py"))


def cut(text: str, name: str, size: int = 200) -> list[TextNode]:
    document = Document(text=text, metadata={"file_name": name})
    nodes = PassageParser(chunk_size=size, chunk_overlap=20)([document])
    return [node for node in nodes if isinstance(node, TextNode)]


@cases("suffix", OTHERS)
def test_the_definitions_of_each_language_are_found(suffix: str) -> None:
    text, names = OTHERS[suffix]
    assert " ".join(definition.name for definition in definitions(text, suffix)) == names


@cases(
    ("name", "text", "paths"),
    [
        ("Order.java", JAVA, ["Order > total", "Order > weight"]),
        ("order.js", JAVASCRIPT, ["Order > total", "Order > weight", "free"]),
    ],
)
def test_a_passage_names_its_class_and_its_method(name: str, text: str, paths: list[str]) -> None:
    nodes = cut(text, name)
    found = [node.metadata["heading_path"] for node in nodes if "heading_path" in node.metadata]
    assert list(dict.fromkeys(found)) == paths
    method = next(node.text for node in nodes if node.metadata.get("heading_path") == paths[1])
    assert method.lstrip().startswith(("public int weight", "weight()"))
    assert not any(node.text.strip() == "}" for node in nodes)


def test_a_method_of_go_stands_below_the_type_of_its_receiver() -> None:
    assert [node.metadata["heading_path"] for node in cut(GO, "order.go")][-1] == "Order > Total"
    text = "func (s Stack[T]) Push(x T) {}\nfunc (*Order) Empty() {}\nfunc free(o *Order) {}"
    names = [(definition.level, definition.name) for definition in definitions(text, ".go")]
    assert names == [(1, "Stack"), (2, "Push"), (1, "Order"), (2, "Empty"), (1, "free")]


def test_small_functions_share_a_passage_and_a_class_that_fits_is_not_cut() -> None:
    small = "".join(f"def f{n}(a):\n    return a + {n}\n\n\n" for n in range(30))
    whole = "class Order:\n" + "".join(f"    def m{n}(self): ...\n\n" for n in range(15))
    nodes = cut(f"{small}{whole}\n\n{small}", "a.py")
    assert len(nodes) < 10
    assert all(node.text.startswith(("def f", "class Order")) for node in nodes)
    (order,) = [node for node in nodes if "class Order" in node.text]
    assert all(f"def m{n}(" in order.text for n in range(15))


def test_the_headings_of_a_passage_are_those_of_all_of_it() -> None:
    body = "".join(f"        total = total + rate({n})\n" for n in range(20))
    limits = "\n".join(f"    LIMIT_{n} = {n}" for n in range(30))
    text = f"class Order:\n    def a(self):\n{body}\n{limits}\n\n    def b(self):\n{body}"
    free = text.replace("class Order:\n", "").replace("    ", "")
    assert [node.metadata["heading_path"] for node in cut(text, "a.py", 1000)] == ["Order"]
    assert ["heading_path" in node.metadata for node in cut(free, "a.py", 1000)] == [False]


def test_functions_may_nest_thousands_of_levels() -> None:
    inside = tuple(map(str, range(3000)))
    sections = [Section(n, n + 1, (*inside, f"f{n}")) for n in range(4)]
    assert packed(sections, [6, 4, 4, 9], 8) == [sections[0], Section(1, 3, inside), sections[3]]


def test_a_section_of_code_may_have_no_tokens() -> None:
    sections = [Section(0, 500), Section(500, 900, ("f",))]  # white space, to many tokenizers
    assert packed(sections, [0, 4], 8) == [Section(0, 900)]


def test_comments_are_with_the_type_of_go_that_follows_them() -> None:
    text = "package shop\n\n// Order is one.\ntype Order struct {\n\tid int\n}\n"
    text += "\ntype (\n\t// Line is one.\n\tLine int\n\tOther int\n)\n"
    lines = [
        (definition.name, definition.first, definition.last)
        for definition in definitions(text, ".go")
    ]
    assert lines == [("Order", 2, 6), ("Line", 8, 10), ("Other", 10, 11)]


def test_comments_and_attributes_of_rust_are_with_what_follows_them() -> None:
    text = "use a;\n\n/// One.\n/// Two.\n#[derive(Debug)]\npub struct S { a: u8 }\n"
    text += "/// F.\nfn f() {}\n"
    lines = [
        (definition.name, definition.first, definition.last)
        for definition in definitions(text, ".rs")
    ]
    assert lines == [("S", 2, 6), ("f", 6, 8)]


@pytest.mark.slow
@cases(("size", "crlf"), [(100, False), (512, True)])
def test_the_passages_of_a_file_are_all_of_its_text_at_their_positions(
    size: int, crlf: bool
) -> None:
    files = {path.name: path.read_text("utf-8") for path in OWN[::4]}
    texts = {
        **files,
        "Order.java": JAVA,
        "order.js": JAVASCRIPT,
        "order.go": GO,
        "a.py": "年假 = 1",
    }
    for name, plain in texts.items():
        text = plain.replace("\n", "\r\n") if crlf else plain
        nodes = cut(text, name, size)
        end = 0
        for node in nodes:
            start = node.start_char_idx or 0
            assert text[start : node.end_char_idx] == node.text
            assert not text[end:start].strip()
            end = max(end, node.end_char_idx or 0)
        assert not text[end:].strip()


def test_a_passage_of_code_keeps_its_indentation() -> None:
    first, *others = [
        node.text
        for node in cut(JAVA, "Order.java", 100)
        if "weight" in node.metadata["heading_path"]
    ]
    assert first.startswith("  public int weight() {\n    total = ")
    assert others
    assert all(text.startswith("    total") for text in others)


@pytest.mark.slow
def test_without_the_extra_code_is_cut_as_text(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(id_="order", text=JAVA, metadata={"file_name": "Order.java"})
    page = Document(id_="page", text="# Leave", metadata={"file_name": "page.md"})
    with monkeypatch.context() as patched:
        for module in ("readers.code", "splitting"):
            patched.setattr(f"llama_retrieval_ext.knowledge_base.{module}.is_installed", bool)
        kb.add([document, page], show_progress=False)
        assert not any("heading_path" in node.metadata for node in kb.get("order"))
        assert kb.info().splitting.endswith(", code as text")
    # Installed later: code is cut anew, and no other document.
    report = kb.add([document, page], show_progress=False)
    assert (report.updated, report.unchanged) == (1, 1)
    assert any("heading_path" in node.metadata for node in kb.get("order"))
    assert kb.info().splitting.endswith(", code by classes and functions")
    assert code.is_installed()
