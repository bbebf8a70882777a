import contextlib
import os
import pathlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.addons.serving import runtimes
from bert_tf.addons.serving.fill_mask import fill_masks
from bert_tf.addons.serving.saved_model import head_to_serve, write_saved_model
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, names
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, Example, Target
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.text.normalization import words_of_text
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.conversion import export_test
from tests.modeling.examples import small_config
from tests.processes import run_python

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "##s", "##ning", "?", ",", "."]
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
TOKENIZER = WordPieceTokenizer(VOCABULARY, recognize_special_tokens=True)
CONFIG = small_config(
    vocab_size=len(VOCABULARY), max_position_embeddings=16, num_hidden_layers=1
)
LENGTH = 12


class ServingTestCase(export_test.ExportTestCase):
    def served(
        self, model, labels=None, problem_type=None, is_saved=False, seed=7, **options
    ):
        """The signatures of a randomized model, of its SavedModel if it is saved."""
        source = self.serving_source(model, labels, problem_type, seed=seed)
        self.folder = os.path.join(self.get_temp_dir(), "saved_model")
        with contextlib.ExitStack() as stack:
            for module, name in (
                ((tf.saved_model, "save"), (runtimes, "check")) if not is_saved else ()
            ):
                stack.enter_context(mock.patch.object(module, name))
            arguments = self.folder, source, head_to_serve(source)
            reading = Reading(max_seq_length=LENGTH, **options)
            signatures = write_saved_model(*arguments, reading)
        if is_saved:
            # Signatures hang on the object.
            self.loaded = tf.saved_model.load(self.folder)
            signatures = self.loaded.signatures
        return signatures

    def serving_source(self, model, labels=None, problem_type=None, **options):
        files = {"config": CONFIG, "tokens": VOCABULARY.tokens, **options}
        return self.source(model, labels=labels, problem_type=problem_type, **files)

    def assert_close(self, actual, expected):
        self.assertAllClose(actual, expected, rtol=1e-5, atol=1e-5)

    def batch(self, pairs):
        """The model's inputs, made record by record as for training."""
        examples = [Example(a, b, None, "test") for a, b in pairs]
        target = Target(kind=REGRESSION)
        make = TextFeaturizer(TOKENIZER, max_seq_length=LENGTH, target=target)
        (block,) = make.blocks(examples)
        names = ("input_ids", "input_mask", "segment_ids")
        return {name: block[name].astype(np.int32) for name in names}


PAIRS = (
    ("The cat sat.", "Dogs ran?"),
    ("cats", ""),
    ("the cat sat on the mat , the dog ran .", "the cat sat on the mat the dogs ran"),
    ("", "running unseen"),
)


class ClassifierTest(ServingTestCase):
    def test_pairs_and_texts(self):
        model = BertClassifier(CONFIG, 3)
        signatures = self.served(model, ["no", "yes", "maybe"], is_saved=True)
        expected = model(self.batch(PAIRS), training=False)["logits"]
        text_a, text_b = (tf.constant(column) for column in zip(*PAIRS, strict=True))
        outputs = signatures["serving_default"](text_a=text_a, text_b=text_b)
        self.assert_close(outputs["logits"], expected)
        self.assertAllClose(tf.reduce_sum(outputs["probabilities"], 1), np.ones(4))
        words = np.array([b"no", b"yes", b"maybe"])
        self.assertAllEqual(outputs["label"], words[np.argmax(expected, 1)])
        alone = signatures["one_text"](text_a=text_a[:2])["logits"]
        expected = model(self.batch([(a, "") for a, _ in PAIRS[:2]]), training=False)
        self.assert_close(alone, expected["logits"])
        ids = {name: tf.constant(x) for name, x in self.batch(PAIRS[:1]).items()}
        by_ids = signatures["tensors"](**ids)
        self.assert_close(by_ids["logits"], outputs["logits"][:1])
        # Nothing calls back to Python: what loads here does without this package.
        graph = saved_model_pb2.SavedModel()
        graph.ParseFromString(pathlib.Path(self.folder, "saved_model.pb").read_bytes())
        for function in graph.meta_graphs[0].graph_def.library.function:
            self.assertEmpty([n.op for n in function.node_def if "PyFunc" in n.op])
        # Each weight is there once.
        path = os.path.join(self.folder, "variables", "variables")
        stored = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        number = sum(key.endswith("VARIABLE_VALUE") for key in stored)
        self.assertEqual(number, len(model.weights))

    @pytest.mark.slow
    def test_it_needs_tensorflow_and_tensorflow_text_alone(self):
        self.served(BertClassifier(CONFIG, 3), ["no", "yes", "maybe"], is_saved=True)
        program = (
            "import sys, tensorflow as tf, tensorflow_text\n"
            "m = tf.saved_model.load(sys.argv[1]).signatures['one_text']\n"
            "print(m(text_a=tf.constant(['the cat']))['label'].numpy()[0].decode())\n"
            "bad = [n for n in ('keras_hub', 'bert_tf') if n in sys.modules]\n"
            "assert not bad, bad\n"
        )
        done = run_python("-c", program, self.folder, TF_CPP_MIN_LOG_LEVEL="3")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertIn(done.stdout.strip(), ("no", "yes", "maybe"))

    def test_numbers(self):
        for number, name in ((1, "score"), (2, "scores")):
            model = BertClassifier(CONFIG, number, problem_type=REGRESSION)
            told = {"problem_type": REGRESSION} if number > 1 else {}
            signatures = self.served(model, ["x", "y"][: number if told else 0], **told)
            outputs = signatures["one_text"](text_a=tf.constant(["the cat"]))
            self.assertEqual(list(outputs), [name])
            expected = model(self.batch([("the cat", "")]), training=False)["logits"]
            self.assert_close(tf.reshape(outputs[name], [1, number]), expected)
            self.assertEqual(outputs[name].shape, (1, 2) if told else (1,))

    def test_several_labels(self):
        model = BertClassifier(CONFIG, 3, problem_type=MULTI_LABEL)
        names = ["cats", "dogs", "mats"]
        # With these weights some rows have one label and some two.
        signatures = self.served(model, names, problem_type=MULTI_LABEL, seed=23)
        texts = [" ".join(WORDS[i : i + 3]) for i in range(9)]
        outputs = signatures["one_text"](text_a=tf.constant(texts))
        batch = self.batch([(text, "") for text in texts])
        logits = np.array(model(batch, training=False)["logits"])
        self.assertAllClose(outputs["logits"], logits, rtol=1e-3, atol=1e-3)
        logits = outputs["logits"].numpy()
        self.assertAllClose(outputs["probabilities"], 1 / (1 + np.exp(-logits)))
        expected = [[*np.array(names)[row > 0]] for row in logits]
        self.assertGreater(len({len(row) for row in expected}), 1)
        labels = outputs["labels"].numpy().tolist()
        found = [[name.decode() for name in row if name] for row in labels]
        self.assertEqual(found, expected)


class FeaturesTest(ServingTestCase):
    def test_tokens_and_their_vectors(self):
        model = BertEncoder(CONFIG)
        signatures = self.served(model)
        text_a, text_b = (tf.constant(column) for column in zip(*PAIRS, strict=True))
        outputs = signatures["serving_default"](text_a=text_a, text_b=text_b)
        batch = self.batch(PAIRS)
        expected = model(batch, training=False)
        length = outputs["input_mask"].shape[1]
        self.assertAllEqual(outputs["input_mask"], batch["input_mask"][:, :length])
        real = batch["input_mask"][:, :length, None]
        states = expected["sequence_output"][:, :length] * real
        self.assert_close(outputs["sequence_output"] * real, states)
        self.assert_close(outputs["mean_output"], np.sum(states, 1) / real.sum(1))
        self.assert_close(outputs["pooled_output"], expected["pooled_output"])
        tokens = [t.decode() for t in outputs["tokens"].numpy()[1]]
        self.assertEqual(tokens[:5], ["[CLS]", "cat", "##s", "[SEP]", ""])


class FillMaskTest(ServingTestCase):
    def test_the_scripts_guesses(self):
        model = BertPretrainer(CONFIG)
        signatures = self.served(model)
        texts = ["the [MASK] sat on the [MASK]", "no blank", "[MASK]s"]
        outputs = signatures["top_k"](text_a=tf.constant(texts), top_k=tf.constant(3))
        self.assertAllEqual(outputs["num_masks"], [2, 0, 1])
        self.assertEqual(outputs["tokens"].shape, (3, 2, 3))
        for row, text in ((0, texts[0]), (2, texts[2])):
            (guesses,) = fill_masks(model, TOKENIZER, [text], top_k=3)
            for mask, guess in enumerate(guesses):
                tokens = [t.decode() for t in outputs["tokens"].numpy()[row, mask]]
                self.assertEqual(tokens, [g.token for g in guess])
                self.assertAllClose(
                    outputs["probabilities"][row, mask],
                    [g.probability for g in guess],
                    rtol=1e-4,
                )
        self.assertAllEqual(outputs["tokens"][1], [[b""] * 3] * 2)


class MultipleChoiceTest(ServingTestCase):
    def test_choices(self):
        model = BertMultipleChoice(CONFIG)
        signatures = self.served(model)
        contexts = ["the cat", "the dog ran"]
        endings = [["sat .", "ran on", "dogs"], ["?", "on the mat", "cats"]]
        outputs = signatures["serving_default"](
            text_a=tf.constant(contexts), text_b=tf.constant(endings)
        )
        rows = zip(contexts, endings, strict=True)
        pairs = [(context, ending) for context, row in rows for ending in row]
        batch = {name: x.reshape(2, 3, LENGTH) for name, x in self.batch(pairs).items()}
        expected = model(batch, training=False)["logits"]
        self.assert_close(outputs["logits"], expected)
        self.assertAllEqual(outputs["choice"], np.argmax(expected, 1))


class TaggerTest(ServingTestCase):
    def test_a_words_first_piece_has_its_label(self):
        model = BertTagger(CONFIG, 3)
        signatures = self.served(model, ["O", "B", "I"])
        # The text has a window more than the ten tokens that there is room for; the
        # tokenizer removes a word, and a word has a blank that is not ASCII after it.
        text = "cats  running on \u00ad the mat .\u3000the dog ran far away"
        outputs = signatures["serving_default"](text_a=tf.constant([text, "dog"]))
        unknown = TOKENIZER.vocabulary.unk_id
        tokens, places = [], []
        for word in text.split():
            places.append(len(tokens))
            tokens += TOKENIZER.encode(word) or [unknown]
        self.assertEqual(places, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
        # The second window is moved back to begin at the fourth token; of the tokens
        # that both have, those from the seventh on have more context in it.
        logits = []
        for part in (tokens[:10], tokens[3:]):
            cls_id, sep_id = TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
            batch = {
                "input_ids": np.array([[cls_id, *part, sep_id]]),
                "input_mask": np.ones((1, LENGTH), np.int32),
                "segment_ids": np.zeros((1, LENGTH), np.int32),
            }
            logits.append(model(batch, training=False)["logits"][0, 1:-1].numpy())
        expected = [logits[1][i - 3] if i > 6 else logits[0][i] for i in places]
        labels = np.array([b"O", b"B", b"I"])[np.argmax(expected, 1)]
        self.assertAllEqual(outputs["words"][0], [w.encode() for w in text.split()])
        self.assertAllEqual(outputs["label"][0], labels)
        self.assertAllEqual(outputs["label"][1, 1:], [b""] * 11)
        self.assertAllClose(
            outputs["probabilities"][0], tf.nn.softmax(expected), rtol=1e-4
        )
        by_words = signatures["words"](words=tf.constant([text.split()]))
        self.assertAllEqual(by_words["label"][0], outputs["label"][0])

    def test_text_without_spaces(self):
        text = "他1的\U00020000。 カ。cat a-b$<c_d>|e~"
        for (splits, punctuation), words in (
            (
                (True, False),
                ["他", "1", "的", "\U00020000", *text.split("\U00020000")[1].split()],
            ),
            ((False, False), text.split()),
            (
                (False, True),
                ["他1的\U00020000", "。", "カ", "。", "cat", *"a-b$<c_d>|e~"],
            ),
        ):
            trained = TrainedWords(splits_cjk=splits, splits_punctuation=punctuation)
            signatures = self.served(BertTagger(CONFIG, 3), words=trained)
            found = signatures["serving_default"](text_a=tf.constant([text]))
            self.assertAllEqual(found["words"][0], [word.encode() for word in words])
            spans = words_of_text(
                text, splits_cjk=splits, splits_punctuation=punctuation
            )
            self.assertEqual([text[start:end] for start, end in spans], words)


class SpanTest(ServingTestCase):
    def best_span(self, model, question, context, stride, most):
        """The best answer, window by window and pair by pair, as run_squad reads it."""
        query = TOKENIZER.encode(question)
        encoding = TOKENIZER.encode_with_offsets(context)
        room = LENGTH - 3 - len(query)
        starts, start = [], 0
        while True:
            starts.append(start)
            if start + room >= len(encoding.ids):
                break
            start += min(room, stride)
        windows = [(s, min(room, len(encoding.ids) - s)) for s in starts]
        cls_id, sep_id = TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        best, null = None, None
        for number, (start, size) in enumerate(windows):
            part = encoding.ids[start : start + size]
            ids = [cls_id, *query, sep_id, *part, sep_id]
            batch = {
                "input_ids": np.array([ids]),
                "input_mask": np.ones((1, len(ids)), np.int32),
                "segment_ids": np.array([[0] * (len(query) + 2) + [1] * (size + 1)]),
            }
            outputs = model(batch, training=False)
            s, e = (outputs[name].numpy()[0] for name in ("start_logits", "end_logits"))
            null = min(s[0] + e[0], null) if null is not None else s[0] + e[0]
            for i in range(size):
                token = start + i
                worth = [
                    min(token - other, other + n - 1 - token) + 0.01 * n
                    if other <= token < other + n
                    else -1
                    for other, n in windows
                ]
                if worth.index(max(worth)) != number:
                    continue
                for j in range(i, min(i + most, size)):
                    score = s[i + len(query) + 2] + e[j + len(query) + 2]
                    if best is None or score > best[0]:
                        begin = encoding.offsets[token][0]
                        end = encoding.offsets[start + j][1]
                        best = (score, context[begin:end], begin, end)
        return best, null

    def test_windows_and_answers(self):
        model = BertSpanPredictor(CONFIG)
        signatures = self.served(
            model, doc_stride=3, max_query_length=4, max_answer_length=3
        )
        questions = ["the cat ?", "dog", "?", "the cat sat on the mat"]
        contexts = [
            "The cat sat on the mat. Dogs ran, cats ran.  The dog sat on the mat .",
            "cats",
            "the dogs, ünseen ran on the mat",
            "the dog",
        ]
        outputs = signatures["serving_default"](
            question=tf.constant(questions), context=tf.constant(contexts)
        )
        questions[3] = "the cat sat on"
        for row, pair in enumerate(zip(questions, contexts, strict=True)):
            (score, answer, begin, end), null = self.best_span(model, *pair, 3, 3)
            self.assertAllClose(outputs["score"][row], score, rtol=1e-4, atol=1e-4)
            self.assertAllClose(outputs["null_score"][row], null, rtol=1e-4, atol=1e-4)
            self.assertEqual(outputs["answer"].numpy()[row].decode(), answer)
            self.assertEqual(outputs["start"].numpy()[row], begin)
            self.assertEqual(outputs["end"].numpy()[row], end)
        # A context of nothing.
        outputs = signatures["serving_default"](
            question=tf.constant(["the cat", " "]), context=tf.constant(["", " \t"])
        )
        self.assertAllEqual(outputs["answer"], [b"", b""])
        self.assertAllEqual(outputs["end"], [0, 0])


class SavedModelsTest(ServingTestCase):
    def test_an_empty_batch(self):
        for model, labels in (
            (BertClassifier(CONFIG, 2), ["no", "yes"]),
            (BertMultipleChoice(CONFIG), None),
            (BertSpanPredictor(CONFIG), None),
        ):
            signatures = self.served(model, labels)
            for name in signatures.keys() - {"tensors"}:
                given = {
                    one.name: tf.zeros([0, 2][: len(one.shape)], tf.string)
                    if one.dtype == tf.string
                    else tf.constant(2)
                    for one in signatures[name].input_signature
                }
                for value in signatures[name](**given).values():
                    self.assertEqual(value.shape[0], 0)


class WithoutVocabularyTest(ServingTestCase):
    def test_ids_alone(self):
        model = BertClassifier(CONFIG, 2)
        source = self.serving_source(model)
        os.remove(os.path.join(source.folder, "vocab.txt"))
        source = export.completed(export_test.open_source(source.folder))
        folder = os.path.join(self.get_temp_dir(), "ids")
        signatures = write_saved_model(
            folder, source, "classifier", Reading(max_seq_length=8)
        )
        self.assertCountEqual(signatures, ["tensors", "serving_default"])

    def test_several_heads(self):
        source = self.serving_source(BertPretrainer(CONFIG))
        self.assertEqual(head_to_serve(source), names.MASKED_LM)
        none = export.completed(source, heads=[])
        self.assertEqual(head_to_serve(none), "features")
        with self.assertRaisesRegex(InputError, "no tagging head"):
            export.completed(source, heads=[names.TAGGING])
