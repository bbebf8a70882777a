import tensorflow as tf

from bert_tf.quickstart import corpus


class SentencesTest(tf.test.TestCase):
    def test_prose_is_cut_at_sentence_ends(self):
        self.assertEqual(
            corpus.sentences_of(
                "This is the first of them.  And (here) comes the\n"
                "second one! Is this a third?\n\nA new paragraph starts here: it ends."
            ),
            [
                "This is the first of them.",
                "And (here) comes the second one!",
                "Is this a third?",
                "A new paragraph starts here: it ends.",
            ],
        )

    def test_code_grammar_tables_and_fragments_are_left_out(self):
        for text in (
            ">>> print('this is no prose at all')",
            "assignment_stmt ::= this is a grammar rule of some words.",
            "| this | is | a | table of words.",
            "Too short this.",
            "no capital letter begins this sentence here.",
            "It has no end and so it is a heading",
            "See x = y[0] + f(z) ** 2 or a.b.c, d_e_f, g(h).",
        ):
            self.assertEqual(corpus.sentences_of(text), [], text)

    def test_markup_is_taken_away(self):
        self.assertEqual(
            corpus.sentences_of("The *first* argument is ``a`` :class:`name` here."),
            ["The first argument is a name here."],
        )


class DocumentsTest(tf.test.TestCase):
    def test_python_brings_more_than_a_megabyte(self):
        counted = []
        documents = list(corpus.read_documents(lambda: counted.append(1)))
        sentences = [s for document in documents for s in document.sentences]
        self.assertGreater(sum(map(len, sentences)), 1_000_000)
        self.assertGreater(len(documents), 300)
        self.assertLen(counted, len(documents))
        self.assertIn("topic assignment", {document.name for document in documents})
        self.assertIn("argparse.py", {document.name for document in documents})


if __name__ == "__main__":
    tf.test.main()
