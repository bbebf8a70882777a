import dataclasses
import glob
import io
import itertools
import json
import math
import os
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.tasks.feature_extraction.feature_records import (
    FeatureInput,
    Features,
    FeatureSettings,
)
from bert_tf.tasks.feature_extraction.features import (
    FeatureExtractor,
    LayerSelection,
    feature_model,
    json_line,
    number_lists,
    weights_digest,
    write_arrays,
)
from tests.conversion import runs
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)
from tests.training import toy


def chosen(layers, number=3, **options):
    return LayerSelection(layers=tuple(layers), num_hidden_layers=number, **options)


class LayerSelectionTest(tf.test.TestCase):
    def test_layers_and_combinations(self):
        for layers, options, hidden_states, labels, shape in (
            # hidden_states: the embeddings, then layers 0 to 2.
            (["-1", "-3", "0"], {}, [3, 1, 1], [-1, -3, 0], (3, 8)),
            (["embeddings", " all"], {}, range(4), ["embeddings", 0, 1, 2], (4, 8)),
            (["-1", "0"], {"combine": "sum"}, [3, 1], ["sum(-1,0)"], (1, 8)),
            (["-1", "0"], {"combine": "mean"}, [3, 1], ["mean(-1,0)"], (1, 8)),
            (
                ["-1", "0"],
                {"combine": "weighted", "weights": (0.5, 2.0)},
                *([3, 1], ["weighted(-1,0)"], (1, 8)),
            ),
            (["-1", "0"], {"combine": "concat"}, [3, 1], ["concat(-1,0)"], (1, 16)),
        ):
            selection = chosen(layers, **options)
            self.assertEqual(selection.hidden_states, [*hidden_states])
            self.assertEqual(selection.labels, labels)
            self.assertEqual(selection.vectors_shape(8), shape)

    def test_what_is_wrong_is_said(self):
        for layers, options, message in (
            (["3"], {}, "has 3 layers, -3 to 2, and `embeddings`. Received: 3"),
            (["-4"], {}, "Received: -4"),
            (["-1", ""], {}, "must be numbers.*''"),
            (["top"], {}, "'top'"),
            (["0", "1"], {"combine": "weighted", "weights": [1.0]}, "must be 2 finite"),
            (["0"], {"combine": "weighted", "weights": [math.nan]}, "finite.*nan"),
            (["0"], {"weights": [1.0]}, "must be 0 finite"),
        ):
            with self.assertRaisesRegex(InputError, message):
                chosen(layers, **options)


CONFIG = small_config(num_hidden_layers=3)


class FeatureModelTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.encoder = BertEncoder(CONFIG, output_hidden_states=True)
        weights = randomize(cls.encoder)
        cls.records = random_records(CONFIG)
        # [rows][embeddings and layers][S, H]
        cls.states = [
            numpy_bert.sequence_outputs(weights, CONFIG, one_of(cls.records, row))[0]
            for row in range(4)
        ]
        cls.pooled = [
            numpy_bert.pooled_output(weights, states[-1]) for states in cls.states
        ]

    def model(self, layers="-1", sentence_vectors=(), token_vectors=True, **options):
        selection = chosen(layers.split(","), **options)
        wanted = FeatureSettings(
            token_vectors=token_vectors, sentence_vectors=sentence_vectors
        )
        return feature_model(self.encoder, selection, wanted)

    def check(self, expected, *args, **options):
        """`expected` makes [S, L, W] of a row's states."""
        outputs = outputs_of(self.model(*args, **options), self.records)
        for row, states in enumerate(self.states):
            self.assertLess(
                relative_error(outputs["vectors"][row], expected(states)), 1e-5
            )

    def test_layers_and_combinations(self):
        for layers, options, expected in (
            ("-1,-2,0,embeddings", {}, lambda h: np.stack(h[::-1], axis=1)),
            ("all", {}, lambda h: np.stack(h[1:], axis=1)),
            ("-1,embeddings", {"combine": "sum"}, lambda h: (h[3] + h[0])[:, None]),
            ("-1,-2", {"combine": "mean"}, lambda h: (h[3] + h[2])[:, None] / 2),
            (
                *("-1,0", {"combine": "concat"}),
                lambda h: np.concatenate([h[3], h[1]], axis=1)[:, None],
            ),
            (
                *("-1,0", {"combine": "weighted", "weights": [0.5, -2]}),
                lambda h: (0.5 * h[3] - 2 * h[1])[:, None],
            ),
        ):
            self.check(expected, layers, **options)

    def test_sentence_vectors(self):
        model = self.model("-1,-2", ["mean", "cls", "pooled"], token_vectors=False)
        outputs = outputs_of(model, self.records)
        self.assertEqual(sorted(outputs), ["cls", "mean", "pooled"])
        for row, states in enumerate(self.states):
            length = self.records["input_mask"][row].sum()
            means = [states[layer][:length].mean(axis=0) for layer in (3, 2)]
            self.assertLess(relative_error(outputs["mean"][row], means), 1e-5)
            firsts = [states[3][0], states[2][0]]
            self.assertLess(relative_error(outputs["cls"][row], firsts), 1e-5)
            self.assertLess(
                relative_error(outputs["pooled"][row], self.pooled[row]), 1e-5
            )

    def test_a_row_of_padding_has_a_mean(self):
        records = {name: np.zeros_like(v) for name, v in self.records.items()}
        outputs = outputs_of(self.model("-1", ["mean"]), records)
        self.assertAllEqual(outputs["mean"], np.zeros([4, 1, 24]))

    def test_layers_above_are_not_computed(self):
        names = {weight.path for weight in self.model("0").weights}
        self.assertIn("bert/encoder/layer_0/output/dense/kernel", names)
        self.assertFalse([n for n in names if "layer_1" in n or "pooler" in n])
        names = {weight.path for weight in self.model("embeddings").weights}
        self.assertFalse([name for name in names if "encoder" in name])

    def test_the_digest_is_of_the_weights_that_count(self):
        weight = self.encoder.get_layer("layer_2").weights[0]
        before = [weights_digest(self.model(layers)) for layers in ("0", "-1")]
        value = weight.numpy()
        weight.assign(value + 1)
        after = [weights_digest(self.model(layers)) for layers in ("0", "-1")]
        weight.assign(value)
        self.assertEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])
        self.assertEqual(weights_digest(self.model("-1")), before[1])


INPUTS = [
    FeatureInput(ids, [0] * len(ids), [], spans)
    for ids, spans in (
        ([2, 7, 8, 9, 3], [(1, 3), (3, 4)]),
        ([2, 3], []),
        ([2, 11, 12, 3], [(1, 2)]),
    )
]


class FeatureExtractorTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        # Brackets are no pattern there.
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir(), prefix="[1] ")

    def checkpoint(self, **options):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        model = BertEncoder(toy.CONFIG, **options)
        self.weights = randomize(model)
        return open_source(runs.save(folder, model, tokens=None))

    def extractor(self, source, **options):
        return FeatureExtractor(
            source,
            chosen(["embeddings", "-1"], 1, combine="concat"),
            tf.distribute.get_strategy(),
            FeatureSettings(batch_size=2, max_seq_length=8, **options),
        )

    def test_vectors_are_computed_once_and_mapped(self):
        extractor = self.extractor(self.checkpoint())
        found = extractor.vectors(INPUTS, self.folder, "dev")
        self.assertIsInstance(found, np.memmap)
        self.assertEqual(found.shape, (3, 1, 16))
        expected = []
        for number, firsts in ((0, [1, 3]), (2, [1])):
            ids = INPUTS[number].ids
            record = {
                "input_ids": ids,
                "input_mask": [1] * len(ids),
                "segment_ids": [0] * len(ids),
            }
            states, _ = numpy_bert.sequence_outputs(self.weights, toy.CONFIG, record)
            expected.append(np.concatenate(states, axis=1)[firsts])
        self.assertAllClose(found[:, 0], np.concatenate(expected), atol=1e-5)
        with mock.patch.object(extractor, "extract", side_effect=AssertionError):
            again = extractor.vectors(INPUTS, self.folder, "dev")
            self.assertAllEqual(again, found)
        # Inputs without words have no vectors.
        none = extractor.vectors(INPUTS[1:2], self.folder, "none")
        self.assertEqual(none.shape, (0, 1, 16))

    def test_other_inputs_and_settings_make_them_again(self):
        extractor = self.extractor(self.checkpoint())
        first, _, third = INPUTS
        kept = extractor.vectors(INPUTS, self.folder, "train")
        names = set()
        for inputs in (
            [first],
            [third, first],
            [first._replace(ids=[2, 7, 8, 10, 3])],
            [first._replace(segment_ids=[0, 0, 0, 0, 1])],
            [first._replace(spans=[(1, 3), (4, 5)])],
        ):
            extractor.vectors(inputs, self.folder, "dev")
            (name,) = glob.glob("dev-*", root_dir=self.folder)
            names.add(name)
        self.assertLen(names, 5)
        self.assertLen(os.listdir(self.folder), 2)
        extractor.settings["weights"] = "others"
        with (
            mock.patch.object(extractor, "extract", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            extractor.vectors(INPUTS, self.folder, "train")
        self.assertAllEqual(kept, extractor.vectors(INPUTS, self.folder, "train"))

    def test_a_killed_write_leaves_nothing(self):
        extractor = self.extractor(self.checkpoint())
        extract = extractor.extract

        def killed(*arguments):
            yield next(extract(*arguments))
            raise KeyboardInterrupt

        outputs = (
            lambda: extractor.vectors(INPUTS, self.folder, "dev"),
            lambda: extractor.write(INPUTS, os.path.join(self.folder, "x")),
            lambda: extractor.write(INPUTS, os.path.join(self.folder, "x"), "npz"),
        )
        with mock.patch.object(extractor, "extract", killed):
            for write in outputs:
                with self.assertRaises(KeyboardInterrupt):
                    write()
        self.assertEqual(os.listdir(self.folder), [])
        # What a start that could not clean up has left.
        with open(os.path.join(self.folder, "x.tmp-123"), "w"):
            pass
        outputs[-1]()
        self.assertEqual(os.listdir(self.folder), ["x"])

    def test_what_the_features_depend_on(self):
        source = self.checkpoint()
        made = self.extractor(source).settings
        for change, is_same in (
            ({"hidden_act": "relu"}, False),
            ({"layer_norm_eps": 1e-6}, False),
            ({"hidden_dropout_prob": 0.3}, True),
        ):
            config = dataclasses.replace(toy.CONFIG, **change)
            found = self.extractor(dataclasses.replace(source, config=config)).settings
            self.assertEqual(found == made, is_same, change)

    def test_what_is_wrong(self):
        source = self.checkpoint(use_pooler=False)
        with self.assertRaisesRegex(InputError, "has no pooler: leave `pooled` out"):
            self.extractor(source, sentence_vectors=("pooled",))
        extractor = self.extractor(source)
        with self.assertRaisesRegex(InputError, "output file is a folder"):
            extractor.write([], self.folder)


def as_python_writes(values):
    """What the original does with an array's values."""
    return json.dumps([round(float(x), 6) for x in values])[1:-1]


class NumberListsTest(tf.test.TestCase):
    def test_numbers_by_hand(self):
        for values, text in (
            (
                [0.0, -0.0, 1.0, -2.5, 0.1, 0.0001, 0.00001, 0.0000125, 0.0000004],
                "0.0, -0.0, 1.0, -2.5, 0.1, 0.0001, 1e-05, 1.2e-05, 0.0",
            ),
            ([123.456], "123.456001"),
            # Exact in binary: 2^-7 = 0.0078125, whose seventh decimal is a lone 5.
            (
                [0.0078125, 0.0234375, -0.0078125, 3.0078125],
                "0.007812, 0.023438, -0.007812, 3.007812",
            ),
            (
                [3e9, -1e30, math.inf, -math.inf, math.nan, 0.5],
                "3000000000.0, -1.0000000150474662e+30, Infinity, -Infinity, NaN, 0.5",
            ),
        ):
            self.assertEqual(number_lists(np.array([values], np.float32)), [text])
        self.assertEqual(number_lists(np.zeros([0, 4], np.float32)), [])

    def test_any_bits_are_written_as_python_writes_them(self):
        rng = np.random.default_rng(0)
        bits = rng.integers(0, 1 << 32, 40000, np.uint64).astype(np.uint32)
        some = bits.view(np.float32)
        some = some[np.abs(some) < 1e9]
        usual = rng.normal(0, 1, 40000).astype(np.float32)
        small = (rng.integers(-120, 120, 5000) * 5e-7).astype(np.float32)
        large = rng.uniform(-1e9, 1e9, 5000).astype(np.float32)
        rows = [usual.reshape(-1, 8), small.reshape(-1, 8), large.reshape(-1, 8)]
        rows.append(some[: len(some) // 8 * 8].reshape(-1, 8))
        rows = np.concatenate(rows)
        for row, text in zip(rows, number_lists(rows), strict=True):
            self.assertEqual(text, as_python_writes(row))


class JsonLineTest(tf.test.TestCase):
    def test_the_originals_layout(self):
        names = ["[CLS]", 'a"', "é", "[SEP]"]
        rng = np.random.default_rng(1)
        vectors = rng.normal(0, 1, [4, 2, 5]).astype(np.float32)
        line = json_line(
            7,
            Features(FeatureInput([2, 5, 6, 3], [0] * 4, names), vectors, {}),
            [-1, -2],
        )
        # As extract_features.py of google-research/bert builds it.
        output = {"linex_index": 7, "features": []}
        for token, layers in zip(names, vectors, strict=True):
            listed = [
                {"index": index, "values": [round(float(x), 6) for x in values]}
                for index, values in zip([-1, -2], layers, strict=True)
            ]
            output["features"].append({"token": token, "layers": listed})
        self.assertEqual(line, (json.dumps(output) + "\n").encode())

    def test_words_and_sentence_vectors(self):
        vectors = np.array([[[0.5, 1.0]]], np.float32)
        sentence = {
            "pooled": np.array([0.25, -1.0], np.float32),
            "mean": np.array([[2.0, 3.0]], np.float32),
        }
        inputs = FeatureInput([2, 5, 3], [0] * 3, ["wörd"], [(1, 2)])
        line = json_line(0, Features(inputs, vectors, sentence), ["sum(0,1)"])
        self.assertEqual(
            line,
            b'{"linex_index": 0, "features": [{"word": "w\\u00f6rd", "layers":'
            b' [{"index": "sum(0,1)", "values": [0.5, 1.0]}]}], "sentence":'
            b' {"pooled": [0.25, -1.0], "mean": [{"index": "sum(0,1)", "values":'
            b" [2.0, 3.0]}]}}\n",
        )


NAMES = [["[CLS]", "é", "[SEP]"], ["[CLS]", "[SEP]"], ["[CLS]", "wider", "x", "[SEP]"]]
RNG = np.random.default_rng(0)
VECTORS = [RNG.normal(0, 1, [len(n), 2, 5]).astype(np.float32) for n in NAMES]
POOLED = RNG.normal(0, 1, [3, 5]).astype(np.float32)
MEAN = RNG.normal(0, 1, [3, 2, 5]).astype(np.float32)


def three_lines(by_word=False, token_vectors=True):
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


class ArraysTest(tf.test.TestCase):
    def write(self, lines, vector_type="float32"):
        file = io.BytesIO()
        write_arrays(
            file, iter(lines), [-1, "embeddings"], {"weights": "abc"}, vector_type
        )
        self.content = file.getvalue()
        with np.load(io.BytesIO(self.content)) as arrays:
            return dict(arrays)

    def test_all_arrays(self):
        for dtype in ("float32", "float16"):
            arrays = self.write(three_lines(), dtype)
            content = self.content
            self.write(three_lines(), dtype)
            self.assertEqual(self.content, content)
            self.assertEqual(arrays["vectors"].dtype, dtype)
            self.assertAllEqual(
                arrays["vectors"], np.concatenate(VECTORS).astype(dtype)
            )
            self.assertAllEqual(arrays["offsets"], [0, 3, 5, 9])
            self.assertEqual(arrays["names"].tolist(), list(itertools.chain(*NAMES)))
            self.assertEqual(arrays["layers"].tolist(), ["-1", "embeddings"])
            self.assertAllEqual(arrays["pooled"], POOLED.astype(dtype))
            self.assertAllEqual(arrays["mean"], MEAN.astype(dtype))
            self.assertEqual(json.loads(str(arrays["settings"])), {"weights": "abc"})

    def test_a_word_without_end_makes_no_array_of_words_wide(self):
        words = FeatureInput([], [], ["a", "x" * 100_000, "b"], [(0, 1)])
        arrays = self.write([Features(words, VECTORS[0], {})])
        self.assertEqual(arrays["names"].dtype, np.dtype("U200"))
        self.assertEqual(arrays["names"].tolist(), ["a", "x" * 200, "b"])

    def test_lines_without_a_word(self):
        inputs = FeatureInput([2, 3], [0, 0], [], [])
        lines = [Features(inputs, np.zeros([0, 2, 5], np.float32), {})] * 3
        arrays = self.write(lines)
        self.assertEqual(arrays["vectors"].shape, (0, 2, 5))
        self.assertAllEqual(arrays["offsets"], [0] * 4)
        line = b'{"linex_index": 0, "features": []}\n'
        self.assertEqual(json_line(0, lines[0], [-1, -2]), line)
        with self.assertRaisesRegex(InputError, "has no line"):
            self.write([])
