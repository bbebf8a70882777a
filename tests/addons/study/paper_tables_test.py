import tensorflow as tf

from bert_tf.addons.study.paper_tables import (
    PRETRAININGS,
    TABLES,
    Cell,
    conclusions,
    markdown,
    picture,
    sized,
)
from bert_tf.base.config import BertConfig
from bert_tf.tasks.pretraining_options import PretrainingOptions

TABLE_5 = TABLES["5"]
MRPC = next(column for column in TABLE_5.columns if column.name == "MRPC")


def cell(*scores):
    by_seed = {str(seed): score for seed, score in enumerate(scores)}
    return Cell(by_seed=by_seed, metric="accuracy")


CELLS = {
    "BERT": {"MRPC": cell(80.0, 82.0, 81.0)},
    "LTR & No NSP": {"MRPC": cell(70.0, 71.5, 71.6)},
    "+ BiLSTM": {"MRPC": cell(79.0, 83.0, 80.0)},
}


class TablesTest(tf.test.TestCase):
    def test_sizes_of_base_are_the_papers(self):
        base = BertConfig.from_size("base")
        for name, of in PRETRAININGS.items():
            if name.startswith("size_"):
                found = sized(base, of["size"])
                sizes = name.removeprefix("size_").split("_")
                self.assertEqual(
                    [str(found.num_hidden_layers), str(found.hidden_size)], sizes[:2]
                )
                self.assertEqual(str(found.num_attention_heads), sizes[2])
                self.assertEqual(found.intermediate_size, 4 * found.hidden_size)

    def test_a_small_base_has_sizes_too(self):
        for of in PRETRAININGS.values():
            if "size" in of:
                sized(BertConfig.from_size("tiny"), of["size"])

    def test_rows_are_options_of_pretraining(self):
        for table in TABLES.values():
            for name in table.pretrainings - {"given"}:
                values = {**PRETRAININGS[name]}
                values.pop("size", None)
                PretrainingOptions(
                    input_file="x",
                    output_dir="x",
                    bert_size="tiny",
                    do_train=True,
                    **values,
                )
            for row in table.rows:
                self.assertLessEqual(len(row.paper), len(table.columns))

    def test_rows_of_glue_have_the_papers_averages(self):
        averages = {
            row.name.removesuffix(", test set"): sum(row.paper) / len(row.paper)
            for row in TABLES["1"].rows
            if row.paper
        }
        self.assertAllClose(
            [*averages.values()], [74.0, 71.0, 75.1, 79.6, 82.1], atol=0.07
        )
        self.assertEqual([*averages][2:4], ["OpenAI GPT", "BERT-Base"])

    def test_conclusions_by_hand(self):
        # Differences -10, -10.5, -9.4: mean -9.97, deviation 0.551, t = -31.4, and the
        # interval 4.303 * 0.551 / sqrt(3) to both sides; -1, 1, -1: t = -0.5.
        expected = [
            "MRPC: LTR & No NSP -9.97 against BERT (the paper: -9.2): more than"
            " seeds explain (p = 0.001, 95% interval -11.33 to -8.60).",
            "MRPC: + BiLSTM -0.33 against BERT (the paper: -11.0): within what"
            " seeds explain (p = 0.667, 95% interval -3.20 to +2.54).",
        ]
        self.assertEqual(conclusions(TABLE_5, [MRPC], CELLS), expected)

    def test_markdown(self):
        text = " ".join(markdown(TABLE_5, [MRPC], CELLS).split())
        for part in ("| BERT ", "| 86.7 | 81.00 ± 1.00 |", "| 86.5 | – |"):
            self.assertIn(part, text)
        self.assertStartsWith(picture(TABLE_5, [MRPC], CELLS), b"\x89PNG")

    def test_one_seed_tells_nothing(self):
        cells = {row: {"MRPC": cell(80.0)} for row in ("BERT", "No NSP")}
        self.assertIn("nothing is known", conclusions(TABLE_5, [MRPC], cells)[0])
