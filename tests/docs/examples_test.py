import contextlib
import doctest
import functools
import os
import tempfile
from unittest import mock

import keras
import numpy as np
from absl.testing import parameterized

import bert_tf
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.tasks import glue
from tests.training import toy

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENS = (*SPECIAL, "a", "good", "film", "is", "cat", ".", "what", "?")


def checkpoints():
    """Models by the folders that the examples name, each with its labels."""
    config = bert_tf.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=80,
        type_vocab_size=2,
    )
    return {
        "pretrained": (bert_tf.BertPretrainer(config), None),
        "classifier": (bert_tf.BertClassifier(config, 2), ["bad", "good"]),
        "squad_model": (bert_tf.BertSpanPredictor(config), None),
        "swag_model": (bert_tf.BertMultipleChoice(config), None),
        "tagger": (bert_tf.BertTagger(config, 3), ["O", "B-X", "I-X"]),
    }


class ExamplesTest(parameterized.TestCase):
    """Each public name's example, in a folder with the files that examples name."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        path = functools.partial(os.path.join, cls.folder)
        tokenizer = bert_tf.WordPieceTokenizer(bert_tf.Vocabulary(TOKENS))
        for name, (model, labels) in checkpoints().items():
            bert_tf.save(model, path(name), tokenizer, labels=labels, max_length=80)
        adapted = bert_tf.load_classifier(path("pretrained"), 2, lora_rank=2)
        write_adapter(
            path("run"), adapted, labels=("no", "yes"), problem_type=SINGLE_LABEL
        )
        toy.write_records(path("records.tfrecord"))

    @parameterized.named_parameters(
        (name, name) for name in sorted({*dir(bert_tf)} - {"__version__"})
    )
    def test_it_is_there_and_runs(self, name):
        self.enterContext(mock.patch.dict(glue.TASKS))
        names = {"bert_tf": bert_tf, "keras": keras, "np": np}
        text = getattr(bert_tf, name).__doc__
        example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
        self.assertNotEmpty(example.examples)
        said = []
        with contextlib.chdir(self.folder):
            doctest.DocTestRunner(verbose=False).run(example, out=said.append)
        self.assertEqual("".join(said), "")
