import json
import os

import numpy as np
import pytest

import bert_tf
from bert_tf import run_ner
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertTagger
from bert_tf.tasks.tagging.labels import entities
from tests.conversion import runs
from tests.script_case import ScriptCase, read_tsv
from tests.training import toy

# A name is "mr" and a name; a place stands behind "in".
NAMES, PLACES, OTHERS = ([f"{kind}{n}" for n in range(4)] for kind in "npo")
WORDS = ["mr", "in", ".", *NAMES, *PLACES, *OTHERS]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def sentences(count, seed):
    """(words, IOB1 labels) of made-up sentences."""
    rng = np.random.default_rng(seed)

    for _ in range(count):
        words, labels = [], []
        for _ in range(rng.integers(1, 4)):
            kind = rng.integers(3)
            if kind == 0:
                words += [str(rng.choice(OTHERS))]
                labels += ["O"]
            elif kind == 1:
                words += ["mr", str(rng.choice(NAMES))]
                # B alone tells an entity from one of its type right before it.
                is_second = bool(labels) and labels[-1] == "I-PER"
                labels += ["B-PER" if is_second else "I-PER", "I-PER"]
            else:
                words += ["in", str(rng.choice(PLACES))]
                labels += ["O", "I-LOC"]
        yield [*words, "."], [*labels, "O"]


def columns(rows):
    """A CoNLL file with a document every five sentences."""
    lines = []
    for number, (words, labels) in enumerate(rows):
        if number % 5 == 0:
            lines += ["-DOCSTART- -X- O", ""]
        pairs = zip(words, labels, strict=True)
        lines += [*(f"{word} X {label}" for word, label in pairs), ""]
    return "\n".join(lines) + "\n"


class RunNerTest(ScriptCase):
    script = run_ner
    tokens = TOKENS

    def defaults(self):
        return {"max_seq_length": 16, "train_batch_size": 16, "learning_rate": 3e-2}

    def test_learns_entities_and_writes_what_the_scorer_reads(self):
        dev = columns(sentences(20, 2))
        options = {
            "train_file": self.write("train.txt", columns(sentences(160, 1))),
            "dev_file": self.write("dev.txt", dev),
            "num_train_epochs": 8,
        }
        returned = self.run_script("--do_train", "--do_eval", **options)
        results = self.results()
        self.assertAllClose(returned.scores["f1"], results["f1"])
        self.assertGreater(results["f1"], 0.9)
        self.assertGreater(results["accuracy"], 0.9)
        self.assertLess(results["loss"], 0.5)
        self.assertIn("strict_recall", results)
        # The model predicts IOB2; the file keeps its columns, lines and spelling.
        self.assertEqual(
            self.read("run", "labels.txt").split(),
            ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"],
        )
        kept = json.loads(self.read("run", "words.json"))
        self.assertEqual(
            kept, {"longest": 1, "splits_cjk": True, "splits_punctuation": False}
        )
        predicted = self.read("run", "dev_predictions.txt")
        self.assertEqual(
            predicted.splitlines()[2].rpartition(" ")[0], dev.splitlines()[2]
        )
        report = self.read("run", "dev_report.txt")
        self.assertIn(f"FB1: {100 * results['f1']:6.2f}\n", report)
        other = self.write("other.txt", columns(sentences(160, 3)))
        with self.assertRaisesRegex(InputError, "holds a run on .*train.txt; .*other"):
            self.run_script("--do_train", **(options | {"train_file": other}))
        # The same command again: nothing is trained, the same is written.
        with self.training_nothing():
            self.run_script("--do_train", "--do_eval", **options)
        self.assertEqual(self.read("run", "dev_predictions.txt"), predicted)
        # With labels, and without: from the run's own files, as JSON lines.
        self.run_script("--do_predict", test_file=self.write("labelled.txt", dev))
        self.assertIn("test_f1", self.results())
        rows = [words for words, _ in sentences(3, 3)]
        test = "".join(json.dumps({"tokens": words}) + "\n" for words in rows)
        self.run_script(
            "--do_predict",
            test_file=self.write("test.jsonl", test),
            vocab_file=None,
            bert_config_file=None,
        )
        lines = self.read("run", "test_predictions.txt").split("\n")
        self.assertEqual(
            [line.split(" ")[0] for line in lines[:-1]],
            [word for words in rows for word in [*words, ""]],
        )
        self.assertNotIn("test_f1", self.results())
        self.assertIn("f1", self.results())
        self.assertFalse(os.path.exists(self.path("run", "test_report.txt")))

    @pytest.mark.slow
    def test_documents_and_the_test_sets_scores_beside_the_others(self):
        """A training that evaluates goes on by its own evaluations alone."""
        # Documents longer than the model.
        test = columns(sentences(12, 3))
        options = {
            "train_file": self.write("train.txt", columns(sentences(48, 1))),
            "dev_file": self.write("dev.txt", columns(sentences(20, 2))),
            "test_file": self.write("test.txt", test),
            "document_context": True,
            "eval_steps": 2,
            "num_train_epochs": 1,
        }
        train = ["--do_train", "--do_predict"]
        self.run_script(*train, **options)
        best = self.read_json("run", "best", "best.json")
        self.assertEqual(best["metric"], "f1")
        self.assertIn("test_strict_f1", self.results())
        self.assertNotIn("f1", self.results())
        predicted = self.read("run", "test_predictions.txt").split("\n")
        self.assertLen(predicted, len(test.split("\n")))
        with self.training_nothing():
            self.run_script(*train, **options)
            self.run_script("--do_eval", **options)
            alone = self.results()
            self.run_script("--do_predict", **options)
        self.assertIn("f1", alone)
        after = self.results()
        self.assertIn("test_f1", after)
        self.assertEqual({name: after[name] for name in alone}, alone)
        self.assertEqual(self.read_json("run", "best", "best.json"), best)

    def test_texts_with_spans_in_and_out(self):
        """Offsets come in and go out; `tag` reads plain text in the same words."""

        def texts(count, seed):
            for words, labels in sentences(count, seed):
                # A full stop has no blank before it.
                text = " ".join(words[:-1]) + words[-1]
                spans = [
                    {
                        "start": len(" ".join([*words[: one.start], ""])),
                        "end": len(" ".join(words[: one.end])),
                        "label": one.type,
                    }
                    for one in entities(labels)
                ]
                yield {"text": text, "spans": spans}

        def lines(values):
            return "".join(f"{json.dumps(one)}\n" for one in values)

        golds = [*texts(20, 2)]
        next(one for one in golds if one["spans"])["spans"] = []  # a mistake
        options = {
            "train_file": self.write("train.jsonl", lines(texts(160, 1))),
            "dev_file": self.write("dev.jsonl", lines(golds)),
            "num_train_epochs": 6,
        }
        self.run_script("--do_train", "--do_eval", **options)
        self.assertGreater(self.results()["f1"], 0.8)
        found = self.read_json_lines("run", "dev_predictions.jsonl")
        self.assertEqual([one["text"] for one in found], [one["text"] for one in golds])
        same = [
            sum(span in other["spans"] for span in one["spans"])
            for one, other in zip(found, golds, strict=True)
        ]
        precision = sum(same) / sum(len(one["spans"]) for one in found)
        self.assertAllClose(precision, self.results()["precision"])
        model = bert_tf.load(self.path("run"))
        for one, tagged in zip(
            found, model.tag([one["text"] for one in golds]), strict=True
        ):
            spans = [
                {
                    "start": each.characters[0],
                    "end": each.characters[1],
                    "label": each.type,
                }
                for each in tagged.entities
            ]
            self.assertEqual(spans, one["spans"])
        rows = read_tsv(self.path("run", "dev_mistakes.tsv"))
        names = "index place word label prediction probability text"
        self.assertEqual([*rows[0]], names.split())
        shares = [float(row["probability"]) for row in rows]
        self.assertEqual(shares, sorted(shares, reverse=True))
        wrong = self.read("run", "dev_predictions.txt").splitlines()
        wrong = [line.split(" ") for line in wrong if line]
        self.assertLen(rows, min(50, sum(line[-1] != line[-2] for line in wrong)))
        for row in rows:
            self.assertNotEqual(row["label"], row["prediction"])
            self.assertEqual(row["text"], golds[int(row["index"])]["text"])
            words = row["text"].replace(".", " .").split()
            self.assertEqual(words[int(row["place"])], row["word"])
        # Plain text.
        plain = "".join(f"{one['text']}\n" for one in golds)
        test = {"test_file": self.write("test.txt", plain), "format": "text"}
        self.run_script("--do_predict", "--num_mistakes=0", **test)
        self.assertEqual(self.read_json_lines("run", "test_predictions.jsonl"), found)
        overlapping = {"text": "in rome", "label": [[0, 7, "LOC"], [3, 7, "LOC"]]}
        options["train_file"] = self.write("bad.jsonl", json.dumps(overlapping))
        options["output_dir"] = self.path("other")
        with self.assertRaisesRegex(InputError, "bad.jsonl:1: 'in rome' .* overlap"):
            self.run_script("--do_train", **options)

    def test_parts_of_speech_have_an_accuracy(self):
        tagger = BertTagger(toy.CONFIG, 2)
        checkpoint = runs.save(
            self.path("tagger"), tagger, tokens=None, labels=["nn", "pp"]
        )
        # The model has no xx.
        dev = self.write("dev", "p1 nn\n. pp\n\nn1 nn\n. pp\n\nnew xx\n")
        self.run_script("--do_eval", init_checkpoint=checkpoint, dev_file=dev)
        results = self.results()
        self.assertEqual({*results}, {"loss", "accuracy", "majority", "global_step"})
        self.assertLess(results["accuracy"], 0.999)

    def test_what_a_user_got_wrong_is_said_before_training(self):
        train = self.write("train.txt", columns(sentences(8, 1)))
        torn = self.write("torn.txt", "a X O\nb O\n")
        for options, message in (
            ({"train_file": torn}, r"torn.txt:2: 2 columns.*has 3"),
            ({"train_file": train, "labels": "O,B-PER"}, "train.txt.*is none of"),
            ({"train_file": train, "best_metric": "em"}, "is not a metric of"),
            ({"train_file": self.path("no.txt")}, "`train_file`: no file matches"),
            ({"train_file": train, "max_seq_length": 512}, "max_position_embedd"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **options)
        with self.assertRaisesRegex(InputError, "give `labels`"):
            self.run_script("--do_predict", test_file=train)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_usage_errors(self):
        for arguments, message in (
            (["--do_train"], "--do_train needs --train_file"),
            (["--do_eval"], "--do_eval needs --dev_file"),
            (["--do_train", "--train_file=x", "--eval_steps=5"], "--eval_steps needs"),
            (["--do_predict"], "--do_predict needs --test_file"),
            (["--do_eval", "--tfds_name=x", "--dev_file=y"], "mean the same"),
            (["--do_eval", "--tfds_name=x", "--tfds_splits=a,b"], "must name 3 splits"),
            (["--do_eval", "--tfds_name=x", "--document_context"], "has no use"),
            (["--do_eval", "--dev_file=x", "--tfds_data_dir=y"], "without --tfds_name"),
            (["--do_eval", "--dev_file=x", "--bilstm_size=2"], "without --features"),
            (
                ["--do_eval", "--dev_file=x", "--features=last", "--recompute"],
                "--features and --recompute exclude each other: the first freezes BERT",
            ),
            ([], "Nothing to do"),
        ):
            with self.assertRaisesRegex(Exception, message):
                cli.parse(run_ner.run, ["--output_dir=x", *arguments])
