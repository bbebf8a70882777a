from bert_tf.base.errors import InputError
from bert_tf.tasks.tagging.word_predictions import write_predictions
from tests.script_case import FolderCase
from tests.tasks.tagging.sentences_test import SentencesTestCase


def word(number, form, upos="_", xpos="_"):
    """A line of ten columns."""
    return "\t".join([number, form, form, upos, xpos, "_", "0", "dep", "_", "_"])


CONLLU = "\n".join(
    [
        "# newdoc id = one",
        "# sent_id = 1",
        "# text = Al's asleep.",
        "1-2\tAl's" + "\t_" * 8,
        word("1", "Al", "PROPN", "NNP"),
        word("2", "'s", "AUX", "VBZ"),
        word("2.1", "really", "ADV", "RB"),
        word("3", "asleep", "ADJ", "JJ"),
        word("4", ".", "PUNCT", "."),
        "",
        "# sent_id = 2",
        word("1", "#", "SYM", "#"),
        word("2", "20 000", "NUM", "CD"),
        "",
        "# newdoc",
        "#newpar",
        word("1", "東\xa0京", "PROPN", "NNP"),
        "",
        "",
    ]
)


class ConlluTest(SentencesTestCase):
    name = "x.conllu"

    def test_words_alone_are_read(self):
        found = self.read(CONLLU.replace("\n", "\r\n"))
        self.assertEqual(
            [(one.words, one.labels, one.document) for one in found],
            [
                (("Al", "'s", "asleep", "."), ("PROPN", "AUX", "ADJ", "PUNCT"), 0),
                (("#", "20 000"), ("SYM", "NUM"), 0),
                (("東\xa0京",), ("PROPN",), 1),
            ],
        )
        self.assertEndsWith(found[0].source, "x.conllu:5")
        self.assertEqual(self.read(CONLLU, name="x.conllu.gz")[1].words, found[1].words)
        self.assertEqual(
            self.read(CONLLU, name="x.txt", format="conllu")[2].labels, ("PROPN",)
        )

    def test_columns_by_name_and_number(self):
        for column in ("XPOS", "4", "-6"):
            found = self.read(CONLLU, label_column=column)
            self.assertEqual(found[0].labels, ("NNP", "VBZ", "JJ", "."), column)
        found = self.read(CONLLU, word_column="UPOS", label_column="DEPREL")[1]
        self.assertEqual((found.words, found.labels), (("SYM", "NUM"), ("dep", "dep")))

    def test_predictions_have_a_line_a_word(self):
        labels = [["A", "B", "C", "D"], ["E", "F"], ["G"]]
        write_predictions(self.path("p.txt"), self.read(CONLLU), labels)
        lines = FolderCase.read(self, "p.txt").split("\n")
        self.assertLen(lines, 11)
        # The scorer compares the last two columns.
        self.assertEqual(lines[0], "1 Al Al PROPN NNP _ 0 dep _ _ PROPN A")
        # No white space in a column.
        self.assertEqual(lines[6], "2 20_000 20_000 NUM CD _ 0 dep _ _ NUM F")
        self.assertEqual([lines[4], lines[7], *lines[9:]], [""] * 4)

    def test_what_has_no_labels(self):
        bare = "\n".join([word("1", "a"), word("2", "b"), "", word("1", "c"), ""])
        found = self.read(bare, has_labels=None)
        self.assertEqual([one.labels for one in found], [None, None])
        self.assertIsNone(self.read(CONLLU, has_labels=False)[0].labels)
        self.assertEqual(self.read(CONLLU, has_labels=None)[2].labels, ("PROPN",))
        # Of a column that some words have, "_" is a label.
        some = f"{word('1', 'a', 'X')}\n{word('2', 'b')}\n"
        self.assertEqual(self.read(some, has_labels=None)[0].labels, ("X", "_"))

    def test_what_is_wrong_is_named_with_its_line(self):
        one = word("1", "a", "X")
        for text, layout, message in (
            (f"{one}\n2\tb\tb\n", {}, ":2: 3 columns, but line 1, the .* has 10"),
            (f"# c\n{one}\nx y\n", {}, ":3: the first column .* number.*'x y'"),
            ("1 a a X\n", {}, ":1: the first column .* followed by a tab"),
            (word("1", "a"), {}, "no word has a label: column 3 is _"),
            (one, {"label_column": "12"}, "x.conllu:1: `label_column=12`: no such"),
            (one, {"label_column": "upos"}, "`label_column=upos`: no such column"),
            ("# newdoc\n\n", {}, "no sentence"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.read(text, **layout)
