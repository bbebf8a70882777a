import itertools
import json
import os
import tempfile

import numpy as np
import pyarrow.parquet
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.errors import InputError
from bert_tf.features.cache import FeatureArrays
from bert_tf.features.extraction import Features
from bert_tf.features.formats import format_of
from bert_tf.features.inputs import FeatureInput

NAMES = [["[CLS]", "é", "[SEP]"], ["[CLS]", "[SEP]"], ["[CLS]", "wider", "x", "[SEP]"]]
LABELS = [-1, "embeddings"]
SETTINGS = {"layers": LABELS, "weights": "abc"}
RNG = np.random.default_rng(0)
VECTORS = [RNG.normal(0, 1, [len(n), 2, 5]).astype(np.float32) for n in NAMES]
POOLED = RNG.normal(0, 1, [3, 5]).astype(np.float32)
MEAN = RNG.normal(0, 1, [3, 2, 5]).astype(np.float32)


def features(by_word=False, token_vectors=True):
    """Three lines, with two sentence vectors."""
    return [
        Features(
            FeatureInput([], [], names, [(0, 1)] if by_word else None),
            vectors if token_vectors else None,
            {"mean": mean, "pooled": pooled},
        )
        for names, vectors, mean, pooled in zip(
            NAMES, VECTORS, MEAN, POOLED, strict=True
        )
    ]


class FormatsTest(tf.test.TestCase, parameterized.TestCase):
    def write(self, name, lines=None, vector_type="float32", cuts=(0, 2, 3)):
        """Lines, the first two as one part, the third as another."""
        lines = features() if lines is None else lines
        output_format = format_of(name, LABELS, SETTINGS, vector_type)
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        paths = []
        for first, stop in itertools.pairwise(cuts):
            paths.append(os.path.join(folder, f"part-{first}"))
            with open(paths[-1], "wb") as file:
                output_format.write_part(file, first, lines[first:stop])
        self.output = os.path.join(folder, "below", "output")
        output_format.assemble(paths, self.output)
        self.assertEqual(os.listdir(os.path.dirname(self.output)), ["output"])
        return self.output

    def test_json_lines(self):
        with open(self.write("jsonl")) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["linex_index"] for line in lines], [0, 1, 2])
        for line, names, vectors in zip(lines, NAMES, VECTORS, strict=True):
            self.assertEqual([f["token"] for f in line["features"]], names)
            found = [
                [layer["values"] for layer in f["layers"]] for f in line["features"]
            ]
            self.assertAllClose(found, vectors, atol=6e-7)
        self.assertAllClose(lines[2]["sentence"]["pooled"], POOLED[2], atol=6e-7)

    def test_a_word_without_end_makes_no_array_of_words_wide(self):
        words = FeatureInput([], [], ["a", "x" * 100_000, "b"], [(0, 1)])
        lines = [Features(words, VECTORS[0], {})]
        with np.load(self.write("npz", lines, cuts=(0, 1))) as arrays:
            self.assertEqual(arrays["names"].dtype, np.dtype("U200"))
            self.assertEqual(arrays["names"].tolist(), ["a", "x" * 200, "b"])

    def check_arrays(self, arrays, dtype=np.float32):
        self.assertEqual(arrays["vectors"].dtype, dtype)
        self.assertAllEqual(arrays["vectors"], np.concatenate(VECTORS).astype(dtype))
        self.assertAllEqual(arrays["offsets"], [0, 3, 5, 9])
        self.assertEqual(arrays["names"].tolist(), list(itertools.chain(*NAMES)))
        self.assertEqual(arrays["layers"].tolist(), ["-1", "embeddings"])
        self.assertAllEqual(arrays["pooled"], POOLED.astype(dtype))
        self.assertAllEqual(arrays["mean"], MEAN.astype(dtype))

    def test_npz(self):
        with np.load(self.write("npz")) as arrays:
            self.check_arrays(arrays)
            self.assertEqual(json.loads(str(arrays["settings"])), SETTINGS)
        with open(self.output, "rb") as file:
            content = file.read()
        with open(self.write("npz", cuts=(0, 1, 2, 3)), "rb") as file:
            self.assertEqual(file.read(), content)

    def test_npy(self):
        folder = self.write("npy", vector_type="float16")
        names = ("vectors", "offsets", "names", "layers", "pooled", "mean")
        arrays = {n: np.load(os.path.join(folder, f"{n}.npy")) for n in names}
        self.check_arrays(arrays, np.float16)
        self.assertLen(os.listdir(folder), 7)

    def test_features_are_read_back_from_a_folder(self):
        found = FeatureArrays(self.write("npy"))
        self.assertLen(found, 3)
        self.assertEqual(found.layers, ["-1", "embeddings"])
        self.assertEqual(found.settings, SETTINGS)
        for number, vectors in enumerate(VECTORS):
            self.assertAllEqual(found[number], vectors)
        self.assertIsInstance(found.vectors, np.memmap)
        self.assertAllEqual(found.array("pooled"), POOLED)
        batch = found.padded([2, -1, 0], 5)
        self.assertEqual((batch.shape, batch.dtype), ((3, 5, 2, 5), np.float32))
        self.assertAllEqual(batch[0, :4], VECTORS[2])
        self.assertAllEqual(batch[2, :3], VECTORS[0])
        self.assertFalse(batch[1].any() or batch[0, 4:].any() or batch[2, 3:].any())
        with self.assertRaises(IndexError):
            found[3]

    def test_a_folder_of_features_is_replaced_and_no_other(self):
        folder = self.write("npy")
        output_format = format_of("npy", LABELS, SETTINGS)
        part = os.path.join(os.path.dirname(folder), "..", "part-2")
        output_format.assemble([part], folder)
        self.assertLen(FeatureArrays(folder), 1)
        other = tempfile.mkdtemp(dir=self.get_temp_dir())
        output_format.check_output(folder)
        with self.assertRaisesRegex(InputError, "holds no features"):
            output_format.check_output(other)
        with self.assertRaisesRegex(InputError, "no folder of features"):
            FeatureArrays(other)

    def test_parquet(self):
        table = pyarrow.parquet.read_table(self.write("parquet"))
        self.assertEqual(
            table.column_names,
            [
                *("line_index", "tokens", "layer:-1", "layer:embeddings"),
                *("mean:-1", "mean:embeddings", "pooled"),
            ],
        )
        self.assertEqual(json.loads(table.schema.metadata[b"bert_tf"]), SETTINGS)
        columns = table.to_pydict()
        self.assertEqual(columns["line_index"], [0, 1, 2])
        self.assertEqual(columns["tokens"], NAMES)
        for number, vectors in enumerate(VECTORS):
            self.assertAllEqual(columns["layer:-1"][number], vectors[:, 0])
            self.assertAllEqual(columns["layer:embeddings"][number], vectors[:, 1])
        self.assertAllEqual(columns["pooled"], POOLED)
        self.assertAllEqual(columns["mean:embeddings"], MEAN[:, 1])
        self.assertEqual(pyarrow.parquet.ParquetFile(self.output).num_row_groups, 2)

    def test_tfrecord(self):
        path = self.write("tfrecord", features(by_word=True))
        floats = tf.io.VarLenFeature(tf.float32)
        for number, record in enumerate(tf.data.TFRecordDataset(path)):
            parsed = tf.io.parse_single_example(
                record,
                {
                    "line_index": tf.io.FixedLenFeature([1], tf.int64),
                    "words": tf.io.VarLenFeature(tf.string),
                    "shape": tf.io.FixedLenFeature([3], tf.int64),
                    "vectors": floats,
                    "pooled": tf.io.FixedLenFeature([5], tf.float32),
                    "mean": tf.io.FixedLenFeature([2, 5], tf.float32),
                },
            )
            self.assertEqual(parsed["line_index"], number)
            words = [word.decode() for word in parsed["words"].values.numpy()]
            self.assertEqual(words, NAMES[number])
            vectors = tf.reshape(parsed["vectors"].values, parsed["shape"])
            self.assertAllEqual(vectors, VECTORS[number])
            self.assertAllEqual(parsed["pooled"], POOLED[number])
            self.assertAllEqual(parsed["mean"], MEAN[number])
        self.assertEqual(number, 2)

    def test_sentence_vectors_alone(self):
        lines = features(token_vectors=False)
        with np.load(self.write("npz", lines)) as arrays:
            names = ["layers", "mean", "pooled", "settings"]
            self.assertEqual(sorted(arrays.files), names)
        columns = pyarrow.parquet.read_table(self.write("parquet", lines)).column_names
        self.assertEqual(
            columns, ["line_index", "mean:-1", "mean:embeddings", "pooled"]
        )
        with self.assertRaisesRegex(InputError, "vectors of sentences alone"):
            FeatureArrays(self.write("npy", lines))

    def test_lines_without_a_word(self):
        inputs = FeatureInput([2, 3], [0, 0], [], [])
        lines = [Features(inputs, np.zeros([0, 2, 5], np.float32), {})] * 3
        found = FeatureArrays(self.write("npy", lines))
        self.assertEqual([len(found[number]) for number in range(3)], [0, 0, 0])
        self.assertEqual(found.padded([0, 1], 2).shape, (2, 2, 2, 5))
        columns = pyarrow.parquet.read_table(self.write("parquet", lines)).to_pydict()
        self.assertEqual(columns["layer:-1"], [[], [], []])
        with open(self.write("jsonl", lines)) as file:
            self.assertEqual(file.readline(), '{"linex_index": 0, "features": []}\n')

    @parameterized.parameters("npz", "npy", "parquet")
    def test_no_line(self, name):
        with self.assertRaisesRegex(InputError, "has no line"):
            self.write(name, [], cuts=())

    def test_no_line_is_an_empty_file(self):
        self.assertEqual(os.path.getsize(self.write("jsonl", [], cuts=())), 0)

    def test_a_folder_in_the_way_is_named(self):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        for name in ("jsonl", "npz", "parquet", "tfrecord"):
            with self.assertRaisesRegex(InputError, "output file is a folder"):
                format_of(name, LABELS, SETTINGS).check_output(folder)

    def test_an_unknown_format(self):
        with self.assertRaisesRegex(ValueError, "must be one of jsonl, npz"):
            format_of("csv", LABELS, SETTINGS)


if __name__ == "__main__":
    tf.test.main()
