"""What README.md takes for granted, small: text, a released model, the tasks' files."""

import csv
import itertools
import json
import os
import pathlib
import random

from bert_tf.addons.serving import export_model
from bert_tf.addons.teaching.quickstart import read_documents
from bert_tf.base import cli
from bert_tf.base.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.records import create_pretraining_data
from bert_tf.text.learning import learn_vocabulary
from tests.golden import inputs
from tests.training import toy

_NUM_DOCUMENTS = 40
_NUM_ROWS = 12
_SPLITS = ("train", "dev", "test")


class SmallFiles:
    """The files, and the folders that README.md's variables name."""

    def __init__(self, work: pathlib.Path, data: pathlib.Path) -> None:
        """Writes everything."""
        self._random = random.Random(0)
        self._work, self._data = work, data
        documents = itertools.islice(read_documents(), _NUM_DOCUMENTS)
        texts = [document.sentences for document in documents]
        self._sentences = [
            " ".join(sentence.split()[:12]) for text in texts for sentence in text
        ]
        for name, some in (("text", texts), ("held_out", texts[-5:])):
            self._write(
                work / f"{name}.txt",
                *("".join(f"{sentence}\n" for sentence in text) for text in some),
            )
        self._write(work / "input.txt", "He said so. ||| So he did.\n", "Who?\n")
        self.variables = {
            "BERT_BASE_DIR": self._release("uncased_L-4_H-16_A-2"),
            "BERT_CASED_DIR": self._release("cased_L-4_H-16_A-2"),
            "GLUE_DIR": self._glue(),
            "SQUAD_DIR": str(data / "squad"),
            "SWAG_DIR": str(data / "swag"),
            "CONLL_DIR": str(data / "conll2003"),
            "SNLI_DIR": self._snli(),
            "STSB_DIR": self._sts_b(),
        }
        inputs.write_squad(self.variables["SQUAD_DIR"])
        inputs.write_swag(self.variables["SWAG_DIR"])
        names = ("eng.train", "eng.testa", "eng.testb")
        inputs.write_tags(self.variables["CONLL_DIR"], names)
        base = pathlib.Path(self.variables["BERT_BASE_DIR"])
        asked = "question,context\nWho sat?,The cat sat.\n"
        self._write(work / "questions.csv", asked)
        for name in ("vocab.txt", "bert_config.json"):
            self._write(work / name, (base / name).read_text("utf-8"))
        student = json.loads((work / "bert_config.json").read_text("utf-8"))
        self._write(work / "student.json", json.dumps({**student, "hidden_size": 8}))
        self._reviews()
        self._records()

    def _write(self, path: pathlib.Path, *texts: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts), "utf-8")

    def _sentence(self) -> str:
        return self._random.choice(self._sentences)

    def _release(self, name: str) -> str:
        """A TF1 release of a random model, as `export_model` writes it."""
        run, folder = self._data / f"run_{name}", self._data / name
        run.mkdir(parents=True)
        with open(self._work / "text.txt", encoding="utf-8") as file:
            vocabulary = learn_vocabulary(
                file, vocab_size=600, do_lower_case=name.startswith("uncased")
            )
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=32,
        )
        vocabulary.save(str(run / "vocab.txt"))
        toy.write_config(str(run), config)
        toy.save_checkpoint(str(run), BertPretrainer(config))
        arguments = [f"--checkpoint={run}", "--format=tf1", f"--output_dir={folder}"]
        if name.startswith("cased"):
            arguments.append("--do_lower_case=false")
        export_model.run(cli.parse(export_model.run, arguments))
        return str(folder)

    def _table(self, path: pathlib.Path, *rows: list[str]) -> None:
        self._write(path, *("\t".join(row) for row in rows), "")

    def _glue(self) -> str:
        """MRPC and WNLI; GLUE's server wants predictions of their whole test sets."""
        folder = self._data / "glue_data"
        for split in _SPLITS:
            is_test = split == "test"
            first, label = ("index", []) if is_test else ("Quality", ["label"])
            self._table(
                folder / "MRPC" / f"{split}.tsv",
                [first, "#1 ID", "#2 ID", "#1 String", "#2 String"],
                *(
                    [str(number % 2), "1", "2", *self._pair()]
                    for number in range(1725 if is_test else _NUM_ROWS)
                ),
            )
            self._table(
                folder / "WNLI" / f"{split}.tsv",
                ["index", "sentence1", "sentence2", *label],
                *(
                    [str(number), *self._pair(), str(number % 2)][: 3 + len(label)]
                    for number in range(146 if is_test else _NUM_ROWS)
                ),
            )
        return str(folder)

    def _pair(self) -> tuple[str, str]:
        """Two short texts."""
        words = self._sentence().split()
        return " ".join(words[:3]), " ".join(words[2:5])

    def _reviews(self) -> None:
        for split in _SPLITS:
            label = [] if split == "test" else ["stars"]
            self._table(
                self._work / "reviews" / f"{split}.tsv",
                ["review", *label],
                *(
                    [self._sentence(), str(1 + number % 5)][: 1 + len(label)]
                    for number in range(_NUM_ROWS)
                ),
            )
        for name, first in (("reviews", 1), ("more_reviews", 1), ("all_reviews", 0)):
            rows = [
                (self._sentence(), first + n % (6 - first), f"author {n // 5}")
                for n in range(50)
            ]
            path = self._work / f"{name}.csv"
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("review", "stars", "author"), *rows])

        rows = [[self._sentence()] for _ in range(_NUM_ROWS)]
        with open(
            self._work / "new_reviews.csv", "w", encoding="utf-8", newline=""
        ) as file:
            csv.writer(file).writerows([["review"], *rows])

    def _snli(self) -> str:
        """The columns of SNLI that are read among others, a row without agreement."""
        folder = self._data / "snli_1.0"
        labels = ("neutral", "contradiction", "entailment", "-")
        for split in _SPLITS:
            self._table(
                folder / f"snli_1.0_{split}.txt",
                [
                    "gold_label",
                    "sentence1_parse",
                    "sentence1",
                    "sentence2",
                    "captionID",
                ],
                *(
                    [labels[number % 4], "()", self._sentence(), self._sentence(), "1"]
                    for number in range(_NUM_ROWS)
                ),
            )
        return str(folder)

    def _sts_b(self) -> str:
        """The columns of STS-B that are read, with scores from 0 to 5."""
        folder = self._data / "STS-B"
        for split in ("train", "dev"):
            self._table(
                folder / f"{split}.tsv",
                ["sentence1", "sentence2", "score"],
                *([*self._pair(), f"{number % 6}.0"] for number in range(_NUM_ROWS)),
            )
        return str(folder)

    def _records(self) -> None:
        """Records of two lengths, for the two phases."""
        lines = (self._work / "text.txt").read_text("utf-8").splitlines()
        path = self._work / "sample_text.txt"
        self._write(path, *lines[:400])
        self._write(self._work / "wiki" / "AA" / "wiki_00", *lines)
        for length, predictions in ((128, 20), (512, 77)):
            folder = self._work / "records" / str(length)
            folder.mkdir(parents=True)
            create_pretraining_data.run(
                cli.parse(
                    create_pretraining_data.run,
                    [
                        f"--input_file={path}",
                        f"--output_file={folder / 'text.tfrecord'}",
                        f"--vocab_file={self._work / 'vocab.txt'}",
                        f"--max_seq_length={length}",
                        f"--max_predictions_per_seq={predictions}",
                        "--num_workers=1",
                    ],
                )
            )
        assert os.listdir(folder)
