"""Sentences: real rules, nothing lost, nothing that stops a run."""

import random

import tensorflow as tf

from bert_tf.text.sentences import LANGUAGES, sentence_splitter

# From the fault that sentencex has with wide spaces before a period to plain words.
PIECES = (
    *(
        "Mr.",
        "e.g.",
        "z.B.",
        "3.14",
        "1.",
        "a)",
        "J. R. R.",
        "...",
        "?!",
        '"',
        "”",
        "B",
    ),
    *("\u00a0", "\u2009", "\u3000", "\u2028", "\x85", " ", "  ", "\t", ".", "。", "।"),
    *("«", "»", "(", ")", "[1]", "é", "語", "\U0001f600", "\u0301", "\x00", "A.", "г."),
)


def letters(text):
    return "".join(text.split())


class SentencesTest(tf.test.TestCase):
    def test_english(self):
        split = sentence_splitter("en")
        self.assertEqual(
            split("Mr. Smith paid $3.50. He left!  Did J. R. R. Tolkien?  Yes."),
            ["Mr. Smith paid $3.50.", "He left!", "Did J. R. R. Tolkien?", "Yes."],
        )
        self.assertEqual(split("no end"), ["no end"])
        self.assertEqual(split("One.\n\nTwo."), ["One.", "Two."])
        self.assertEmpty(split(""))

    def test_other_languages(self):
        self.assertEqual(
            sentence_splitter("ja")("日本語です。はい。"), ["日本語です。", "はい。"]
        )
        self.assertEqual(
            sentence_splitter("hi")("यह एक है। वह दो है।"), ["यह एक है।", "वह दो है।"]
        )
        # A language without rules.
        self.assertEqual(sentence_splitter("tlh")("Qapla. Maj."), ["Qapla.", "Maj."])

    def test_no_language_no_split(self):
        self.assertEqual(sentence_splitter("")("One. Two."), ("One. Two.",))
        self.assertEqual(sentence_splitter("")(""), ())

    def test_a_wide_space_before_a_period(self):
        for space in "\u00a0\u202f\u3000\x85":
            text = f"Plan B{space}. Next one."
            for language in ("en", "fr", "tlh"):
                found = sentence_splitter(language)(text)
                self.assertEqual(letters("".join(found)), "PlanB.Nextone.")

    def test_nothing_is_lost(self):
        chance = random.Random(1)
        for _ in range(3000):
            pieces = chance.choices(PIECES, k=chance.randrange(1, 20))
            text = "".join(pieces).strip()
            found = sentence_splitter(chance.choice(LANGUAGES))(text)
            self.assertEqual(letters("".join(found)), letters(text))
            for sentence in found:
                self.assertTrue(sentence)
                self.assertEqual(sentence, sentence.strip())


if __name__ == "__main__":
    tf.test.main()
