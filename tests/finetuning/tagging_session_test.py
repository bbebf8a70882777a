import os
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf import cli, run_ner
from bert_tf.errors import InputError
from bert_tf.finetuning import tagging_session
from bert_tf.finetuning.tagging_prediction import WordPredictions
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.tagging.reader import Layout, read_sentences
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "lee", "and"]
# IOB1: B stands where an entity is right behind one of its type. Read as IOB2 it has a
# B here and there, and keeps them.
TRAIN = "ann I-PER\nlee I-PER\nann B-PER\n\nand O\nann I-PER\n"


class TaggingSessionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())
        self.config = toy.write_config(self.root)
        Vocabulary(TOKENS).save(self.path("v.txt"))
        with open(self.path("train.txt"), "w") as file:
            file.write(TRAIN)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def records(self, *arguments):
        """What a run would train on."""
        given = [
            "--do_train",
            f"--vocab_file={self.path('v.txt')}",
            f"--bert_config_file={self.config}",
            f"--train_file={self.path('train.txt')}",
            f"--output_dir={self.path('run')}",
            "--max_seq_length=6",
            *arguments,
        ]
        with (
            mock.patch.object(
                tagging_session, "finetune", side_effect=SystemExit
            ) as finetune,
            self.assertRaises(SystemExit),
        ):
            run_ner.run(cli.parse(run_ner.define_flags, given))
        return finetune.call_args.args[1]

    def labels(self, *arguments):
        """The labels of each sentence's first tokens, [CLS]'s left out."""
        batch = next(iter(self.records(*arguments).batches(2)))
        return batch["label_ids"].numpy()[:, 1:4].tolist()

    def test_labels_are_of_the_scheme_that_the_files_are_read_in(self):
        # 0 is O, 1 B-PER and 2 I-PER.
        self.assertEqual(self.labels(), [[1, 2, 1], [0, 1, 0]])
        # The records that lie there are those of IOB1.
        expected = [[2, 2, 1], [0, 2, 0]]
        self.assertEqual(self.labels("--tag_scheme=iob2"), expected)
        self.assertEqual(self.labels("--tag_scheme=iob1"), [[1, 2, 1], [0, 1, 0]])

    def test_scores_are_those_of_what_is_written(self):
        """An entity without a B is right in IOB1, and is written so."""
        flag_values = cli.parse(
            run_ner.define_flags,
            [
                "--do_eval",
                f"--dev_file={self.path('train.txt')}",
                f"--vocab_file={self.path('v.txt')}",
                f"--bert_config_file={self.config}",
                f"--output_dir={self.path('run')}",
                "--labels=O,B-PER,I-PER",
                "--max_seq_length=6",
            ],
        )
        session = tagging_session.TaggingSession(
            flag_values,
            tf.distribute.get_strategy(),
            splits={"dev": read_sentences([self.path("train.txt")], Layout())},
            output_dir=self.path("run"),
        )
        self.assertEqual(session.labels.scheme, "iob2")
        # I I B, O I: the same entities as in the file; strictly read one is none.
        found = WordPredictions(np.array([2, 2, 1, 0, 2]), np.zeros(5))
        results = session.scores("dev", found)
        self.assertEqual(results["accuracy"], 1.0)
        self.assertEqual(results["f1"], 1.0)
        self.assertLess(results["strict_f1"], 1.0)
        self.assertEqual(
            session.predicted_labels("dev", found),
            [["I-PER", "I-PER", "B-PER"], ["O", "I-PER"]],
        )
        self.assertIn("accuracy: 100.00%", session.report("dev", found))

    def test_another_tasks_folder_stays_as_it_is(self):
        os.makedirs(self.path("run"))
        toy.save_checkpoint(self.path("run"), BertSpanPredictor(toy.CONFIG), 1, 1)
        toy.write_config(self.path("run"))
        before = os.listdir(self.path("run"))
        with self.assertRaisesRegex(InputError, "is for span, this one's for tagging"):
            run_ner.run(
                cli.parse(
                    run_ner.define_flags,
                    [
                        "--do_train",
                        f"--vocab_file={self.path('v.txt')}",
                        f"--train_file={self.path('train.txt')}",
                        f"--output_dir={self.path('run')}",
                        "--max_seq_length=6",
                    ],
                )
            )
        self.assertCountEqual(os.listdir(self.path("run")), before)


if __name__ == "__main__":
    tf.test.main()
