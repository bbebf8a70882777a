import numpy as np

from bert_tf import run_ner
from bert_tf.base.errors import InputError
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.tasks import finetuning
from bert_tf.tasks.tagging import words
from bert_tf.tasks.tagging.sentence_windows import NO_LABEL
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.word_predictions import WordPredictions
from tests.script_case import ScriptCase

TRAIN = "ann I-PER\nlee I-PER\nann B-PER\n\nand O\nann I-PER\n"


class WordsTest(ScriptCase):
    script = run_ner
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "lee", "and")

    def words(self, *arguments, text=TRAIN):
        path = self.write("train.txt", text)
        files = {"train_file": path, "dev_file": path}
        options = self.flags(*arguments, max_seq_length=6, **files)
        found = finetuning.files_of(options, options.output_dir)
        return words.TaggingTask(options, found, None)

    def test_labels_are_of_the_scheme_that_the_files_are_read_in(self):
        # 0 is O, 1 B-PER and 2 I-PER.
        for arguments, expected in (
            ([], [[1, 2, 1], [0, 1, 0]]),
            (["--tag_scheme=iob2"], [[2, 2, 1], [0, 2, 0]]),
        ):
            (batch,) = self.words("--do_train", *arguments).records("train").batches(2)
            self.assertAllEqual(batch["label_ids"][:, 1:4], expected)

    def test_other_spellings_of_labels(self):
        found = self.words("--do_train", text="ann b-per\nlee i-per\nand 0\n")
        self.assertEqual(found.labels, ("O", "B-per", "I-per"))
        self.assertEqual(found.scheme, "iob2")
        # A model that was trained on them as they are written keeps them.
        asked = "--do_eval", "--labels=0,b-per,i-per"
        found = self.words(*asked, text="ann b-per\nlee i-per\nand 0\n")
        self.assertEqual(found.splits["dev"][0].labels, ("b-per", "i-per", "0"))

    def test_what_the_training_words_were_like_is_read_beside_the_labels(self):
        text = "ann I-PER\n東京 O\n"
        found = self.words("--do_train", text=text)
        self.assertEqual(found.trained, TrainedWords(longest=2, splits_cjk=False))
        asked = "--do_eval", "--labels=O,I-PER"
        self.assertEqual(self.words(*asked, text=text).trained, TrainedWords())
        found.prepare(self.path("run"))
        self.assertEqual(self.words(*asked, text=text).trained, found.trained)
        self.assertEqual(self.words(*asked, text=text).featurizer.longest_word, 2)

    def test_sentences_that_are_no_columns(self):
        text = "ann and lee\nlee and ann\n"
        with self.assertRaisesRegex(InputError, "train.txt:1: the model has none of"):
            self.words("--do_eval", "--labels=O,B-PER,I-PER", text=text)

    def test_a_loss_over_no_words_is_absent(self):
        found = self.words("--do_eval", "--labels=O,B-PER,I-PER")
        found._label_ids["dev"][:] = NO_LABEL
        predictions = WordPredictions(np.zeros(5, np.int64), *np.zeros((2, 5)))
        self.assertNotIn("loss", found.score("dev", predictions))

    def test_scores_are_those_of_what_is_written(self):
        """An entity without a B is right in IOB1, and is written so."""
        found = self.words("--do_eval", "--labels=O,B-PER,I-PER")
        self.assertEqual(found.scheme, "iob2")
        # I I B, O I: the same entities as in the file; strictly read one is none.
        predictions = WordPredictions(np.array([2, 2, 1, 0, 2]), *np.zeros((2, 5)))
        results = found.score("dev", predictions)
        self.assertEqual(
            [results[name] for name in ("accuracy", "majority", "f1")],
            [1.0, 3 / 5, 1.0],
        )
        self.assertLess(results["strict_f1"], 1.0)
        self.assertNotIn("f1_macro", results)
        asked = "--do_eval", "--labels=O,B-PER,I-PER", "--best_metric=f1_macro"
        self.assertEqual(self.words(*asked).score("dev", predictions)["f1_macro"], 1.0)
        expected = [["I-PER", "I-PER", "B-PER"], ["O", "I-PER"]]
        self.assertEqual(found.predicted_labels("dev", predictions), expected)
        self.assertIn("accuracy: 100.00%", found.report("dev", predictions))

    def test_the_digest_tells_sentences_apart(self):
        def sentence(words, labels=None, document=0):
            return Sentence.of_words(words, labels, document=document, source="")

        rows = [
            [sentence(["a", "b"])],
            [sentence(["a"]), sentence(["b"])],
            [sentence(["a", "b"], document=1)],
            [sentence(["a", "b"], ["x", "y"])],
        ]
        self.assertLen({words.digest(one) for one in rows}, 4)
