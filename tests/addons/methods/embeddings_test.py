import numpy as np
from absl.testing import parameterized

from bert_tf.addons.methods import embeddings
from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.addons.methods.similarity import LOSSES, BertEmbedder
from bert_tf.base.errors import InputError
from bert_tf.base.options import declarations
from bert_tf.modeling.pooling import POOLINGS
from tests.script_case import FolderCase


class EmbeddingsTest(FolderCase, parameterized.TestCase):
    def read_texts(self, content, name="x.csv", **options):
        path = self.write(name, content)
        given = EmbeddingOptions(
            output_dir="o", do_train=True, train_file=path, **options
        )
        return embeddings.read_texts(path, given)

    @parameterized.parameters(
        ("text\na b\n", embeddings.SINGLE, ("a b",), 0.0),
        ("text,label\na b,x\n", embeddings.SINGLE, ("a b",), 0.0),
        ("positive,anchor\nb,a\n", embeddings.PAIRS, ("a", "b"), 0.0),
        ("anchor,positive,negative\na,b,c\n", embeddings.TRIPLES, ("a", "b", "c"), 0.0),
        ("sentence1,sentence2,score\na,b,4\n", embeddings.SCORED, ("a", "b"), 0.8),
    )
    def test_kinds(self, content, kind, texts, score):
        found = self.read_texts(content, max_score=5)
        self.assertEqual(found.kind, kind)
        self.assertEqual([one[:2] for one in found.examples], [(texts, score)])

    def test_tables_of_excel(self):
        header, rows = "sentence1;sentence2;score\n", "a;b;4,5\nc;d;1,125\n"
        found = self.read_texts(header + rows)
        self.assertEqual([one.score for one in found.examples], [4.5, 1.125])
        with self.assertRaisesRegex(InputError, "must be a number. Received: '4,5'"):
            self.read_texts(header + rows + "e;f;1.125\n")
        with self.assertRaisesRegex(InputError, "x.csv:2: the row has 4 columns"):
            self.read_texts((header + "a;b;4,5\n").replace(";", ","))
        found = self.read_texts(header.replace(";", "|") + "a|b|4\n", delimiter="|")
        self.assertEqual(found.examples[0].score, 4.0)

    def test_flags_and_models_have_the_same_names(self):
        # The options' module does not import Keras.
        declared = declarations(EmbeddingOptions)
        self.assertCountEqual(declared["pooling"].choices, POOLINGS)
        self.assertCountEqual(declared["loss"].choices, LOSSES)
        of_kinds = {name for some in embeddings.LOSSES_OF.values() for name in some}
        self.assertCountEqual(declared["loss"].choices, of_kinds)
        for argument in ("pooling", "loss"):
            message = f"`{argument}` must be one of .*'other'"
            with self.assertRaisesRegex(ValueError, message):
                BertEmbedder("tiny", **{argument: "other"})

    def test_columns_by_flags(self):
        rows = "q,r,s\na,b,high\n"
        flags = {"text_columns": ("q", "r"), "score_column": "s"}
        with self.assertRaisesRegex(InputError, "x.csv:2: the score must be .*'high'"):
            self.read_texts(rows, **flags)
        found = self.read_texts(rows, **flags | {"score_column": ""})
        self.assertEqual(found.kind, embeddings.PAIRS)
        numbers = {"text_columns": ("1", "-1"), "has_header": False}
        (one,) = self.read_texts("0\ta\tb\n", "x.tsv", **numbers).examples
        self.assertEqual(one.texts, ("a", "b"))
        (one,) = self.read_texts(
            '{"body": {"q": "a"}}', "x.jsonl", text_columns=("body.q",)
        )[1]
        self.assertEqual(one.texts, ("a",))

    @parameterized.parameters(
        ("words\na\n", "give `text_columns`.*'words'"),
        ("anchor,positive,negative,label\na,b,c,1\n", "an empty `score_column`"),
        ("anchor,positive\na,\n", "x.csv:2: the text is empty"),
        ("anchor,positive\na\n", "x.csv:2: the row has 1 columns"),
        ("sentence1,sentence2,score\na,b,nan\n", "x.csv:2: the score must be a number"),
        ("anchor\n", "no examples"),
        ("", "x.csv: the file is empty"),
    )
    def test_unusable(self, content, message):
        with self.assertRaisesRegex(InputError, message):
            self.read_texts(content)

    def test_a_few_unusable_rows_are_left_out(self):
        with self.assertLogs(level="WARNING") as logs:
            found = self.read_texts('anchor\na\n\n" "\nb\n', max_unusable_rows=1)
        self.assertLen(found.examples, 2)
        self.assertIn(
            "left out 1 unusable rows of 3; the first one is line 4", logs.output[0]
        )

    def test_ranks(self):
        # The angles to the candidates at 0, 30, 60 and 90 degrees, of any length.
        angles = np.radians([0, 30, 60, 90])
        candidates = np.stack([np.cos(angles), np.sin(angles)], 1) * [
            [1],
            [9],
            [1],
            [2],
        ]
        anchors = np.array([[5.0, 0.0], [0.1, 1.0], [1.0, 1.2]])  # at 0, 84 and 50
        found = embeddings.ranks(anchors, candidates, [2, 3, 1])
        self.assertAllEqual(found, [3, 1, 2])
        same = embeddings.cosines(anchors, 3 * anchors)
        self.assertAllClose(same, np.ones(3))
