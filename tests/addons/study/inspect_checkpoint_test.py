from unittest import mock

from bert_tf.addons.study import inspect_checkpoint
from bert_tf.conversion.source import open_source
from bert_tf.modeling.heads import BertClassifier
from bert_tf.records import manifest
from tests.conversion import runs
from tests.script_case import FolderCase
from tests.training import toy


class InspectTest(FolderCase):
    def folder(self):
        folder = self.path("run")
        runs.save(
            folder,
            BertClassifier(toy.CONFIG, 3),
            tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"],
            labels=["no", "yes", "maybe"],
        )
        flags = {"task_name": "mnli", "learning_rate": 2e-5, "master": None}
        self.write("run/flags.json", flags)
        return folder

    def page(self, folder):
        lines = inspect_checkpoint.report(open_source(folder)).splitlines()
        return [" ".join(line.split()) for line in lines]

    def test_a_page(self):
        folder = self.folder()
        page = self.page(folder)
        # One layer of hidden size 8 and feed-forward 16, counted by hand: embeddings
        # 30 * 8 + 16 * 8 + 2 * 8 + 2 * 8 = 400; layer 4 * (64 + 8) + 16 + (128 + 16)
        # + (128 + 8) + 16 = 600; pooler 72; head 3 * 8 + 3 = 27.
        for line in (
            "format bert_tf run",
            "step 3",
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
        self.write("run/problem_type.txt", "multi_label_classification\n")
        page = self.page(folder)
        self.assertIn("problem type multi_label_classification", page)
        records = self.write("a, [1]/b, c.tfrecord", "")
        flags = {"input_file": f"{records},{self.path('a, [1]/*')}"}
        self.write("run/flags.json", flags)
        with mock.patch.object(manifest, "find_manifests", return_value=[]) as found:
            self.assertIn("records no manifest of them is", " ".join(self.page(folder)))
        found.assert_called_once_with([records, records])
