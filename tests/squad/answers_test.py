"""Which answers the words of a text give, worked out by hand from the original's rule:
words are what stands between blanks, tabs, ends of lines and U+202F; those from the
answer's first to its last character must hold the answer, blanks made single.
"""

import tensorflow as tf

from bert_tf.squad.answers import EntryError, read_answer

CAFE = "The cafe closed."


def entry(text, start):
    return {"text": text, "answer_start": start}


class AnswersTest(tf.test.TestCase):
    def test_kept(self):
        for context, text, start in (
            (CAFE, "The cafe closed.", 0),
            (CAFE, "closed.", 9),
            (CAFE, ".", 15),
            (CAFE, "caf", 4),
            # Not at its place, but within the words there.
            (CAFE, "afe", 4),
            (CAFE, "closed", 4),
            (CAFE, " cafe ", 3),
            ("New  York", "New York", 0),
            ("New\r\nYork", "New York", 0),
            ("New York City", "New \n York", 0),
            # U+202F is between words for the original, and Python's split agrees.
            ("10\u202fkm wide", "10\u202fkm", 0),
            ("10\u202fkm wide", "10 km", 0),
            # The blank before all words has the last one's number, -1.
            (" One", " One", 0),
            ("日本の首都", "首都", 3),
        ):
            answer = read_answer(entry(text, start), context)
            self.assertEqual(answer, (text, start))

    def test_not_in_the_words(self):
        for context, text, start, words in (
            (CAFE, "closed", 0, "'The cafe'"),
            (CAFE, "Cafe", 4, "'cafe'"),
            # One word for the original, two for the answer.
            ("10\u00a0km wide", "10\u00a0km", 0, r"'10\\xa0km'"),
            ("東京\u3000大阪", "東京\u3000大阪", 0, r"'東京\\u3000大阪'"),
            # From the last word to the first one: none.
            (" One two", " One", 0, "''"),
        ):
            with self.assertRaisesRegex(EntryError, f"{start}: {words}$") as raised:
                read_answer(entry(text, start), context)
            self.assertContainsSubsequence(raised.exception.kind, "do not give")

    def test_outside(self):
        for text, start in (("The", -1), (".", 16), ("closed.", 10), ("x" * 17, 0)):
            with self.assertRaisesRegex(EntryError, "not within the context's 16 char"):
                read_answer(entry(text, start), CAFE)

    def test_malformed(self):
        for value, reason in (
            (None, "an answer must be an object. Found: None"),
            ("The", "an answer must be an object. Found: 'The'"),
            ({"answer_start": 0}, "must have a `text`"),
            ({"text": 3, "answer_start": 0}, "must have a `text`"),
            ({"text": "The"}, "must be an integer. Found: None"),
            (entry("The", "0"), "must be an integer. Found: '0'"),
            (entry("The", 0.0), "must be an integer. Found: 0.0"),
            (entry("The", False), "must be an integer. Found: False"),
            (entry("", 0), "is empty: ''"),
            (entry(" \n", 0), "is empty"),
        ):
            with self.assertRaisesRegex(EntryError, reason) as raised:
                read_answer(value, CAFE)
            self.assertEqual(raised.exception.kind, "malformed")


if __name__ == "__main__":
    tf.test.main()
