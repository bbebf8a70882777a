import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks.examples import Example, TableSplit


class TableSplitTest(tf.test.TestCase):
    def write(self, content, name="data.tsv"):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def test_columns_by_number_name_and_from_the_end(self):
        path = self.write("id\ttext\tx\tlabel\n7\tA b\tq\tyes\n8\tC\tq\tno\n")
        expected = [
            Example("A b", None, "yes", f"{path}:2"),
            Example("C", None, "no", f"{path}:3"),
        ]
        for text, label in (("text", "label"), (1, 3), (1, -1)):
            self.assertEqual(TableSplit(text_a=text, label=label).read(path), expected)

    def test_pairs_without_labels_and_without_a_header(self):
        path = self.write("A\tB\nC\tD")
        self.assertEqual(
            TableSplit(text_a=0, text_b=1, has_header=False).read(path),
            [
                Example("A", "B", None, f"{path}:1"),
                Example("C", "D", None, f"{path}:2"),
            ],
        )

    def test_quotes_are_ordinary_in_tsv_and_quotes_in_csv(self):
        path = self.write('t\n"quoted, and "" more\n')
        self.assertEqual(
            TableSplit(text_a="t").read(path)[0].text_a, '"quoted, and "" more'
        )
        path = self.write('t,l\n"one, ""two""\nthree",x\n', "data.csv")
        self.assertEqual(
            TableSplit(text_a="t", label="l").read(path),
            [Example('one, "two"\nthree', None, "x", f"{path}:3")],
        )

    def test_byte_order_mark_and_line_ends_of_windows(self):
        path = self.write(b"\xef\xbb\xbftext\tlabel\r\nA\t1\r\n")
        self.assertEqual(
            TableSplit(text_a="text", label="label").read(path),
            [Example("A", None, "1", f"{path}:2")],
        )

    def test_other_unicode_line_ends_do_not_cut_a_row(self):
        path = self.write("t\nA\u2028B\x85C\x0cD\n")
        self.assertEqual(
            TableSplit(text_a="t").read(path)[0].text_a, "A\u2028B\x85C\x0cD"
        )

    def test_rows_chosen_and_labels_renamed(self):
        path = self.write("lang\ttext\tlabel\nde\tA\tx\nzh\tB\tcontradictory\n")
        split = TableSplit(
            text_a=1,
            label=2,
            only={0: "zh"},
            rename={"contradictory": "contradiction"},
        )
        self.assertEqual(
            split.read(path), [Example("B", None, "contradiction", f"{path}:3")]
        )

    def test_a_short_row_is_named_by_its_line(self):
        path = self.write("a\tb\nA\t1\nC\n")
        with self.assertRaisesRegex(
            InputError, r"data.tsv:3: column 1 is missing: the row has 1 columns"
        ):
            TableSplit(text_a=0, label=1).read(path)

    def test_a_missing_column_names_those_there_are(self):
        path = self.write("a\tb\nA\t1\n")
        with self.assertRaisesRegex(InputError, "'text'. Columns: a, b"):
            TableSplit(text_a="text").read(path)

    def test_files_that_cannot_be_used(self):
        split = TableSplit(text_a=0)
        with self.assertRaisesRegex(InputError, "No such data file: nowhere.tsv"):
            split.read("nowhere.tsv")
        with self.assertRaisesRegex(InputError, "no examples"):
            split.read(self.write("header only\n"))
        with self.assertRaisesRegex(InputError, "data.tsv:2: not UTF-8"):
            split.read(self.write(b"t\n\xff\xfe\n"))

    def test_blank_lines_are_left_out_and_counted(self):
        with self.assertLogs(level="WARNING") as logs:
            examples = TableSplit(text_a=0).read(self.write("t\nA\n\n\nB\n"))
        self.assertLen(examples, 2)
        self.assertIn("left out 2 blank lines", logs.output[0])


if __name__ == "__main__":
    tf.test.main()
