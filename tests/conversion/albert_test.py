import dataclasses
import os

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, huggingface
from bert_tf.conversion.loading import (
    load_classifier,
    load_pretrainer,
    load_weights,
    read_model_files,
)
from bert_tf.conversion.source import load_tokenizer, open_source
from bert_tf.conversion.weights import Weights
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from tests.conversion import albert_weights, one_layer, runs
from tests.conversion.albert_weights import (
    ARRAYS,
    CONFIG,
    RECORD,
    TENSORS,
    THEIR_CONFIG,
)
from tests.conversion.runs import TOKENS, ModelFlags, save_tf1, write_json
from tests.modeling.examples import relative_error

RELEASED_CONFIG = """
{"attention_probs_dropout_prob": 0, "hidden_act": "gelu", "hidden_dropout_prob": 0,
"embedding_size": 4, "hidden_size": 8, "initializer_range": 0.02, "gap_size": 0,
"intermediate_size": 12, "max_position_embeddings": 6, "num_attention_heads": 2,
"num_hidden_layers": 3, "num_hidden_groups": 1, "net_structure_type": 0,
"num_memory_blocks": 0, "inner_group_num": 1, "down_scale_factor": 1,
"type_vocab_size": 2, "vocab_size": 11}
"""


class AlbertTestCase(runs.PeerCase):
    peer = albert_weights

    def released(self):
        """A folder as Google released ALBERT's, with an optimizer's slots in it."""
        self.write("albert_base/albert_config.json", RELEASED_CONFIG)
        self.write("albert_base/30k-clean.model", b"pieces")
        slot = {"bert/pooler/dense/kernel/adam_m": np.zeros((8, 8), np.float32)}
        arrays = ARRAYS | slot | {"global_step": np.int64(3)}
        save_tf1(self.path("albert_base/model.ckpt-best"), arrays)
        return self.path("albert_base")

    def check_logits(self, model):
        outputs = model(RECORD)
        for name, expected in (
            ("masked_lm_logits", albert_weights.PREDICTION_LOGITS),
            ("next_sentence_logits", albert_weights.SOP_LOGITS),
        ):
            self.assertLess(relative_error(outputs[name][0], expected), 1e-5)


class HuggingFaceTest(AlbertTestCase):
    def test_their_logits(self):
        self.check_logits(load_pretrainer(self.hugging_face()))

    def test_out_are_the_tensors_and_the_settings_that_came_in(self):
        self.check_out_and_in()

    def test_every_head(self):
        for head, name in (
            ("classifier", "AlbertForSequenceClassification"),
            ("span", "AlbertForQuestionAnswering"),
            ("multiple choice", "AlbertForMultipleChoice"),
            ("tagging", "AlbertForTokenClassification"),
        ):
            arrays = {k: x for k, x in ARRAYS.items() if not k.startswith("cls/")}
            if head in ("span", "tagging"):
                arrays = {k: x for k, x in arrays.items() if "/pooler/" not in k}
            for line in one_layer.lines(one_layer.HEADS[head]):
                arrays[line.original] = np.full(line.shape, 0.5, np.float32)
            weights = Weights("somewhere", one_layer.tensors_of(arrays))
            self.assertEqual(huggingface.architecture_of(weights, CONFIG), name)
            folder = self.folder(name)
            values = huggingface.to_config(CONFIG, name, num_labels=3)
            huggingface.write(folder, weights, CONFIG, values)
            config, values = huggingface.read_config(folder)
            self.assertEqual(config, CONFIG)
            if head != "span":
                self.assertEqual(values["classifier_dropout_prob"], 0.1)
            read = huggingface.read_weights(folder, config, values)
            self.assertEqual(set(read), set(arrays))

    def test_tied_weights_and_what_cannot_be_read(self):
        words = TENSORS["albert.embeddings.word_embeddings.weight"]
        copy = {"predictions.decoder.weight": words}
        folder = self.hugging_face()
        path = os.path.join(folder, "model.safetensors")
        safetensors.numpy.save_file(TENSORS | copy, path)
        self.assertEqual(set(open_source(folder).weights), set(ARRAYS))
        untied = {"predictions.decoder.weight": words + 1}
        safetensors.numpy.save_file(TENSORS | untied, path)
        found = open_source(folder).weights
        self.assertEqual(set(found), {*ARRAYS, "cls/predictions/output_weights"})
        self.assertAllEqual(found["cls/predictions/output_weights"], words + 1)
        for fields, message in (
            ({"num_hidden_groups": 3}, "`num_hidden_groups` must be 1.* Received: 3"),
            ({"embedding_size": 8}, "embedding_hidden_mapping_in"),
            ({"model_type": "roberta"}, "must be 'bert' or 'albert' or 'electra'."),
        ):
            write_json(THEIR_CONFIG | fields, folder, "config.json")
            safetensors.numpy.save_file(TENSORS, path)
            with self.assertRaisesRegex(InputError, message):
                open_source(folder)

    def test_what_the_config_does_not_say_is_as_transformers_has_it(self):
        folder = self.folder("empty")
        write_json({"model_type": "albert"}, folder, "config.json")
        # AlbertConfig(), whose sizes are albert-xxlarge's.
        expected = BertConfig(
            vocab_size=30000,
            embedding_size=128,
            hidden_size=4096,
            num_hidden_layers=12,
            num_attention_heads=64,
            intermediate_size=16384,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            type_vocab_size=2,
            num_hidden_groups=1,
            inner_group_num=1,
        )
        self.assertEqual(huggingface.read_config(folder)[0], expected)

    def test_other_programs_compute_other_models(self):
        arrays = one_layer.random_weights(one_layer.lines_of("BertModel"))
        weights = Weights("somewhere", one_layer.tensors_of(arrays))
        source = open_source(self.hugging_face())
        source = dataclasses.replace(source, weights=weights)
        for config, message in (
            (CONFIG, "computes only embedding_size=None"),
            (dataclasses.replace(CONFIG, left_to_right=True), "left_to_right"),
        ):
            other = dataclasses.replace(source, config=config)
            with self.assertRaisesRegex(InputError, message):
                export.write_kerashub("nowhere", other)
        with self.assertRaisesRegex(InputError, "is never left-to-right"):
            huggingface.to_config(config, "AlbertModel")


class ReleaseTest(AlbertTestCase):
    def test_their_logits(self):
        self.check_logits(load_pretrainer(self.released()))

    def test_out_are_the_tensors_that_came_in(self):
        folder = self.folder("ours")
        export.write_tf1(folder, export.completed(open_source(self.released())))
        reader = tf.train.load_checkpoint(os.path.join(folder, "bert_model.ckpt"))
        self.assertEqual(set(reader.get_variable_to_shape_map()), set(ARRAYS))
        for name, array in ARRAYS.items():
            self.assertAllEqual(reader.get_tensor(name), array)
        self.assertEqual(open_source(folder).config, CONFIG)

    def test_text_needs_a_vocabulary_of_word_pieces(self):
        folder = self.released()
        message = "30k-clean.model is a SentencePiece vocabulary.*`vocab_file`"
        with self.assertRaisesRegex(InputError, message):
            load_tokenizer(folder)
        with self.assertRaisesRegex(InputError, message):
            read_model_files(ModelFlags(init_checkpoint=folder), self.folder("run"))
        path = self.write("own.txt", "".join(f"{token}\n" for token in TOKENS))
        given = ModelFlags(init_checkpoint=folder, vocab_file=path)
        found = read_model_files(given, self.folder("other_run"))
        self.assertEqual(found.config, CONFIG)
        self.assertEqual(list(found.vocabulary), TOKENS)
        # The weights need none.
        self.assertEqual(load_classifier(folder, 2).bert_config, CONFIG)

    def test_another_number_of_layers_is_refused_though_the_weights_fit(self):
        other = dataclasses.replace(CONFIG, num_hidden_layers=4)
        with self.assertRaisesRegex(InputError, "trained with num_hidden_layers=3"):
            load_weights(BertPretrainer(other), self.released())
        with self.assertRaisesRegex(InputError, "does not fit the model.*4.*here"):
            load_weights(BertEncoder(one_layer.CONFIG), self.hugging_face())
