"""Exports' scores are those of the tasks' own commands, and of `load`'s predictions."""

import csv
import importlib.util
import itertools
import os

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

import bert_tf
from bert_tf import run_classifier, run_embeddings, run_ner, run_squad, run_swag
from bert_tf.addons.methods.similarity import BertEmbedder
from bert_tf.addons.serving import export_model
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

WORDS = [f"w{number}" for number in range(20)]
PLACES = WORDS[:6]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "who"]
COUNT = 40
PAIRS = {"max_seq_length": 14, "text_a_column": "a", "text_b_column": "b"}

needs_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None,
    reason="onnxruntime is in the environment of `make test-exports`",
)


class ExportScoresTest(FolderCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.texts, self.others = (
            [" ".join(rng.choice(WORDS, 6)) for _ in range(COUNT)] for _ in range(2)
        )
        self.scores = rng.uniform(0, 5, COUNT).round(2)
        self.right = rng.integers(2, size=COUNT)
        self.words = [rng.choice(text.split()) for text in self.texts]

    def run_of(self, model, flags, **kinds):
        """A folder with a random model, and its run's flags."""
        randomize(model)
        folder = runs.save(self.folder(), model, tokens=TOKENS, **kinds)
        runs.write_json(flags, folder, "flags.json")
        return folder

    def table(self, name, header, *columns):
        path = self.path(name)
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([header, *zip(*columns, strict=True)])
        return path

    def squad(self, *, has_answers=True, negative=False):
        """Each text's answer is in `words`; of every other one none."""
        paragraphs = []
        for number, (text, word) in enumerate(zip(self.texts, self.words, strict=True)):
            is_impossible = negative and number % 2 == 0
            start = f" {text} ".index(f" {word} ")
            answers = [{"text": word, "answer_start": start}]
            qa = {"id": str(number), "question": "Who?"}
            if has_answers:
                qa["answers"] = [] if is_impossible else answers
            if negative:
                qa["is_impossible"] = is_impossible
            paragraphs.append({"context": text, "qas": [qa]})
        return self.write("dev.json", {"data": [{"paragraphs": paragraphs}]})

    def scored_pairs(self, name="dev.csv"):
        columns = self.texts, self.others, self.scores
        return self.table(name, ["a", "b", "s"], *columns)

    def export(self, folder, eval_file, kind, *arguments):
        """The rows that export_model prints: name -> its scores; and the last line."""
        number = sum(name.startswith("export") for name in os.listdir(self.path()))
        header, *rows, last = printed(
            export_model,
            f"--checkpoint={folder}",
            f"--format={kind}",
            f"--output_dir={self.path(f'export{number}')}",
            f"--eval_file={eval_file}",
            *arguments,
        ).splitlines()
        metrics = header.split()[:-3]
        self.assertEqual(header.split()[-3:], ["ms", "each", "MB"])
        found = {}
        for name, *cells in map(str.split, rows):
            found[name] = dict(zip(metrics, map(float, cells), strict=False))
        return found, last

    def of_command(self, command, folder, eval_file, **options):
        """What the task's own command says of the checkpoint."""
        is_squad = command is run_squad
        use, file = (
            ("do_predict", "predict_file") if is_squad else ("do_eval", "dev_file")
        )
        options = {use: True, file: eval_file, "init_checkpoint": folder, **options}
        given = [f"--{name}={value}" for name, value in options.items()]
        given.append(f"--output_dir={self.path('run')}")
        return command.run(cli.parse(command.run, given)).scores

    def check(self, command, folder, eval_file, score=None, has_pairs=False, **options):
        """The scores are the command's; those of int8 are of what `load` predicts."""
        wanted = self.of_command(command, folder, eval_file, **options)
        kind = "litert" if score is None else "onnx"
        found, last = self.export(folder, eval_file, kind)
        self.assertEqual([*found], ["checkpoint", "float32"])
        for row in found.values():
            for metric, value in row.items():
                self.assertAllClose(value, wanted[metric], atol=6e-5)
        self.assertNotIn("nan", last)
        if score is not None:
            # With fixed ranges, so that outputs do not depend on the batch.
            arguments = (
                "--quantize=int8",
                f"--calibration_file={self.scored_pairs('calibration.csv')}",
            )
            columns = [f"--text_{c}_column={c}" for c in "ab"[: 1 + has_pairs]]
            found, last = self.export(folder, eval_file, kind, *arguments, *columns)
            self.assertEqual([*found], ["checkpoint", "int8"])
            for metric, value in score(bert_tf.load(self.path("export1"))).items():
                self.assertAllClose(
                    found["checkpoint"][metric], wanted[metric], atol=6e-5
                )
                self.assertAllClose(found["int8"][metric], value, atol=6e-5)
            self.assertNotEqual(found["int8"], found["checkpoint"])
        return last

    def correlations(self, numbers):
        return {
            "pearson": stats.pearsonr(numbers, self.scores).statistic,
            "spearman": stats.spearmanr(numbers, self.scores).statistic,
        }

    @needs_onnxruntime
    def test_numbers_of_pairs(self):
        model = BertClassifier(toy.CONFIG, 1, problem_type="regression")
        flags = {**PAIRS, "label_column": "s", "regression": True}
        folder = self.run_of(model, flags, problem_type="regression")

        def score(model):
            found = model.predict(self.texts, self.others)
            return self.correlations([one.label for one in found])

        last = self.check(
            run_classifier, folder, self.scored_pairs(), score, True, **flags
        )
        self.assertRegex(last, "^40 of 40 answers differ; the outputs of 40 examples")

    def cosines(self, model):
        one, other = model.embed(self.texts), model.embed(self.others)
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        return self.correlations((one * other).sum(axis=1) / lengths)

    def vectors(self):
        """A run of run_embeddings, and its flags as on a command line."""
        flags = {"max_seq_length": 14, "pooling": "cls", "max_score": 5.0}
        named = {"text_columns": ["a", "b"], "score_column": "s"}
        folder = self.run_of(BertEmbedder(toy.CONFIG, pooling="cls"), flags | named)
        return folder, flags | {"text_columns": "a,b", "score_column": "s"}

    @needs_onnxruntime
    def test_vectors(self):
        folder, flags = self.vectors()
        path = self.scored_pairs()
        last = self.check(run_embeddings, folder, path, self.cosines, True, **flags)
        self.assertRegex(last, "^the outputs of 40 examples differ by at most")

    def test_vectors_by_litert(self):
        folder, flags = self.vectors()
        path = self.scored_pairs()
        self.check(run_embeddings, folder, path, **flags)

    def tagged(self):
        """A file of words and whether they are places, and the answers."""
        golds = [[word in PLACES for word in text.split()] for text in self.texts]
        lines = []
        for text, labels in zip(self.texts, golds, strict=True):
            for word, is_place in zip(text.split(), labels, strict=True):
                lines.append(f"{word} {'B-LOC' if is_place else 'O'}\n")
            lines.append("\n")
        return self.write("dev.txt", "".join(lines)), [*itertools.chain(*golds)]

    @needs_onnxruntime
    def test_entities(self):
        path, golds = self.tagged()
        flags = {"max_seq_length": 9, "doc_stride": 4}
        model = BertTagger(toy.CONFIG, 2)
        folder = self.run_of(model, flags, labels=["O", "B-LOC"])

        def score(model):
            labels = [label for one in model.tag(self.texts) for label in one.labels]
            return {"f1": f1_score(golds, np.array(labels) == "B-LOC")}

        last = self.check(run_ner, folder, path, score, **flags)
        self.assertRegex(last, r"^\d+ of 240 answers differ; the outputs of")

    @pytest.mark.slow
    def test_entities_by_litert(self):
        flags = {"max_seq_length": 9, "doc_stride": 4}
        folder = self.run_of(BertTagger(toy.CONFIG, 2), flags, labels=["O", "B-LOC"])
        self.check(run_ner, folder, self.tagged()[0], **flags)

    @needs_onnxruntime
    def test_answers(self):
        flags = {"max_seq_length": 9, "doc_stride": 2, "max_query_length": 3}
        folder = self.run_of(BertSpanPredictor(toy.CONFIG), flags)
        asked = ["Who?"] * COUNT
        # So that an answer of int8 that differs is wrong.
        found = bert_tf.load(folder).answer(asked, self.texts)
        self.words = [answers[0].text for answers in found]
        path = self.squad()

        def score(model):
            found = model.answer(asked, self.texts)
            right = [
                answers[0].text == word
                for answers, word in zip(found, self.words, strict=True)
            ]
            return {"exact_match": 100 * np.mean(right)}

        self.check(run_squad, folder, path, score, **flags)

    @pytest.mark.slow
    def test_answers_by_litert(self):
        flags = {"max_seq_length": 9, "doc_stride": 2, "max_query_length": 3}
        folder = self.run_of(BertSpanPredictor(toy.CONFIG), flags)
        self.check(run_squad, folder, self.squad(), **flags)

    @needs_onnxruntime
    def test_questions_without_an_answer(self):
        flags = {"max_seq_length": 16, "max_query_length": 8}
        folder = self.run_of(BertSpanPredictor(toy.CONFIG), flags)
        path = self.squad(negative=True)
        flags["version_2_with_negative"] = True  # which the file tells of
        wanted = self.of_command(run_squad, folder, path, **flags)
        found, _ = self.export(folder, path, "onnx")
        self.assertEqual([*found["float32"]], ["exact", "f1"])
        for metric, value in found["float32"].items():
            self.assertAllClose(value, wanted[metric], atol=6e-5)

    def choices(self):
        """A file of choices, of which one is right."""
        header = "sent1", "sent2", "ending0", "ending1", "label"
        nothing = [""] * COUNT
        columns = self.texts, nothing, self.others, self.others[::-1], self.right
        return self.table("dev.csv", header, *columns)

    @pytest.mark.slow
    def test_choices_by_litert(self):
        folder = self.run_of(BertMultipleChoice(toy.CONFIG), {"max_seq_length": 15})
        path = self.choices()
        self.check(run_swag, folder, path, max_seq_length=15)

    @needs_onnxruntime
    def test_choices(self):
        folder = self.run_of(BertMultipleChoice(toy.CONFIG), {"max_seq_length": 15})

        def score(model):
            pairs = [*zip(self.others, self.others[::-1], strict=True)]
            found = [int(one.label) for one in model.choose(self.texts, pairs)]
            return {"accuracy": np.mean(found == self.right)}

        path = self.choices()
        self.check(run_swag, folder, path, score, max_seq_length=15)

    def test_what_is_wrong_is_one_line(self):
        def check(message, *arguments):
            with self.assertRaisesRegex(InputError, message) as caught:
                self.export(folder, path, "litert", *arguments)
            self.assertNotIn("\n", str(caught.exception))
            self.assertFalse(os.path.exists(self.path("export0")))

        folder = self.run_of(BertPretrainer(toy.CONFIG), {"max_seq_length": 14})
        path = self.scored_pairs()
        check("has the masked LM and the next sentence prediction head: leave it out")
        check("`eval_file`, as run_embeddings reads it: .*dev.csv", "--heads=none")
        folder = self.run_of(BertTagger(toy.CONFIG, 2), {}, labels=["O", "B-LOC"])
        check("`eval_file`, as run_ner reads it: .*dev.csv")
        check("`text_a_column` has no effect: run_ner", "--text_a_column=a")
        flags = {"max_query_length": 8}
        folder = self.run_of(BertSpanPredictor(toy.CONFIG), flags)
        check("dev.csv.* no column 'question'")
        path = self.squad(has_answers=False)
        check("dev.json: not all questions have a known answer")
        folder = self.run_of(BertMultipleChoice(toy.CONFIG), {})
        check("`eval_file`, as run_swag reads it: .*dev.json")
