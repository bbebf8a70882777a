import tensorflow as tf

from bert_tf.tasks.tagging import labels as labels_module
from bert_tf.tasks.tagging.labels import (
    Counts,
    find_scheme,
    in_scheme,
    labels_in,
    scheme_of_labels,
)

# The same entities, two of one type side by side: by hand.
SPELLINGS = {
    "iob1": "I-A O I-A I-A B-A B-A I-A I-B",
    "iob2": "B-A O B-A I-A B-A B-A I-A B-B",
    "iobes": "S-A O B-A E-A S-A B-A E-A S-B",
    "bilou": "U-A O B-A L-A U-A B-A L-A U-B",
}


class SchemesTest(tf.test.TestCase):
    def test_each_scheme_is_told_and_becomes_each_other_one(self):
        # One type without a name, too.
        nameless = ("I O I I B B I O I", "B O B I B B I O B")
        nameless += ("S O B E S B E O S", "U O B L U B L O U")
        for spellings in (SPELLINGS, dict(zip(SPELLINGS, nameless, strict=True))):
            for scheme, labels in spellings.items():
                self.assertEqual(find_scheme([labels.split()]), scheme)
                for other, expected in spellings.items():
                    self.assertEqual(
                        in_scheme(labels.split(), other, written=scheme),
                        expected.split(),
                    )

    def test_entities_of_three_words_in_schemes_with_another_inner_label(self):
        iob2 = ["B-A", "I-A", "I-A", "O", "B-B", "B-A", "I-A"]
        for scheme, labels in (
            ("iobes", "B-A I-A E-A O S-B B-A E-A"),
            ("bmes", "B-A M-A E-A O S-B B-A E-A"),
            ("bmewo", "B-A M-A E-A O W-B B-A E-A"),
            ("bios", "B-A I-A I-A O S-B B-A I-A"),
        ):
            self.assertEqual(find_scheme([labels.split()]), scheme)
            self.assertEqual(in_scheme(iob2, scheme, written="iob2"), labels.split())
            self.assertEqual(in_scheme(labels.split(), "iob2", written=scheme), iob2)
            self.assertLen(labels_module.strict_entities(labels.split(), scheme), 3)

    def test_other_spellings_of_entities(self):
        for labels, expected in (
            ("o b-per i-per", {"o": "O", "b-per": "B-per", "i-per": "I-per"}),
            ("0 B-PER", {"0": "O"}),
            ("O B_PER I_PER", {"B_PER": "B-PER", "I_PER": "I-PER"}),
            ("O B-PER", {}),
            # The letter at the end, and W where M is not.
            ("O PER-B PER_I", {"PER-B": "B-PER", "PER_I": "I-PER"}),
            ("0 a-b_b a-b_i", {"0": "O", "a-b_b": "B-a-b", "a-b_i": "I-a-b"}),
            ("B-B I-B B-I", {}),
            ("O B-A I-A E-A W-A", {"W-A": "S-A"}),
            ("O A_B A_I A_W", {"A_B": "B-A", "A_I": "I-A", "A_W": "S-A"}),
            ("O B-A M-A E-A W-A", {}),
            ("O B-A W-A", {}),
            ("O VITAMIN-E HEPATITIS-B", {}),
            ("O PER-B B-PER", {}),
            # No entities: numbers, and parts of speech.
            ("0 1 2", {}),
            ("o nn b-x", {}),
            ("b i o", {}),
        ):
            found = labels_module.usual_spelling(labels.split())
            self.assertEqual(found, expected, labels)
        # A few words to predict have not all labels of the model's.
        for known, expected in (((), {}), (("B-A", "I-A"), {"A-B": "B-A"})):
            self.assertEqual(labels_module.usual_spelling(["A-B"], known), expected)

    def test_prefixes_that_no_scheme_has_together(self):
        for labels in ("B-A E-A U-A", "B-A L-A E-A", "M-A I-A", "S-A W-A", "B L M"):
            self.assertEqual(find_scheme([labels.split()]), "mixed", labels)
        for labels, scheme in (
            ("B-A E-A", "iobes"),
            ("B-A S-A", "iobes"),
            ("I-A S-A", "bios"),
            ("B-A U-A", "bilou"),
            ("B-A E-A W-A", "bmewo"),
            ("B-A M-A", "bmes"),
        ):
            self.assertEqual(find_scheme([labels.split()]), scheme, labels)

    def test_a_wrong_label_does_not_change_the_scheme(self):
        right, wrong = ["B-A", "I-A", "O", "B-B"], ["O", "I-A"]
        self.assertEqual(find_scheme([right, wrong, right]), "iob2")
        self.assertEqual(in_scheme(wrong, "iob2", written="iob1"), ["O", "B-A"])

    def test_what_spells_no_entity(self):
        for labels in ("nn vb O", "O O", "B-A nn", "PER O", "X-A", ""):
            self.assertEqual(find_scheme([labels.split()]), "none", labels)
        self.assertEqual(
            in_scheme(["I-A", "nn"], "iob2", written="none"), ["I-A", "nn"]
        )

    def test_labels_of_a_scheme(self):
        for scheme, labels, expected in (
            ("iob2", ["O", "I-B", "B-A"], ["O", "B-A", "I-A", "B-B", "I-B"]),
            ("iobes", ["B-A"], ["O", "B-A", "I-A", "E-A", "S-A"]),
            ("none", ["vb", "nn", "vb"], ["nn", "vb"]),
            ("none", ["10", "9", "9"], ["9", "10"]),
            ("iob2", ["O", "B"], ["O", "B", "I"]),
            ("iob2", ["B_A", "B-A"], ["O", "B-A", "I-A"]),
            ("bilou", ["U", "O"], ["O", "B", "I", "L", "U"]),
            ("bmes", ["O", "B-A"], ["O", "B-A", "M-A", "E-A", "S-A"]),
            ("bmewo", ["O", "B-A"], ["O", "B-A", "M-A", "E-A", "W-A"]),
            ("bios", ["O", "S-A"], ["O", "B-A", "I-A", "S-A"]),
        ):
            self.assertEqual(labels_in(scheme, labels), expected)

    def test_the_scheme_of_a_models_labels(self):
        for labels, scheme in (
            ("O I-A B-A", "iob2"),
            ("O I-A", "iob2"),
            ("O B-A E-A S-A", "iobes"),
            ("nn vb", "none"),
        ):
            self.assertEqual(scheme_of_labels(labels.split()), scheme)


def found(text, scheme=None):
    """The entities of labels with blanks between, as "TYPE:start-end"."""
    labels = text.split()
    if scheme is None:
        rows = labels_module.entities(labels)
    else:
        rows = labels_module.strict_entities(labels, scheme)
    return [f"{one.type}:{one.start}-{one.end}" for one in rows]


class EntitiesTest(tf.test.TestCase):
    def test_default_reading(self):
        for labels, expected in (
            ("O O", []),
            ("B-PER I-PER O B-LOC", ["PER:0-2", "LOC:3-4"]),
            # IOB1: I begins, B only behind an entity of its type.
            ("I-PER I-PER B-PER O I-LOC", ["PER:0-2", "PER:2-3", "LOC:4-5"]),
            # What no scheme has is read all the same.
            ("O I-PER I-LOC I-LOC", ["PER:1-2", "LOC:2-4"]),
            ("B-PER I-LOC I-PER", ["PER:0-1", "LOC:1-2", "PER:2-3"]),
            # IOBES and BILOU.
            ("S-A S-A B-A I-A E-A", ["A:0-1", "A:1-2", "A:2-5"]),
            ("U-A L-A I-A O E-A", ["A:0-1", "A:1-2", "A:2-3", "A:4-5"]),
            ("W-A W-A M-A W-A", ["A:0-1", "A:1-2", "A:2-3", "A:3-4"]),
            # The first hyphen divides.
            ("B-A-B I-A-B", ["A-B:0-2"]),
            # One type without a name.
            ("B I O I B S B E", [":0-2", ":3-4", ":4-5", ":5-6", ":6-8"]),
            ("", []),
        ):
            self.assertEqual(found(labels), expected, labels)

    def test_strict_reading(self):
        for scheme, labels, expected in (
            ("iob2", "B-A I-A O B-B B-B", ["A:0-2", "B:3-4", "B:4-5"]),
            ("iob2", "O I-A I-A B-A I-B I-A", ["A:3-4"]),
            ("iob2", "B I O I B", [":0-2", ":4-5"]),
            ("bilou", "B I L U I B", [":0-3", ":3-4"]),
            ("iobes", "S-A B-A E-A B-A I-A E-A", ["A:0-1", "A:1-3", "A:3-6"]),
            ("iobes", "B-A I-A O B-A E-B E-A I-A S-B", ["B:7-8"]),
            ("iobes", "B-A B-A E-A I-A B-A", ["A:1-3"]),
            ("bilou", "U-A B-A L-A B-A I-A L-A B-A E-A", ["A:0-1", "A:1-3", "A:3-6"]),
        ):
            self.assertEqual(found(labels, scheme), expected, labels)

    def test_an_entity_is_found_if_all_of_it_is_right(self):
        gold = ["B-PER I-PER O B-LOC O", "B-ORG I-ORG I-ORG", "O O"]
        said = ["B-PER I-PER O B-ORG O", "B-ORG I-ORG O", "O I-LOC"]
        counts = labels_module.count_entities(
            [labels.split() for labels in gold], [labels.split() for labels in said]
        )
        self.assertEqual(counts, {"LOC": (1, 1, 0), "ORG": (1, 2, 0), "PER": (1, 1, 1)})
        total = labels_module.total(counts.values())
        self.assertEqual(total, (3, 4, 1))
        precision, recall, f1 = total.scores.values()
        self.assertEqual((precision, recall), (1 / 4, 1 / 3))
        self.assertAllClose(f1, 2 / 7)
        strict = labels_module.count_entities([["O"]], [["I-LOC"]], "iob2")
        self.assertEqual(strict, {})

    def test_scores_of_nothing_are_0(self):
        for counts in (Counts(0, 0, 0), Counts(0, 2, 0), Counts(2, 0, 0)):
            self.assertEqual([*counts.scores.values()], [0.0, 0.0, 0.0])
        self.assertEqual(labels_module.total([]), (0, 0, 0))

    def test_the_report_is_the_official_scripts(self):
        gold = ["B-PER I-PER O B-LOC O", "B-ORG I-ORG I-ORG", "O O", "I-LOC B-LOC"]
        said = ["B-PER I-PER O B-ORG O", "B-ORG I-ORG O", "O I-LOC", "I-LOC B-LOC"]
        split = ([labels.split() for labels in rows] for rows in (gold, said))
        counts = labels_module.count_entities(*split)
        self.assertEqual(labels_module.report(counts, 12, 9), REPORT)


# What conlleval.pl prints of these sentences.
REPORT = """\
processed 12 tokens with 5 phrases; found: 6 phrases; correct: 3.
accuracy:  75.00%; precision:  50.00%; recall:  60.00%; FB1:  54.55
              LOC: precision:  66.67%; recall:  66.67%; FB1:  66.67  3
              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  2
              PER: precision: 100.00%; recall: 100.00%; FB1: 100.00  1
"""
