import os

import tensorflow as tf

from bert_tf.tagging.prediction_files import write_predictions
from bert_tf.tagging.reader import Layout, read_sentences

CONLL = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

# NN I-NP O

-DOCSTART- -X- O O

東\xa0京 NNP I-NP I-LOC
"""


class PredictionFilesTest(tf.test.TestCase):
    def path(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def read(self, text, **layout):
        with open(self.path("file.txt"), "w", encoding="utf-8") as file:
            file.write(text)
        return read_sentences([file.name], Layout(**layout), has_labels=None)

    def written(self, sentences, labels):
        path = self.path("predictions.txt")
        write_predictions(path, sentences, labels)
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_the_files_lines_with_a_column_more(self):
        labels = [["I-ORG", "O"], ["B-X"], ["O"]]
        self.assertEqual(
            self.written(self.read(CONLL), labels),
            """\
-DOCSTART- -X- O O O

EU NNP I-NP I-ORG I-ORG
rejects VBZ I-VP O O

# NN I-NP O B-X

-DOCSTART- -X- O O O

東\xa0京 NNP I-NP I-LOC O

""",
        )

    def test_all_lines_have_the_same_columns(self):
        sentences = self.read("-DOCSTART-\n\na\tX  O\n")
        self.assertEqual(
            self.written(sentences, [["O"]]), "-DOCSTART- O O O\n\na X O O\n\n"
        )
        sentences = self.read("a\nb\n")
        self.assertEqual(self.written(sentences, [["O", "X"]]), "a O\nb X\n\n")

    def test_lines_at_the_end_of_files(self):
        paths = []
        for number, text in enumerate(
            ("-DOCSTART- O\n\na O\n\n", "-DOCSTART- O\n\nb O\n")
        ):
            paths.append(self.path(f"{number}.txt"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        sentences = read_sentences(paths, Layout())
        expected = "-DOCSTART- O O\n\na O X\n\n-DOCSTART- O O\n\nb O Y\n\n"
        self.assertEqual(self.written(sentences, [["X"], ["Y"]]), expected)
        alone = self.written(sentences[:1], [["X"]])
        self.assertEqual(alone, "-DOCSTART- O O\n\na O X\n\n")

    def test_labels_that_are_not_the_last_column_stand_before_the_predicted_ones(self):
        sentences = self.read(CONLL, label_column="1")
        self.assertEqual(
            self.written(sentences, [["NNP", "VB"], ["NN"], ["NN"]]),
            """\
-DOCSTART- -X- O O O O

EU NNP I-NP I-ORG NNP NNP
rejects VBZ I-VP O VBZ VB

# NN I-NP O NN NN

-DOCSTART- -X- O O O O

東\xa0京 NNP I-NP I-LOC NNP NN

""",
        )

    def test_a_word_without_a_label(self):
        sentences = self.read("a O\nb O\n")
        for labels in ([["O"]], [["O", "O"], ["O"]], []):
            with self.assertRaises(ValueError):
                self.written(sentences, labels)


if __name__ == "__main__":
    tf.test.main()
