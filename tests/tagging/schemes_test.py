import tensorflow as tf

from bert_tf.tagging.schemes import (
    find_scheme,
    labels_in,
    respelt,
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
        for scheme, labels in SPELLINGS.items():
            self.assertEqual(find_scheme([labels.split()]), scheme)
            for other, expected in SPELLINGS.items():
                self.assertEqual(respelt(labels.split(), other), expected.split())

    def test_one_type_without_a_name(self):
        spellings = {
            "iob1": "I O I I B B I O I",
            "iob2": "B O B I B B I O B",
            "iobes": "S O B E S B E O S",
            "bilou": "U O B L U B L O U",
        }
        for scheme, labels in spellings.items():
            self.assertEqual(find_scheme([labels.split()]), scheme)
            for other, expected in spellings.items():
                self.assertEqual(respelt(labels.split(), other), expected.split())
        self.assertEqual(labels_in("iob2", ["O", "B"]), ["O", "B", "I"])
        self.assertEqual(labels_in("iob2", ["B_A", "B-A"]), ["O", "B-A", "I-A"])
        self.assertEqual(labels_in("bilou", ["U", "O"]), ["O", "B", "I", "L", "U"])

    def test_a_wrong_label_does_not_change_the_scheme(self):
        right, wrong = ["B-A", "I-A", "O", "B-B"], ["O", "I-A"]
        self.assertEqual(find_scheme([right, wrong, right]), "iob2")
        self.assertEqual(respelt(wrong, "iob2"), ["O", "B-A"])

    def test_what_spells_no_entity(self):
        for labels in ("nn vb O", "O O", "B-A nn", "PER O", "X-A", ""):
            self.assertEqual(find_scheme([labels.split()]), "none", labels)
        self.assertEqual(respelt(["I-A", "nn"], "none"), ["I-A", "nn"])

    def test_labels_of_a_scheme(self):
        self.assertEqual(
            labels_in("iob2", ["O", "I-B", "B-A"]),
            ["O", "B-A", "I-A", "B-B", "I-B"],
        )
        self.assertEqual(labels_in("iobes", ["B-A"]), ["O", "B-A", "I-A", "E-A", "S-A"])
        self.assertEqual(labels_in("none", ["vb", "nn", "vb"]), ["nn", "vb"])

    def test_the_scheme_of_a_models_labels(self):
        for labels, scheme in (
            ("O I-A B-A", "iob2"),
            ("O I-A", "iob2"),
            ("O B-A E-A S-A", "iobes"),
            ("nn vb", "none"),
        ):
            self.assertEqual(scheme_of_labels(labels.split()), scheme)


if __name__ == "__main__":
    tf.test.main()
