import dataclasses
import os
import tempfile
from unittest import mock

import tensorflow as tf

from bert_tf import cli, run_feature_table, run_ner
from bert_tf.errors import InputError
from bert_tf.tasks import finetuning
from tests.training import toy


class RunFeatureTableTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())

    def flags(self, *arguments):
        return cli.parse(
            run_feature_table.run,
            [
                f"--output_dir={self.root}",
                "--train_file=a",
                "--dev_file=b",
                "--init_checkpoint=c",
                *arguments,
            ],
        )

    def model(self, num_hidden_layers):
        """A stand-in for what reads the model's files."""
        config = dataclasses.replace(toy.CONFIG, num_hidden_layers=num_hidden_layers)
        return mock.patch.object(
            finetuning, "files_of", return_value=mock.Mock(config=config)
        )

    def test_each_way_is_a_run_of_its_own(self):
        seen = []

        def ran(own):
            seen.append(own)
            os.makedirs(own.output_dir)
            with open(os.path.join(own.output_dir, "eval_results.txt"), "w") as file:
                file.write(f"accuracy = 0.1\nf1 = 0.{len(seen)}\n")

        flag_values = self.flags(
            *("--ways=fine_tuned,last", "--learning_rate=4e-5"),
            *("--frozen_layers=embeddings", "--bilstm_size=8"),
        )
        with (
            self.model(1),
            mock.patch.object(run_ner, "run", ran),
            mock.patch("builtins.print") as printed,
        ):
            run_feature_table.run(flag_values)
        fine_tuned, last = seen
        for own in seen:
            self.assertTrue(own.do_train and own.do_eval)
        self.assertEqual(
            [(own.features, own.learning_rate, own.num_train_epochs) for own in seen],
            [(None, 4e-5, (3.0,)), ("last", 1e-3, (10.0,))],
        )
        self.assertEqual([own.frozen_layers for own in seen], ["embeddings", ""])
        self.assertTrue(last.is_given("learning_rate"))
        self.assertEqual(fine_tuned.output_dir, os.path.join(self.root, "fine_tuned"))
        self.assertEqual(last.feature_dir, os.path.join(self.root, "features"))
        (table,) = printed.call_args.args
        self.assertRegex(table, r"\| fine_tuned \| +10.00 \| +96.4 \|")
        self.assertRegex(table, r"\| last +\| +20.00 \| +94.9 \|")
        # The script's own are as they were.
        self.assertIsNone(flag_values.features)

    def test_what_a_later_way_would_find_out_is_said_at_once(self):
        with mock.patch.object(run_ner, "run", side_effect=AssertionError("trained")):
            with (
                self.model(2),
                self.assertRaisesRegex(InputError, "needs a model of 4"),
            ):
                run_feature_table.run(self.flags())
            values = dataclasses.replace(
                self.flags("--ways=last"), init_checkpoint=None
            )
            with (
                self.model(2) as files_of,
                self.assertRaisesRegex(InputError, "features=last. needs .init_check"),
            ):
                files_of.return_value.source = None
                run_feature_table.run(values)

    def test_usage_errors(self):
        with self.assertRaisesRegex(Exception, "must be one of fine_tuned, embeddings"):
            self.flags("--ways=first")
        with self.assertRaisesRegex(Exception, "on one machine"):
            self.flags("--distribution=multi_worker")
        with self.assertRaisesRegex(Exception, "--ways says which"):
            self.flags("--features=last")
        with self.assertRaisesRegex(Exception, "table is of the development set"):
            self.flags("--nodo_eval")
