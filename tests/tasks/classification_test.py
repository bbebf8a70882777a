import dataclasses
import json
import os
import tempfile
from collections import Counter

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import run_classifier
from bert_tf.base import cli
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import DivergedError, InputError
from bert_tf.conversion.tokenizer_files import write_labels
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.tasks import classification, finetuning
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy
from tests.training.toy_examples import several_lengths

CLS, SEP = 2, 3
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(20)]
FIRST = 5
# Words of each development example; 12 are the most that fit.
LENGTHS = (5, 1, 12, 3, 9, 2, 7, 12, 4, 1, 8)
LABELS = [("no", "yes")[number % 3 == 0] for number in range(11)]
WINDOWS = {"long_text": "window", "doc_stride": 3, "max_seq_length": 8}
WINDOWS |= {"dev_file": "long.tsv"}


def words(number, count):
    """The numbers of an example's words."""
    return [(7 * number + 3 * place) % len(WORDS) for place in range(count)]


def inputs_of(numbers):
    """A model's inputs for one text by itself, without padding."""
    ids = [CLS, *(FIRST + number for number in numbers), SEP]
    return {
        "input_ids": np.array([ids]),
        "input_mask": np.ones([1, len(ids)], np.int64),
        "segment_ids": np.zeros([1, len(ids)], np.int64),
    }


class SessionTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.config = toy.write_config(cls.root)
        Vocabulary([*SPECIAL, *WORDS]).save(cls.path("v.txt"))
        os.makedirs(cls.path("data"))
        cls.write("dev.tsv", LENGTHS, LABELS)
        cls.write("long.tsv", (3, 12, 6), ["no", "yes", "no"])
        keras.utils.set_random_seed(4)
        cls.model = BertClassifier(toy.CONFIG, 2)
        for variable in cls.model.variables:
            if variable.dtype == "float32":  # far from 0, so that logits differ
                variable.assign(variable + keras.random.normal(variable.shape) * 0.3)
        toy.save_checkpoint(cls.path("trained"), cls.model)

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.root, *names)

    @classmethod
    def write(cls, name, lengths, labels):
        with open(cls.path("data", name), "w") as file:
            file.write("text_a\tlabel\n")
            for number, (count, label) in enumerate(zip(lengths, labels, strict=True)):
                text = " ".join(WORDS[word] for word in words(number, count))
                file.write(f"{text}\t{label}\n")

    def session(self, *arguments, records="records", **options):
        options = {
            "task_name": "tsv",
            "data_dir": self.path("data"),
            "labels": "no,yes",
            "vocab_file": self.path("v.txt"),
            "bert_config_file": self.config,
            "init_checkpoint": self.path("trained"),
            "output_dir": self.path(records),
            "max_seq_length": 14,
            "eval_batch_size": 4,
            **options,
        }
        values = cli.parse(
            run_classifier.run,
            [
                "--do_eval",
                *arguments,
                *(
                    f"--{name}={value}"
                    for name, value in options.items()
                    if value is not None
                ),
            ],
        )
        found = finetuning.files_of(values, values.output_dir)
        strategy = tf.distribute.get_strategy()
        task = classification.ClassificationTask(values, found, strategy)
        return finetuning.FineTuning(task, values, found, strategy)

    def test_a_pair_needs_two_segments(self):
        config = dataclasses.replace(toy.CONFIG, type_vocab_size=1).to_dict()
        with open(self.path("one_segment.json"), "w") as file:
            json.dump(config, file)
        with open(self.path("data", "pairs.tsv"), "w") as file:
            file.write(f"text_a\ttext_b\tlabel\n{WORDS[0]}\t{WORDS[1]}\tno\n")
        options = {
            "bert_config_file": self.path("one_segment.json"),
            "init_checkpoint": None,
            "output_dir": self.path("one_segment"),
        }
        self.session(**options).task.records("dev")
        pairs = self.session(**options, dev_file="pairs.tsv", text_b_column="text_b")
        with self.assertRaisesRegex(InputError, "1 segment .*pairs of texts need 2"):
            pairs.task.records("dev")

    def logits_of(self, numbers):
        """The model's outputs for one text by itself, without padding."""
        return self.model(inputs_of(numbers), training=False)["logits"].numpy()[0]

    def test_a_training_file_alone_is_enough(self):
        lengths = [3 + number % 5 for number in range(40)]
        labels = ["no", "no", "no", "yes"] * 10
        self.write("alone.tsv", lengths, labels)
        given = {"train_file": self.path("data", "alone.tsv"), "dev_share": 0.2}

        def examples(**more):
            absent = {"task_name": None, "data_dir": None, "labels": None}
            with self.assertLogs() as logs:
                task = self.session("--do_train", **absent, **given, **more).task
            self.assertRegex(" ".join(logs.output), "8 of 40 examples of .* are held")
            return task.examples

        found = examples()
        self.assertEqual(
            {name: len(some) for name, some in found.items()}, {"train": 32, "dev": 8}
        )
        self.assertEqual(
            Counter(one.label for one in found["dev"]), {"no": 6, "yes": 2}
        )
        both = [*found["train"], *found["dev"]]
        self.assertLen({one.source for one in both}, 40)
        self.assertEqual(examples(), found)
        self.assertNotEqual(examples(random_seed=7)["dev"], found["dev"])
        with self.assertRaisesRegex(flags.Error, "Give --train_file, .* --task_name"):
            self.session(task_name=None, data_dir=None)

    @several_lengths()
    def test_outputs_in_the_order_of_the_examples_whatever_the_padding(self):
        expected = [self.logits_of(words(n, count)) for n, count in enumerate(LENGTHS)]
        session = self.session(length_buckets=3)
        model, step = session.restore(self.path("restored"))
        self.assertEqual(step, 0)
        by_length = session.predict(model, "dev")
        self.assertAllClose(by_length, expected, rtol=1e-5, atol=1e-5)
        padded = self.session(pad="max").predict(model, "dev")
        self.assertAllClose(by_length, padded, rtol=1e-5, atol=1e-5)
        # The comparison tells one example from another.
        distances = np.abs(np.subtract.outer(by_length[:, 0], by_length[:, 0]))
        self.assertGreater(distances[~np.eye(11, dtype=bool)].min(), 1e-4)

    def test_windows_are_averaged(self):
        logits = self.session(**WINDOWS).predict(self.model, "dev")
        # Six words fit: the twelve of the second text are read in three windows.
        long = words(1, 12)
        expected = [
            self.logits_of(words(0, 3)),
            np.mean([self.logits_of(long[at : at + 6]) for at in (0, 3, 6)], axis=0),
            self.logits_of(words(2, 6)),
        ]
        self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-5)

    @several_lengths()
    def test_windows_pooled_by_attention(self):
        query = np.linspace(-50.0, 50.0, toy.CONFIG.hidden_size)
        long = words(1, 12)

        def expected(windows):
            pooled = [
                self.model.encoder(inputs_of(one), training=False)["pooled_output"][0]
                for one in windows
            ]
            pooled = np.array(pooled, np.float64)
            weights = np.exp(pooled @ query)
            mean = (weights / weights.sum()) @ pooled
            head = weights_by_name(self.model)
            return head["output_weights"].numpy() @ mean + head["output_bias"].numpy()

        wanted = [
            expected([words(0, 3)]),
            expected([long[at : at + 6] for at in (0, 3, 6)]),
            expected([words(2, 6)]),
        ]
        options = {**WINDOWS, "window_pooling": "attention", "length_buckets": 2}
        attending = BertClassifier(toy.CONFIG, 2, window_pooling="attention")
        variables = weights_by_name(attending)
        for name, variable in weights_by_name(self.model).items():
            variables[name].assign(variable)
        toy.save_checkpoint(self.path("attending"), attending)
        session = self.session(init_checkpoint=self.path("attending"), **options)
        model, _ = session.restore(self.path("attended"))
        mean = session.predict(model, "dev")
        self.assertNotAllClose(mean[1], wanted[1], rtol=1e-3, atol=1e-3)
        model.get_layer("window_attention").query.assign(query)
        self.assertAllClose(session.predict(model, "dev"), wanted, rtol=1e-5, atol=1e-5)
        # Untrained it is the mean, by which the logits are averaged too.
        with self.assertRaisesRegex(InputError, "no cls/window_attention/query"):
            self.session(**options).restore(self.path("averaged"))
        averaged = self.session(**WINDOWS).predict(self.model, "dev")
        self.assertAllClose(mean, averaged, rtol=1e-5, atol=1e-5)

    def test_scores(self):
        logits = np.array([[0.0, float(number - 5) / 2] for number in range(11)])
        score = self.session().task.score
        scores = score("dev", logits)
        # yes, no, no, yes, ...: each one's own -log of its probability.
        right = np.arange(11) % 3 == 0
        losses = np.log1p(np.exp(np.where(right, -logits[:, 1], logits[:, 1])))
        self.assertAlmostEqual(scores["eval_loss"], losses.mean(), places=5)
        batches = [losses[:4].mean(), losses[4:8].mean(), losses[8:].mean()]
        self.assertAlmostEqual(scores["loss"], np.mean(batches), places=5)
        self.assertNotAlmostEqual(scores["loss"], scores["eval_loss"], places=3)
        # Yes is predicted of 6 to 10: right for 6 and 9, as no is for 1, 2, 4 and 5.
        self.assertAlmostEqual(scores["accuracy"], 6 / 11)
        self.assertAlmostEqual(scores["majority"], 7 / 11)  # yes is each third of 11
        self.assertEqual(set(scores), {"accuracy", "eval_loss", "loss", "majority"})
        with self.assertRaisesRegex(DivergedError, "lower `learning_rate`"):
            score("dev", np.full([11, 2], np.nan))

    def test_what_records_are_made_from(self):
        found = {}
        for options in (
            {},
            {"max_seq_length": 13},
            {"long_text": "window"},
            {"long_text": "window", "doc_stride": 2},
            {"long_text": "window", "window_pooling": "attention"},
            {"labels": "yes,no"},
            {"dev_file": "long.tsv"},
        ):
            made = self.session(**options).task.identity("dev")
            self.assertNotIn(made, found.values(), options)
            found[str(options)] = made
        # Evaluated otherwise, the records are the same.
        session = self.session("--pad=max", eval_batch_size=7)
        self.assertEqual(session.task.identity("dev"), found["{}"])

    def test_another_head_is_refused(self):
        number = BertClassifier(toy.CONFIG, 1)
        for place, (model, labels, kind, described) in enumerate(
            (
                (self.model, ("a", "b"), SINGLE_LABEL, "one of a, b"),
                (self.model, ("yes", "no"), SINGLE_LABEL, "one of yes, no"),
                (self.model, ("no", "yes"), MULTI_LABEL, "any of no, yes"),
                (self.model, ("no", "yes"), REGRESSION, "no, yes"),
                (number, (), REGRESSION, "a number"),
            )
        ):
            folder = self.path(f"other{place}")
            toy.save_checkpoint(folder, model)
            write_labels(folder, labels, kind)
            message = f"that predicts {described}; this task's predicts one of no"
            with self.assertRaisesRegex(InputError, message):
                self.session(init_checkpoint=folder)
            self.session("--init_head=false", init_checkpoint=folder)

    def test_labels_of_the_checkpoint_where_nothing_is_trained(self):
        folder = self.path("labelled")
        toy.save_checkpoint(folder, self.model)
        write_labels(folder, ("yes", "no"), SINGLE_LABEL)
        # There is no training file to read them from.
        session = self.session(init_checkpoint=folder, labels="", records="labelled")
        self.assertEqual(session.task.labels, ("yes", "no"))

    def test_the_training_file_is_read_once_and_its_labels_are_counted(self):
        labels = ["no", "yes", *["yes"] * 97, "no"]
        self.write("odd.tsv", [1, 0, *[1] * 98], labels)
        self.write("unknown.tsv", [1] * 9, [*["yes"] * 8, "perhaps"])
        options = {"train_file": "odd.tsv", "dev_file": "unknown.tsv"}
        options |= {"max_unusable_rows": 1.0, "records": "odd"}
        for given, counts in (
            ("no,yes,maybe", "3 labels: no (2), yes (97), maybe (0)"),
            ("", "2 labels: no (2), yes (97)"),
        ):
            with self.assertLogs("absl", "INFO") as logs:
                session = self.session(
                    "--do_train", "--init_head=false", labels=given, **options
                )
            # The summary counts what the log has said, of both files.
            self.assertEndsWith(session.task.summary("run", {})[1], ", 2 left out")
            left_out = [line for line in logs.output if "unusable" in line]
            self.assertRegex(
                left_out[0], "odd.tsv: left out 1 .* of 100.*text is empty"
            )
            self.assertRegex(
                left_out[1], "unknown.tsv: .* 1 .* of 9.*Received: 'perhaps'"
            )
            self.assertLen(left_out, 2)
            self.assertLen([line for line in logs.output if counts in line], 1)
