import contextlib
import doctest
from unittest import mock

import keras
import numpy as np

import bert_tf
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.tasks import glue
from tests.script_case import FolderCase
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


class ExamplesTest(FolderCase):
    def test_each_public_name_has_an_example_that_runs(self):
        tokenizer = bert_tf.WordPieceTokenizer(bert_tf.Vocabulary(TOKENS))
        for name, (model, labels) in checkpoints().items():
            bert_tf.save(
                model, self.path(name), tokenizer, labels=labels, max_length=80
            )
        adapted = bert_tf.load_classifier(self.path("pretrained"), 2, lora_rank=2)
        write_adapter(
            self.folder("run"), adapted, labels=("no", "yes"), problem_type=SINGLE_LABEL
        )
        toy.write_records(self.path("records.tfrecord"))
        self.enterContext(mock.patch.dict(glue.TASKS))

        parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
        for name in sorted({*dir(bert_tf)} - {"__version__"}):
            globs = {"bert_tf": bert_tf, "keras": keras, "np": np}
            example = parser.get_doctest(
                getattr(bert_tf, name).__doc__, globs, name, None, 0
            )
            with self.subTest(name), contextlib.chdir(self.get_temp_dir()):
                self.assertNotEmpty(example.examples)
                said = []
                runner.run(example, out=said.append)
                self.assertEqual("".join(said), "")
