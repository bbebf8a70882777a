import random
from collections import Counter

import tensorflow as tf
import tokenizers
from absl import logging

from bert_tf.addons.corpora.extension import extend_vocabulary, is_extension
from bert_tf.base.errors import InputError
from bert_tf.text.normalization import split_words
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, added_tokens

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [*"abcd", *(f"##{char}" for char in "abcd")]
VOCABULARY = Vocabulary([*SPECIAL, *CHARACTERS])


def independent(vocabulary, *, lower=False):
    """The tokenizers library's tokenizer of a vocabulary."""
    model = tokenizers.models.WordPiece(
        dict(vocabulary.ids), unk_token="[UNK]", max_input_chars_per_word=200
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return theirs


def tokens_of(vocabulary, words):
    """How many tokens the words have; [UNK] has those of its characters."""
    theirs = independent(vocabulary)
    total = 0
    for word, count in words.items():
        tokens = theirs.encode(word, add_special_tokens=False).tokens
        total += count * (len(word) if tokens == ["[UNK]"] else len(tokens))
    return total


def extended(vocabulary, words):
    """Words in the places of [unused] tokens, then at the end."""
    tokens, left = list(vocabulary), list(words)
    for place, token in enumerate(tokens):
        if token.startswith("[unused") and left:
            tokens[place] = left.pop(0)
    return Vocabulary(tokens + left)


class ExtendVocabularyTest(tf.test.TestCase):
    def test_worked_by_hand(self):
        # abc is 3 pieces, and 10 * 2 + 1 * 2 tokens are saved with it: abcd becomes
        # abc ##d. Then dd saves 9, and bcd 4 * 2; abcd saves 1 only.
        words = {"abc": 10, "abcd": 1, "dd": 9, "bcd": 4, "a": 100}
        found = extend_vocabulary(VOCABULARY, words, num_new_tokens=3)
        self.assertEqual(found.new_words, ["abc", "dd", "bcd"])
        wanted = ["[PAD]", "abc", "dd", *SPECIAL[3:], *CHARACTERS, "bcd"]
        self.assertEqual(list(found.vocabulary), wanted)
        self.assertEqual(found.tokens_per_word, (164 / 124, 125 / 124))
        self.assertEqual(found.unknown, (0, 0))

    def test_a_word_counts_with_what_it_changes_in_longer_ones(self):
        # With ab, a ##bcd becomes ab ##c ##d.
        vocabulary = Vocabulary([*SPECIAL, *CHARACTERS, "##bcd"])
        words = {"ab": 3, "abcd": 2}
        found = extend_vocabulary(vocabulary, words, num_new_tokens=1)
        self.assertEqual(found.new_words, ["abcd"])  # it saves 2, ab 3 - 2
        found = extend_vocabulary(vocabulary, words, num_new_tokens=2)
        self.assertEqual(found.new_words, ["abcd", "ab"])
        found = extend_vocabulary(vocabulary, {"ab": 3, "abcd": 3}, num_new_tokens=1)
        self.assertEqual(found.new_words, ["abcd"])
        with self.assertRaisesRegex(InputError, "supports 0, with all"):
            extend_vocabulary(vocabulary, words, num_new_tokens=1, min_frequency=4)

    def test_unknown_words(self):
        words = {"añb": 2, "ñ": 3, "a" * 201: 7, "cd": 1}
        found = extend_vocabulary(VOCABULARY, words, num_new_tokens=2)
        self.assertEqual(found.new_words, ["añb", "cd"])
        self.assertEqual(found.unknown, (12, 10))
        # One more would save nothing: [UNK] is one token, and so is the word.
        with self.assertRaisesRegex(InputError, "`num_new_tokens=3`: this text supp"):
            extend_vocabulary(VOCABULARY, words, num_new_tokens=3)
        with self.assertLogs(logging.get_absl_logger()) as logs:
            fewer = extend_vocabulary(
                VOCABULARY, words, num_new_tokens=3, fewer_tokens=True
            )
        self.assertEqual(fewer, found)
        self.assertIn("`num_new_tokens=3`: this text supports 2,", logs.output[0])
        with self.assertRaisesRegex(InputError, "supports 0"):
            extend_vocabulary(VOCABULARY, {"a": 9}, num_new_tokens=3, fewer_tokens=True)

    def test_a_length_to_reach(self):
        words = {"abc": 10, "dd": 9, "a": 81}
        before = (30 + 18 + 81) / 100
        for wanted, new, reached in (
            (1.3, [], before),
            (1.29, [], before),
            (1.28, ["abc"], 1.09),
            (1.09, ["abc"], 1.09),
            (1.0, ["abc", "dd"], 1.0),
        ):
            found = extend_vocabulary(VOCABULARY, words, tokens_per_word=wanted)
            self.assertEqual(found.new_words, new)
            self.assertAllClose(found.tokens_per_word, (before, reached))
        with self.assertRaisesRegex(InputError, "supports 1.0900, with .*=10` times"):
            extend_vocabulary(VOCABULARY, words, tokens_per_word=1.0, min_frequency=10)
        with self.assertRaisesRegex(InputError, "must have words"):
            extend_vocabulary(VOCABULARY, {}, num_new_tokens=1)

    def test_each_word_is_the_best_by_another_tokenizer(self):
        rng = random.Random(5)
        pieces = ["ab", "##bc", "##cda", "ca", "dab", "##dd", "bcd"]
        for trial in range(25):
            some = rng.sample(pieces, rng.randrange(1, 6))
            tokens = [*SPECIAL, *CHARACTERS, *(t for t in some if t not in CHARACTERS)]
            vocabulary = Vocabulary(tokens)
            words = Counter(
                "".join(rng.choices("abcdñ", (9, 9, 9, 9, trial % 3), k=length))
                for length in rng.choices(range(1, 7), k=60)
            )
            new, now = [], vocabulary
            while len(new) < 6:
                before = tokens_of(now, words)
                savings = {
                    word: before - tokens_of(extended(vocabulary, [*new, word]), words)
                    for word in words
                    if word not in now
                }
                best = min(savings, key=lambda word: (-savings[word], word))
                new.append(best)
                now = extended(vocabulary, new)
                found = extend_vocabulary(vocabulary, words, num_new_tokens=len(new))
                self.assertEqual(found.new_words, new)
                self.assertEqual(found.vocabulary, now)
                total = words.total()
                lengths = [tokens_of(v, words) / total for v in (vocabulary, now)]
                self.assertAllClose(found.tokens_per_word, lengths, rtol=1e-12)

    def test_the_ids_of_text_are_another_tokenizers(self):
        text = "An abbacab, dabba bacca: abc-dab AB Cad! ¿adc? cabs"
        words = Counter(split_words(text, True) * 2)
        found = extend_vocabulary(VOCABULARY, words, num_new_tokens=4)
        ours = WordPieceTokenizer(found.vocabulary)
        theirs = independent(found.vocabulary, lower=True)
        for line in (text, "abacab, dab!", "acc abcd dabbad"):
            encoded = theirs.encode(line, add_special_tokens=False)
            self.assertEqual(ours.encode(line), encoded.ids)
        # Without a new token, all ids are as before.
        before = WordPieceTokenizer(VOCABULARY)
        new = {found.vocabulary.ids[word] for word in found.new_words}
        lines = ["".join(random.Random(n).choices("abcd ", k=30)) for n in range(200)]
        unchanged = [line for line in lines if not new & {*ours.encode(line)}]
        self.assertNotEmpty(unchanged)
        for line in unchanged:
            self.assertEqual(ours.encode(line), before.encode(line))


class AddedTokensTest(tf.test.TestCase):
    def test_the_pieces_of_what_is_added(self):
        new = ["[PAD]", "abcd", *SPECIAL[2:], *CHARACTERS, "##cd", "d-a", "ñ", "-"]
        vocabulary = Vocabulary([*SPECIAL, *CHARACTERS, "ab", "##bcd"])
        added = added_tokens(vocabulary, extended(vocabulary, ["abcd", "dañ", "##bc"]))
        ids = vocabulary.ids
        self.assertEqual(
            added,
            {
                1: (ids["ab"], ids["##c"], ids["##d"]),
                2: (ids["[UNK]"],),
                len(vocabulary): (ids["##b"], ids["##c"]),
            },
        )
        added = added_tokens(VOCABULARY, Vocabulary(new))
        ids = VOCABULARY.ids
        self.assertEqual(
            [*added.values()][1:],
            [
                (ids["##c"], ids["##d"]),
                (ids["d"], ids["[UNK]"], ids["a"]),
                (ids["[UNK]"],),
                (ids["[UNK]"],),
            ],
        )
        self.assertEqual(added_tokens(VOCABULARY, VOCABULARY), {})

    def test_what_is_no_extension(self):
        tokens = list(VOCABULARY)
        for new, message in (
            (tokens[:-1], "it has 14 tokens instead of 15"),
            ([*tokens[:-1], "x"], "line 15 is 'x' instead of '##d'"),
            (["[PAD]", "a", *tokens[2:]], "line 2 has 'a' a second time"),
            (["[PAD]", "x", *tokens[2:], "x"], "line 2 has 'x' a second time"),
            ([*tokens, "[MASK]"], "line 16 has '\\[MASK\\]' a second time"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                added_tokens(VOCABULARY, Vocabulary(new))
            content = "".join(f"{token}\n" for token in new).encode()
            self.assertFalse(is_extension(VOCABULARY, content))
        content = "".join(f"{token}\n" for token in [*tokens, "x"]).encode()
        self.assertTrue(is_extension(VOCABULARY, content))
        self.assertTrue(is_extension(VOCABULARY, content[:-2]))
        for other in (content[:-3], b"", b"caf\xe9\n", b" a\n"):
            self.assertFalse(is_extension(VOCABULARY, other))
