import lzma
import os
from collections import Counter

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.sources import make_chunks
from bert_tf.text.word_counts import WordCounts, count_words


class WordCountsTest(tf.test.TestCase):
    def test_words_are_the_tokenizers(self):
        counts = WordCounts()
        counts.add_lines(["Né né,\tne\x0bx", "n\u2028中e\u0301"], do_lower_case=True)
        self.assertEqual(
            counts.words, {"ne": 2, ",": 1, "nex": 1, "n": 1, "中": 1, "e": 1}
        )
        self.assertEqual(counts.num_occurrences, 7)
        self.assertEqual(
            counts.characters(),
            {"n": 4, "e": 4, ",": 1, "x": 1, "中": 1},
        )

    def test_the_rarest_words_are_forgotten(self):
        counts = WordCounts(max_words=6)
        counts.add_lines(["a a a a b b b c c d e f"], False)
        self.assertLen(counts.words, 6)
        self.assertEqual((counts.num_forgotten, counts.max_error), (0, 0))
        counts.add_lines(["g"], False)
        # At most three are left: d, e, f and g go, and that is enough.
        self.assertEqual(counts.words, {"a": 4, "b": 3, "c": 2})
        self.assertEqual((counts.num_forgotten, counts.max_error), (4, 1))

        counts.add_lines(["c g g h h i i"], False)
        self.assertEqual(counts.words, {"a": 4, "b": 3, "c": 3, "g": 2, "h": 2, "i": 2})
        other = WordCounts(max_words=3)
        other.add_lines(["j a a x y"], False)
        # j, x and y: one word less would be enough, but none is rarer than another.
        self.assertEqual(other.words, {"a": 2})
        counts.add(other)
        self.assertLen(counts.words, 6)
        self.assertEqual((counts.num_forgotten, counts.max_error), (7, 2))
        last = WordCounts()
        last.add_lines(["b c k"], False)
        counts.add(last)
        # k goes, then g, h and i with it.
        self.assertEqual(counts.words, {"a": 6, "b": 4, "c": 4})
        self.assertEqual((counts.num_forgotten, counts.max_error), (14, 4))
        # What was counted is still the text.
        self.assertEqual(counts.num_occurrences, 28)
        self.assertEqual(
            counts.characters(),
            Counter("aaaabbbccdef" + "g" + "cgghhii" + "jaaxy" + "bck"),
        )


class CountWordsTest(tf.test.TestCase):
    def write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def test_any_number_of_workers_and_chunks(self):
        text = "".join(
            f"Word{number % 7} and {number}.\n" + "\n" * (number % 3 == 0)
            for number in range(400)
        )
        paths = [
            self.write("plain.txt", text.encode()),
            self.write("packed.txt.xz", lzma.compress(b"and then, AND")),
        ]
        wanted = {f"word{rest}": 400 // 7 + (rest < 1) for rest in range(7)}
        wanted |= {str(number): 1 for number in range(400)}
        wanted |= {"and": 402, "then": 1, ".": 400, ",": 1}
        for chunk_bytes, num_workers in ((1 << 20, 1), (700, 1), (700, 2)):
            chunks = make_chunks(paths, split_sentences=False, chunk_bytes=chunk_bytes)
            seen = []
            counts, dropped = count_words(
                chunks,
                do_lower_case=True,
                num_workers=num_workers,
                progress=seen.append,
            )
            self.assertEqual(counts.words, wanted)
            self.assertEqual(dropped, {})
            self.assertEqual(sum(seen), sum(map(os.path.getsize, paths)))
            self.assertLen(seen, len(chunks))

    def test_forgetting_does_not_depend_on_workers(self):
        lines = [f"common word{n} word{n // 2}\n\n" for n in range(3000)]
        path = self.write("many.txt", "".join(lines).encode())
        chunks = make_chunks([path], split_sentences=False, chunk_bytes=5000)
        one, two = (
            count_words(
                chunks, do_lower_case=True, max_words=500, num_workers=num_workers
            )[0]
            for num_workers in (1, 2)
        )
        self.assertEqual(one.words, two.words)
        self.assertEqual(one.words["common"], 3000)
        self.assertEqual(one.num_forgotten, two.num_forgotten)
        self.assertGreater(one.num_forgotten, 0)
        self.assertLessEqual(len(one.words), 500)
        self.assertEqual(one.num_occurrences, 9000)

    def test_not_utf_8(self):
        path = self.write("latin.txt", b"caf\n\ncaf\xe9\n")
        with self.assertRaisesRegex(InputError, "latin.txt:3: not UTF-8"):
            count_words(make_chunks([path]), do_lower_case=True)


if __name__ == "__main__":
    tf.test.main()
