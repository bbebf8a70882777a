import collections.abc
import inspect
import subprocess
import sys

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.learning import count_unknown, learn_from_counts, learn_vocabulary
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.word_counts import WordCounts
from bert_tf.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# English that each Python has.
PROSE = (inspect.getsource(subprocess) + inspect.getsource(collections.abc)).split("\n")

LEARN_AND_PRINT = """
import inspect, subprocess, collections.abc
from bert_tf.text.learning import learn_vocabulary
prose = inspect.getsource(subprocess) + inspect.getsource(collections.abc)
print(learn_vocabulary(prose.split("\\n"), vocab_size=700).sha256)
"""


class LearnVocabularyTest(tf.test.TestCase):
    def test_by_hand(self):
        lines = ["hug " * 10, "PUG " * 5, "pun " * 12, "bun " * 4, "hugs " * 5]
        # How often pieces stand side by side: ##u ##g 20, p ##u 17, ##u ##n 16,
        # h ##u 15, ##g ##s 5, b ##u 4. Merge ##ug; then p ##u is 12, and ##un has 16;
        # then h ##ug 15; p ##un 12; hug ##s and p ##ug have 5, in the order of their
        # spelling; b ##un 4.
        pieces = ["##ug", "##un", "hug", "pun", "hugs", "pug", "bun"]
        # u 36, g 20, p 17, n 16, h 15, s 5, b 4
        characters = [*"bghnpsu", *(f"##{char}" for char in "bghnpsu")]
        everything = [*SPECIAL, *characters, *pieces]
        for size in range(19, 27):
            learned = learn_vocabulary(lines, vocab_size=size)
            self.assertEqual(list(learned), everything[:size])
        with self.assertRaisesRegex(InputError, "at most 26, .* Received: 27"):
            learn_vocabulary(lines, vocab_size=27)
        # Where not all characters fit, the most frequent ones do.
        self.assertEqual(
            list(learn_vocabulary(lines, vocab_size=10)),
            [*SPECIAL, "g", "p", "u", "##g", "##u"],
        )
        # A pair that stands there less often than wanted is none.
        with self.assertRaisesRegex(InputError, "at most 25,"):
            learn_vocabulary(lines, vocab_size=26, min_frequency=5)

    def test_repeated_characters(self):
        # Pairs that overlap, and pieces that more than one pair can give.
        lines = ["a" * length + " " + "ab" * length for length in range(1, 40)]
        learned = learn_vocabulary(lines, vocab_size=30)
        self.assertLen(set(learned), 30)
        tokenizer = WordPieceTokenizer(learned)
        for line in lines:
            tokens = tokenizer.tokenize(line)
            self.assertEqual("".join(tokens).replace("#", ""), line.replace(" ", ""))

    def test_order_and_unused_places(self):
        learned = learn_vocabulary(["Ab, ab 中"], vocab_size=14, num_unused=2)
        self.assertEqual(
            list(learned),
            [
                *(
                    "[PAD]",
                    "[unused0]",
                    "[unused1]",
                    "[UNK]",
                    "[CLS]",
                    "[SEP]",
                    "[MASK]",
                ),
                # Punctuation and ideographs do not go on with a word.
                *(",", "a", "b", "中", "##a", "##b", "ab"),
            ],
        )
        cased = learn_vocabulary(["Ab ab"], vocab_size=11, do_lower_case=False)
        self.assertEqual(cased.tokens[5:], ("A", "a", "b", "##A", "##a", "##b"))

    def test_rare_characters(self):
        lines = ["ab " * 10000 + "aé☃"]
        all_of_them = learn_vocabulary(
            lines, vocab_size=12, do_lower_case=False, character_coverage=1.0
        )
        self.assertIn("☃", all_of_them)
        frequent = learn_vocabulary(lines, vocab_size=10, do_lower_case=False)
        self.assertEqual(frequent.tokens[5:], ("a", "b", "##a", "##b", "ab"))

    def test_exact_size_and_no_unknown_words(self):
        for do_lower_case in (True, False):
            learned = learn_vocabulary(
                PROSE,
                vocab_size=900,
                do_lower_case=do_lower_case,
                character_coverage=1.0,
            )
            self.assertLen(learned, 900)
            self.assertLen(set(learned), 900)
            learned.require_special_tokens("learned")
            tokenizer = WordPieceTokenizer(learned, do_lower_case=do_lower_case)
            ids = [token_id for line in PROSE for token_id in tokenizer.encode(line)]
            self.assertNotIn(learned.unk_id, ids)
            # Frequent words are one token.
            self.assertLen(tokenizer.encode("the process returns"), 3)

    def test_unknown_words(self):
        counts = WordCounts()
        counts.add_lines([f"ab ab ba aé, b {'a' * 200} {'b' * 201}"], True)
        learned = Vocabulary(["a", "é", "##a", "##b"])
        # ba, the comma, b, and the word that is too long; é has lost its accent and
        # been an e: ae.
        self.assertEqual(count_unknown(counts, learned), 5)

    def test_progress(self):
        counts = WordCounts()
        counts.add_lines(PROSE, True)
        steps = []
        learn_from_counts(counts, vocab_size=700, progress=steps.append)
        self.assertEqual(sum(steps), 700)

    def test_characters_of_forgotten_words_count(self):
        lines = ["ab " * 1000, *(f"{char}x" for char in "defghijklmnop")]
        counts = WordCounts(max_words=4)
        for line in lines:
            counts.add_lines([line], False)
        self.assertGreater(counts.num_forgotten, 0)
        learned = learn_from_counts(counts, vocab_size=36, character_coverage=1.0)
        self.assertEqual(learned.tokens[5:20], tuple("abdefghijklmnop"))

    def test_same_in_every_process(self):
        # String hashes, and with them the order of sets, differ between processes.
        found = {
            subprocess.run(
                [sys.executable, "-c", LEARN_AND_PRINT],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        self.assertLen(found, 1)

    def test_the_order_of_lines_does_not_matter(self):
        self.assertEqual(
            learn_vocabulary(["c b a"], vocab_size=7).tokens[5:], ("a", "##a")
        )
        self.assertEqual(
            learn_vocabulary(PROSE, vocab_size=600),
            learn_vocabulary(PROSE[::-1], vocab_size=600),
        )

    def test_what_is_wrong(self):
        with self.assertRaisesRegex(InputError, "must have words"):
            learn_vocabulary([" \n", ""], vocab_size=100)
        with self.assertRaisesRegex(InputError, "must exceed the 8 .* Received: 8"):
            learn_vocabulary(["a b"], vocab_size=8, num_unused=3)


if __name__ == "__main__":
    tf.test.main()
