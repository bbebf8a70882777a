"""The notebooks' data on a small scale: text that every Python has, no download.

The sentences are from the language reference and the docstrings. Models of two layers
trained for half a minute know little, so the tasks are of the simplest kind.
"""

import inspect
import io
import itertools
import json
import keyword
import random
import textwrap
import tokenize
from collections.abc import Iterable

from bert_tf.addons.teaching.notebook import run
from bert_tf.addons.teaching.quickstart import Document, read_documents
from bert_tf.base import files
from bert_tf.base.config import BertConfig

_NUM_DOCUMENTS = 400
_VOCAB_SIZE = 2000
# GLUE's server wants as many of SST-2.
_NUM_TEST = 1821


def small_documents() -> list[Document]:
    """Returns the documents that all data are made from."""
    return list(itertools.islice(read_documents(), _NUM_DOCUMENTS))


def _sentences(least: int, most: int) -> list[str]:
    """Returns the sentences with so many words."""
    sentences = itertools.chain.from_iterable(d.sentences for d in small_documents())
    return [one for one in sentences if least <= len(one.split()) <= most]


def write_text(folder: str) -> None:
    """Writes text.txt, and the bert_config.json of a model of two layers."""
    files.make_folder(folder)
    # The releases' 0.02 suits their width; a narrow model learns sooner from more.
    config = BertConfig.from_size(
        "tiny", vocab_size=_VOCAB_SIZE, initializer_range=0.08
    )
    files.write_atomically(f"{folder}/bert_config.json", config.to_json_string())
    files.write_atomically(
        f"{folder}/text.txt",
        "\n\n".join("\n".join(document.sentences) for document in small_documents()),
    )


def pretrain(folder: str, device_flags: str) -> str:
    """Pre-trains a model of two layers for half a minute; returns its folder."""
    write_text(folder)
    run(
        "python -m bert_tf.tfrecords.learn_vocabulary"
        f" --input_file={folder}/text.txt --output_file={folder}/vocab.txt"
        f" --vocab_size={_VOCAB_SIZE}"
    )
    run(
        "python -m bert_tf.tfrecords.create_pretraining_data"
        f" --input_file={folder}/text.txt --output_file={folder}/text.tfrecord"
        f" --vocab_file={folder}/vocab.txt"
        " --max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=2"
        " --nsp_labels=exact"
    )
    run(
        f"python -m bert_tf.run_pretraining --input_file={folder}/text.tfrecord"
        f" --bert_config_file={folder}/bert_config.json"
        f" --output_dir={folder}/pretraining --do_train"
        " --train_batch_size=64 --learning_rate=1e-3"
        f" --num_train_steps=400 --num_warmup_steps=40 {device_flags}"
    )
    return f"{folder}/pretraining"


def write_sst2(glue_dir: str) -> None:
    """Writes SST-2: is a sentence from a docstring (0), or the reference (1)?"""
    rng = random.Random(12345)
    found: dict[int, dict[str, None]] = {0: {}, 1: {}}
    for document in small_documents():
        label = int(document.name.startswith("topic"))
        some = (one for one in document.sentences if len(one.split()) <= 25)
        found[label].update(dict.fromkeys(some))
    rows = [
        (sentence, label)
        for label, sentences in found.items()
        for sentence in rng.sample(list(sentences), 625)
    ]
    rng.shuffle(rows)
    folder = f"{glue_dir}/SST-2"
    files.make_folder(folder)
    for name, part in (("train", rows[:1000]), ("dev", rows[1000:])):
        table = "".join(f"{sentence}\t{label}\n" for sentence, label in part)
        files.write_atomically(f"{folder}/{name}.tsv", "sentence\tlabel\n" + table)
    test = rng.sample([*found[0], *found[1]], _NUM_TEST)
    table = "".join(f"{i}\t{sentence}\n" for i, sentence in enumerate(test))
    files.write_atomically(f"{folder}/test.tsv", "index\tsentence\n" + table)


def write_squad(squad_dir: str) -> str:
    """Writes SQuAD's files: how does a sentence begin, and how does it end?"""
    paragraphs = _sentences(8, 24)
    files.make_folder(squad_dir)
    for version in ("v1.1", "v2.0"):
        for split, part in (("train", paragraphs[:500]), ("dev", paragraphs[500:600])):
            files.write_atomically(
                f"{squad_dir}/{split}-{version}.json", _squad_file(part, version)
            )
    return paragraphs[600]


def _squad_file(paragraphs: Iterable[str], version: str) -> str:
    entries = []
    for number, context in enumerate(paragraphs):
        words = context.split()
        begin, end = " ".join(words[:3]), " ".join(words[-3:])
        questions: list[tuple[str, list[dict[str, object]]]] = [
            ("How does the text begin?", [{"text": begin, "answer_start": 0}]),
            (
                "What is at its end?",
                [{"text": end, "answer_start": len(context) - len(end)}],
            ),
        ]
        if version == "v2.0":
            questions.append(("Who is in the picture?", []))
        qas = [
            {
                "id": f"{number}-{i}",
                "question": question,
                "answers": answers,
                "is_impossible": not answers,
            }
            for i, (question, answers) in enumerate(questions)
        ]
        entries.append({"context": context, "qas": qas})
    article = {"title": "Python", "paragraphs": entries}
    return json.dumps({"version": version, "data": [article]})


def write_sentences(path: str) -> None:
    """Writes some sentences, one per line."""
    files.write_atomically(path, "\n".join(_sentences(6, 20)[:300]) + "\n")


def write_tagged(path: str) -> None:
    """Writes the words of Python's own source, labelled by its tokenizer."""
    source = inspect.getsource(textwrap) + inspect.getsource(tokenize)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = []
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.type == tokenize.NEWLINE:
            lines.append("")
        elif token.type == tokenize.NAME:
            label = "name"
            if keyword.iskeyword(token.string):
                label = "keyword"
            elif after.string == "(":
                label = "called"
            elif before.string == ".":
                label = "attribute"
            lines.append(f"{token.string} {label}")
        elif token.type in (tokenize.OP, tokenize.NUMBER):
            lines.append(f"{token.string} {tokenize.tok_name[token.type].lower()}")
    files.write_atomically(path, "\n".join(lines) + "\n\n")
