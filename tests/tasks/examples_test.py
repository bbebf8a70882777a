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
            InputError,
            r"data.tsv:3: column 2, counted from 1, is missing: the row has 1 column\."
            r" \(1 of the file's 2 rows cannot be used: line 3; at most 1% may be\.\)",
        ):
            TableSplit(text_a=0, label=1).read(path)

    def test_a_missing_column_names_those_there_are(self):
        path = self.write("a\tb\nA\t1\n")
        with self.assertRaisesRegex(InputError, "'text'. Columns: 'a', 'b'\\.$"):
            TableSplit(text_a="text").read(path)

    def test_a_column_is_one_column(self):
        path = self.write("a\tb\ta\nA\t1\tB\n")
        with self.assertRaisesRegex(InputError, "several columns are named 'a'"):
            TableSplit(text_a="a").read(path)
        self.assertEqual(TableSplit(text_a="b").read(path)[0].text_a, "1")

    def test_a_table_with_the_other_separator_is_called_that(self):
        advice = "It has commas, no tabs: give the file a name that ends in .csv."
        path = self.write("text,label\nA,1\n")
        for split, problem in (
            (TableSplit(text_a="text"), "Columns: 'text,label'. "),
            (TableSplit(text_a=0, label=1, has_header=False), "has 1 column. "),
        ):
            with self.assertRaisesRegex(InputError, problem + advice):
                split.read(path)
        os.rename(path, path.replace(".tsv", ".csv"))
        path = path.replace(".tsv", ".csv")
        self.assertLen(TableSplit(text_a="text", label="label").read(path), 1)
        with open(path, "w") as file:
            file.write("text\tlabel\nA\t1\n")
        with self.assertRaisesRegex(InputError, "has tabs, no commas: .* ends in .tsv"):
            TableSplit(text_a="text").read(path)

    def test_files_that_cannot_be_used(self):
        split = TableSplit(text_a=0)
        with self.assertRaisesRegex(InputError, "No such data file: nowhere.tsv"):
            split.read("nowhere.tsv")
        with self.assertRaisesRegex(InputError, "no examples"):
            split.read(self.write("header only\n"))
        with self.assertRaisesRegex(InputError, "the file is empty"):
            split.read(self.write("\ufeff"))
        with self.assertRaisesRegex(InputError, "data.tsv:2: not UTF-8"):
            split.read(self.write(b"t\n\xff\xfe\n"))

    def test_few_unusable_rows_are_left_out_with_their_lines(self):
        # What the line end within a question does to a row of QQP, and an empty label.
        rows = [f"{i}\tA\tB\t1" for i in range(2, 500)]
        rows[95:97] = ["97\tA", '"\tWas he?\t0', "99\tA\tB\t"]
        path = self.write("id\tq1\tq2\tlabel\n" + "\n".join(rows))
        split = TableSplit(text_a="q1", text_b="q2", label="label")

        def check(label, source):
            if label not in ("0", "1"):
                raise InputError(f"{source}: no such label: {label!r}.")

        with self.assertLogs(level="WARNING") as logs:
            examples = split.read(path, check)
        self.assertLen(examples, 496)
        self.assertEqual(examples[95].source, f"{path}:100")
        (warning,) = logs.output
        self.assertIn(
            f"{path}: left out 3 of 499 rows, which cannot be used: lines 97, 98, 99."
            " The first one: column 'q2' is missing: the row has 2 columns.",
            warning,
        )
        # One per cent of 499 is 4.
        path = self.write("id\tq1\tq2\tlabel\n" + "\n".join([*rows, *"xyz"]))
        with self.assertRaisesRegex(
            InputError,
            r"data.tsv:97: column 'q2' .* \(6 of the file's 502 rows .*"
            r" 97, 98, 99, 501, 502 and 1 more",
        ):
            split.read(path, check)

    def test_no_row_without_labels_may_be_left_out(self):
        rows = "".join(f"{i}\tA\n" for i in range(500))
        path = self.write(f"id\ttext\n{rows}500\n")
        with self.assertRaisesRegex(InputError, "data.tsv:502: column 'text'"):
            TableSplit(text_a="text").read(path)

    def test_many_lines_are_numbered_in_short(self):
        path = self.write("t\tl\n" + 7 * "A\t-\n" + "B\t1\n")
        with self.assertLogs(level="WARNING") as logs:
            examples = TableSplit(text_a="t", label="l", no_label="-").read(path)
        self.assertLen(examples, 1)
        self.assertIn(
            "left out 7 unlabelled rows: lines 2, 3, 4, 5, 6 and 2 more", logs.output[0]
        )

    def test_carriage_returns_and_nul_within_a_cell(self):
        path = self.write("t\tl\nA\rB\x00C\t1\r\n")
        self.assertEqual(
            TableSplit(text_a="t", label="l").read(path)[0][:3], ("A\rB\0C", None, "1")
        )

    def test_a_cell_of_a_csv_file_may_be_long_and_its_quotes_must_close(self):
        text = "word " * 40_000
        path = self.write(f't,l\n"{text}",x\n', "data.csv")
        self.assertEqual(TableSplit(text_a="t").read(path)[0].text_a, text)
        path = self.write('t,l\n"A,x\nB,y\n', "data.csv")
        with self.assertRaisesRegex(InputError, "data.csv:3: unexpected end of data"):
            TableSplit(text_a="t").read(path)

    def test_a_blank_line_would_shift_predictions(self):
        path = self.write("text\none\n\ntwo\n\n")
        with self.assertRaisesRegex(InputError, r"tsv:3: the row is blank\.$"):
            TableSplit(text_a="text").read(path)
        # At the end it shifts none.
        path = self.write("text\none\ntwo\n\n")
        self.assertLen(TableSplit(text_a="text").read(path), 2)

    def test_blank_lines_are_left_out_and_counted(self):
        with self.assertLogs(level="WARNING") as logs:
            path = self.write("t\nA\n\n\nB\n")
            examples = TableSplit(text_a=0, label=0).read(path)
        self.assertLen(examples, 2)
        self.assertIn("left out 2 blank rows: lines 3, 4.", logs.output[0])


if __name__ == "__main__":
    tf.test.main()
