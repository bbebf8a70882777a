import os
import shutil

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.conversion.export import NewFolder, write_huggingface, write_kerashub
from bert_tf.conversion.source import (
    Format,
    find_format,
    folder_of,
    open_source,
    open_tokenizer,
)
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from tests.conversion import runs
from tests.conversion.runs import TOKENS
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy


class SourceTest(FolderCase):
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
        # A pickle next to it is not read.
        self.write("hugging_face/pytorch_model.bin", b"\x80\x04.")
        keras_hub = self.written("keras_hub", write_kerashub, source)
        prefix = os.path.join(run, "model.ckpt-3")
        for path, wanted, folder in (
            (run, Format.RUN, run),
            (prefix, Format.RUN, run),
            (prefix + ".index", Format.RUN, run),
            (hugging_face, Format.HUGGING_FACE, hugging_face),
            (f"{hugging_face}/model.safetensors", Format.HUGGING_FACE, hugging_face),
            (keras_hub, Format.KERAS_HUB, keras_hub),
            (f"{keras_hub}/model.weights.h5", Format.KERAS_HUB, keras_hub),
        ):
            self.assertEqual(find_format(path), wanted, path)
            self.assertEqual(folder_of(path), folder)
            opened = open_source(path)
            self.assertEqual(opened.config, toy.CONFIG, path)
            self.assertEqual(list(opened.tokenizer.vocabulary), TOKENS, path)
            self.assertEqual(set(opened.weights), set(source.weights), path)
            for name, values in source.weights.items():
                self.assertAllEqual(opened.weights[name], values)

    def test_what_is_no_checkpoint(self):
        folder = self.get_temp_dir()
        # A folder's name is neither a glob nor a format.
        pickle = self.write("[a]{x}/pytorch_model.bin", b"\x80\x04.")
        self.write("[a]{x}/config.json", {"model_type": "bert"})
        self.write("empty_state/checkpoint", "")
        os.makedirs(self.path("empty"))
        for name in ("flax/flax_model.msgpack", "pb/saved_model.pb"):
            self.write(name, b"")
        self.write("tf1/model.ckpt-1000000.index", b"")
        self.write("keras/model.h5", b"")
        self.write("all/model.keras", b"")
        self.write("weights/last.weights.h5", b"")
        # An adapter of PEFT, in sentence-transformers' folder.
        self.write("st/modules.json", [{"path": "0_Transformer"}])
        self.write("st/0_Transformer/adapter_config.json", {"peft_type": "IA3"})
        for path, message in (
            (self.path("flax"), "model.msgpack is .*from_flax=True.*model.safetensors"),
            (
                self.path("st"),
                "adapter_config.json: of PEFT's.*merge_and_unload",
            ),
            (self.path("pb"), "saved_model.pb is an exported model.*was made"),
            (self.path("keras"), "keras/model.h5 is a file of Keras.*bert_tf.save"),
            (self.path("keras/model.h5"), "keras/model.h5 is a file of Keras"),
            (self.path("all"), "all/model.keras is a file of Keras"),
            (self.path("all/model.keras"), "all/model.keras is a file of Keras"),
            (self.path("weights"), "last.weights.h5 is a file of Keras.*load_weights"),
            (self.path("tf1"), "Give one: .*/tf1/model.ckpt-1000000$"),
            (self.path("empty"), "empty: no checkpoint in this folder"),
            ("nowhere", "no nowhere.index"),
            (self.path("empty_state"), "checkpoint is damaged"),
            (os.path.dirname(pickle), "model.bin is a pickle.*`save_pretrained` write"),
            (pickle, "is a pickle"),
            (os.path.join(folder, "other.safetensors"), "give the folder of a checkpo"),
            (os.path.join(folder, "other.h5"), "give the folder of a checkpoint"),
        ):
            with self.assertRaisesRegex(InputError, message):
                open_source(path)

    def test_a_folder_of_several_runs_is_its_best_one(self):
        best = self.run_folder(BertPretrainer(toy.CONFIG))
        several = self.folder()
        shutil.move(best, os.path.join(several, "best"))
        with self.assertLogs(level="INFO") as logs:
            found = open_source(several)
        self.assertEqual(found.path, os.path.join(several, "best"))
        self.assertIn("holds several runs: the best one", logs.output[0])
        self.assertIn("bert/pooler/dense/kernel", found.weights)
        self.assertIsNotNone(open_tokenizer(several).vocabulary)
        # A run that has a checkpoint of its own is read, not its best one.
        own = self.run_folder(BertPretrainer(toy.CONFIG))
        shutil.copytree(found.path, os.path.join(own, "best"))
        self.assertEqual(open_source(own).folder, own)

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
