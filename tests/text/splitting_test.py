import itertools
import random
import string
from unittest import mock

import sentencex
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.text import documents
from bert_tf.text.documents import LANGUAGES, RULES, language_code, sentence_splitter

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


real = sentencex.segment


def letters(text):
    return "".join(text.split())


class SentencesTest(tf.test.TestCase):
    def test_by_hand(self):
        for language, *expected in (
            (
                "en",
                "Mr. Smith paid $3.50.",
                "He left!",
                "Did J. R. R. Tolkien?",
                "Yes.",
            ),
            ("en", "no end"),
            ("ja", "日本語です。", "はい。"),
            ("hi", "यह एक है।", "वह दो है।"),
            # Ends that sentencex does not know.
            ("km", "មនុស្សទាំងអស់។", "ចប់ហើយ៕", "ទៀត។"),
            ("bo", "འགྲོ་བ་མིའི།", "ཐོབ་ཐང་། །", "དགོས།"),
            ("en",),
            ("",),
        ):
            blank = "" if language == "ja" else "  "
            found = sentence_splitter(language)(blank.join(expected))
            self.assertEqual([*found], expected)
        self.assertEqual(sentence_splitter("en")("One.\n\nTwo."), ["One.", "Two."])
        # No language, no split.
        self.assertEqual(sentence_splitter("")("One. Two."), ("One. Two.",))

    def test_nothing_is_lost(self):
        chance = random.Random(1)
        for _ in range(1000):
            pieces = chance.choices(PIECES, k=chance.randrange(1, 20))
            text = "".join(pieces).strip()
            language = chance.choice(["en", "de", "fr", "ja", "hi", "ru", "ar", "zh"])
            found = sentence_splitter(language)(text)
            self.assertEqual(letters("".join(found)), letters(text))
            for sentence in found:
                self.assertTrue(sentence)
                self.assertEqual(sentence, sentence.strip())

    def test_a_long_text_through_a_window_as_the_whole(self):
        chance = random.Random(1)
        words = [
            "語Mr.",
            "語e.g.",
            "3.14",
            "Word",
            "...",
            "(Go. On.)",
            "．",
            "《Go. On.》",
        ]
        words += [
            "「はい。」",
            "これは",
            "語",
            "é",
            "。",
            "！",
            "?",
            "。",
            "၏",
            "。",
            "ཅ།",
        ]
        for language in ("en", "de", "ja", "zh", "my", "bo"):
            text = "".join(chance.choices(words, k=3000))
            split = sentence_splitter(language)
            expected = split(text)
            self.assertGreater(len(expected), 200)
            for window in (1 << 8, 1000):
                with mock.patch.multiple(documents, _WINDOW=window, _LONG_WORD=0):
                    self.assertEqual(split(text), expected, language)
        # No sentence ends in the window: it grows.
        long = "語" * 20000 + "。"
        self.assertEqual(
            sentence_splitter("ja")(long * 2 + "語。"), [long, long, "語。"]
        )

    def test_sentencex_is_shown_a_bounded_piece(self):
        text, seen = "これは文です。" * 5000, []
        with mock.patch.object(
            sentencex, "segment", lambda _, piece: seen.append(piece) or real(_, piece)
        ):
            found = sentence_splitter("ja")(text)
        self.assertEqual(found, ["これは文です。"] * 5000)
        self.assertLess(max(map(len, seen)), 10000)
        self.assertLess(sum(map(len, seen)), 3 * len(text))


# Each with a word before its period that only some languages know as an abbreviation,
# or an end of a sentence in some only.
PROBES = (
    *("Mr. A", "ም. A", "ا.د. A", "Ал. A", "ঈ. A", "Bd. A", "Zt. A", "Γ. A", "Cv. A"),
    *("Å. A", "Éd. A", "ઈ. A", "ई. A", "Cod. proc. civ. A", "Т.с.с. A", "ಈ. A"),
    *("എ. A", "2d. A", "ਈ. A", "Np. A", "Exo. A", "Ж. A", "Č. A", "ஈ. A", "ఈ. A"),
    *("Б. A", "a: A", "a၏ A"),
)


class LanguagesTest(tf.test.TestCase):
    def test_the_list_is_that_of_sentencex(self):
        def seen(code):
            return tuple(len(sentencex.segment(code, probe)) for probe in PROBES)

        by_rules = {}
        for code in RULES:
            by_rules.setdefault(seen(code), []).append(code)
        # The probes cannot tell these apart.
        same = [codes for codes in by_rules.values() if len(codes) > 1]
        self.assertEqual(same, [["en", "ja"], ["hi", "mr"]])
        rules_of = {
            code: seen(rules) for rules, codes in RULES.items() for code in codes
        }
        # A code that sentencex does not know has the English rules.
        for length in (2, 3):
            for letters in itertools.product(string.ascii_lowercase, repeat=length):
                code = "".join(letters)
                self.assertEqual(seen(code), rules_of.get(code, rules_of["en"]), code)
        self.assertEqual(len(LANGUAGES), len(set(LANGUAGES)))

    def test_codes(self):
        for given, code in (
            ("DE", "de"),
            (" de-AT", "de"),
            ("zh_Hans", "zh"),
            ("th", "th"),
        ):
            self.assertEqual(language_code(given), code)
        for given, near in (
            ("deu", "such as de;"),
            ("xx", "such as am, .* uk"),
            ("", "such as am"),
        ):
            with self.assertRaisesRegex(
                InputError, f"`language={given}` must .*{near}"
            ):
                language_code(given)


if __name__ == "__main__":
    tf.test.main()
