import json
import os
import pathlib

import tensorflow as tf

from bert_tf import inspect_checkpoint
from bert_tf.conversion.source import open_source
from bert_tf.modeling.heads import BertClassifier
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy


class InspectTest(tf.test.TestCase):
    def folder(self):
        folder = self.get_temp_dir()
        toy.write_config(folder)
        toy.save_checkpoint(folder, BertClassifier(toy.CONFIG, 3), 7, 20)
        Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]).save(
            os.path.join(folder, "vocab.txt")
        )
        pathlib.Path(os.path.join(folder, "labels.txt")).write_text("no\nyes\nmaybe\n")
        with open(os.path.join(folder, "flags.json"), "w") as file:
            json.dump(
                {"task_name": "mnli", "learning_rate": 2e-5, "master": None}, file
            )
        return folder

    def test_a_page(self):
        lines = inspect_checkpoint.report(open_source(self.folder())).splitlines()
        page = [" ".join(line.split()) for line in lines]
        # One layer of hidden size 8 and feed-forward 16, counted by hand: embeddings
        # 30 * 8 + 16 * 8 + 2 * 8 + 2 * 8 = 400; layer 4 * (64 + 8) + 16 + (128 + 16)
        # + (128 + 8) + 16 = 600; pooler 72; head 3 * 8 + 3 = 27.
        for line in (
            "format bert_tf run",
            "step 7",
            "hidden_size 8",
            "parameters 1,099 in 25 tensors",
            "embeddings 400",
            "encoder 600",
            "pooler 72",
            "classifier 27",
            "heads classifier",
            "labels no, yes, maybe",
            "casing not said",
            "--task_name mnli",
            "--learning_rate 2e-05",
        ):
            self.assertIn(line, page)
        self.assertNotIn("--master None", page)

    def test_several_labels(self):
        folder = self.folder()
        with open(os.path.join(folder, "problem_type.txt"), "w") as file:
            file.write("multi_label_classification\n")
        lines = inspect_checkpoint.report(open_source(folder)).splitlines()
        page = [" ".join(line.split()) for line in lines]
        self.assertIn("problem type multi_label_classification", page)
