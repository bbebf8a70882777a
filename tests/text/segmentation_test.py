import importlib.util
import pickle
import random
import unittest
from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.text.learning import learn_vocabulary
from bert_tf.text.normalization import align_words, split_words, words_of_text
from bert_tf.text.segmentation import segments
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

needs_icu = unittest.skipUnless(
    importlib.util.find_spec("icu4py"), "the extra `segmenter`"
)

# Words of dictionaries, with bars between.
PHRASES = {
    "Thai": "ภาษา|ไทย|เป็น|ภาษา",
    "Lao": "ພາສາ|ລາວ",
    "Khmer": "មនុស្ស|ទាំងអស់|កើតមក|មាន|សេរីភាព",
    "Burmese": "ကျောင်းသား|များ|သွား",
    "kana": "コーヒー|を|のみ|ます",
}
# ASCII, scripts with spaces, ideographs, signs, removed and joined characters.
OTHER_TEXT = (
    "The cat's 3.5 e-mails, don't!",
    "Ünïcode e\u0301tude ΟΔΟΣ ναός",
    "中文句子没有空格。𠀀𠀁",
    "한국어 문장 हिन्दी में తెలుగు עברית العربية",
    "a\u200bb c\u200dd\ufffd \u00a0x\u2028y ๑๒๓ 🙂👍🏽",
    "",
)


def words_of(text, do_lower_case=False):
    return split_words(text, do_lower_case, "icu")


@needs_icu
class SegmentationTest(tf.test.TestCase):
    def test_phrases_of_scripts_without_spaces(self):
        for script, phrase in PHRASES.items():
            text = phrase.replace("|", "")
            self.assertEqual(words_of(text), phrase.split("|"), script)
            self.assertEqual(split_words(text, False), [text], script)

    def test_other_text_is_as_without(self):
        for text in OTHER_TEXT:
            for do_lower_case in (True, False):
                self.assertEqual(
                    words_of(text, do_lower_case), split_words(text, do_lower_case)
                )
                self.assertEqual(
                    list(align_words(text, do_lower_case, "icu")),
                    list(align_words(text, do_lower_case)),
                )

    def test_a_phrase_ends_where_its_letters_do(self):
        # ICU alone would leave each of these undivided.
        for phrase in ("ภาษา|English|ไทย", "ปี|๒๕๖๗", "ปี|2024|ไทย", "ABC|の"):
            self.assertEqual(words_of(phrase.replace("|", "")), phrase.split("|"))

    def test_ideographs_say_where_the_words_of_kana_are(self):
        # Each ideograph is a word to the original; "話します" is to talk.
        expected = ["私", "は", "日", "本", "語", "を", "話", "し", "ます"]
        self.assertEqual(words_of("私は日本語を話します"), expected)

    def test_joiners_are_no_boundaries_but_the_space_of_no_width(self):
        self.assertEqual(words_of("ไทย\u200bคำ"), ["ไทย", "คำ"])
        self.assertEqual(words_of("ខ្មែ\u200cរ"), ["ខ្មែរ"])

    def test_words_of_plain_text(self):
        text = "ไทย\u200bคำ, 話します"
        spans = words_of_text(text, splits_cjk=True, segmenter="icu")
        self.assertEqual(
            [text[start:end] for start, end in spans],
            ["ไทย\u200b", "คำ", ",", "話", "し", "ます"],
        )
        spans = words_of_text(text, splits_cjk=True)
        self.assertEqual(spans, [(0, 7), (8, 9), (9, 12)])

    def test_the_words_are_found_before_their_vowels_are_removed(self):
        # Thai vowels above and below are accents (Mn) to the original.
        self.assertEqual(words_of("ที่นี่", True), ["ท", "น"])

    def test_only_boundaries_are_added(self):
        draw = random.Random(0)
        alphabet = "".join(PHRASES.values()) + "".join(OTHER_TEXT) + "\u3099\u0e31"
        for _ in range(300):
            text = "".join(draw.choices(alphabet, k=draw.randrange(30)))
            parts = [text[start:end] for start, end in segments(text, "icu")]
            self.assertEqual("".join(parts), text)
            for run in text.split():
                for do_lower_case in (True, False):
                    aligned = align_words(run, do_lower_case, "icu")
                    found = [word for word, _ in aligned]
                    self.assertEqual(found, words_of(run, do_lower_case), repr(run))


@needs_icu
class TokenizerTest(tf.test.TestCase):
    """Ids: ภาษา 5, ไทย 6, ##ไทย 7, a 8."""

    def setUp(self):
        super().setUp()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        self.vocabulary = Vocabulary([*special, "ภาษา", "ไทย", "##ไทย", "a"])

    def tokenizer(self, **options):
        return WordPieceTokenizer(self.vocabulary, do_lower_case=False, **options)

    def test_ids_and_offsets(self):
        text = "a ภาษาไทย,ไทยa"
        self.assertEqual(self.tokenizer().encode(text), [8, 5, 7, 1, 1])
        tokenizer = self.tokenizer(segmenter="icu")
        for each in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
            self.assertEqual(each.encode(text), [8, 5, 6, 1, 6, 8])
            found = each.encode_with_offsets(text)
            self.assertEqual(found.ids, [8, 5, 6, 1, 6, 8])
            self.assertEqual(
                [text[start:end] for start, end in found.offsets],
                ["a", "ภาษา", "ไทย", ",", "ไทย", "a"],
            )

    def test_a_phrase_longer_than_a_word_may_be(self):
        text = "ภาษาไทย" * 30
        self.assertEqual(self.tokenizer().encode(text), [1])
        tokenizer = self.tokenizer(segmenter="icu")
        self.assertEqual(tokenizer.encode(text), [5, 6] * 30)

    def test_what_results_depend_on(self):
        without, with_one = self.tokenizer(), self.tokenizer(segmenter="icu")
        expected = {"vocabulary": self.vocabulary.sha256, "do_lower_case": False}
        self.assertEqual(without.settings, expected)
        self.assertEqual(with_one.settings, expected | {"segmenter": "icu"})

    def test_a_vocabulary_of_words(self):
        lines = ["ภาษาไทย ไทยภาษา"] * 5
        without, with_one = learned(lines, "none"), learned(lines, "icu")
        self.assertIn("ภาษาไทย", without)
        self.assertIn("ไทย", with_one)
        self.assertNotIn("ภาษาไทย", with_one)


def learned(lines, segmenter):
    return learn_vocabulary(
        lines,
        vocab_size=40,
        do_lower_case=False,
        segmenter=segmenter,
        fewer_tokens=True,
    )


class RefusalTest(tf.test.TestCase):
    def test_another_one(self):
        vocabulary = Vocabulary(["[UNK]"])
        with self.assertRaisesRegex(InputError, "one of none, icu. Received: 'mecab'"):
            WordPieceTokenizer(vocabulary, segmenter="mecab")

    def test_not_installed(self):
        with (
            mock.patch.object(importlib.util, "find_spec", return_value=None),
            self.assertRaisesRegex(InputError, r"pip install 'bert-tf\[segmenter\]'"),
        ):
            learned(["a"], "icu")
        # Nothing of it is needed without.
        learned(["a a"], "none")
