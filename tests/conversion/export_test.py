import dataclasses
import json
import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, names
from bert_tf.conversion.loading import load_classifier
from bert_tf.conversion.source import load_tokenizer, open_source
from bert_tf.conversion.weights import Tensor, Weights
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from tests.conversion import runs
from tests.conversion.runs import TOKENS
from tests.modeling.examples import randomize
from tests.training import toy


class ExportTestCase(tf.test.TestCase):
    def source(self, model, name="run", labels=None, seed=7, **files):
        randomize(model, seed)
        folder = os.path.join(self.get_temp_dir(), name)
        return export.completed(
            open_source(runs.save(folder, model, labels=labels, **files))
        )

    def written(self, write, source, name="written"):
        folder = os.path.join(self.get_temp_dir(), name)
        with export.NewFolder(folder) as path:
            write(path, source)
        return folder

    def content(self, folder):
        paths = (
            os.path.join(root, name)
            for root, _, names_ in os.walk(folder)
            for name in names_
        )
        return {os.path.relpath(x, folder): files.read_bytes(x) for x in paths}


class RoundTripTest(ExportTestCase):
    def test_in_out_in_is_the_same_to_the_bit(self):
        models = (
            BertEncoder(toy.CONFIG),
            BertPretrainer(toy.CONFIG, next_sentence=False),
            BertClassifier(toy.CONFIG, 3),
        )
        for number, model in enumerate(models):
            labels = ["a", "b", "c"] if number == 2 else None
            source = self.source(model, f"run{number}", labels)
            for write in (export.write_tf1, export.write_huggingface):
                name = f"{write.__name__}{number}"
                once = self.written(write, source, name)
                opened = open_source(once)
                self.assertEqual(opened.config, toy.CONFIG)
                self.assertEqual(opened.labels, labels and tuple(labels))
                self.assertEqual(list(opened.tokenizer.vocabulary), TOKENS)
                weights = weights_by_name(model)
                self.assertEqual(set(opened.weights), set(weights))
                for key, weight in weights.items():
                    self.assertAllEqual(opened.weights[key], weight.numpy(), key)
                again = self.written(write, export.completed(opened), name + "again")
                self.assertEqual(self.content(again), self.content(once))

    def test_a_label_of_two_outputs_is_refused_wherever_it_stands(self):
        message = "3 outputs, its labels are a, b, a: each output needs one of its own."
        model = BertClassifier(toy.CONFIG, 3)
        with self.assertRaisesRegex(InputError, message):
            self.source(model, labels=["a", "b", "a"])
        source = self.source(model, "other", labels=["a", "b", "c"])
        folder = self.written(export.write_huggingface, source)
        path = pathlib.Path(folder, "config.json")
        path.write_text(path.read_text().replace('"c"', '"a"'))
        with self.assertRaisesRegex(InputError, message):
            open_source(folder)
        tokenizer = load_tokenizer(source)
        with self.assertRaisesRegex(InputError, message):
            export.save(
                model,
                os.path.join(self.get_temp_dir(), "saved"),
                tokenizer,
                labels=["a", "b", "a"],
            )

    def test_what_a_classifier_predicts_goes_along(self):
        of_two = {"0": "LABEL_0", "1": "LABEL_1"}
        for number, (problem_type, labels, num_labels, config) in enumerate(
            (
                (MULTI_LABEL, ["a", "b", "c"], 3, {"0": "a", "1": "b", "2": "c"}),
                (MULTI_LABEL, None, 2, of_two),
                (REGRESSION, None, 2, of_two),
                (REGRESSION, [], 1, {"0": "LABEL_0"}),
                (SINGLE_LABEL, ["a", "b"], 2, {"0": "a", "1": "b"}),
            )
        ):
            model = BertClassifier(toy.CONFIG, num_labels, problem_type=problem_type)
            is_told = problem_type == SINGLE_LABEL or labels == []
            told = None if is_told else problem_type
            source = self.source(model, f"run{number}", labels, problem_type=told)
            for write in (export.write_tf1, export.write_huggingface):
                name = f"{write.__name__}{number}"
                folder = self.written(write, source, name)
                opened = open_source(folder)
                found = (opened.labels, opened.classifier_problem_type())
                wanted = None if labels is None else tuple(labels)
                self.assertEqual(found, (wanted, problem_type))
                if write == export.write_huggingface:
                    loaded = load_classifier(opened)
                    self.assertEqual(loaded.problem_type, problem_type)
                    self.assertEqual(loaded.num_labels, num_labels)
                    text = pathlib.Path(folder, "config.json").read_text()
                    values = json.loads(text)
                    self.assertEqual(values["problem_type"], problem_type)
                    self.assertEqual(values["id2label"], config)
                else:
                    path = os.path.join(folder, "problem_type.txt")
                    self.assertEqual(os.path.exists(path), not is_told)

    def test_the_original_reads_tf1(self):
        model = BertPretrainer(toy.CONFIG)
        folder = self.written(export.write_tf1, self.source(model))
        prefix = os.path.join(folder, "bert_model.ckpt")
        weights = {k: weight.numpy() for k, weight in weights_by_name(model).items()}
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            # As its `init_from_checkpoint` does: variables of these names.
            variables = {
                name: tf.compat.v1.get_variable(name, values.shape)
                for name, values in weights.items()
            }
            saver = tf.compat.v1.train.Saver(variables)
            saver.restore(session, prefix)
            for name, variable in variables.items():
                self.assertAllEqual(session.run(variable), weights[name])
        names = ["bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"]
        names += ["bert_config.json", "export.json", "tokenizer_config.json"]
        self.assertCountEqual(os.listdir(folder), [*names, "vocab.txt"])

    def test_weights_of_half_precision_are_float32_outside(self):
        model = BertEncoder(toy.CONFIG)
        written = self.written(export.write_tf1, self.source(model))
        prefix = os.path.join(written, "bert_model.ckpt")
        for number, dtype in enumerate((tf.float16, tf.bfloat16)):
            halves = {
                name: tf.cast(weight.value, dtype)
                for name, weight in weights_by_name(model).items()
            }
            tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[*halves],
                shape_and_slices=[""] * len(halves),
                tensors=[*halves.values()],
            )
            opened = export.completed(open_source(written))
            for write in (export.write_tf1, export.write_huggingface):
                folder = self.written(write, opened, f"{write.__name__}{number}")
                for name, weight in open_source(folder).weights.items():
                    self.assertEqual(weight.dtype, np.float32)
                    self.assertAllEqual(weight, tf.cast(halves[name], tf.float32))
            reader = tf.train.load_checkpoint(
                os.path.join(self.get_temp_dir(), f"write_tf1{number}/bert_model.ckpt")
            )
            types = reader.get_variable_to_dtype_map().values()
            self.assertEqual({*types}, {tf.float32})


class ChecksTest(ExportTestCase):
    def test_what_the_original_cannot_compute_is_refused(self):
        for field, value in (
            ("hidden_act", "gelu_erf"),
            ("layer_norm_eps", 1e-5),
            ("left_to_right", True),
        ):
            config = dataclasses.replace(toy.CONFIG, **{field: value})
            source = self.source(BertEncoder(config), field, config=config)
            with self.assertRaisesRegex(InputError, f"cannot compute.*{field}={value}"):
                self.written(export.write_tf1, source)
        self.assertFalse(os.path.exists(os.path.join(self.get_temp_dir(), "written")))

    def test_heads_by_choice(self):
        source = self.source(BertPretrainer(toy.CONFIG))
        only = export.completed(source, heads=[names.MASKED_LM])
        self.assertEqual(names.heads_of(only.weights), [names.MASKED_LM])
        none = export.completed(source, heads=[])
        self.assertEqual(names.heads_of(none.weights), [])
        self.assertIn("bert/pooler/dense/kernel", none.weights)
        with self.assertRaisesRegex(InputError, "has no span head; it has: masked LM"):
            export.completed(source, heads=[names.SPAN])

    def test_labels_are_those_of_the_outputs(self):
        with self.assertRaisesRegex(InputError, "3 outputs, its labels are no, yes"):
            self.source(BertClassifier(toy.CONFIG, 3), "a", ["no", "yes"])
        with self.assertRaisesRegex(InputError, "3 outputs, .* as of a regression"):
            self.source(BertClassifier(toy.CONFIG, 3), "b", [])


class NewFolderTest(ExportTestCase):
    def new(self):
        return os.path.join(self.get_temp_dir(), "new")

    def write_file(self, *names):
        pathlib.Path(os.path.join(*names)).write_text("x")

    def fill(self, folder, made_from, error=None):
        new = export.NewFolder(folder)
        if new.is_done(made_from):
            return False
        with new as path:
            for number in range(3):
                self.write_file(path, f"file{number}")
            if error is not None:
                raise error
        return True

    def assert_refused(self, folder, made_from, message="is not empty"):
        with self.assertRaisesRegex(InputError, message):
            self.fill(folder, made_from)

    def test_an_error_leaves_nothing(self):
        with self.assertRaisesRegex(InputError, "full"):
            self.fill(self.new(), {"a": 1}, InputError("full"))
        self.assertEqual(os.listdir(self.get_temp_dir()), [])
        # An empty folder stays: it may be a mount.
        os.makedirs(self.new())
        with self.assertRaisesRegex(InputError, "full"):
            self.fill(self.new(), {"a": 1}, InputError("full"))
        self.assertEqual(os.listdir(self.new()), [])
        self.assertTrue(self.fill(self.new(), {"a": 1}))

    def test_what_a_kill_left_is_not_used_and_filled_again(self):
        folder = self.new()
        with self.assertRaises(KeyboardInterrupt):
            self.fill(folder, {"a": 1}, KeyboardInterrupt())
        self.write_file(folder, "half.tmp-123")
        with self.assertRaisesRegex(InputError, "its export was interrupted"):
            open_source(folder)
        self.assert_refused(folder, {"a": 2})
        self.assertTrue(self.fill(folder, {"a": 1}))
        whole = ["export.json", "file0", "file1", "file2"]
        self.assertCountEqual(os.listdir(folder), whole)
        self.assertFalse(self.fill(folder, {"a": 1}))

    def test_two_at_once(self):
        folder = self.new()
        second = export.NewFolder(folder)
        with export.NewFolder(folder) as path:
            with self.assertRaisesRegex(InputError, "another export is being"), second:
                pass
            self.write_file(path, "file")
        with self.assertRaisesRegex(InputError, "is not empty"), second:
            pass
        self.assertCountEqual(os.listdir(folder), ["file", "export.json"])

    def test_killed_while_emptying(self):
        folder = self.new()
        with self.assertRaises(KeyboardInterrupt):
            self.fill(folder, {"a": 1}, KeyboardInterrupt())
        remove = mock.Mock(side_effect=[None, KeyboardInterrupt])
        removed = mock.patch.object(files, "remove", lambda x: remove() or os.remove(x))
        with removed, self.assertRaises(KeyboardInterrupt):
            self.fill(folder, {"a": 1})
        self.assertTrue(self.fill(folder, {"a": 1}))

    def test_the_same_again_is_done_and_another_is_refused(self):
        folder = self.new()
        self.assertTrue(self.fill(folder, {"a": 1}))
        self.assertFalse(self.fill(folder, {"a": 1}))
        self.assert_refused(folder, {"a": 2})
        os.remove(os.path.join(folder, "file1"))
        self.assert_refused(folder, {"a": 1})
        runs.write_json({}, folder, "export.json")
        self.assert_refused(folder, {"a": 1})

    def test_identity_is_of_the_content(self):
        source = self.source(BertClassifier(toy.CONFIG, 2), "run", ["a", "b"])
        found = export.identity(source, {"format": "tf1"})
        replace = dataclasses.replace
        moved = replace(source, path="elsewhere", folder="there")
        self.assertEqual(export.identity(moved, {"format": "tf1"}), found)
        name = sorted(source.weights)[-1]
        changed = Tensor(
            source.weights.shapes[name], lambda: source.weights[name] + np.float32(1e-3)
        )
        weights = Weights("changed", {**source.weights.tensors, name: changed})
        for other in (
            replace(source, labels=("a", "c")),
            replace(source, weights=weights),
            replace(source, tokenizer=source.tokenizer._replace(do_lower_case=False)),
            replace(source, config=replace(toy.CONFIG, layer_norm_eps=1e-5)),
        ):
            self.assertNotEqual(export.identity(other, {"format": "tf1"}), found)
        self.assertNotEqual(export.identity(source, {"format": "onnx"}), found)
