import dataclasses
import json
import os
import pathlib

import tensorflow as tf

from bert_tf.base.config import MULTI_LABEL, REGRESSION, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.tokenizer_files import read_labels
from bert_tf.modeling.heads import BertTagger
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import run_folder
from bert_tf.training.training_options import TrainingConfig
from tests.conversion.runs import save_tf1
from tests.script_case import FolderCase
from tests.training import toy

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])


class PrepareTest(FolderCase):
    def prepare(
        self,
        config=toy.CONFIG,
        vocabulary=VOCABULARY,
        do_lower_case=True,
        segmenter="none",
        head=names.CLASSIFIER,
        **identity,
    ):
        values = TrainingConfig()
        self.folder = self.path("run")
        run_folder.prepare(
            self.folder,
            config,
            vocabulary,
            do_lower_case,
            segmenter,
            values,
            head=head,
            **identity,
        )

    def read(self, name):
        return super().read("run", name)

    def test_what_is_written(self):
        self.prepare(do_lower_case=False)
        self.assertEqual(self.read("vocab.txt"), "\n".join(VOCABULARY.tokens) + "\n")
        self.assertEqual(self.read_json("flags.json"), TrainingConfig().as_flags())
        self.assertEqual(
            self.read_json("tokenizer_config.json"), {"do_lower_case": False}
        )
        self.assertEqual(
            BertConfig.from_dict(self.read_json("bert_config.json")), toy.CONFIG
        )

    def test_the_same_run_again(self):
        self.prepare()
        self.prepare()
        # Another dropout rate is another way to train the same model.
        self.prepare(dataclasses.replace(toy.CONFIG, hidden_dropout_prob=0.2))
        # A vocabulary that nobody names stays what it was.
        self.prepare(vocabulary=None)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "vocab.txt")))

    def test_a_start_that_failed_before_a_checkpoint_is_no_run(self):
        self.prepare()
        other = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        self.prepare(other)
        self.assertEqual(self.read_json("bert_config.json"), other.to_dict())

    def test_a_config_of_the_users_own_is_left_as_it_is(self):
        text = json.dumps({**toy.CONFIG.to_dict(), "pooler_type": "x"})
        self.write("run/bert_config.json", text)
        with self.assertRaisesRegex(InputError, "another model"):
            self.prepare(dataclasses.replace(toy.CONFIG, num_hidden_layers=2))
        self.prepare()
        self.assertEqual(self.read("bert_config.json"), text)

    def test_labels(self):
        self.prepare()
        self.assertIsNone(read_labels(self.folder)[0])
        for _ in range(2):
            self.prepare(labels=["no", "yes"])
        self.assertEqual(read_labels(self.folder)[0], ("no", "yes"))
        with self.assertRaisesRegex(InputError, r"no, yes \(.*; this one has yes, no"):
            self.prepare(labels=["yes", "no"])
        with self.assertRaisesRegex(InputError, r"has no labels \(regression\)"):
            self.prepare(labels=[], problem_type=REGRESSION)
        with self.assertRaisesRegex(InputError, r"no, yes \(multi_label"):
            self.prepare(labels=["no", "yes"], problem_type=MULTI_LABEL)
        self.assertNotIn("problem_type.txt", os.listdir(self.folder))

    def test_another_run_is_refused_and_nothing_changes(self):
        self.prepare()
        self.write("run/checkpoint", "")
        before = {name: self.read(name) for name in os.listdir(self.folder)}
        other = Vocabulary([*VOCABULARY.tokens[:-1], "b"])
        for options, message in (
            (
                {"config": dataclasses.replace(toy.CONFIG, hidden_act="relu")},
                "hidden_act is gelu there, relu here",
            ),
            (
                {"config": dataclasses.replace(toy.CONFIG, left_to_right=True)},
                "left_to_right is False there, True here",
            ),
            (
                {"config": dataclasses.replace(toy.CONFIG, layer_norm_eps=1e-6)},
                "layer_norm_eps is 1e-12 there, 1e-06 here",
            ),
            ({"vocabulary": other}, "another vocabulary"),
            ({"do_lower_case": False}, "do_lower_case=True there, False here"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.prepare(**options)
        after = {name: self.read(name) for name in os.listdir(self.folder)}
        self.assertEqual(after, before)

    def test_a_checkpoint_without_a_config_is_another_programs(self):
        self.prepare()
        os.remove(os.path.join(self.folder, "bert_config.json"))
        self.write("run/checkpoint", "")
        with self.assertRaisesRegex(InputError, "but no bert_config.json: .* another"):
            self.prepare()
        self.assertNotIn("bert_config.json", os.listdir(self.folder))

    def test_a_run_of_the_original_is_named(self):
        self.folder = self.path("run")
        save_tf1(os.path.join(self.folder, "model.ckpt-343"), {"output_bias": [0.0]})
        self.write("run/checkpoint", 'model_checkpoint_path: "model.ckpt-343"\n')
        for names_before in (sorted(os.listdir(self.folder)), None):
            with self.assertRaisesRegex(
                InputError,
                "model.ckpt-343 is a checkpoint of another .*`init_checkpoint`",
            ):
                self.prepare()
            if names_before:
                self.assertEqual(sorted(os.listdir(self.folder)), names_before)
            # With the config that the original was given, too.
            self.write("run/bert_config.json", json.dumps(toy.CONFIG.to_dict()))

    def test_a_run_of_another_task_is_refused_and_nothing_changes(self):
        self.prepare(head=names.TAGGING)
        model = BertTagger(toy.CONFIG, 3)
        toy.save_checkpoint(self.folder, model, 1, 1)
        toy.save_checkpoint(self.folder, model, 2, 1)
        # The newest one is damaged: the one before it tells.
        self.write("run/model.ckpt-2.index", "")
        self.write("run/flags.json", "{}")
        with self.assertRaisesRegex(InputError, "is for tagging, this one's for span"):
            self.prepare(head=names.SPAN)
        # What a run was trained with stays, whatever is asked of it later.
        self.prepare(head=names.TAGGING)
        self.assertEqual(self.read("flags.json"), "{}")

    def test_other_settings_data_and_tasks_than_before(self):
        data = run_folder.RunData("3 examples of a.tsv", "abc")
        start = run_folder.Start(
            task="MRPC", data=data, settings={"learning_rate": 0.1}, flags={"a": 1}
        )
        self.prepare(task="MRPC", data=data)
        self.assertEqual(run_folder.differences(self.folder, start), "")
        run_folder.record_start(self.folder, 0, start)
        # Nothing is trained yet: another task may have the folder.
        self.prepare(task="CoLA", data=data)
        self.write("run/checkpoint", "")
        with self.assertRaisesRegex(InputError, "a run on MRPC; this one is on CoLA"):
            self.prepare(task="CoLA")
        other = run_folder.RunData("4 examples of b.tsv", "def")
        with self.assertRaisesRegex(
            InputError, "on MRPC, 3 examples of a.tsv; .* on MRPC, 4 examples of b.tsv"
        ):
            self.prepare(task="MRPC", data=other)
        # The same examples in another file; nothing trained; another task's model.
        self.prepare(task="MRPC", data=run_folder.RunData("moved", "abc"))
        self.prepare(task="MRPC")
        self.prepare()
        later = dataclasses.replace(
            start,
            data=other,
            settings={"learning_rate": 0.2, "of_a_later_version": 1},
            flags={"a": 2},
        )
        self.assertEqual(
            run_folder.differences(self.folder, later),
            "data was 3 examples of a.tsv and is 4 examples of b.tsv, learning_rate was"
            " 0.1 and is 0.2",
        )
        later.flags["max_seq_length"] = 9
        run_folder.record_start(self.folder, 5, later)
        self.assertEqual(self.read_json("reading.json"), {"max_seq_length": 9})
        lines = self.read_json_lines("starts.jsonl")
        self.assertEqual([line["step"] for line in lines], [0, 5])
        flags = {"a": 2, "max_seq_length": 9}
        self.assertEqual([line["flags"] for line in lines], [{"a": 1}, flags])
        self.assertEqual(self.read_json("flags.json"), flags)
        # A run from the beginning has a history of its own.
        run_folder.record_start(self.folder, 0, start)
        self.assertLen(self.read_json_lines("starts.jsonl"), 1)

    def test_a_damaged_history_is_unknown(self):
        self.prepare()
        for text in ("", "{", "[1]\n", '{"task": 1}\n', "\n\n"):
            for name in ("checkpoint", "starts.jsonl"):
                self.write(f"run/{name}", text)
            with self.assertLogs(level="WARNING") as logs:
                self.prepare(task="MRPC")
            self.assertRegex(logs.output[0], "made with is unknown. .*starts.jsonl")

    def test_a_damaged_history_stops_no_run(self):
        self.prepare()
        path = pathlib.Path(self.write("run/starts.jsonl", b"\xff"))
        start = run_folder.Start(
            task="MRPC",
            data=run_folder.RunData("3 examples of a.tsv", "abc"),
            settings={"learning_rate": 0.1},
            flags={},
        )
        run_folder.record_start(self.folder, 5, start)
        self.assertEqual(run_folder.differences(self.folder, start), "")
        self.assertStartsWith(path.read_bytes(), b'\xff\n{"data": ')

    def test_one_training_at_a_time(self):
        folder = self.path("run")
        strategy = tf.distribute.get_strategy()
        with (
            run_folder.held_for_training(folder, strategy),
            self.assertRaisesRegex(InputError, "run: another run is training in"),
            run_folder.held_for_training(folder, strategy),
        ):
            self.fail()
        with run_folder.held_for_training(folder, strategy):
            pass
