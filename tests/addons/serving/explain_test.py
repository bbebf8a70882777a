"""Explanations of `bert_tf.load`, and the command that prints and writes them."""

import html.parser
import os
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib import image

import bert_tf
from bert_tf.addons.serving import explain
from bert_tf.addons.serving.explanations import Explanation, Piece, Word, page
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import (
    BertClassifier,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

WORDS = ["film", "fine", "##ly", "made", ".", "who", "long", "the"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


class ExplainTest(FolderCase):
    def checkpoint(self, model, labels=None, kind=None, **flags):
        randomize(model)
        folder = runs.save(
            self.path("run"), model, tokens=TOKENS, labels=labels, problem_type=kind
        )
        if flags:
            self.write(f"{folder}/flags.json", flags)
        return folder

    def check(self, one, texts):
        """What every explanation is; returns its words."""
        self.assertEqual(one.texts, texts)
        self.assertLessEqual(one.gap, 0.01)
        total = sum(word.attribution for word in one.words)
        difference = one.score - one.baseline_score
        self.assertAllClose(total, difference, rtol=0.0101, atol=1e-4)
        for word in one.words:
            begin, end = word.span
            self.assertEqual(word.text, one.texts[word.part][begin:end])
            pieces = sum(piece.attribution for piece in word.pieces)
            self.assertAllClose(word.attribution, pieces)
        return [word.text for word in one.words]

    def test_of_a_pair_and_of_a_label(self):
        labels = ["bad", "good"]
        model = bert_tf.load(self.checkpoint(BertClassifier(toy.CONFIG, 2), labels))
        text, pair = "Finely  made.", "the film"
        (one,) = model.explain(text, pair)
        (said,) = model.predict([text], [pair])
        self.assertEqual(one.target, said.label)
        self.assertEqual(
            self.check(one, (text, pair)), ["Finely", "made", ".", "the", "film"]
        )
        self.assertEqual(one.words[0].pieces[1].token, "##ly")
        self.assertLen(one.tokens, 6)
        scores = {name: model.explain(text, pair, target=name)[0] for name in labels}
        logits = np.array([scores[name].score for name in labels])
        shares = np.exp(logits) / np.exp(logits).sum()
        self.assertAllClose(shares, [said.probabilities[name] for name in labels])
        # Of another baseline the score is the same.
        (other,) = model.explain(text, pair, baseline="[PAD]")
        self.assertAllClose(other.score, one.score)
        self.assertNotAllClose(other.baseline_score, one.baseline_score)
        for arguments, message in (
            ({"target": "none"}, "the labels are bad, good"),
            ({"baseline": "[NO]"}, "must be a token of the vocabulary"),
            ({"text": "  "}, "has no token"),
            ({"text": 3}, "Texts must be strings"),
        ):
            with self.assertRaisesRegex(InputError, message):
                model.explain(**{"text": text, **arguments})

    def test_of_several_labels_and_of_numbers(self):
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 1))
        (one,) = bert_tf.load(folder).explain("fine film")
        self.assertAllClose(
            one.score, bert_tf.load(folder).predict("fine film")[0].label
        )
        shutil.rmtree(folder)
        kind = {"problem_type": MULTI_LABEL}
        model = BertClassifier(toy.CONFIG, 3, **kind)
        model = bert_tf.load(self.checkpoint(model, ["a", "b", "c"], MULTI_LABEL))
        text = "film made long the the"
        likely = [one.target for one in model.explain(text)]
        self.assertEqual(tuple(likely), model.predict(text)[0].label)

    def test_long_texts(self):
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 2), max_seq_length=8)
        text = "film " * 20
        with self.assertLogs(level="WARNING"):
            (one,) = bert_tf.load(folder).explain(text)
        self.assertLen(one.words, 6)
        self.assertIn("<small> film film", one._repr_html_())
        self.write("run/flags.json", {"long_text": "window", "max_seq_length": 8})
        with self.assertRaisesRegex(InputError, "6 tokens fit into one, and it has 20"):
            bert_tf.load(folder).explain(text)

    def test_of_a_model_that_reads_windows_at_once(self):
        model = BertClassifier(toy.CONFIG, 2, window_pooling="attention")
        flags = {"long_text": "window", "window_pooling": "attention"}
        model = bert_tf.load(self.checkpoint(model, **flags))
        (one,) = model.explain("fine film")
        self.check(one, ("fine film",))

    def test_of_an_answer(self):
        flags = {"max_seq_length": 12, "max_query_length": 3, "doc_stride": 3}
        folder = self.checkpoint(BertSpanPredictor(toy.CONFIG), **flags)
        model = bert_tf.load(folder)
        context = "the film made. long the film who film. finely made the who long."
        (one,) = model.explain("who made film", context)
        ((answer,),) = model.answer("who made film", context)
        self.assertEqual(one.target, answer.text)
        self.check(one, ("who made film", context))
        in_context = [word.span for word in one.words if word.part == 1]
        self.assertLess(len(in_context), 12)  # one window's
        self.assertContainsSubset([answer.span[0]], [start for start, _ in in_context])
        self.write(
            "run/flags.json",
            {
                **flags,
                "version_2_with_negative": True,
                "null_score_diff_threshold": -1e6,
            },
        )
        (none,) = bert_tf.load(folder).explain("who made film", context)
        self.assertEqual(none.target, "no answer")
        with self.assertRaisesRegex(InputError, "explains the best answer"):
            model.explain("who made film", context, target="film")

    def test_of_words(self):
        labels = ["O", "B-A", "I-A"]
        folder = self.checkpoint(BertTagger(toy.CONFIG, 3), labels, max_seq_length=9)
        model = bert_tf.load(folder)
        text = "Finely made  \u00ad film long the who the film long ."
        (tagged,) = model.tag(text)
        found = model.explain(text)
        wanted = [
            f"{word} ({number}): {label}"
            for number, (word, label) in enumerate(
                zip(tagged.words, tagged.labels, strict=True)
            )
            if label != "O"
        ]
        self.assertEqual([one.target for one in found], wanted)
        self.assertNotEmpty(wanted)
        for one in found:
            words = self.check(one, (text,))
            self.assertIn(one.target.partition(" ")[0], words)
            self.assertLess(len(words), 10)  # a window's
        (first,) = model.explain(tagged.words, target=0)
        self.assertEqual(first.words[0].text, "Finely")
        for target in (11, "film", -1):
            with self.assertRaisesRegex(
                InputError, "the number of a word, from 0 to 10"
            ):
                model.explain(text, target=target)
        # Characters of the text, of words with blanks between them.
        for given in (text, tagged.words):
            (one,) = model.tag([given])
            whole = given if given is text else " ".join(given)
            self.assertEqual(tuple(whole[a:b] for a, b in one.spans), one.words)
            for entity in one.entities:
                start, end = entity.characters
                self.assertEqual(" ".join(whole[start:end].split()), entity.text)

    def test_of_other_heads(self):
        model = bert_tf.load(self.checkpoint(BertPretrainer(toy.CONFIG)))
        with self.assertRaisesRegex(
            InputError, "has `fill` and `embed`, not `explain`"
        ):
            model.explain("film")

    def test_the_command(self):
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 2), ["bad", "<good>"])
        path = self.path("why.html")
        said = printed(
            explain,
            f"--checkpoint={folder}",
            f"--output_file={path}",
            "Finely made. ||| a <b>film</b>",
            "long",
            "--target=<good>",
        )
        self.assertRegex(said, r"(?m)^ +[+-]\d\.\d{4}  Finely  [+-]+$")
        self.assertRegex(said, r"(?m)^ +[+-]\d\.\d{4}  ##ly$")
        self.assertRegex(said, r"attributions sum to -?\d.\d+, \d\.\d+% from the")
        content = self.read("why.html")
        self.assertNotIn("<script", content)
        self.assertNotRegex(content, "https?:|src=|url\\(|@import")
        self.assertIn("&lt;good&gt;", content)
        self.assertEqual(visible(content).count("<b>film</b>"), 1)
        with self.assertRaisesRegex(InputError, "Give a text"):
            printed(explain, f"--checkpoint={folder}")


def visible(content):
    parser = html.parser.HTMLParser()
    texts = []
    parser.handle_data = texts.append
    parser.feed(content)
    return "".join(texts)


def example():
    """An explanation with strong, weak and negative words, and one not read."""
    said = "Une œuvre d’une rare finesse, trop longue & lente. [cut]"
    shares = {"Une": 0.0, "œuvre": 0.4, "rare": 1.0, "finesse": 2.0, "longue": -1.5}
    words = []
    for text, value in shares.items():
        start = said.index(text)
        pieces = (Piece(text[:2], value / 2), Piece(f"##{text[2:]}", value / 2))
        words.append(Word(text, value, (start, start + len(text)), 0, pieces))
    return Explanation("positif", (said,), tuple(words), 2.4, 0.5, 0.001, 16)


class PageTest(FolderCase):
    def test_what_counts_for_and_against(self):
        content = page([example()], "<t>")
        self.assertIn("<title>&lt;t&gt;</title>", content)
        self.assertIn('rgba(33,102,172,0.75)" title="+2.0000">finesse<', content)
        self.assertIn('rgba(224,130,20,0.56)" title="-1.5000">longue<', content)
        self.assertIn("<small> &amp; lente. [cut]</small>", content)

    @pytest.mark.slow
    def test_in_a_browser(self):
        names = ("chromium-headless-shell", "chromium", "chromium-browser", "chrome")
        browser = next(filter(None, map(shutil.which, names)), None)
        if browser is None:
            self.skipTest(
                "there is no Chromium: apt-get install chromium-headless-shell"
            )
        source = self.write("why.html", page([example()] * 2, "why"))
        picture = self.path("why.png")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--log-level=3",
        ]
        done = subprocess.run(
            [
                *command,
                "--window-size=900,700",
                f"--screenshot={picture}",
                f"file://{source}",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertTrue(os.path.exists(picture), done.stderr)
        pixels = (image.imread(picture)[..., :3] * 255).round().astype(int)
        colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
        there = {
            tuple(c) for c, n in zip(colours.tolist(), counts, strict=True) if n > 200
        }
        # 0.75 of the two colours, on white.
        self.assertIn((89, 140, 193), there)
        self.assertTrue(any(r > 200 and g > 120 and b < 160 for r, g, b in there))
