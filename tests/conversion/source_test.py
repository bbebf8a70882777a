import os
import pathlib

import numpy as np
import tensorflow as tf

from bert_tf.conversion.export import NewFolder, write_huggingface, write_kerashub
from bert_tf.conversion.source import Format, find_format, folder_of, open_source
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from tests.conversion import runs
from tests.conversion.runs import TOKENS, randomize
from tests.training import toy


class SourceTest(tf.test.TestCase):
    def run_folder(self, model=None):
        model = model or BertEncoder(toy.CONFIG)
        randomize(model)
        return runs.save(os.path.join(self.get_temp_dir(), "run"), model)

    def written(self, name, write, source):
        folder = os.path.join(self.get_temp_dir(), name)
        with NewFolder(folder) as path:
            write(path, source)
        return folder

    def test_the_format_shows_in_the_files(self):
        run = self.run_folder()
        source = open_source(run)
        hugging_face = self.written("hugging_face", write_huggingface, source)
        keras_hub = self.written("keras_hub", write_kerashub, source)
        prefix = os.path.join(run, "model.ckpt-3")
        for path, wanted, folder in (
            (run, Format.RUN, run),
            (prefix, Format.RUN, run),
            (prefix + ".index", Format.RUN, run),
            (hugging_face, Format.HUGGING_FACE, hugging_face),
            (
                os.path.join(hugging_face, "model.safetensors"),
                Format.HUGGING_FACE,
                hugging_face,
            ),
            (keras_hub, Format.KERAS_HUB, keras_hub),
            (os.path.join(keras_hub, "model.weights.h5"), Format.KERAS_HUB, keras_hub),
        ):
            self.assertEqual(find_format(path), wanted, path)
            self.assertEqual(folder_of(path), folder)
            opened = open_source(path)
            self.assertEqual(opened.config, toy.CONFIG, path)
            self.assertEqual(list(opened.tokenizer.vocabulary), TOKENS, path)
            self.assertEqual(set(opened.weights), set(source.weights), path)
            for name, values in source.weights.items():
                self.assertAllEqual(opened.weights[name], values)

    def test_a_file_stands_for_its_folder_by_its_own_name(self):
        folder = self.run_folder()
        for name in ("other.safetensors", "other.h5"):
            path = os.path.join(folder, name)
            with self.assertRaisesRegex(InputError, "give the folder of a checkpoint"):
                open_source(path)

    def test_nothing_there(self):
        empty = os.path.join(self.get_temp_dir(), "empty")
        os.makedirs(empty)
        with self.assertRaisesRegex(InputError, "empty: no checkpoint in this folder"):
            open_source(empty)
        with self.assertRaisesRegex(InputError, "no nowhere.index"):
            open_source("nowhere")

    def test_an_empty_state_file_is_one_line(self):
        with open(os.path.join(self.get_temp_dir(), "checkpoint"), "w"):
            pass
        with self.assertRaisesRegex(InputError, "checkpoint is damaged"):
            open_source(self.get_temp_dir())

    def test_pickles_are_not_opened(self):
        folder = os.path.join(self.get_temp_dir(), "pickled")
        os.makedirs(folder)
        path = os.path.join(folder, "pytorch_model.bin")
        pathlib.Path(path).write_bytes(b"\x80\x04.")
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write('{"model_type": "bert"}')
        for given in (folder, path):
            with self.assertRaisesRegex(InputError, "is a pickle"):
                open_source(given)

    def test_a_damaged_tensor_is_named(self):
        model = BertPretrainer(toy.CONFIG)
        folder = self.run_folder(model)
        (data,) = tf.io.gfile.glob(os.path.join(folder, "*.data-*"))
        with open(data, "r+b") as file:
            file.truncate(1000)
        weights = open_source(folder).weights
        with self.assertRaisesRegex(InputError, "ckpt-3 is damaged: .*cannot be read"):
            for name in weights_by_name(model):
                np.asarray(weights[name])
