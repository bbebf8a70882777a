import os
import tempfile

import numpy as np
from absl import flags

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.tasks.feature_extraction import extract_features
from tests.conversion import runs
from tests.modeling import numpy_bert
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##x", "é", "ü"]
TEXT = "a b ||| c\n\n  axx é\r\nb\nc d e f\na ||| b ||| c\nf\n"
# By hand, in the order of TOKENS; [UNK] is "|".
IDS = [
    [2, 5, 6, 3, 7, 3],
    [2, 3],
    [2, 5, 11, 11, 9, 3],
    [2, 6, 3],
    [2, 7, 8, 9, 10, 3],
    [2, 5, 1, 1, 1, 6, 3, 7, 3],
    [2, 10, 3],
]
SEGMENTS = [[0, 0, 0, 0, 1, 1], [], [], [], [], [0, 0, 0, 0, 0, 0, 0, 1, 1], []]


class ExtractFeaturesTest(FolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        model = BertEncoder(toy.CONFIG)
        cls.weights = randomize(model)
        cls.checkpoint = runs.save(folder, model, tokens=TOKENS)

    def setUp(self):
        super().setUp()
        self.write("in.txt", TEXT)

    def run_script(self, *arguments, output="out", **options):
        options = {
            "input_file": self.path("in.txt"),
            "output_file": self.path(output),
            "init_checkpoint": self.checkpoint,
            "max_seq_length": 12,
            "batch_size": 2,
            "layers": "-1,embeddings",
            **options,
        }
        arguments = [*arguments, *(f"--{k}={v}" for k, v in options.items())]
        extract_features.run(cli.parse(extract_features.run, arguments))
        return self.path(output)

    def expected(self, number):
        """The last layer's output and the embeddings, [S, 2, H], from numpy."""
        ids = IDS[number]
        record = {
            "input_ids": ids,
            "input_mask": [1] * len(ids),
            "segment_ids": SEGMENTS[number] or [0] * len(ids),
        }
        states, _ = numpy_bert.sequence_outputs(self.weights, toy.CONFIG, record)
        return np.stack([states[1], states[0]], axis=1)

    def test_the_originals_lines(self):
        for pad in ("length", "max"):
            self.run_script("--use_one_hot_embeddings=True", pad=pad)
            lines = self.read_json_lines("out")
            self.assertEqual([line["linex_index"] for line in lines], list(range(7)))
            for number, line in enumerate(lines):
                self.assertEqual(list(line), ["linex_index", "features"])
                tokens = [TOKENS[token_id] for token_id in IDS[number]]
                self.assertEqual([f["token"] for f in line["features"]], tokens)
                layers = [f["layers"] for f in line["features"]]
                for of_token in layers:
                    indices = [layer["index"] for layer in of_token]
                    self.assertEqual(indices, [-1, "embeddings"])
                values = [[layer["values"] for layer in each] for each in layers]
                self.assertAllClose(values, self.expected(number), atol=1e-5)

    def test_words_and_sentences_combined(self):
        path = self.run_script(
            words="mean", combine="sum", sentence_vectors="mean", format="npz"
        )
        with np.load(path) as file:
            found = dict(file)
        self.assertEqual(found["layers"].tolist(), ["sum(-1,embeddings)"])
        sums = [self.expected(number).sum(axis=1) for number in range(7)]
        self.assertEqual(found["names"].tolist()[:5], ["a", "b", "c", "axx", "é"])
        lines = np.split(found["vectors"][:, 0], found["offsets"][1:-1])
        self.assertAllClose(lines[0], sums[0][[1, 2, 4]], atol=1e-5)
        self.assertEqual(lines[1].shape, (0, 8))
        means = [sums[2][1:4].mean(axis=0), sums[2][4]]
        self.assertAllClose(lines[2], means, atol=1e-5)
        self.assertAllClose(
            found["mean"][:, 0], [s.mean(axis=0) for s in sums], atol=1e-5
        )

    def test_lines_that_are_cut_are_counted(self):
        with self.assertLogs(level="WARNING") as logs:
            self.run_script(max_seq_length=5)
        self.assertIn("4 of 7 lines were longer than", logs.output[-1])

    def test_what_is_wrong_is_said_before_anything_is_written(self):
        for options, message in (
            ({"layers": "1"}, "`layers`: the model has 1 layers, -1 to 0"),
            (
                {"layers": "-1", "sentence_vectors": "pooled", "max_seq_length": 99},
                "16",
            ),
            ({"format": "npz", "output": ""}, "output file is a folder"),
            ({"output_file": self.path(".", "in.txt")}, "is also the input file"),
            ({"input_file": "nowhere"}, "an existing file.*: nowhere"),
            ({"init_checkpoint": self.path()}, "no checkpoint in this folder"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(**options)
        for options, message in (
            ({"notoken_vectors": ""}, "--token_vectors=false needs --sentence_vectors"),
            ({"sentence_vectors": "sum"}, "must be one of pooled, cls, mean, max"),
            ({"vector_type": "float16"}, "no effect without --format=npz"),
        ):
            arguments = [f"--{k}={v}".rstrip("=") for k, v in options.items()]
            with self.assertRaisesRegex(flags.Error, message):
                self.run_script(*arguments)
        with self.assertRaisesRegex(flags.Error, "--layers must not be empty"):
            self.run_script(layers="")
        self.assertEqual(os.listdir(self.path()), ["in.txt"])
