"""Small inputs of made-up words: text, task files, a BERT and its checkpoint.

They are the same on every machine and with every version of Python and numpy: all
chance comes from `random.Random.random` and `RandomState.random_sample`, which promise
that.
"""

import csv
import json
import os
import random

import numpy as np
import tensorflow as tf

_SYLLABLES = [c + v for c in "bdfgklmn" for v in "aeio"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_MARKS = [".", ",", "?", "'"]

CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
}
# Of the runs that are kept in this folder.
TINY = CONFIG | {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}


class _Draw:
    def __init__(self, seed):
        self._random = random.Random(seed)

    def number(self, first, last):
        """A whole number, `first` and `last` included."""
        return first + int(self._random.random() * (last + 1 - first))

    def one(self, items):
        return items[self.number(0, len(items) - 1)]

    def several(self, items, first, last):
        return [self.one(items) for _ in range(self.number(first, last))]


def _words():
    """Forty words, each a token of the vocabulary."""
    draw = _Draw(1)
    words = []
    while len(words) < 40:
        word = "".join(draw.several(_SYLLABLES, 2, 3))
        if word not in words:
            words.append(word)
    return words


WORDS = _words()
# A head's scope in the original's checkpoints, and its outputs.
_SCORES = {
    "next_sentence": ("cls/seq_relationship/", 2),
    "classifier": ("", 3),
    "span": ("cls/squad/", 2),
    "multiple_choice": ("cls/multiple_choice/", 1),
    "tagging": ("cls/tagging/", 5),
}
HEADS = ("classifier", "span", "multiple_choice", "tagging")
# Words that are not in the vocabulary as a whole, nor as plain as its pieces.
_RARE = ["balogi", "Kemóni", "DIFALE", "lonado", "fegika"]


def vocabulary():
    """The tokens."""
    pieces = [f"##{syllable}" for syllable in _SYLLABLES]
    return [*_SPECIAL, *_MARKS, *WORDS, *_SYLLABLES, *pieces]


def _sentence(draw, first, last):
    words = draw.several(WORDS, first, last)
    if draw.number(0, 2) == 0:
        words[draw.number(0, len(words) - 1)] = draw.one(_RARE)
    if len(words) > 5 and draw.number(0, 1):
        words[2] += ","
    return " ".join(words).capitalize() + draw.one([".", ".", ".", "?"])


def _write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def _write_json(path, values):
    return _write(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def weights(config, heads=("masked_lm", "next_sentence")):
    """Weights of a BERT by the original's names."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = config["vocab_size"]

    def dense(name, inputs, outputs):
        return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}

    def norm(name):
        return {
            f"{name}/LayerNorm/gamma": (hidden,),
            f"{name}/LayerNorm/beta": (hidden,),
        }

    positions, types = config["max_position_embeddings"], config["type_vocab_size"]
    shapes = {
        "bert/embeddings/word_embeddings": (size, hidden),
        "bert/embeddings/token_type_embeddings": (types, hidden),
        "bert/embeddings/position_embeddings": (positions, hidden),
        **norm("bert/embeddings"),
    }
    for number in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{number}"
        for part in ("query", "key", "value"):
            shapes |= dense(f"{layer}/attention/self/{part}", hidden, hidden)
        shapes |= dense(f"{layer}/attention/output/dense", hidden, hidden)
        shapes |= norm(f"{layer}/attention/output")
        shapes |= dense(f"{layer}/intermediate/dense", hidden, inner)
        shapes |= dense(f"{layer}/output/dense", inner, hidden)
        shapes |= norm(f"{layer}/output")
    shapes |= dense("bert/pooler/dense", hidden, hidden)
    if "masked_lm" in heads:
        shapes |= dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= norm("cls/predictions/transform")
        shapes |= {"cls/predictions/output_bias": (size,)}
    for head, (prefix, num_outputs) in _SCORES.items():
        if head in heads:
            shapes[f"{prefix}output_weights"] = (num_outputs, hidden)
            shapes[f"{prefix}output_bias"] = (num_outputs,)
    random_state = np.random.RandomState(7)
    arrays = {}
    for name, shape in shapes.items():
        # A wide spread, so that predictions are far from ties.
        spread = 0.1 if name.endswith(("gamma", "beta", "bias")) else 0.5
        spread = 4.0 if name.endswith("output_weights") else spread
        array = (random_state.random_sample(shape) - 0.5) * spread
        arrays[name] = (array + name.endswith("gamma")).astype(np.float32)
    return arrays


def write_release(folder, config, heads=("masked_lm", "next_sentence")):
    """Writes a folder as the original's releases are: TF1 checkpoint, config, vocab."""
    tokens = vocabulary()
    config = config | {"vocab_size": len(tokens)}
    _write_json(os.path.join(folder, "bert_config.json"), config)
    _write(os.path.join(folder, "vocab.txt"), "\n".join(tokens) + "\n")
    prefix = os.path.join(folder, "bert_model.ckpt")
    arrays = weights(config, heads)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=[tf.constant(array) for array in arrays.values()],
    )
    return prefix


def _write_corpus(folder):
    draw = _Draw(2)
    for name, count in (("a.txt", 9), ("b.txt", 7)):
        documents = []
        for _ in range(count):
            length = draw.number(3, 9)
            documents.append("\n".join(_sentence(draw, 3, 11) for _ in range(length)))
        _write(os.path.join(folder, name), "\n\n".join(documents) + "\n")


def write_tables(folder):
    """Of a kind for each thing that run_classifier predicts."""
    draw = _Draw(3)
    kinds = {
        "classes": (
            ("text_a", "text_b", "label"),
            lambda: draw.one(["no", "some", "yes"]),
        ),
        "numbers": (("text_a", "label"), lambda: f"{draw.number(0, 20) / 4}"),
        "several": (
            ("text_a", "label"),
            lambda: ",".join(dict.fromkeys(draw.several(["red", "blue", "old"], 0, 2))),
        ),
    }
    for kind, (columns, label) in kinds.items():
        for split, count in (("train", 40), ("dev", 9), ("test", 5)):
            rows = ["\t".join(columns)]
            for _ in range(count):
                texts = [_sentence(draw, 2, 9) for _ in columns[1:]]
                rows.append("\t".join([*texts, label()]))
            _write(os.path.join(folder, kind, f"{split}.tsv"), "\n".join(rows) + "\n")


def _write_glue(folder):
    draw = _Draw(4)
    for split, count in (("train", 32), ("dev", 8), ("test", 5)):
        rows = [["index", "sentence1", "sentence2", "label"]]
        for number in range(count):
            label = draw.one(["entailment", "not_entailment"])
            texts = [_sentence(draw, 3, 9), _sentence(draw, 2, 6)]
            rows.append([str(number), *texts, label])
        if split == "test":
            rows = [row[:-1] for row in rows]
        text = "".join("\t".join(row) + "\n" for row in rows)
        _write(os.path.join(folder, "RTE", f"{split}.tsv"), text)
        rows = [
            ["mrpc", draw.one("01"), "", _sentence(draw, 3, 9)] for _ in range(count)
        ]
        if split == "test":
            rows = [
                ["index", "sentence"],
                *([str(n), row[3]] for n, row in enumerate(rows)),
            ]
        text = "".join("\t".join(row) + "\n" for row in rows)
        _write(os.path.join(folder, "CoLA", f"{split}.tsv"), text)


def write_squad(folder):
    for version in ("1.1", "2.0"):
        for split, count in (("train", 6), ("dev", 3)):
            draw = _Draw(f"{version} {split}")
            paragraphs = []
            for number in range(count):
                sentences = [_sentence(draw, 4, 10) for _ in range(draw.number(2, 6))]
                context = " ".join(sentences)
                names = [f"{split}{number}-{n}" for n in range(4)]
                questions = [_question(draw, context, n, version) for n in names]
                paragraphs.append({"context": context, "qas": questions})
            data = [
                {"title": "First", "paragraphs": paragraphs[:2]},
                {"title": "Second", "paragraphs": paragraphs[2:]},
            ]
            name = f"v{version}" if version == "2.0" else version
            _write_json(
                os.path.join(folder, f"{split}-v{version}.json"),
                {"version": name, "data": data},
            )


def _question(draw, context, identifier, version):
    words = context.split()
    first = draw.number(0, len(words) - 3)
    text = " ".join(words[first : first + draw.number(1, 3)]).rstrip(".,?")
    start = len(" ".join(words[:first])) + (first > 0)
    answer = {"text": text, "answer_start": start}
    length = draw.number(3, 9)
    question = {
        "id": identifier,
        "question": " ".join(draw.several(WORDS, length, length)) + "?",
    }
    if version == "2.0":
        question["is_impossible"] = draw.number(0, 2) == 0
        if question["is_impossible"]:
            return question | {"answers": [], "plausible_answers": [answer]}
    return question | {"answers": [answer]}


def write_swag(folder):
    draw = _Draw(5)
    endings = [f"ending{n}" for n in range(4)]
    for split, count in (("train", 20), ("val", 6), ("test", 4)):
        path = _write(os.path.join(folder, f"{split}.csv"), "")
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            label = [] if split == "test" else ["label"]
            columns = ("video-id", "fold-ind", "startphrase", "sent1", "sent2")
            writer.writerow(["", *columns, "gold-source", *endings, *label])
            for number in range(count):
                first = _sentence(draw, 3, 7)
                second = " ".join(draw.several(WORDS, 1, 2))
                texts = [_sentence(draw, 2, 6) for _ in endings]
                right = [] if split == "test" else [draw.number(0, 3)]
                start = f"{first} {second}", first, second, "gold"
                writer.writerow([number, f"v{number}", number, *start, *texts, *right])


def write_tags(folder, names=("train.txt", "dev.txt", "test.txt")):
    """Word, another column, label; of CoNLL's documents."""
    draw = _Draw(6)
    for name, count in zip(names, (40, 8, 5), strict=True):
        lines = []
        for number in range(count):
            if number % 4 == 0:
                lines += ["-DOCSTART- -X- O", ""]
            for _ in range(draw.number(1, 4)):
                kind = draw.one(["O", "PER", "LOC"])
                for place, word in enumerate(draw.several([*WORDS, *_RARE], 1, 3)):
                    label = kind if kind == "O" else f"{'I' if place else 'B'}-{kind}"
                    lines.append(f"{word} X {label}")
            lines += [". . O", ""]
        _write(os.path.join(folder, name), "\n".join(lines) + "\n")


def _write_lines(folder):
    draw = _Draw(8)
    lines = [_sentence(draw, 2, 9) for _ in range(3)]
    lines.append(f"{_sentence(draw, 2, 6)} ||| {_sentence(draw, 2, 6)}")
    _write(os.path.join(folder, "lines.txt"), "\n".join(lines) + "\n")
    _write(
        os.path.join(folder, "context.txt"),
        " ".join(_sentence(draw, 4, 9) for _ in range(5)) + "\n",
    )


def write(folder):
    """Writes all inputs."""
    write_release(os.path.join(folder, "release"), CONFIG)
    write_release(os.path.join(folder, "tiny"), TINY)
    for head in HEADS:
        write_release(os.path.join(folder, "heads", head), CONFIG, (head,))
    _write_corpus(os.path.join(folder, "corpus"))
    write_tables(os.path.join(folder, "tables"))
    _write_glue(os.path.join(folder, "glue"))
    write_squad(os.path.join(folder, "squad"))
    write_swag(os.path.join(folder, "swag"))
    write_tags(os.path.join(folder, "tags"))
    _write_lines(os.path.join(folder, "texts"))
