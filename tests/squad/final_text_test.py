import tensorflow as tf

from bert_tf.squad.final_text import align, get_final_text
from bert_tf.text.wordpiece import joined


class JoinedTest(tf.test.TestCase):
    def test_pieces_of_a_word_are_joined(self):
        self.assertEqual(
            joined(["the", "un", "##aff", "##able", "."]), "the unaffable ."
        )
        self.assertEqual(joined(["##able", "man"]), "able man")
        self.assertEqual(joined([]), "")


class GetFinalTextTest(tf.test.TestCase):
    def assert_found(self, token_text, words, text, do_lower_case=True):
        self.assertEqual(get_final_text(token_text, words, do_lower_case), text)
        self.assertEqual(align(token_text, words, do_lower_case).failure, "")

    def assert_all_words(self, token_text, words, failure, do_lower_case=True):
        self.assertEqual(get_final_text(token_text, words, do_lower_case), words)
        alignment = align(token_text, words, do_lower_case)
        self.assertEqual(alignment[:2], (0, len(words)))
        self.assertRegex(alignment.failure, failure)

    def test_what_hangs_on_the_words_falls_away(self):
        self.assert_found("steve smith", "Steve Smith's", "Steve Smith")
        self.assert_found("1895", "(1895-1943).", "1895")
        self.assert_found("1943", "(1895-1943).", "1943")
        self.assert_found("1895 - 1943", "(1895-1943).", "1895-1943")
        self.assert_found("$ 1 . 5", "of $1.5 .", "$1.5")
        self.assert_found("a b c", "a b c", "a b c")

    def test_pieces_of_words(self):
        self.assert_found("japan", "Japanese", "Japan")
        self.assert_found("ese", "Japanese", "ese")
        # The original takes the first of two: these could be the tokens of the last.
        self.assertEqual(align("an", "Banana", True), (1, 3, ""))

    def test_case_and_accents(self):
        self.assert_found("cafe beyonce", "«Café Beyoncé»", "Café Beyoncé")
        self.assert_found("Café", "(Café)", "Café", do_lower_case=False)
        self.assert_found("istanbul", "İstanbul's", "İstanbul")
        self.assert_found("οδος", "(ΟΔΟΣ)", "ΟΔΟΣ")
        self.assert_found("ﬁrst", "“ﬁrst”", "ﬁrst")

    def test_ideographs(self):
        self.assert_found("北 京", "在北京的", "北京")
        self.assert_found("京 2008", "(北京2008年)", "京2008")

    def test_where_characters_are_not_one_to_one_it_is_all_words(self):
        others = "other characters"
        # A combining accent is removed.
        self.assert_all_words("cafe", "(cafe\u0301)", others)
        self.assert_found("cafe\u0301", "(cafe\u0301)", "cafe\u0301", False)
        # A space that does not separate the original's words, and a soft hyphen.
        self.assert_all_words("10 km", "(10\u00a0km)", others)
        self.assert_all_words("cooperate", "co\u00adoperate.", others)
        # The syllable is three letters once it is decomposed.
        self.assert_all_words("\u1112\u1161\u11ab", "(한)", others)
        self.assert_found("한", "(한)", "한", do_lower_case=False)

    def test_tokens_that_are_not_in_the_words(self):
        self.assert_all_words("[UNK]", "(🜁)", "not in")
        self.assert_all_words("beyonce", "Beyoncé", "not in", do_lower_case=False)
        self.assert_all_words("", "all", "not in")


if __name__ == "__main__":
    tf.test.main()
