import os
import tempfile

import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.conversion.label_files import read_labels, write_labels
from bert_tf.errors import InputError


class LabelFilesTest(tf.test.TestCase):
    def there_and_back(self, labels, problem_type):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        write_labels(folder, labels, problem_type)
        return read_labels(folder), sorted(os.listdir(folder))

    def test_labels_alone_where_they_tell_all(self):
        for labels, problem_type in (
            (("a", "b c"), SINGLE_LABEL),
            (("a", "b c"), None),
            ((), REGRESSION),
        ):
            found, files = self.there_and_back(labels, problem_type)
            self.assertEqual(found, (labels, None))
            self.assertEqual(files, ["labels.txt"])

    def test_several_labels_or_numbers(self):
        for labels, problem_type in (
            (("a", "b"), MULTI_LABEL),
            (("a",), MULTI_LABEL),
            (("x", "y"), REGRESSION),
        ):
            found, files = self.there_and_back(labels, problem_type)
            self.assertEqual(found, (labels, problem_type))
            self.assertEqual(files, ["labels.txt", "problem_type.txt"])

    def test_any_string_is_a_label(self):
        for labels in (
            ("a\nb", "c"),
            ("\n", ""),
            ("",),
            ('["a"]',),
            ("[1]",),
            ("[x",),
            ("a\r", " b\u2028", "\ud800", "\u00e9"),
        ):
            found, _ = self.there_and_back(labels, SINGLE_LABEL)
            self.assertEqual(found, (labels, None))

    def test_plain_labels_are_lines(self):
        folder = self.get_temp_dir()
        write_labels(folder, ["\u00e9 b", '"c"', "", "\r"], SINGLE_LABEL)
        with open(os.path.join(folder, "labels.txt"), "rb") as file:
            self.assertEqual(file.read(), b'\xc3\xa9 b\n"c"\n\n\r\n')
        # As a folder of before has them.
        with open(os.path.join(folder, "labels.txt"), "w") as file:
            file.write('"a"\n[b\n')
        self.assertEqual(read_labels(folder)[0], ('"a"', "[b"))

    def test_labels_without_names(self):
        found, files = self.there_and_back(None, MULTI_LABEL)
        self.assertEqual(found, (None, MULTI_LABEL))
        self.assertEqual(files, ["problem_type.txt"])
        found, files = self.there_and_back(None, None)
        self.assertEqual((found, files), ((None, None), []))

    def test_no_such_problem_type(self):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        with open(os.path.join(folder, "problem_type.txt"), "w") as file:
            file.write("ranking\n")
        with self.assertRaisesRegex(InputError, "problem_type.txt: .*'ranking'"):
            read_labels(folder)


if __name__ == "__main__":
    tf.test.main()
