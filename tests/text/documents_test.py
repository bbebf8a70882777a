"""Plain text: what is a sentence, a document, an error."""

import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.documents import read_corpus, read_lines


def letters(text):
    """One token a letter; nothing else gives a token."""
    return [ord(character) for character in text if character.isalpha()]


class ReadCorpusTest(tf.test.TestCase):
    def write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def read(self, *contents):
        paths = [self.write(f"{i}.txt", content) for i, content in enumerate(contents)]
        corpus = read_corpus(paths, letters)
        return corpus, [
            ["".join(map(chr, sentence)) for sentence in document]
            for document in corpus.documents
        ]

    def test_lines_are_sentences_and_blank_lines_end_documents(self):
        corpus, documents = self.read(b"\n\na\nbc\n\n  \t\nd\n\n")
        self.assertEqual(documents, [["a", "bc"], ["d"]])
        self.assertEqual((corpus.num_sentences, corpus.num_tokens), (3, 4))

    def test_the_end_of_a_file_does_not_end_a_document(self):
        _, documents = self.read(b"a\nb", b"c\n\nd\n", b"e\n")
        self.assertEqual(documents, [["a", "b", "c"], ["d", "e"]])

    def test_windows_line_ends(self):
        _, documents = self.read(b"a\r\n\r\nb\r\n")
        self.assertEqual(documents, [["a"], ["b"]])

    def test_carriage_returns_inside_a_line_vanish_as_in_tensorflows_reader(self):
        content = b"a\rb\n\rc\r\r\n"
        path = self.write("carriage.txt", content)
        with tf.io.gfile.GFile(path, "r") as reader:
            expected = list(reader)
        self.assertEqual(expected, ["ab\n", "c\n"])
        self.assertEqual([line for line, _ in read_lines(path)], expected)

    def test_only_line_feeds_end_lines(self):
        _, documents = self.read("a\x0bb\x85c\u2028d\x1ce\n".encode())
        self.assertEqual(documents, [["abcde"]])

    def test_lines_without_a_token_are_dropped_and_end_no_document(self):
        corpus, documents = self.read(b"a\n\x01\n...\nb\n")
        self.assertEqual(documents, [["a", "b"]])
        self.assertEqual(corpus.num_dropped_lines, 2)

    def test_a_line_of_unicode_white_space_ends_a_document(self):
        _, documents = self.read("a\n\u3000\x85\nb".encode())
        self.assertEqual(documents, [["a"], ["b"]])

    def test_empty_files_are_named(self):
        corpus, documents = self.read(b"", b"a\n", b"\n \n...")
        self.assertEqual(documents, [["a"]])
        self.assertEqual(
            [os.path.basename(path) for path in corpus.empty_files], ["0.txt", "2.txt"]
        )

    def test_nothing_at_all(self):
        self.assertEqual(self.read(b"", b"\n\n")[0].documents, [])

    def test_progress_counts_bytes(self):
        path = self.write("a.txt", "ä\r\n\nb".encode())
        steps = []
        read_corpus([path], letters, steps.append)
        self.assertEqual(steps, [4, 1, 1])

    def test_not_utf8_names_file_and_line(self):
        with self.assertRaisesRegex(InputError, r"1\.txt:3: not UTF-8 \(byte 0xe4\)"):
            self.read(b"a\n", b"b\n\nBl\xe4tter\n")

    def test_missing_file_and_folder(self):
        with self.assertRaisesRegex(InputError, "No such input file: nowhere.txt"):
            read_corpus(["nowhere.txt"], letters)
        with self.assertRaisesRegex(InputError, "folder"):
            read_corpus([self.get_temp_dir()], letters)


if __name__ == "__main__":
    tf.test.main()
